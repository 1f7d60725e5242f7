//! The report of the measurement.

use std::fmt::Write as _;

use limiter_tests::sandbox::format::thousands;

use super::conforming::{Cell, FLOODING, PER_SECOND};
use super::contender::{Limit, PORT, Tool};
use super::cost::Table;
use super::effort::Flood;
use super::run::Results;
use crate::spread::Spread;

pub(super) fn markdown(results: &Results) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, results);
    page
}

fn write(page: &mut String, results: &Results) -> std::fmt::Result {
    costs(page, results)?;
    keyed(page, results)?;
    capacities(page, results)?;
    conforming(page, results)?;
    rules(page, results)
}

fn costs(page: &mut String, results: &Results) -> std::fmt::Result {
    let (rounds, slice) = (results.effort.rounds, results.effort.slice.as_millis());
    let steal = results.steal * 100.0;
    writeln!(
        page,
        "Real packets over a veth pair between two network namespaces: UDP over IPv4, 60 bytes. \
         Generator, cable and \
         receiver are on one CPU, so a packet's whole way is in its figure. Every source may send \
         one packet an hour and \
         has sent it, so everything is dropped; *no filter* is a socket that nobody reads. The \
         median of {rounds} rounds \
         of {slice} ms with lowest and highest in brackets; in each round the tools take turns. \
         *Own* is a tool's whole \
         way without that of the bare drop in the same round. A run counts only if the receiving \
         interface has seen \
         every packet that was sent and none of them came past the filter, and the measurement \
         only if exactly one packet \
         of each source passed before (with lines, of 999 in 1,000: the others share a bucket). \
         The host gave {steal:.1} % of the time to others.\n"
    )?;
    for table in &results.tables {
        cost(page, (table.mix.name, table), (&Tool::ALL, Tool::Limiter))?;
    }
    Ok(())
}

fn keyed(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        page,
        "### A rule by port and source\n\nMeasured in the same way: every source may send one \
         packet an hour to port {PORT} of UDP. In nft and iptables it is the rule by source with \
         `udp dport {PORT}`, `-p udp --dport {PORT}` before it. With four rules, a packet is \
         charged to a rule by port, one by protocol and one by code point, all by source and within \
         the limit, and the fourth one, by time to live and source, drops it.\n"
    )?;
    for table in &results.keyed {
        cost(page, (table.mix.name, table), (&Tool::ALL, Tool::Limiter))?;
    }
    Ok(())
}

/// A table under a heading; its last column is over the own cost of a tool of limiter's.
pub(super) fn cost(
    page: &mut String,
    (heading, table): (&str, &Table),
    (tools, ours): (&[Tool], Tool),
) -> std::fmt::Result {
    writeln!(page, "### {heading}\n")?;
    writeln!(page, "| | whole way, ns | million a second | own, ns | own, over limiter's |")?;
    writeln!(page, "|---|--:|--:|--:|--:|")?;
    let ours = table.own(ours).map_or(f64::NAN, |own| own.median);
    for &tool in tools {
        let (Some(total), Some(own)) = (table.total(tool), table.own(tool)) else { continue };
        let millions = 1e3 / total.median;
        write!(page, "| {} | {} | {millions:.2} | ", tool.name(), nanos(total))?;
        match tool {
            _ if tool.is_bare() => writeln!(page, "0 | |")?,
            Tool::Nothing => writeln!(page, "{} | |", nanos(own))?,
            _ => writeln!(page, "{} | {:.1} |", nanos(own), own.median / ours)?,
        }
    }
    writeln!(page)
}

fn nanos(spread: Spread) -> String {
    format!("{:.0} ({:.0} to {:.0})", spread.median, spread.low, spread.high)
}

fn capacities(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        page,
        "### The receive side alone\n\n10,000 sources, all over their limit. One CPU sends as \
         fast as it can, the other \
         one receives (the interface's NAPI thread). What took nearly all that it was offered \
         could take more.\n"
    )?;
    writeln!(page, "| | taken, million a second | offered, million a second |\n|---|--:|--:|")?;
    for of in &results.capacities {
        let (Some(handled), Some(offered)) = (of.handled(), of.offered()) else { continue };
        writeln!(page, "| {} | {} | {} |", of.tool.name(), millions(handled), millions(offered))?;
    }
    writeln!(page)
}

