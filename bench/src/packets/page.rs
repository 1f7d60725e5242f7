//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::run::{Results, Row};
use crate::spread::Spread;

pub(super) fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    let (rounds, packets) = (results.rounds, thousands(results.packets.into()));
    writeln!(
        page,
        "Nanoseconds a packet as the kernel reports them (`BPF_PROG_TEST_RUN`), the median of \
         {rounds} rounds of \
         {packets} packets, with lowest and highest in brackets. In each round the three programs \
         take turns. *Empty* \
         only drops; what it takes is the loop of the kernel and the other source of each packet. \
         *Least* reads the \
         clock, parses, and looks the source up once in a map like limiter's; under *Keyed rules* it \
         parses to the port, and looks up one key of 16 bytes; *beside charging by hand* it looks up \
         as many keys as there are rules, and charges each; of *each packet another* it looks for \
         the source in a map of 16,384, and reads and writes a word of 16.8 MB. *Ratio* is limiter \
         over *least*; *net* \
         is the same without *empty*. A row counts only if 99 % of its packets left with the \
         reason that is \
         named.\n"
    )?;
    let mut group = "";
    for row in &results.rows {
        if row.group != group {
            group = row.group;
            writeln!(page, "\n### {group}\n")?;
            writeln!(page, "| | reason | empty | least | limiter | ratio | net |")?;
            writeln!(page, "|---|---|--:|--:|--:|--:|--:|")?;
        }
        line(page, row)?;
    }
    Ok(())
}

fn line(page: &mut String, row: &Row) -> std::fmt::Result {
    let net = (row.limiter.median - row.empty.median) / (row.reference.median - row.empty.median);
    writeln!(
        page,
        "| {} | `{}` | {} | {} | {} | {} | {net:.1} |",
        row.name,
        row.reason.name(),
        nanos(row.empty),
        nanos(row.reference),
        nanos(row.limiter),
        ratio(row.ratio),
    )
}

fn nanos(spread: Spread) -> String {
    format!("{:.0} ({:.0} to {:.0})", spread.median, spread.low, spread.high)
}

fn ratio(spread: Spread) -> String {
    format!("{:.2} ({:.2} to {:.2})", spread.median, spread.low, spread.high)
}
