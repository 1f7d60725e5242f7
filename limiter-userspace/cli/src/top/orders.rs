//! Orders of the lists: by which column, and which way.

use std::cmp::Ordering;

use limiter_api::events::Episode;
use limiter_api::requests::{RequestCounts, RequestRates};
use limiter_api::sources::By;
use limiter_api::status::Interface;

use super::state::{RequestRow, RuleRow, Tab};

/// An order of a list: a column of those that it can be sorted by, and whether the least comes
/// first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    column: usize,
    pub(super) ascending: bool,
}

impl Order {
    /// Columns that a list can be sorted by, the first one at the beginning. Sources are sorted by
    /// the daemon: see [`By`].
    const fn columns(tab: Tab) -> &'static [&'static str] {
        match tab {
            Tab::Sources => &[],
            Tab::Rules => &["DROPPED/S", "PASSED/S", "OVER/S", "DROPPED", "PASSED", "OVER", "RULE"],
            Tab::Interfaces => &["INTERFACE", "DROPPED/S", "PASSED/S"],
            Tab::Events => &["BEGAN", "LASTED", "REPORTED", "SOURCE", "RULE"],
            Tab::Requests => {
                &["REFUSED/S", "PASSED/S", "OVER/S", "REFUSED", "PASSED", "OVER", "RULE"]
            }
        }
    }

    /// The column that the list is sorted by.
    pub(super) fn column(self, tab: Tab) -> &'static str {
        Self::columns(tab).get(self.column).copied().unwrap_or_default()
    }

    /// Goes on to the next column, or back to the one before.
    pub(super) fn turn(&mut self, tab: Tab, back: bool) {
        let columns = Self::columns(tab).len().max(1);
        let step = if back { columns - 1 } else { 1 };
        *self = Self { column: (self.column + step) % columns, ascending: false };
    }

    /// Puts the largest by the column first.
    fn sort<T>(self, rows: &mut [T], most_first: impl Fn(&T, &T) -> Ordering) {
        rows.sort_by(|a, b| if self.ascending { most_first(b, a) } else { most_first(a, b) });
    }

    pub(super) fn rules(self, rows: &mut [RuleRow]) {
        let rate =
            |row: &RuleRow, index: usize| row.rates.get(index).copied().flatten().unwrap_or(-1.0);
        let rates = |a: &RuleRow, b: &RuleRow, index| rate(b, index).total_cmp(&rate(a, index));
        let [passed, dropped, over] = [0, 1, 2];
        self.sort(rows, |a, b| match self.column(Tab::Rules) {
            "DROPPED/S" => rates(a, b, dropped),
            "PASSED/S" => rates(a, b, passed),
            "OVER/S" => rates(a, b, over),
            "DROPPED" => b.counts[dropped].cmp(&a.counts[dropped]),
            "PASSED" => b.counts[passed].cmp(&a.counts[passed]),
            "OVER" => b.counts[over].cmp(&a.counts[over]),
            _ => a.title().cmp(b.title()),
        });
    }

    pub(super) fn requests(self, rows: &mut [RequestRow]) {
        let rate =
            |row: &RequestRow, of: fn(&RequestRates) -> f64| row.at.rates.as_ref().map_or(-1.0, of);
        let rates = |a: &RequestRow, b: &RequestRow, of| rate(b, of).total_cmp(&rate(a, of));
        let counts = |a: &RequestRow, b: &RequestRow, of: fn(&RequestCounts) -> u64| {
            of(&b.at.counts).cmp(&of(&a.at.counts))
        };
        self.sort(rows, |a, b| match self.column(Tab::Requests) {
            "REFUSED/S" => rates(a, b, |rates| rates.refused),
            "PASSED/S" => rates(a, b, |rates| rates.passed),
            "OVER/S" => rates(a, b, |rates| rates.over),
            "REFUSED" => counts(a, b, RequestCounts::refused),
            "PASSED" => counts(a, b, RequestCounts::passed),
            "OVER" => counts(a, b, RequestCounts::passed_over),
            _ => a.at.title().cmp(&b.at.title()),
        });
    }

    pub(super) fn interfaces(self, rows: &mut [Interface]) {
        let rates = |at: &Interface| {
            at.rates.map_or([-1.0; 2], |rates| [rates.dropped_packets, rates.passed_packets])
        };
        self.sort(rows, |a, b| match self.column(Tab::Interfaces) {
            "DROPPED/S" => rates(b)[0].total_cmp(&rates(a)[0]),
            "PASSED/S" => rates(b)[1].total_cmp(&rates(a)[1]),
            _ => a.name.cmp(&b.name),
        });
    }

    pub(super) fn events(self, rows: &mut [Episode]) {
        self.sort(rows, |a, b| match self.column(Tab::Events) {
            // The same length in RFC 3339 and UTC.
            "BEGAN" => b.began.cmp(&a.began),
            "LASTED" => b.seconds.cmp(&a.seconds),
            "REPORTED" => b.sampled.cmp(&a.sampled),
            "SOURCE" => a.source.cmp(&b.source),
            _ => rule_of(a).cmp(&rule_of(b)),
        });
    }
}

/// The rule of an episode as it is shown.
fn rule_of(episode: &Episode) -> Option<&str> {
    episode.rule_name.as_deref().or(episode.rule.as_deref())
}

/// The next order of sources, or the one before.
pub(super) fn next_by(by: By, back: bool) -> By {
    let at = By::ALL.iter().position(|other| *other == by).unwrap_or(0);
    let step = if back { By::ALL.len() - 1 } else { 1 };
    By::ALL.into_iter().cycle().nth(at + step).unwrap_or_default()
}

/// The column that an order of sources sorts by; empty for packets a second, which have two
/// columns.
pub(super) const fn column_of(by: By) -> &'static str {
    match by {
        By::DropRate => "DROPPED/S",
        By::Dropped => "DROPPED",
        By::Rate => "",
        By::Passed => "PASSED",
        By::Utilization => "USED",
    }
}
