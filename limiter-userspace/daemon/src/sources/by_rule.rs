//! Drops of one source, or of all, by each rule on other keys: exact where keys with the source
//! have buckets of their own, else from the events, which are a sample.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::bucket::Resolved;
use limiter_common::verdict::Reason;
use limiter_common::wire::{KeyedBucket, TableKey, field};
use limiter_datapath::{KeyPlace, Observed};
use limiter_rules::Selector;
use limiter_rules::compile::TableForm;

use crate::api::source::RuleDrops;
use crate::api::sources::OtherDrops;
use crate::effective::EffectiveSet;
use crate::error::ServiceError;
use crate::events::Events;
use crate::views::{self, Title};

/// Keys that are read before others have their turn: a few milliseconds.
const SLICE: usize = 4096;

/// Counters by rule number and prefix of the sources: packets that passed and that were dropped,
/// and the number of keys.
type Sums = BTreeMap<(u32, IpNet), (u64, u64, u64)>;

/// Sources that a pass is about.
#[derive(Clone, Copy, Debug)]
enum Whose {
    /// The source of an address.
    Address(IpAddr),
    /// All of which packets were dropped, or those in a prefix.
    Dropped(Option<Selector>),
}

/// A pass over all keys of tables.
#[derive(Debug)]
pub(crate) struct ByRule {
    whose: Whose,
    /// Place in the map; none at its beginning.
    place: Option<KeyPlace>,
    /// True if the map was read to its end.
    done: bool,
    sums: Sums,
}

impl ByRule {
    /// A pass for the source of an address.
    pub(crate) const fn of_address(address: IpAddr) -> Self {
        Self::new(Whose::Address(address.to_canonical()))
    }

    /// A pass for all sources of which packets were dropped, or those in a prefix.
    pub(crate) const fn of_dropped(within: Option<Selector>) -> Self {
        Self::new(Whose::Dropped(within))
    }

    const fn new(whose: Whose) -> Self {
        Self { whose, place: None, done: false, sums: Sums::new() }
    }

    /// Reads on; says whether all was read.
    pub(crate) fn step(&mut self, datapath: &dyn Observed) -> Result<bool, ServiceError> {
        let tables = &datapath.installed().tables;
        // Without a keyed table with sources there is nothing to read.
        let forms: BTreeMap<u32, TableForm> = tables
            .ids
            .iter()
            .filter(|(form, _)| form.fields & field::SOURCE != 0 && !form.is_of_sources())
            .map(|(form, id)| (*id, *form))
            .collect();
        if self.done || forms.is_empty() {
            return Ok(true);
        }
        let (keys, next) = datapath.keys(self.place, SLICE)?;
        for (key, bucket) in keys {
            let prefix = forms.get(&key.table).and_then(|form| prefix_of(*form, &key));
            let prefix = prefix.filter(|prefix| match self.whose {
                Whose::Address(address) => prefix.contains(&address),
                Whose::Dropped(within) => bucket.dropped > 0 && is_within(*prefix, within),
            });
            let owner = prefix.and_then(|prefix| Some((rule_of(datapath, &bucket)?, prefix)));
            if let Some(owner) = owner {
                let (passed, dropped, keys) = self.sums.entry(owner).or_default();
                *passed = passed.saturating_add(bucket.passed);
                *dropped = dropped.saturating_add(bucket.dropped);
                *keys += 1;
            }
        }
        (self.place, self.done) = (next, next.is_none());
        Ok(self.done)
    }

    /// The drops by source and rule, the most first. What the events tell of a source stands for
    /// rules without a bucket of the source; without a daemon nobody knows.
    pub(crate) fn drops(
        self,
        datapath: &dyn Observed,
        effective: &EffectiveSet,
        events: Option<&Events>,
    ) -> Vec<OtherDrops> {
        let titles = views::rule_names(datapath, effective);
        let exact = self.sums.iter().filter_map(|((number, net), (passed, dropped, keys))| {
            let Title { rule, name } = titles.get(number)?.clone();
            let drops = RuleDrops {
                rule: Some(rule),
                rule_name: name,
                reason: Reason::OverLimit.name().to_owned(),
                passed: Some(*passed),
                dropped: *dropped,
                keys: Some(*keys),
                exact: true,
            };
            Some(OtherDrops { source: Selector::Prefix(*net).to_string(), drops })
        });
        let mut rows: Vec<OtherDrops> = exact.collect();
        // A source without a key, as where the table is full, is told of beside those with one.
        let owner = |row: &OtherDrops| match self.whose {
            Whose::Address(_) => (row.drops.rule.clone(), None),
            Whose::Dropped(_) => (row.drops.rule.clone(), Some(row.source.clone())),
        };
        let counted: BTreeSet<_> = rows.iter().map(owner).collect();
        let told = events.map(|events| match self.whose {
            Whose::Address(address) => events.of_source(&Selector::address(address), effective),
            Whose::Dropped(within) => events.by_other_rules(within, effective),
        });
        let told = told.unwrap_or_default().into_iter();
        rows.extend(told.filter(|row| !counted.contains(&owner(row))));
        rows.sort_by_key(|row| std::cmp::Reverse((row.drops.dropped, row.drops.exact)));
        rows
    }
}

/// The number of the rule that a bucket was charged under last; none if that means another one by
/// now.
fn rule_of(datapath: &dyn Observed, bucket: &KeyedBucket) -> Option<u32> {
    let resolved = Resolved::from_raw(bucket.resolved);
    let record = datapath.installed().tables.records.get(&resolved.slot().index())?;
    resolved.generation().knows(record.since).then_some(record.rule)
}

/// The prefix whose sources have this key in a table; none without a source in it.
fn prefix_of(form: TableForm, key: &TableKey) -> Option<IpNet> {
    let bytes: [u8; 16] = bytemuck::cast(key.source);
    let address = match key.version {
        4 => {
            let [.., a, b, c, d] = bytes;
            IpAddr::from([a, b, c, d])
        }
        6 => IpAddr::from(bytes),
        _ => return None,
    };
    let length = form.source?.of(&IpNet::from(address))?;
    IpNet::new(address, length).ok()
}

/// True if a prefix is in the one that was asked for, or around it.
fn is_within(net: IpNet, within: Option<Selector>) -> bool {
    let net = Selector::Prefix(net);
    within.is_none_or(|within| within.contains(&net) || net.contains(&within))
}
