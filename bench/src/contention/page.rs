//! The report of the measurement.

use std::fmt::Write as _;

use super::run::{Effort, Row};
use crate::spread::Spread;

pub(super) fn markdown(rows: &[Row], effort: &Effort) -> String {
    let (rounds, millis) = (effort.rounds, effort.time.as_millis());
    let mut page = format!(
        "`BPF_PROG_TEST_RUN` from one thread on each CPU, all at once, on the same maps; before \
         each such run one CPU \
         does the same alone. Only system calls that fell into the time of all threads count. The \
         median of {rounds} \
         rounds of {millis} ms each, with lowest and highest in brackets. *Over one* is the \
         packets a second of all \
         CPUs over those of one; *empty over one* is the same of a program that only drops, so \
         what the machine gives. \
         *One word* is what an atomic addition takes each of them while all add to the same word: \
         it says how far \
         the CPUs are from each other, and changes when a host moves virtual ones. \
         A row counts only if 99 % of its packets left with the reason that is named.\n\n\
         | | CPUs | reason | one CPU, ns | each of them, ns | over one | empty over one | one \
         word, ns |\n\
         |---|--:|---|--:|--:|--:|--:|--:|\n"
    );
    for row in rows {
        // Writing to a string cannot fail.
        let _infallible = writeln!(
            page,
            "| {} | {} | `{}` | {} | {} | {} | {} | {} |",
            row.name,
            row.cpus,
            row.reason.name(),
            spread(row.alone, 0),
            spread(row.each, 0),
            spread(row.ratio, 2),
            spread(row.empty, 2),
            spread(row.word, 0),
        );
    }
    page
}

fn spread(Spread { median, low, high }: Spread, digits: usize) -> String {
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}
