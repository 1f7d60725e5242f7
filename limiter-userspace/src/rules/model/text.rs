//! Limits and actions in one line, for people.

use std::fmt::Write as _;

use super::action::{Mark, Over};
use super::limit::{Meter, RuleLimit};
use crate::rules::compile::display_rate;

/// A limit: `10 syns/min burst 5`, `sliding_slots 100/s slots 4 strict`.
pub fn limit_text(limit: &RuleLimit) -> String {
    let mut text = match &limit.meter {
        Meter::TokenBucket(_) => String::new(),
        other => format!("{} ", other.algorithm()),
    };
    text.push_str(&display_rate(&limit.meter.quota().with_burst(0)));
    // A string takes everything.
    let _: std::fmt::Result = match &limit.meter {
        Meter::TokenBucket(rate) => write!(text, " burst {}", rate.burst),
        Meter::LeakyBucket { backlog, .. } => {
            write!(text, " backlog {}", humantime::format_duration(*backlog))
        }
        Meter::SlidingSlots { slots, strict, .. } => {
            write!(text, " slots {slots}{}", if *strict { " strict" } else { "" })
        }
        Meter::FixedWindow(_) | Meter::SlidingLog(_) | Meter::SlidingCounter(_) => Ok(()),
    };
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
