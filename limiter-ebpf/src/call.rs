//! Calls of subprograms. Separate from their definitions, which name types of all files that call
//! them.

/// Calls a subprogram, like `call!` of `limiter-decision`. `here` means that the subprogram is in a
/// list of the same file.
macro_rules! call {
    (here $($subprogram:tt)*) => { $crate::call::call!(@ (call) $($subprogram)*) };
    (@ ($($call:tt)*) $($subprogram:tt)*) => {
        limiter_decision::call!(
            in ($($call)*), limiter_decision::maps::Maps::out_parameter(&$crate::maps::Kernel);
            $($subprogram)*
        )
    };
    ($($subprogram:tt)*) => { $crate::call::call!(@ ($crate::subprograms::call) $($subprogram)*) };
}

pub(crate) use call;
