//! The call of a step: see [`mod@crate::steps`].

/// Calls a step: see [`mod@crate::steps`].
#[cfg(not(target_arch = "bpf"))]
macro_rules! step {
    ($name:ident($($given:expr),*; $($argument:expr),*)) => {
        $name($($given,)* $($argument),*)
    };
}

/// Calls a step: see [`mod@crate::steps`].
#[cfg(target_arch = "bpf")]
macro_rules! step {
    ($name:ident($world:expr $(, $given:expr)*; $($argument:expr),*)) => {
        // Never taken: it says of what type the answer is.
        if false {
            $name($world $(, $given)* $(, $argument)*)
        } else {
            $crate::register::Answer::of_register(
                $crate::steps::call::$name($($argument),*),
                $world,
            )
        }
    };
    ($name:ident(; $($argument:expr),*)) => {
        if false {
            $name($($argument),*)
        } else {
            $crate::register::Answer::of_register(
                $crate::steps::call::$name($($argument),*),
                &(),
            )
        }
    };
}

pub(crate) use step;
