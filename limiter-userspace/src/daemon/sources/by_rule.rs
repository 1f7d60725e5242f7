//! Drops of one source by each rule on other keys: exact where keys with the source have buckets of
//! their own, else from the events, which are a sample.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::bucket::Resolved;
use limiter_common::verdict::Reason;
use limiter_common::wire::{KeyedBucket, TableKey, field};

use crate::daemon::api::source::RuleDrops;
use crate::daemon::error::ServiceError;
use crate::daemon::events::Events;
use crate::daemon::layers::EffectiveSet;
use crate::daemon::views::{self, Title};
use crate::datapath::Observed;
use crate::rules::compile::TableForm;

/// Keys that are read before others have their turn: a few milliseconds.
const SLICE: usize = 4096;

/// Counters by rule number: packets that passed and that were dropped, and the number of keys.
type Sums = BTreeMap<u32, (u64, u64, u64)>;

/// A pass over all keys of tables, for one source.
#[derive(Debug)]
pub(in crate::daemon) struct ByRule {
    address: IpAddr,
    /// Place in the map; none at its beginning.
    place: Option<u32>,
    /// True if the map was read to its end.
    done: bool,
    sums: Sums,
}

impl ByRule {
    /// A pass for the source of an address.
    pub(in crate::daemon) fn new(address: IpAddr) -> Self {
        Self { address: address.to_canonical(), place: None, done: false, sums: Sums::new() }
    }

    /// Reads on; says whether all was read.
    pub(in crate::daemon) fn step(
        &mut self,
        datapath: &dyn Observed,
    ) -> Result<bool, ServiceError> {
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
            let mine = forms.get(&key.table).is_some_and(|form| is_of(*form, &key, self.address));
            if let Some(number) = mine.then(|| rule_of(datapath, &bucket)).flatten() {
                let (passed, dropped, keys) = self.sums.entry(number).or_default();
                *passed = passed.saturating_add(bucket.passed);
                *dropped = dropped.saturating_add(bucket.dropped);
                *keys += 1;
            }
        }
        (self.place, self.done) = (next, next.is_none());
        Ok(self.done)
    }

    /// The rules, those that dropped most first. What the events tell of the source stands for
    /// rules without a bucket of the source; without a daemon nobody knows.
    pub(in crate::daemon) fn rules(
        self,
        datapath: &dyn Observed,
        effective: &EffectiveSet,
        events: Option<&Events>,
    ) -> Vec<RuleDrops> {
        let titles = views::rule_names(datapath, effective);
        let exact = self.sums.iter().filter_map(|(number, (passed, dropped, keys))| {
            let Title { rule, name } = titles.get(number)?.clone();
            Some(RuleDrops {
                rule: Some(rule),
                rule_name: name,
                reason: Reason::OverLimit.name().to_owned(),
                passed: Some(*passed),
                dropped: *dropped,
                keys: Some(*keys),
                exact: true,
            })
        });
        let mut rules: Vec<RuleDrops> = exact.collect();
        // A source alone has its counters in the answer already.
        let own = effective.resolve(&crate::rules::Selector::address(self.address));
        let own = own.map(|found| found.rule.path.to_string());
        let told = events.map(|events| events.of_source(&views::key(self.address)));
        for sampled in told.unwrap_or_default() {
            let counted = rules.iter().any(|rule| rule.exact && rule.rule == sampled.rule);
            let is_own = own.is_some() && sampled.rule == own;
            if !counted && !is_own {
                rules.push(sampled);
            }
        }
        rules.sort_by_key(|rule| std::cmp::Reverse((rule.dropped, rule.exact)));
        rules
    }
}

/// The number of the rule that a bucket was charged under last; none if that means another one by
/// now.
fn rule_of(datapath: &dyn Observed, bucket: &KeyedBucket) -> Option<u32> {
    let resolved = Resolved::from_raw(bucket.resolved);
    let record = datapath.installed().tables.records.get(&resolved.slot().index())?;
    resolved.generation().knows(record.since).then_some(record.rule)
}

/// True if packets of a source have this key in a table.
fn is_of(form: TableForm, key: &TableKey, address: IpAddr) -> bool {
    let masks = form.source.and_then(|masks| masks.of(&IpNet::from(address)));
    let Some(net) = masks.and_then(|length| IpNet::new(address, length).ok()) else {
        return false;
    };
    let bytes: [u8; 16] = bytemuck::cast(key.source);
    let of_key = match (net, key.version) {
        (IpNet::V4(_), 4) => {
            let [.., a, b, c, d] = bytes;
            IpAddr::from([a, b, c, d])
        }
        (IpNet::V6(_), 6) => IpAddr::from(bytes),
        _ => return false,
    };
    net.trunc().addr() == of_key
}
