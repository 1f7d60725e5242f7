//! Implements reading of the data path.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::{
    Attachment, DatapathError, KeyPlace, Keys, Neighbour, Observed, Queueing, SourceTable, Sweep,
    of_key,
};
use ipnet::IpNet;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Ban, Bucket, EntryKind, InterfaceCounters, ListEntry, RuleCounters, Tally,
};
use limiter_rules::{Installed, Selector};

use super::opened::Opened;
use super::{SOURCES, interface_index};

impl Observed for Opened {
    fn attachments(&self) -> &[Attachment] {
        &self.fake.attachments
    }

    fn queueing(&self, interface: &str) -> Result<Queueing, DatapathError> {
        let refused = || DatapathError::Netlink {
            interface: interface.to_owned(),
            source: std::io::Error::other("the fake refuses"),
        };
        self.fake.state().queueing.clone().ok_or_else(refused)
    }

    fn max_frame(&self) -> u64 {
        self.fake.state().max_frame
    }

    fn installed(&self) -> &Installed {
        &self.installed
    }

    fn generation(&self) -> u64 {
        self.fake.state().model.generation()
    }

    fn capacity(&self) -> u32 {
        self.fake.state().capacity
    }

    fn source_table(&self) -> SourceTable {
        self.fake.state().source_table
    }

    fn max_sources(&self) -> u32 {
        SOURCES
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        interface_index(name)
    }

    fn interface_name(&self, index: u32) -> Option<String> {
        ["fake0", "fake1"]
            .into_iter()
            .find(|name| interface_index(name) == Some(index))
            .map(str::to_owned)
    }

    fn labels(&self) -> BTreeMap<u32, String> {
        self.fake.state().labels.clone()
    }

    fn neighbours(&self, at: &Attachment) -> Result<Vec<Neighbour>, DatapathError> {
        Ok(self.fake.state().neighbours.get(&at.ifindex).cloned().unwrap_or_default())
    }

    fn own_addresses(&self) -> Result<Vec<(String, IpNet)>, DatapathError> {
        Ok(self.fake.state().own_addresses.clone())
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError> {
        let state = self.fake.state();
        let mut reasons = state.model.reasons();
        reasons.iter_mut().zip(state.reasons).for_each(|(tally, more)| tally.merge(more));
        Ok(reasons)
    }

    fn interface_counters(
        &self,
        index: u32,
        direction: limiter_common::header::Direction,
    ) -> Result<InterfaceCounters, DatapathError> {
        Ok(self.fake.state().model.interface_counters(index, direction))
    }

    fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError> {
        let state = self.fake.state();
        let mut counters = state.model.rule_counters(number);
        counters.merge(state.rules.get(&number).copied().unwrap_or_default());
        Ok(counters)
    }

    fn list_entries(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError> {
        Ok(self.fake.state().lists.iter().map(|(selector, entry)| (*selector, *entry)).collect())
    }

    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        Ok(self.fake.state().model.bans())
    }

    fn wall(&self) -> Duration {
        let set = self.fake.state().wall;
        set.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap())
    }

    fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        let Some((kind, from)) = sweep.place() else { return Ok(Vec::new()) };
        let state = self.fake.state();
        if kind == EntryKind::Keyed {
            sweep.go_on(None);
            let keyed = state.model.keyed_all();
            let mine = keyed.iter().filter(|(key, _)| Some(key.table) == sweep.table());
            return Ok(mine.map(|(key, bucket)| of_key(key, bucket)).collect());
        }
        let of_lane = |source: &&Source| matches!(source, Source::V4(_)) == (kind == EntryKind::V4);
        let entries: Vec<Source> = state.sources.iter().filter(of_lane).copied().collect();
        let from = from.map_or(0, |from| from as usize);
        let all = entries.len() * state.places;
        let to = (from + most).min(all);
        sweep.go_on((to < all).then(|| u32::try_from(to).unwrap()));
        // Each source is in the first of its places.
        let [from, to] = [from.min(to), to].map(|place| place.div_ceil(state.places));
        let bucket = |source: &Source| Some((*source, state.model.bucket(source)?));
        Ok(entries[from..to].iter().filter_map(bucket).collect())
    }

    fn keys(&self, _from: Option<KeyPlace>, _most: usize) -> Result<Keys, DatapathError> {
        Ok((self.fake.state().model.keyed_all(), None))
    }

    fn now(&self) -> Ticks {
        self.fake.state().now
    }
}
