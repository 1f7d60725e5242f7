//! The ratios that have a budget.

use super::capacity;
use super::conforming;
use super::contender::Tool;
use super::cost::Table;
use super::run::Results;
use crate::figure::{Bound, Figure};
use crate::spread::Spread;

/// The budgets for a mix of sources, and the bounds of `--check` in hash maps and in lines.
struct Budget {
    mix: &'static str,
    /// The whole way, over the bare drop's: at most.
    whole: f64,
    whole_held: [f64; 2],
    /// The best peer's own part, over limiter's: at least.
    own: f64,
    own_held: [f64; 2],
}

const BUDGETS: [Budget; 3] = [
    Budget { mix: "1 source", whole: 1.4, whole_held: [2.3, 2.2], own: 6.0, own_held: [3.9, 4.4] },
    Budget {
        mix: "10,000 sources",
        whole: 1.6,
        whole_held: [2.6, 3.0],
        own: 6.0,
        own_held: [3.2, 2.7],
    },
    Budget {
        mix: "1,000,000 sources",
        whole: 2.5,
        whole_held: [15.0, 8.2],
        own: 4.0,
        own_held: [1.1, 2.2],
    },
];

/// The bounds of `--check` with a rule by port and source, in hash maps and in lines.
const KEYED_HELD: [(&str, [f64; 2]); 4] = [
    ("1 key", [2.5, 2.5]),
    ("10,000 keys", [2.0, 1.7]),
    ("1,000,000 keys", [1.1, 1.8]),
    ("10,000 keys in each of four rules", [1.5, 1.5]),
];

/// limiter in the order of the bounds above, and its name in a sentence.
const OURS: [(Tool, &str); 2] = [(Tool::Limiter, "limiter"), (Tool::Lines, "limiter with lines")];

/// The share of conforming packets that is to arrive behind limiter, and the one that arrives
/// behind the best peer at a flood of which limiter's is to be so many times.
const LEFT: f64 = 0.9;
const FALLEN: f64 = 0.5;
const TIMES: f64 = 3.0;

pub(super) fn of(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for Budget { mix: name, whole, whole_held, own, own_held } in BUDGETS {
        let Some(table) = results.tables.iter().find(|table| table.mix.name == name) else {
            continue;
        };
        let held = whole_held.into_iter().zip(own_held);
        for ((tool, ours), (whole_held, own_held)) in OURS.into_iter().zip(held) {
            if let Some(ratio) = table.over_drop(tool) {
                figures.push(Figure {
                    what: format!("{name}: whole way of {ours}, over the bare drop's"),
                    ratio,
                    budget: Some(Bound::AtMost(whole)),
                    held: Bound::AtMost(whole_held),
                });
            }
            figures.extend(own_cost(table, tool, ours, [own, own_held]));
        }
    }
    figures.extend(keyed(results));
    figures.extend(receiving(results));
    figures.extend(conforming(results));
    figures
}

/// The own cost of the best peer under a rule by port and source, over limiter's.
fn keyed(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (name, held) in KEYED_HELD {
        let Some(table) = results.keyed.iter().find(|table| table.mix.name == name) else {
            continue;
        };
        for ((tool, ours), held) in OURS.into_iter().zip(held) {
            figures.extend(own_cost(table, tool, ours, [4.0, held]));
        }
    }
    figures
}

/// The own cost of the best peer over that of a tool of limiter's, with the budget and the bound of
/// `--check`: at least.
fn own_cost(table: &Table, tool: Tool, ours: &str, [budget, held]: [f64; 2]) -> Option<Figure> {
    let mix = table.mix.name;
    Some(Figure {
        what: format!("{mix}: own cost of the best peer, over that of {ours}"),
        ratio: table.best_over(tool)?,
        budget: Some(Bound::AtLeast(budget)),
        held: Bound::AtLeast(held),
    })
}

/// Packets a second that one CPU takes, over the best peer.
fn receiving(results: &Results) -> Option<Figure> {
    let best = capacity::best_peer(&results.capacities)?;
    let ours = results.capacities.iter().find(|of| of.tool == Tool::Limiter)?;
    Some(Figure {
        what: "packets a second that a CPU takes, over the best peer's".to_owned(),
        ratio: ours.over(best)?,
        budget: None,
        held: Bound::AtLeast(1.0),
    })
}

/// The flood beside which limiter still leaves nine tenths, over the one at which the best peer
/// leaves half, in each round. A quick look has too few floods to find them.
fn conforming(results: &Results) -> Option<Figure> {
    if results.effort.floods.len() < FLOODS_FOR_A_LINE {
        return None;
    }
    let under = |tool, share| conforming::falls_under(&results.cells, tool, share);
    let ours = under(Tool::Limiter, LEFT);
    let peers = Tool::PEERS.map(|tool| under(tool, FALLEN));
    let ratio = |(round, ours): (usize, &f64)| {
        let best = peers.iter().filter_map(|peer| peer.get(round)).max_by(|a, b| a.total_cmp(b))?;
        Some(ours / best)
    };
    Some(Figure {
        what: "flood beside which 90 % of conforming traffic arrives, over the one at which 50 % \
            does behind the best \
               peer"
            .to_owned(),
        ratio: Spread::of(ours.iter().enumerate().filter_map(ratio))?,
        budget: Some(Bound::AtLeast(TIMES)),
        held: Bound::AtLeast(0.35),
    })
}

const FLOODS_FOR_A_LINE: usize = 6;
