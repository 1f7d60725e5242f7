//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::contender::Contender;
use super::run::{Effort, Row};
use crate::spread::Spread;

pub(super) fn markdown(rows: &[Row], effort: &Effort) -> String {
    let (rounds, decisions) =
        (effort.rounds, thousands(u64::try_from(effort.decisions).unwrap_or(0)));
    let mut page = format!(
        "One thread, all limiters in one process, in turn: {rounds} rounds of {decisions} \
         decisions each, the median with lowest and highest in brackets. Each user, chosen by \
         chance, may make 100 requests a second; all were seen before. limiter takes a request as `limiter serve` \
         does and finds its rule; limitador takes a map of values and evaluates its expression; \
         governor takes the name of the user, and has no rules.\n\n\
         | users | | a decision, ns | a second | over limiter | passed, % |\n\
         |--:|---|--:|--:|--:|--:|\n"
    );
    for row in rows {
        for (number, contender) in Contender::ALL.iter().enumerate() {
            let each = row.each[number];
            let ratio = number.checked_sub(1).map(|number| row.ratios[number]);
            // Writing to a string cannot fail.
            let _infallible = writeln!(
                page,
                "| {} | {} | {} | {:.1} million | {} | {:.0} |",
                thousands(u64::try_from(row.users).unwrap_or(0)),
                contender.name(),
                spread(each, 0),
                1000.0 / each.median,
                ratio.map_or_else(|| "1".to_owned(), |ratio| spread(ratio, 2)),
                row.passed[number].median,
            );
        }
    }
    page
}

pub(super) fn spread(Spread { median, low, high }: Spread, digits: usize) -> String {
    format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
}
