//! Calls of steps. Apart from their definitions, which name the types of all files that call them.

/// Calls a step, as `step!` of `limiter-decision` does. `here` says that the step is of a list in
/// the same file.
macro_rules! step {
    (here $($step:tt)*) => { $crate::step::step!(@ (call) $($step)*) };
    (@ ($($call:tt)*) $($step:tt)*) => {
        limiter_decision::step!(
            in ($($call)*), limiter_decision::world::Maps::aside(&$crate::world::Kernel);
            $($step)*
        )
    };
    ($($step:tt)*) => { $crate::step::step!(@ ($crate::steps::call) $($step)*) };
}

pub(crate) use step;
