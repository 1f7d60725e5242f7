//! Calls of steps. Apart from their definitions, which name the types of all files that call them.

/// Calls a step, as `step!` of `limiter-decision` does. In the XDP program, what stands before the
/// semicolon is not evaluated. `here` says that the step is of a list in the same file.
#[cfg(not(target_arch = "bpf"))]
macro_rules! step {
    (here $($step:tt)*) => { $crate::step::step!($($step)*) };
    ($name:ident($($given:expr),*; $($argument:expr),*)) => {
        $name($($given,)* $($argument),*)
    };
}

/// Calls a step, as `step!` of `limiter-decision` does. In the XDP program, what stands before the
/// semicolon is not evaluated. `here` says that the step is of a list in the same file.
#[cfg(target_arch = "bpf")]
macro_rules! step {
    (here $name:ident($($given:expr),*; $($argument:expr),*)) => {
        // Never taken: this gives the answer its type.
        if false {
            $name($($given,)* $($argument),*)
        } else {
            limiter_decision::register::Answer::of_register(
                call::$name($($argument),*),
                &$crate::world::Kernel,
            )
        }
    };
    ($name:ident($($given:expr),*; $($argument:expr),*)) => {
        if false {
            $name($($given,)* $($argument),*)
        } else {
            limiter_decision::register::Answer::of_register(
                $crate::steps::call::$name($($argument),*),
                &$crate::world::Kernel,
            )
        }
    };
}

pub(crate) use step;
