//! The call of a subprogram: see [`mod@crate::subprograms`].

/// Calls a subprogram: see [`mod@crate::subprograms`].
///
/// The XDP program does not evaluate what precedes the semicolon. So the macro accepts only names
/// there, of which the first may be a reference; other expressions do not compile.
///
/// Another list of subprograms gives the place of its functions, and of the part of an answer that
/// does not fit into a register.
#[macro_export]
macro_rules! call {
    (in ($($call:tt)*), $out:expr; $name:ident(
        $(& $maps:ident)? $(,)? $($given:ident),*; $($argument:expr),*
    )) => {
        $crate::cross!(($($call)*), $out, $name($(&$maps,)? $($given,)*; $($argument),*))
    };
    ($name:ident(; $($argument:expr),*)) => {
        $crate::call!(in ($crate::subprograms::call), None; $name(; $($argument),*))
    };
    ($name:ident($maps:ident $(, $given:ident)*; $($argument:expr),*)) => {
        $crate::call!(
            in ($crate::subprograms::call), $maps.out_parameter();
            $name($maps $(, $given)*; $($argument),*)
        )
    };
}

/// The call of a subprogram, as [`call!`] has taken it apart.
#[cfg(not(target_arch = "bpf"))]
#[doc(hidden)]
#[macro_export]
macro_rules! cross {
    (($($call:tt)*), $out:expr, $name:ident($($given:expr,)*; $($argument:expr),*)) => {
        $name($($given,)* $($argument),*)
    };
}

/// The call of a subprogram, as [`call!`] has taken it apart.
#[cfg(target_arch = "bpf")]
#[doc(hidden)]
#[macro_export]
macro_rules! cross {
    (($($call:tt)*), $out:expr, $name:ident($($given:expr,)*; $($argument:expr),*)) => {
        // Never taken: it only determines the type of the answer.
        if false {
            $name($($given,)* $($argument),*)
        } else {
            $crate::register::Register::with_out_parameter(
                $crate::register::Register::of_register($($call)*::$name($($argument),*)),
                || $out,
            )
        }
    };
}

pub(crate) use call;
