//! A sentence about what is dropped now, from two readings of all packets.

use std::collections::{BTreeMap, BTreeSet};

use limiter_api::render::{dropper, number};
use limiter_api::sources::{RuleDrops, SourceRow, part, per_second};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_datapath::Observed;
use limiter_rules::model::Direction;
use limiter_text::plain::clean;

use super::account::{Counter, Unreported, is_before_rules};
use super::counters::{Counters, Rates};
use super::known::Known;
use super::ledger::Ledger;
use super::rules::Rules;
use crate::error::ServiceError;
use crate::views::{self, BEFORE_RULES, Title};

/// Rows from which the sentence takes the sources that it names.
pub(super) const FIRST: usize = 20;

/// A reading of the counters of all packets.
#[derive(Debug)]
pub(super) struct AllPackets {
    sum: Counters,
    /// Packets that lists and bans dropped.
    by_lists: u64,
    /// Packets that each rule and budget dropped that does not count every source by itself, by its
    /// number; none where there are too many rules to add them up.
    by_others: BTreeMap<u32, u64>,
    /// Those of both that events reported, by source and episode.
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
    /// The rule or budget that drops most of those that do not count every source by itself.
    by_other: Option<(u32, f64)>,
    pub(super) unreported: Unreported,
}

impl AllPackets {
    pub(super) fn read(datapath: &dyn Observed, ledger: &Ledger<'_>) -> Result<Self, ServiceError> {
        let (passed, dropped) = views::verdicts(datapath)?;
        let by_others = views::dropped_by_rules(datapath)?.map(|[_, others]| others);
        Ok(Self {
            sum: Counters { passed: passed.packets, dropped: dropped.packets },
            by_lists: views::dropped_by_lists(datapath)?,
            by_others: by_others.unwrap_or_default(),
            reported: ledger.episodes().collect(),
            at: datapath.now(),
        })
    }

    /// What was dropped since an earlier reading; `None` if a counter started again in between.
    pub(super) fn since(&self, before: &Self) -> Option<DroppedNow> {
        let over = self.at.since(before.at);
        let rate = |dropped| Some(Rates::of(Counters::dropped(dropped), over)?.dropped);
        let by_lists = self.by_lists.checked_sub(before.by_lists)?;
        let new = |(key, dropped): (&(Source, Counter), &u64)| {
            dropped.saturating_sub(before.reported.get(key).copied().unwrap_or(0))
        };
        let new = self.reported.iter().map(|of| (of.0, new(of))).filter(|(_, new)| *new > 0);
        let (lists, others): (Vec<_>, Vec<_>) =
            new.partition(|((_, counter), _)| is_before_rules(counter));
        let reported = |of: &[(_, u64)]| of.iter().map(|(_, new)| *new).sum::<u64>();
        // A rule that is new counts from nothing.
        let by_others: Vec<(u32, u64)> = self
            .by_others
            .iter()
            .map(|(rule, dropped)| (*rule, before.by_others.get(rule).unwrap_or(&0), dropped))
            .filter_map(|(rule, before, dropped)| Some((rule, dropped.checked_sub(*before)?)))
            .collect();
        let most = by_others.iter().max_by_key(|(_, dropped)| *dropped);
        let of_others = by_others.iter().map(|(_, dropped)| *dropped).sum();
        Some(DroppedNow {
            rates: Rates::of(self.sum.since(before.sum)?, over)?,
            by_lists: rate(by_lists)?,
            listed: lists.iter().map(|((source, _), _)| source).collect::<BTreeSet<_>>().len(),
            by_other: most.and_then(|(rule, dropped)| Some((*rule, rate(*dropped)?))),
            unreported: Unreported {
                lists: behind(by_lists, reported(&lists)),
                others: behind(of_others, reported(&others)),
            },
        })
    }
}

/// The drops behind each reported one.
#[expect(clippy::cast_precision_loss, reason = "only to tell which is more")]
fn behind(dropped: u64, reported: u64) -> f64 {
    if reported == 0 { 1.0 } else { (dropped as f64 / reported as f64).max(1.0) }
}

impl DroppedNow {
    /// The sentence: how much of all is dropped, and what drops most of it: of one source in
    /// `rows`, which are ordered by that; by lists and bans; and by one rule of all its sources
    /// together.
    pub(super) fn headline(&self, known: Known<'_>, rows: &[SourceRow]) -> String {
        let rules = Rules::of(known.datapath, known.effective);
        let other = self.by_other.and_then(|(number, rate)| {
            let Title { rule, name, .. } = rules.title(number)?;
            Some((dropper(Some(rule), name.as_deref(), Reason::OverLimit.name()), rate))
        });
        self.sentence(rows, other)
    }

