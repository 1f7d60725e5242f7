//! The state of sources, read from their tables.

use std::net::{IpAddr, Ipv6Addr};

use limiter_api::sources::source::SourceView;
use limiter_api::sources::{By, SourceRow};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Bucket, EntryKind, TableKey};
use limiter_datapath::{Datapath, Sweep, of_key};
use limiter_rules::Selector;
use limiter_rules::model::{Direction, Martians};

use super::account::{Account, Unreported};
use super::counters::Counters;
use super::ledger::{Ledger, own_table};
use super::rules::Rules;
use super::wanted::Wanted;
use crate::error::ServiceError;
use crate::events::Events;
use crate::lists::ListStore;
use crate::rule_sets::effective::EffectiveSet;
use crate::views;

/// The parts of the daemon from which sources are described.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) datapath: &'a dyn Datapath,
    pub(crate) effective: &'a EffectiveSet,
    pub(crate) lists: &'a ListStore,
    pub(crate) events: &'a Events,
}

/// The state of a source in the table with its rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// The bucket; for a source in a keyed table, the one built by [`limiter_datapath::of_key`].
    pub(super) bucket: Bucket,
    pub(super) keyed: bool,
}

impl From<&Entry> for Counters {
    fn from(Entry { bucket, .. }: &Entry) -> Self {
        Self { passed: bucket.passed, dropped: bucket.dropped }
    }
}

impl Known<'_> {
    /// A sweep over all sources.
    pub(super) fn sweep(&self) -> Sweep {
        Sweep::with_keyed(own_table(self.datapath))
    }

    /// Returns true if the rule of a source is in the keyed table of sources.
    fn is_keyed(&self, source: &Source) -> bool {
        let rule = self.effective.resolve(&Selector::address(address(source)));
        let rules = &self.datapath.installed().rules;
        let selector = rule.and_then(|found| found.rule.path.selector());
        selector.is_some_and(|selector| !rules.contains_key(&selector))
    }

    /// Key of a source in the keyed table of sources, if its rule is there.
    pub(super) fn own_key(&self, source: &Source) -> Option<TableKey> {
        let table = own_table(self.datapath).filter(|_| self.is_keyed(source))?;
        let version = if matches!(source, Source::V4(_)) { 4 } else { 6 };
        let address = bytemuck::cast(source.trie_key());
        Some(TableKey { table, version, source: address, ..TableKey::EMPTY })
    }

    /// The state of a source, if there is one.
    pub(super) fn entry(&self, source: &Source) -> Result<Option<Entry>, ServiceError> {
        let Some(key) = self.own_key(source) else {
            let bucket = self.datapath.bucket(*source)?;
            return Ok(bucket.map(|bucket| Entry { bucket, keyed: false }));
        };
        let found = self.datapath.keyed(key)?;
        Ok(found.map(|bucket| Entry { bucket: of_key(&key, &bucket).1, keyed: true }))
    }

    /// Reads about `most` further sources with their present state. A source whose rule was in
    /// another table has a state there as well, until it is evicted; that state is left out.
    pub(super) fn read(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Entry)>, ServiceError> {
        let keyed = matches!(sweep.place(), Some((EntryKind::Keyed, _)));
        let several = sweep.table().is_some();
        let read = self.datapath.sources(sweep, most)?;
        let entries = read.into_iter().map(|(source, bucket)| (source, Entry { bucket, keyed }));
        Ok(entries.filter(|(source, _)| !several || self.is_keyed(source) == keyed).collect())
    }

    /// The data beside the buckets from which accounts are built.
    pub(super) fn ledger(&self) -> Ledger<'_> {
        Ledger::open(self.datapath, self.effective, Some(self.events))
    }

    /// The rows of a source from its account: one for each direction in which something counts it.
    pub(super) fn rows(
        &self,
        source: &Source,
        account: &Account,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        self.rows_by(source, account, &Rules::of(self.datapath, self.effective))
    }

    fn rows_by(
        &self,
        source: &Source,
        account: &Account,
        rules: &Rules<'_>,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        let now = self.datapath.now();
        let address = address(source);
        let view = views::source(self.datapath, self.effective, address)?;
        let ban = self.datapath.ban(*source)?;
        let banned = ban.map(|ban| Ticks::new(ban.until)).filter(|until| *until > now);
        let listed = self.lists.of(&Selector::address(address), now);
        let view = SourceView {
            listed,
            banned_seconds: banned.map(|until| until.since(now).as_nanos().div_ceil(1_000_000_000)),
            martian: self.effective.martians == Some(Martians::Drop) && source.is_martian(),
            ..view
        };
        Ok(account.source_rows(&view, rules))
    }

    /// The first rows of these sources, which are ordered by the measure. In an order by drops,
    /// rows without drops are left out.
    pub(super) fn first_rows(
        &self,
        mut sources: Vec<(Source, &Account)>,
        wanted: &Wanted,
        unreported: Unreported,
    ) -> Result<Vec<SourceRow>, ServiceError> {
        let Wanted { by, count, .. } = *wanted;
        let rules = Rules::of(self.datapath, self.effective);
        sources.sort_by_key(|(source, _)| *source);
        let mut rows = Vec::new();
        for (source, account) in sources {
            for row in self.rows_by(&source, account, &rules)? {
                let measure = match Direction::named(&row.direction) {
                    Some(direction) if by == By::DropRate => {
                        account.estimate(direction, unreported)
                    }
                    _ => measure(&row, by),
                };
                rows.push((measure, row));
            }
        }
        if matches!(by, By::Dropped | By::DropRate) {
            rows.retain(|(_, row)| row.dropped > 0);
        }
        // Among equal sources, the smaller address comes first.
        rows.sort_by(|(one, a), (other, b)| {
            let counts = |row: &SourceRow| (row.dropped, row.passed);
            other.total_cmp(one).then(counts(b).cmp(&counts(a)))
        });
        rows.truncate(count);
        Ok(rows.into_iter().map(|(_, row)| row).collect())
    }
}

