//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::run::{Effort, State};

pub(super) fn markdown(effort: &Effort, states: &[State]) -> String {
    let mut page = format!(
        "The daemon with {} tracked sources, and another one whose rule sets come and go; each \
         state is watched for {} s. \
         *Resident* is all of it, *its own* what is not mapped from its binary and libraries, *at \
         most* what was resident \
         at one time since its start. Processor time is that of the threads that live at the \
         end.\n\n\
         | | resident, MB | its own, MB | at most, MB | % of a CPU |\n|---|--:|--:|--:|--:|\n",
        thousands(effort.sources.into()),
        effort.watched.as_secs()
    );
    for state in states {
        let memory = state.memory;
        let processor = state.processor.map_or_else(String::new, |share| format!("{share:.2}"));
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            page,
            "| {} | {:.1} | {:.1} | {:.1} | {processor} |",
            state.name,
            memory.resident / 1e6,
            memory.own / 1e6,
            memory.peak / 1e6,
        );
    }
    page
}
