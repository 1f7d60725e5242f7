//! Limits and actions in one line, for people.

use std::fmt::Write as _;

use super::action::{Mark, Over};
use super::limit::{Meter, RuleLimit};
use crate::rules::compile::display_rate;

/// A rate, and the algorithm if it is not the token bucket: `10 syns/min`,
/// `sliding_slots 100/s slots 4 strict`.
pub fn meter_text(meter: &Meter) -> String {
    let rate = display_rate(&meter.quota().with_burst(0));
    let algorithm = meter.algorithm();
    match meter {
        Meter::TokenBucket(_) => rate,
        Meter::LeakyBucket { backlog, .. } => {
            format!("{algorithm} {rate} backlog {}", humantime::format_duration(*backlog))
        }
        Meter::SlidingSlots { slots, strict, .. } => {
            format!("{algorithm} {rate} slots {slots}{}", if *strict { " strict" } else { "" })
        }
        Meter::FixedWindow(_) | Meter::SlidingLog(_) | Meter::SlidingCounter(_) => {
            format!("{algorithm} {rate}")
        }
    }
}

/// All of a limit: `10 syns/min burst 5`.
pub fn limit_text(limit: &RuleLimit) -> String {
    let mut text = meter_text(&limit.meter);
    // A string takes everything.
    if let Meter::TokenBucket(rate) = &limit.meter {
        let _: std::fmt::Result = write!(text, " burst {}", rate.burst);
    }
    if let Some(upper) = &limit.upper {
        let rate = upper.rate();
        let (name, shown) = (upper.name(), display_rate(rate));
        let _: std::fmt::Result = write!(text, ", {name} {shown} burst {}", rate.burst);
        let mark = limit.mark.map_or_else(|| "counted only".to_owned(), mark_text);
        let _: std::fmt::Result = write!(text, ", between them {mark}");
    }
    text
}

fn mark_text(mark: Mark) -> String {
    match mark {
        Mark::Dscp(dscp) => format!("mark dscp {dscp}"),
        Mark::Ecn => "mark ecn".to_owned(),
    }
}

/// What happens over a limit: `drop`, `class slow`, `ban 1m to 1day`.
pub fn over_text(over: &Over) -> String {
    match over {
        Over::Drop | Over::Reject => over.name().to_owned(),
        Over::Mark(mark) => mark_text(*mark),
        Over::Class(name) | Over::Interface(name) => format!("{} {name}", over.name()),
        Over::Cpu(cpu) => format!("cpu {cpu}"),
        Over::Ban(ban) => format!(
            "ban {} to {}",
            humantime::format_duration(ban.first),
            humantime::format_duration(ban.longest)
        ),
    }
}
