//! The call of a step: see [`mod@crate::steps`].

/// Calls a step: see [`mod@crate::steps`].
///
/// The XDP program does not evaluate what stands before the semicolon. So the macro takes only
/// names there, of which the first one may be a reference: no other expression compiles.
///
/// Another list of steps says where its functions are, and the part of an answer that has no room
/// in a register.
#[macro_export]
macro_rules! step {
    (in ($($call:tt)*), $aside:expr; $name:ident(
        $(& $world:ident)? $(,)? $($given:ident),*; $($argument:expr),*
    )) => {
        $crate::cross!(($($call)*), $aside, $name($(&$world,)? $($given,)*; $($argument),*))
    };
    ($name:ident(; $($argument:expr),*)) => {
        $crate::step!(in ($crate::steps::call), None; $name(; $($argument),*))
    };
    ($name:ident($world:ident $(, $given:ident)*; $($argument:expr),*)) => {
        $crate::step!(
            in ($crate::steps::call), $world.aside();
            $name($world $(, $given)*; $($argument),*)
        )
    };
}

/// The call of a step, as [`step!`] has taken it apart.
#[cfg(not(target_arch = "bpf"))]
#[doc(hidden)]
#[macro_export]
macro_rules! cross {
    (($($call:tt)*), $aside:expr, $name:ident($($given:expr,)*; $($argument:expr),*)) => {
        $name($($given,)* $($argument),*)
    };
}

/// The call of a step, as [`step!`] has taken it apart.
#[cfg(target_arch = "bpf")]
#[doc(hidden)]
#[macro_export]
macro_rules! cross {
    (($($call:tt)*), $aside:expr, $name:ident($($given:expr,)*; $($argument:expr),*)) => {
        // Never taken: it says of what type the answer is.
        if false {
            $name($($given,)* $($argument),*)
        } else {
            $crate::register::Register::with_aside(
                $crate::register::Register::of_register($($call)*::$name($($argument),*)),
                || $aside,
            )
        }
    };
}

pub(crate) use step;