fn millions(spread: Spread) -> String {
    let Spread { median, low, high } = spread;
    format!("{:.2} ({:.2} to {:.2})", median / 1e6, low / 1e6, high / 1e6)
}

fn conforming(page: &mut String, results: &Results) -> std::fmt::Result {
    let (rate, unit, burst) = Limit::Wide.parts();
    let rounds = results.effort.flood_rounds;
    writeln!(
        page,
        "### A conforming source beside a flood\n\nEvery source may send {} packets a {unit}, \
         {burst} at once. {FLOODING} \
         sources flood, and another one sends {} packets a second amid them, evenly spaced, to a \
         service that reads the \
         socket that all is sent to. *Arrived* is the share of its packets that the service got, \
         the median of {rounds} \
         round(s). *p50*, *p99* and *p99.9* are the microseconds from the generator to the \
         service, over all of these. *No \
         room* is the share of all packets that found the queue of 256 frames full that everybody \
         shares, as they would \
         share a card's ring: those are lost before any rule; of the conforming ones fewer, \
         as one that is due goes first when the generator goes on. One CPU sends, the other one \
         has the interface's NAPI thread \
         and the service, which comes first. The bare drop lets nobody pass, and is left out. A \
         quick look has too few floods for the ratio of floods above.\n",
        thousands(rate.into()),
        thousands(PER_SECOND.into()),
    )?;
    writeln!(
        page,
        "| flood | | offered, million a second | no room, % | arrived, % | p50 | p99 | p99.9 |\n\
         |---|---|--:|--:|--:|--:|--:|--:|"
    )?;
    for flood in results.effort.floods {
        for cell in results.cells.iter().filter(|cell| cell.flood == *flood) {
            line(page, cell)?;
        }
    }
    writeln!(page)
}

fn line(page: &mut String, cell: &Cell) -> std::fmt::Result {
    let flood = match cell.flood {
        Flood::None => "none".to_owned(),
        Flood::PerSecond(rate) => thousands(rate.into()),
        Flood::Fastest => "fastest".to_owned(),
    };
    let micros = |of_a_thousand| {
        let nanos = cell.quantile(of_a_thousand);
        nanos.map_or_else(|| "too few".to_owned(), |nanos| thousands(nanos / 1_000))
    };
    let spreads = (cell.offered(), cell.share(), cell.unreceived());
    let (Some(offered), Some(share), Some(unreceived)) = spreads else { return Ok(()) };
    writeln!(
        page,
        "| {flood} | {} | {:.2} | {:.1} | {:.1} | {} | {} | {} |",
        cell.tool.name(),
        offered.median / 1e6,
        unreceived.median * 100.0,
        share.median * 100.0,
        micros(500),
        micros(990),
        micros(999),
    )
}

fn rules(page: &mut String, results: &Results) -> std::fmt::Result {
    writeln!(
        page,
        "### The rules\n\nAs given, or as the tool lists them, under the most sources:\n"
    )?;
    listed(page, &results.rules)?;
    writeln!(
        page,
        "\nThe hand-written program ([paced.rs](../bench/ebpf/src/paced.rs)) reads the clock, \
         parses, looks the source up in \
         a hash map, and changes one word. It has no rules, counts nothing, and lets pass what \
         finds no room."
    )?;
    let tools = results.machine.tools.iter().map(|(name, version)| {
        format!("{name}: {}", version.as_deref().unwrap_or("not on this machine"))
    });
    writeln!(page, "\n{}.", tools.collect::<Vec<_>>().join("; "))
}

/// The rules, as given or as the tools list them.
pub(super) fn listed(page: &mut String, rules: &[(Tool, String)]) -> std::fmt::Result {
    for (tool, rule) in rules.iter().filter(|(_, rule)| !rule.is_empty()) {
        let (name, way) = (tool.name(), if tool.is_out() { ", outgoing" } else { "" });
        if rule.starts_with('`') {
            writeln!(page, "- {name}{way}: {rule}")?;
        } else {
            writeln!(page, "- {name}{way}: `{rule}`")?;
        }
    }
    Ok(())
}
