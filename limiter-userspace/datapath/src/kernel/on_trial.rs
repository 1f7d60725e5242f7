//! A rule set on trial, its outcome, and a trial that a daemon left behind.

use limiter_common::time::Ticks;
use limiter_common::wire::{Control, RuleSetHeader};
use limiter_rules::Installed;

use crate::DatapathError;
use crate::maps::Maps;
use crate::maps::words::header_of;

#[derive(Debug)]
pub(crate) struct Trial {
    pub(crate) before: Installed,
    /// Rule numbers that the trial began.
    pub(crate) begun: Vec<u32>,
    /// Rule numbers that the trial ended.
    pub(crate) ended: Vec<u32>,
    pub(crate) end: Ticks,
}

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrialOutcome {
    /// The rule set stays.
    Confirmed,
    /// The rule set before is in force again.
    Reverted,
}

/// Ends a trial that a daemon left behind: nobody is there to confirm it, so the previous rule set
/// is put in force. Returns the generation in force.
pub(crate) fn settle(maps: &mut Maps, generation: u64) -> Result<u64, DatapathError> {
    let header = RuleSetHeader::from_raw(maps.control(header_of(generation))?);
    if !header.is_on_trial() {
        return Ok(generation);
    }
    maps.set_control(Control::TrialEnd, 0)?;
    maps.set_control(Control::Generation, generation + 1)?;
    Ok(generation + 1)
}
