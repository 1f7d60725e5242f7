//! A sentence about what is dropped now, from two readings of all packets.

use std::collections::{BTreeMap, BTreeSet};

use limiter_api::render::number;
use limiter_api::sources::{RuleDrops, SourceRow, part, per_second};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_datapath::Observed;

use super::account::Counter;
use super::counters::{Counters, Rates};
use super::ledger::Ledger;
use crate::error::ServiceError;
use crate::views::{self, BEFORE_RULES};

/// A reading of the counters of all packets.
#[derive(Debug)]
pub(super) struct AllPackets {
    sum: Counters,
    /// Packets that lists and bans dropped.
    by_lists: u64,
    /// Those of them that events reported, by source and episode.
    reported: BTreeMap<(Source, Counter), u64>,
    at: Ticks,
}

/// What was dropped between two readings.
#[derive(Clone, Copy, Debug)]
pub(super) struct DroppedNow {
    rates: Rates,
    by_lists: f64,
    /// Sources of which events reported that lists or bans drop packets.
    listed: usize,
}

impl AllPackets {
    pub(super) fn read(datapath: &dyn Observed, ledger: &Ledger<'_>) -> Result<Self, ServiceError> {
        let (passed, dropped) = views::verdicts(datapath)?;
        Ok(Self {
            sum: Counters { passed: passed.packets, dropped: dropped.packets },
            by_lists: views::dropped_by_lists(datapath)?,
            reported: ledger.dropped_before_rules().collect(),
            at: datapath.now(),
        })
    }

    /// What was dropped since an earlier reading; `None` if a counter started again in between.
    pub(super) fn since(&self, before: &Self) -> Option<DroppedNow> {
        let over = self.at.since(before.at);
        let by_lists = self.by_lists.checked_sub(before.by_lists)?;
        let is_new = |(key, dropped): &(&(Source, Counter), &u64)| {
            before.reported.get(*key).is_none_or(|before| before < *dropped)
        };
        let listed = self.reported.iter().filter(is_new).map(|((source, _), _)| source);
        Some(DroppedNow {
            rates: Rates::of(self.sum.since(before.sum)?, over)?,
            by_lists: Rates::of(Counters::dropped(by_lists), over)?.dropped,
            listed: listed.collect::<BTreeSet<_>>().len(),
        })
    }
}

impl DroppedNow {
    /// The sentence: how much of all is dropped, of it that of the source that loses most, in
    /// `first`, and what lists and bans drop.
    pub(super) fn headline(&self, first: Option<&SourceRow>) -> String {
        let Self { rates: Rates { passed, dropped }, by_lists, listed } = *self;
        let first = first.and_then(|row| {
            let by = row.by.first()?;
            let rate = by.dropped_per_second.or(row.dropped_per_second)?;
            (rate > 0.0).then_some((row, by, rate))
        });
        // A source is read a moment after the sums: those may have less than is said of it.
        let is_listed = |by: &RuleDrops| BEFORE_RULES.iter().any(|of| of.name() == by.reason);
        let parts = match first {
            Some((_, by, rate)) if is_listed(by) => rate.max(by_lists),
            Some((.., rate)) => rate + by_lists,
            None => by_lists,
        };
        let dropped = dropped.max(parts);
        let all = passed + dropped;
        if dropped <= 0.0 {
            return match all {
                0.0 => "No packets come, and none are dropped".to_owned(),
                all => format!("None of {} packets/s are dropped", per_second(Some(all))),
            };
        }
        let (dropped, all) = (per_second(Some(dropped)), per_second(Some(all)));
        let mut text = format!("{dropped} of {all} packets/s are dropped");
        if let Some((row, by, rate)) = first {
            let (many, who) = (part(per_second(Some(rate)), !by.exact), row.name());
            text = format!("{text}, {many} of them from {who} by {}", by.title());
        }
        if by_lists <= 0.0 {
            return text;
        }
        let sources = match listed {
            0 => "no source reported".to_owned(),
            1 => "≥1 source".to_owned(),
            many => format!("≥{} sources", number(u64::try_from(many).unwrap_or(u64::MAX))),
        };
        format!("{text}, {} by lists and bans ({sources})", per_second(Some(by_lists)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rate: f64, rule: Option<&str>) -> SourceRow {
        let by = RuleDrops {
            rule: rule.map(str::to_owned),
            rule_name: None,
            of: None,
            reason: if rule.is_some() { "over-limit" } else { "denied" }.to_owned(),
            passed: None,
            dropped: 9,
            dropped_per_second: Some(rate),
            since: None,
            keys: None,
            exact: rule.is_some(),
            with_before: false,
        };
        let (source, dropped_per_second) = ("192.0.2.1".to_owned(), Some(rate));
        SourceRow { source, by: vec![by], dropped_per_second, ..SourceRow::default() }
    }

    /// The sums are never less than what the sentence says of a part.
    #[test]
    fn the_parts_are_within_the_sum() {
        let now = |passed, dropped, by_lists, listed| DroppedNow {
            rates: Rates { passed, dropped },
            by_lists,
            listed,
        };
        let said = |now: DroppedNow, row: Option<SourceRow>| now.headline(row.as_ref());
        assert_eq!(
            said(now(100.0, 6802.0, 300.0, 2), Some(row(7150.0, Some("game")))),
            "7,450 of 7,550 packets/s are dropped, 7,150 of them from 192.0.2.1 by game, 300 by \
             lists and bans (≥2 sources)"
        );
        assert_eq!(
            said(now(100.0, 310.0, 300.0, 1), Some(row(20.0, None))),
            "310 of 410 packets/s are dropped, ≥20 of them from 192.0.2.1 by deny list, 300 by \
             lists and bans (≥1 source)"
        );
        assert_eq!(
            said(now(0.0, 300.0, 300.0, 0), None),
            "300 of 300 packets/s are dropped, 300 by lists and bans (no source reported)"
        );
        assert_eq!(said(now(7.5, 0.0, 0.0, 0), None), "None of 7.5 packets/s are dropped");
        assert_eq!(said(now(0.0, 0.0, 0.0, 0), None), "No packets come, and none are dropped");
    }
}
