//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::run::Results;
use crate::spread::Spread;

/// Maps that are smaller are summed up.
const LARGE: u64 = 1 << 20;

pub(super) fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    let rounds = results.rounds;
    writeln!(
        page,
        "*Accounted* is what the kernel accounts for a map (`memlock`), over its entries; all of \
         it is taken at the \
         start, and a source that comes takes nothing more. *Of the machine* is how much more \
         unreclaimable slab, \
         vmalloc and per-CPU memory there is in /proc/meminfo, over the sources: the median of \
         {rounds} rounds, with \
         lowest and highest in brackets. Peers are measured so, with {} sources that sent a \
         packet each.\n",
        thousands(results.peer_sources.into())
    )?;
    writeln!(page, "| bytes for each | accounted | of the machine |")?;
    writeln!(page, "|---|--:|--:|")?;
    writeln!(page, "| IPv4 source | {:.1} | |", results.v4)?;
    writeln!(page, "| IPv6 source | {:.1} | |", results.v6)?;
    writeln!(
        page,
        "| source of either family, or compact key, in lines | {:.1} | |",
        results.line
    )?;
    let both = results.v4 + results.v6;
    writeln!(
        page,
        "| one of each: both tables have the same size | {both:.1} | {} |",
        spread(results.both)
    )?;
    writeln!(page, "| more when the source is seen | 0 | {} |", spread(results.seen))?;
    writeln!(page, "| compact key | {:.1} | |", results.compact)?;
    writeln!(page, "| any other key of a table | {:.1} | |", results.key)?;
    writeln!(page, "| flow, where new flows are counted | {:.1} | |", results.flow)?;
    for (name, bytes) in &results.peers {
        let bytes = bytes.map_or_else(|| "not on this machine".to_owned(), spread);
        writeln!(page, "| source, {name} | | {bytes} |")?;
    }
    let all: u64 = results.maps.iter().map(|(_, bytes)| bytes).sum();
    writeln!(
        page,
        "\nWith sources in hash maps and otherwise the defaults (262,144 sources a family, 65,536 \
         keys, 16,384 rules) the maps \
         take {}, and the program {}:\n",
        megabytes(all),
        megabytes(results.program)
    )?;
    writeln!(page, "| map | MB |\n|---|--:|")?;
    let (large, small): (Vec<_>, Vec<_>) =
        results.maps.iter().partition(|(_, bytes)| *bytes >= LARGE);
    for (name, bytes) in &large {
        writeln!(page, "| `{name}` | {} |", mega(*bytes))?;
    }
    let rest: u64 = small.iter().map(|(_, bytes)| bytes).sum();
    writeln!(page, "| {} others | {} |", small.len(), mega(rest))
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", mega(bytes))
}

#[expect(clippy::cast_precision_loss, reason = "bytes of memory are far under 2^52")]
fn mega(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn spread(Spread { median, low, high }: Spread) -> String {
    format!("{median:.1} ({low:.1} to {high:.1})")
}
