//! The call of a subprogram: see [`mod@crate::subprograms`].

/// Calls a subprogram: see [`mod@crate::subprograms`].
///
/// The XDP program does not evaluate what stands before the semicolon. So the macro takes only
/// names there, of which the first one may be a reference: no other expression compiles.
///
/// Another list of subprograms says where its functions are, and the part of an answer that has no
/// room in a register.
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
        // Never taken: it says of what type the answer is.
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
