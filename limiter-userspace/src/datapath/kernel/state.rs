//! Reading what the program counts, and the state of sources and keys.

use std::collections::BTreeMap;

use limiter_common::source::Source;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, KeyedBucket, Lane, Limit, Record, RuleCounters, Space, TableKey, Tally,
};

use super::Kernel;
use crate::datapath::{DatapathError, Sweep};

impl Kernel {
    /// A table of entries: its settings and its hands, and what became of new entries.
    pub fn room(&self, lane: Lane) -> Result<(Space, Admission), DatapathError> {
        Ok((self.room.space(lane)?, self.room.admission(lane)?))
    }

    /// Packets and bytes by reason, since the maps were made.
    pub fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError> {
        let mut tallies = [Tally::default(); Reason::COUNT];
        for (tally, reason) in tallies.iter_mut().zip(Reason::ALL) {
            *tally = self.maps.reason(reason)?;
        }
        Ok(tallies)
    }

    /// What a rule did, by its number.
    pub fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError> {
        self.maps.rule_counters(number)
    }

    /// What a slot holds, also one that no rule in force has any more.
    pub fn limit(&self, slot: u32) -> Result<Limit, DatapathError> {
        self.maps.limit(slot)
    }

    /// The state of a source.
    pub fn bucket(&self, source: &Source) -> Result<Option<Bucket>, DatapathError> {
        let mut bucket = self.sources.bucket(source)?;
        if let Some(bucket) = &mut bucket {
            let ours = |(of, drops)| if of == *source { drops } else { 0 };
            let drops = self.maps.uncounted()?.into_iter().map(ours).sum();
            bucket.dropped = bucket.dropped.wrapping_add(drops);
        }
        Ok(bucket)
    }

    /// Reads on in all sources: about `most` of them, which may be none before the end of the
    /// sweep.
    pub fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        if let Some((Lane::Keyed, _)) = sweep.place() {
            return self.keyed.read(sweep, most);
        }
        let mut sources = self.sources.read(sweep, most)?;
        let mut uncounted: BTreeMap<Source, u64> = BTreeMap::new();
        for (source, drops) in self.maps.uncounted()? {
            *uncounted.entry(source).or_default() += drops;
        }
        if !uncounted.is_empty() {
            for (source, bucket) in &mut sources {
                let drops = uncounted.get(source).copied().unwrap_or_default();
                bucket.dropped = bucket.dropped.wrapping_add(drops);
            }
        }
        Ok(sources)
    }

    /// The state of a key of a table.
    pub fn keyed(&self, key: &TableKey) -> Result<Option<KeyedBucket>, DatapathError> {
        self.tables.keyed(key)
    }

    /// The state of a shared budget.
    pub fn budget(&self, index: u32) -> Result<KeyedBucket, DatapathError> {
        self.tables.budget(index)
    }

    /// What a slot of the tables holds, also one that no rule in force has any more.
    pub fn record(&self, slot: u32) -> Result<Record, DatapathError> {
        self.tables.record(slot)
    }

    /// Sources with a ban on record, also one that has ended.
    pub fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        self.tables.bans()
    }

    /// What is on record of the bans of one source.
    pub fn ban(&self, source: &Source) -> Result<Option<Ban>, DatapathError> {
        self.tables.ban(&source.trie_key())
    }
}
