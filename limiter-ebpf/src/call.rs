//! Calls of subprograms. Apart from their definitions, which name the types of all files that call
//! them.

/// Calls a subprogram, as `call!` of `limiter-decision` does. `here` says that the subprogram is of
/// a list in the same file.
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
