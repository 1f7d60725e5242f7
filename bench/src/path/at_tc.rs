//! `cargo xtask bench tc`: the whole way of a packet over a cable to a limit at tc, of what comes
//! in and of what goes out.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use limiter_tests::interrupt::Interrupt;

use super::contender::{Limit, Tool};
use super::cost::{self, Table};
use super::effort::Effort;
use super::page;
use super::run::costs;
use super::steal::Steal;
use crate::figure::{Bound, Figure};
use crate::group::{Measured, Options};
use crate::peers;

/// A direction: its name, its tools, limiter among them in hash maps and in lines, and the program
/// by hand.
struct Way {
    name: &'static str,
    tools: [Tool; 6],
    ours: [(Tool, &'static str); 2],
    by_hand: Tool,
}

const WAYS: [Way; 2] = [
    Way {
        name: "incoming",
        tools: Tool::AT_TC[0],
        ours: [(Tool::LimiterTc, "limiter"), (Tool::LinesTc, "limiter with lines")],
        by_hand: Tool::PacedTc,
    },
    Way {
        name: "outgoing",
        tools: Tool::AT_TC[1],
        ours: [(Tool::LimiterOut, "limiter"), (Tool::LinesOut, "limiter with lines")],
        by_hand: Tool::PacedOut,
    },
];

/// Budget for a mix of sources.
struct Budget {
    mix: &'static str,
    /// The best peer's own cost, over limiter's: at least.
    peer: f64,
    /// The bounds of `--check` for that and for the program by hand, in hash maps and in lines: of
    /// what comes in, and of what goes out.
    held: [[[f64; 2]; 2]; 2],
}

const BUDGETS: [Budget; 3] = [
    Budget {
        mix: "1 source",
        peer: 3.0,
        held: [[[1.5, 0.45], [1.85, 0.6]], [[0.75, 0.2], [0.9, 0.25]]],
    },
    Budget {
        mix: "10,000 sources",
        peer: 3.0,
        held: [[[1.25, 0.4], [1.2, 0.4]], [[0.7, 0.3], [0.7, 0.3]]],
    },
    Budget {
        mix: "1,000,000 sources",
        peer: 2.0,
        held: [[[1.05, 0.55], [1.7, 0.85]], [[0.95, 0.46], [1.35, 0.65]]],
    },
];

/// The least that the program by hand is to cost of limiter's own cost.
const BY_HAND: f64 = 0.9;

/// Measures everything.
///
/// # Errors
///
/// When something of it fails, or was not what it was meant to be.
pub fn run(options: &Options) -> Result<Measured> {
    ensure!(options.only.is_none(), "this group has no headings to choose from: leave out --only");
    let interrupt = Interrupt::watch()?;
    let effort = if options.quick { Effort::QUICK } else { Effort::FULL };
    let has_police = peers::has_police()?;
    let steal = Steal::begin()?;
    let (mut tables, mut rules) = ([Vec::new(), Vec::new()], Vec::new());
    for crowd in effort.at_tc {
        for (way, tables) in WAYS.iter().zip(&mut tables) {
            let (name, sources) = (way.name, crowd.sources);
            eprintln!("tc: {name}, sources: {sources}, rounds: {}", effort.rounds);
            // A filter of tc's has one bucket.
            let is_here = |tool: &Tool| !tool.is_police() || has_police && sources == 1;
            let tools: Vec<_> = way.tools.into_iter().filter(is_here).collect();
            let stands = cost::build(crowd, Limit::Once, &tools, &interrupt)?;
            tables.extend(costs(&stands, crowd, &effort, &interrupt)?);
            rules.retain(|(tool, _)| !tools.contains(tool));
            rules.extend(stands.iter().map(|stand| (stand.tool, stand.listed().to_owned())));
            for stand in stands {
                stand.close()?;
            }
        }
    }
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _infallible = write(&mut page, (&effort, has_police, steal.end()?), &tables, &rules);
    Ok(Measured { page, figures: figures(&tables) })
}

fn figures(tables: &[Vec<Table>; 2]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (place, (way, tables)) in WAYS.iter().zip(tables).enumerate() {
        for Budget { mix, peer: budget, held } in BUDGETS {
            let Some(table) = tables.iter().find(|table| table.mix.name == mix) else { continue };
            let held = held.get(place).into_iter().flatten();
            for ((tool, ours), [of_peer, of_hand]) in way.ours.into_iter().zip(held) {
                let figure = |of: &str, ratio, (budget, held)| Figure {
                    what: format!("{}, {mix}: own cost of {of}, over that of {ours}", way.name),
                    ratio,
                    budget: Some(Bound::AtLeast(budget)),
                    held: Bound::AtLeast(held),
                };
                let peer = table.best_over(tool);
                figures.extend(peer.map(|peer| figure("the best peer", peer, (budget, *of_peer))));
                let hand = table.own_over(way.by_hand, tool);
                let of = "the program by hand";
                figures.extend(hand.map(|hand| figure(of, hand, (BY_HAND, *of_hand))));
            }
        }
    }
    figures
}

fn write(
    page: &mut String,
    (effort, has_police, steal): (&Effort, bool, f64),
    tables: &[Vec<Table>; 2],
    rules: &[(Tool, String)],
) -> std::fmt::Result {
    let (rounds, slice, steal) = (effort.rounds, effort.slice.as_millis(), steal * 100.0);
    let police = if has_police {
        "`tc police` lets a packet a minute pass, the least that it takes. It has one bucket, and \
         would need a filter for each of many sources, which was not measured"
    } else {
        "This kernel has no `tc police`, which was not measured"
    };
    writeln!(
        page,
        "Measured as over a cable (`path`), {rounds} rounds of {slice} ms, with a bare drop \
         at tc. nft is as near to tc as it can be. What goes out has come in before: a program at \
         tc makes the source of a packet its destination, and the kernel routes it back, which is \
         in the figures of the bare drop, too. {police}. The host gave {steal:.1} % of the time to \
         others.\n"
    )?;
    for (way, tables) in WAYS.iter().zip(tables) {
        for table in tables {
            let heading = format!("tc, {}, {}", way.name, table.mix.name);
            let [(ours, _), _] = way.ours;
            page::cost(page, (&heading, table), (&way.tools, ours))?;
        }
    }
    writeln!(page, "As given, or as the tool lists them, under the most sources:\n")?;
    page::listed(page, rules)
}