    fn sentence(&self, rows: &[SourceRow], other: Option<(String, f64)>) -> String {
        let Self { rates: Rates { passed, dropped }, by_lists, listed, .. } = *self;
        let is_listed = |by: &RuleDrops| BEFORE_RULES.iter().any(|of| of.name() == by.reason);
        let first = |wanted: &dyn Fn(&RuleDrops) -> bool| {
            rows.iter().find_map(|row| {
                let by = row.by.first().filter(|by| row.loses_now() && wanted(by))?;
                let rate = by.dropped_per_second.filter(|rate| *rate > 0.0)?;
                Some((row, by.title(), rate))
            })
        };
        let mut parts = Vec::new();
        let counted = first(&|by| by.exact);
        // A rule that counts every source of one family alone stands here already.
        let other = other.filter(|(title, rate)| {
            *rate > 0.0 && counted.as_ref().is_none_or(|(_, by, _)| by != title)
        });
        if let Some((row, by, rate)) = counted {
            parts.push((rate, format!("{} by {by}", whose(row)), String::new()));
        }
        if by_lists > 0.0 {
            let sources = match listed {
                0 => "no source reported".to_owned(),
                1 => "≥1 source".to_owned(),
                many => format!("≥{} sources", number(u64::try_from(many).unwrap_or(u64::MAX))),
            };
            let who = first(&is_listed).map(|(row, _, rate)| sampled(row, rate));
            let of = format!(" ({sources}{})", who.unwrap_or_default());
            parts.push((by_lists, "by lists and bans".to_owned(), of));
        }
        if let Some((title, rate)) = other {
            let who = first(&|by| !by.exact && by.title() == title);
            let who = who.map(|(row, _, rate)| sampled(row, rate)).unwrap_or_default();
            let of = format!(" (all its sources together{who})");
            parts.push((rate, format!("by {}", clean(&title)), of));
        }
        parts.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
        // A source is read a moment after the sums: those may have less than is said of it.
        let dropped = dropped.max(parts.iter().map(|(rate, ..)| rate).sum());
        let all = passed + dropped;
        if dropped <= 0.0 {
            return match all {
                0.0 => "No packets come, and none are dropped".to_owned(),
                all => format!("None of {} packets/s are dropped", per_second(Some(all))),
            };
        }
        let shown = |rate| per_second(Some(rate));
        let mut text = format!("{} of {} packets/s are dropped", shown(dropped), shown(all));
        for (place, (rate, by, of)) in parts.into_iter().enumerate() {
            let of_them = if place == 0 { " of them" } else { "" };
            text = format!("{text}, {}{of_them} {by}{of}", shown(rate));
        }
        text
    }
}

/// The source of a row, with the way of its packets.
fn whose(row: &SourceRow) -> String {
    let source = clean(&row.source);
    match Direction::named(&row.direction) {
        Some(Direction::Out) => format!("to {source}"),
        Some(Direction::Both) => format!("from and to {source}"),
        Some(Direction::In) | None => format!("from {source}"),
    }
}

/// The source that most reported drops are of.
fn sampled(row: &SourceRow, rate: f64) -> String {
    format!(", {} {}", part(per_second(Some(rate)), true), whose(row))
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

    /// What drops most comes first, and the sums are never less than the sentence says of a part.
    #[test]
    fn the_parts_are_within_the_sum() {
        let now = |passed, dropped, by_lists, listed| DroppedNow {
            rates: Rates { passed, dropped },
            by_lists,
            listed,
            by_other: None,
            unreported: Unreported::default(),
        };
        let said = |now: DroppedNow, rows: &[SourceRow]| now.sentence(rows, None);
        let game = row(7150.0, Some("game"));
        assert_eq!(
            said(now(100.0, 6802.0, 300.0, 2), std::slice::from_ref(&game)),
            "7,450 of 7,550 packets/s are dropped, 7,150 of them from 192.0.2.1 by game, 300 by \
             lists and bans (≥2 sources)"
        );
        assert_eq!(
            said(now(0.0, 17_150.0, 10_000.0, 1), &[row(20.0, None), game.clone()]),
            "17,150 of 17,150 packets/s are dropped, 10,000 of them by lists and bans (≥1 source, \
             ≥20 from 192.0.2.1), 7,150 from 192.0.2.1 by game"
        );
        assert_eq!(
            said(now(0.0, 300.0, 300.0, 0), &[]),
            "300 of 300 packets/s are dropped, 300 of them by lists and bans (no source reported)"
        );
        assert_eq!(said(now(7.5, 0.0, 0.0, 0), &[]), "None of 7.5 packets/s are dropped");
        assert_eq!(said(now(0.0, 0.0, 0.0, 0), &[]), "No packets come, and none are dropped");
        let mut shared = row(161.0, Some("door"));
        shared.by[0].exact = false;
        let door = Some(("door".to_owned(), 700.0));
        assert_eq!(
            now(99.0, 700.0, 0.0, 0).sentence(&[shared], door),
            "700 of 799 packets/s are dropped, 700 of them by door (all its sources together, ≥161 \
             from 192.0.2.1)"
        );
        let out = SourceRow { direction: "out".to_owned(), ..game };
        let said = said(now(0.0, 7150.0, 0.0, 0), &[out]);
        assert!(said.ends_with("7,150 of them to 192.0.2.1 by game"), "{said}");
    }

    /// A part of the drops that events report stands for all of them.
    #[test]
    fn reports_stand_for_what_no_counter_has_by_source() {
        let whole = |of: f64| format!("{of:.0}");
        let each = [behind(3000, 150), behind(10, 10), behind(5, 0)].map(whole);
        assert_eq!(each, ["20", "1", "1"]);
        let unreported = Unreported { lists: 20.0, others: 3.0 };
        let of = |reason: Reason| {
            let reason = u8::try_from(reason.index()).unwrap();
            let began = std::time::SystemTime::UNIX_EPOCH;
            unreported.of(&Counter::Reported { rule: 1, reason, is_out: false, began })
        };
        let counted = unreported.of(&Counter::Source);
        let each = [of(Reason::Denied), of(Reason::OverLimit), counted].map(whole);
        assert_eq!(each, ["20", "3", "1"]);
    }
}
