//! A pass over the keys of all tables whose keys contain a source.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::bucket::Resolved;
use limiter_common::source::Source;
use limiter_common::wire::{KeyedBucket, TableKey, field};
use limiter_datapath::{KeyPlace, Observed};
use limiter_rules::compile::TableForm;
use limiter_rules::model::Direction;

use super::counters::Counters;
use crate::error::ServiceError;
use crate::views;

/// Keys that are read before others have their turn: a few milliseconds.
pub(super) const SLICE: usize = 4096;

/// Owner of the packets that a key counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    /// Packets of one source alone.
    One(Source),
    /// Packets of all sources in a prefix together.
    Prefix(IpNet),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct KeyLine {
    pub(super) whose: Whose,
    pub(super) key: TableKey,
    /// Number of the rule under which the key was last charged; `None` if the number now belongs to
    /// another rule.
    pub(super) rule: Option<u32>,
    pub(super) direction: Direction,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KeyPass {
    /// Place in the maps; `None` at the beginning.
    place: Option<KeyPlace>,
    done: bool,
}

impl KeyPass {
    pub(super) const fn is_done(&self) -> bool {
        self.done
    }

    /// Returns true if no key was read yet.
    pub(super) const fn is_new(&self) -> bool {
        !self.done && self.place.is_none()
    }

    /// Reads about `most` further keys.
    pub(super) fn read(
        &mut self,
        datapath: &dyn Observed,
        most: usize,
    ) -> Result<Vec<KeyLine>, ServiceError> {
        let forms = forms(datapath);
        // Without a table whose keys contain sources there is nothing to read.
        if self.done || forms.is_empty() {
            self.done = true;
            return Ok(Vec::new());
        }
        let (keys, next) = datapath.keys(self.place, most)?;
        (self.place, self.done) = (next, next.is_none());
        let line = |(key, bucket): &(TableKey, KeyedBucket)| {
            let form = forms.get(&key.table)?;
            Some(line(datapath, (whose(*form, key)?, *form), key, bucket))
        };
        Ok(keys.iter().filter_map(line).collect())
    }
}

/// The tables in force whose keys contain a source, by id.
pub(super) fn forms(datapath: &dyn Observed) -> BTreeMap<u32, TableForm> {
    let ids = &datapath.installed().tables.ids;
    let with_sources = ids.iter().filter(|(form, _)| form.fields & field::SOURCE != 0);
    with_sources.map(|(form, id)| (*id, *form)).collect()
}

/// Reads a known key again; returns `None` if it no longer exists.
pub(super) fn again(
    datapath: &dyn Observed,
    source: Source,
    key: &TableKey,
) -> Result<Option<KeyLine>, ServiceError> {
    let mut in_force = datapath.installed().tables.ids.iter();
    let Some((form, _)) = in_force.find(|(_, id)| **id == key.table) else { return Ok(None) };
    let bucket = datapath.keyed(*key)?;
    Ok(bucket.map(|bucket| line(datapath, (Whose::One(source), *form), key, &bucket)))
}

fn line(
    datapath: &dyn Observed,
    (whose, form): (Whose, TableForm),
    key: &TableKey,
    bucket: &KeyedBucket,
) -> KeyLine {
    let counters = Counters { passed: bucket.passed, dropped: bucket.dropped };
    let (rule, direction) = (rule_of(datapath, bucket), form.direction());
    KeyLine { whose, key: *key, rule, direction, counters }
}

fn rule_of(datapath: &dyn Observed, bucket: &KeyedBucket) -> Option<u32> {
    let resolved = Resolved::from_raw(bucket.resolved);
    let record = datapath.installed().tables.records.get(&resolved.slot().index())?;
    resolved.generation().knows(record.since).then_some(record.rule)
}

/// The sources whose packets have a key; `None` for a key without an address.
fn whose(form: TableForm, key: &TableKey) -> Option<Whose> {
    let bytes: [u8; 16] = bytemuck::cast(key.source);
    let address = match key.version {
        4 => {
            let [.., a, b, c, d] = bytes;
            IpAddr::from([a, b, c, d])
        }
        6 => IpAddr::from(bytes),
        _ => return None,
    };
    let net = IpNet::from(address);
    let length = form.source?.of(&net)?;
    Some(if form.distinguishes_sources(&net) {
        Whose::One(views::key(address))
    } else {
        Whose::Prefix(IpNet::new(address, length).ok()?)
    })
}