impl Account {
    /// The rows of a source whose rule, lists and bans are in `view`: one for each direction in
    /// which something counts it.
    pub(crate) fn source_rows(&self, view: &SourceView, rules: &Rules<'_>) -> Vec<SourceRow> {
        let mut directions = self.directions();
        if directions.is_empty() {
            directions.push(Direction::In);
        }
        let row = |direction: Direction| {
            let view = view.clone().counted(self.total_in(direction));
            let rates = self.rates(direction);
            let comes_in = direction == Direction::In;
            SourceRow {
                passed: view.passed,
                dropped: view.dropped,
                passed_at_least: view.passed_at_least,
                dropped_at_least: view.dropped_at_least,
                passed_per_second: rates.map(|rates| rates.passed),
                dropped_per_second: rates.map(|rates| rates.dropped),
                by: self.drops(rules, direction),
                utilization: utilization(view.of, view.remaining).filter(|_| comes_in),
                source: view.source,
                direction: direction.name().to_owned(),
                rule: view.rule.filter(|_| comes_in),
                rule_name: view.rule_name.filter(|_| comes_in),
                limit: view.limit.filter(|_| comes_in),
                listed: view.listed,
                banned_seconds: view.banned_seconds,
            }
        };
        directions.into_iter().map(row).collect()
    }
}

/// The used share of the burst, for the limit with the least left.
#[expect(clippy::cast_precision_loss, reason = "a share is reported to a few digits")]
fn utilization(burst: Option<u64>, remaining: Option<u64>) -> Option<f64> {
    let (burst, remaining) = (burst.filter(|burst| *burst > 0)?, remaining?);
    Some(burst.saturating_sub(remaining) as f64 / burst as f64)
}

/// The value of a row for a measure.
#[expect(clippy::cast_precision_loss, reason = "only to tell which is more")]
fn measure(row: &SourceRow, by: By) -> f64 {
    let (passed, dropped) = (row.passed_per_second, row.dropped_per_second);
    match by {
        By::Dropped => row.dropped as f64,
        By::Passed => row.passed as f64,
        By::Rate => passed.unwrap_or(0.0) + dropped.unwrap_or(0.0),
        By::DropRate => dropped.unwrap_or(0.0),
        By::Utilization => row.utilization.unwrap_or(0.0),
    }
}

/// Address of a source: the address itself, or the first one of a /64.
pub(super) fn address(source: &Source) -> IpAddr {
    match source {
        Source::V4(address) => IpAddr::from(*address),
        Source::V6(prefix) => {
            IpAddr::V6(Ipv6Addr::from_bits(u128::from(u64::from_be_bytes(*prefix)) << 64))
        }
    }
}
