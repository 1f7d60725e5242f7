//! The opened maps of one pin directory and the rule set in them: everything that is read from
//! them, by their daemon or by commands without a daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use ipnet::IpNet;
use limiter_common::bucket_key::BucketKey;
use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Ban, Bucket, Control, EntryKind, InterfaceCounters, ListEntry, RuleCounters, RuleSetHeader,
    Tally,
};
use limiter_model::{Reading, of_compact};
use limiter_rules::place::Slots;
use limiter_rules::{Installed, Selector};
use limiter_sharing::clock;

use super::change_map::ChangeMap;
use super::entries::EntryMaps;
use super::held_rules;
use super::leases::LeaseMemory;
use super::lists::Lists;
use super::program_maps::ProgramMaps;
use super::tables::TableMaps;
use super::words::header_of;
use super::{MapSource, Maps};
use crate::hooks::neighbours::neighbours;
use crate::interfaces::interface::MIN_MAX_FRAME;
use crate::interfaces::labels;
use crate::interfaces::own_addresses::own_addresses;
use crate::queueing;
use crate::sources::Sources;
use crate::sources::batch::KeyedMap;
use crate::sources::source_store::SourceStore;
use crate::{
    Attachment, DatapathError, Hook, Interface, KeyPlace, Keys, LinkState, Neighbour, Observed,
    PinDir, Queueing, SourceTable, Sweep,
};

/// Handles on all maps except those of events, and what is known about them.
pub(crate) struct OpenMaps {
    pub(crate) pins: PinDir,
    pub(crate) maps: Maps,
    pub(crate) changes: ChangeMap,
    pub(crate) sources: Sources,
    pub(crate) keyed: KeyedMap,
    pub(crate) source_store: SourceStore,
    pub(crate) lists: Lists,
    pub(crate) tables: TableMaps,
    /// Mapped when first needed: the leases would be a quarter of the daemon's memory even without
    /// a shared limit.
    leases: OnceLock<Arc<LeaseMemory>>,
    pub(crate) entries: EntryMaps,
    pub(crate) program_maps: ProgramMaps,
    pub(crate) attachments: Vec<Attachment>,
    /// Hooks at which each interface should be limited; empty if nobody asked for any.
    pub(crate) hooks: Vec<Hook>,
    /// Largest frame of the interfaces in bytes.
    pub(crate) max_frame: u64,
    pub(crate) installed: Installed,
    pub(crate) generation: u64,
}

impl OpenMaps {
    /// Takes the maps by name. The caller then reads the rules: [`OpenMaps::adopt`].
    pub(crate) fn take(
        source: &mut MapSource<'_>,
        pins: &PinDir,
        source_store: SourceStore,
    ) -> Result<Self, DatapathError> {
        let maps = Maps::take(source)?;
        let lists = Lists::take(source, maps.control(Control::Lists)?)?;
        Ok(Self {
            pins: pins.clone(),
            maps,
            changes: ChangeMap::take(source)?,
            sources: Sources::open(pins, &source_store)?,
            keyed: KeyedMap::open(pins)?,
            source_store,
            lists,
            tables: TableMaps::take(source)?,
            leases: OnceLock::new(),
            entries: EntryMaps::take(source)?,
            program_maps: ProgramMaps::take(source)?,
            attachments: Vec::new(),
            hooks: Vec::new(),
            max_frame: MIN_MAX_FRAME,
            installed: Installed::default(),
            generation: 0,
        })
    }

    pub(crate) fn leases(&self) -> Result<&Arc<LeaseMemory>, DatapathError> {
        if let Some(leases) = self.leases.get() {
            return Ok(leases);
        }
        let leases = LeaseMemory::open(&self.pins)?;
        Ok(self.leases.get_or_init(|| leases))
    }

    /// The number of the rule set that packets meet now: after an expired trial, the next
    /// generation.
    pub(crate) fn generation_in_force(&self) -> Result<u64, DatapathError> {
        let generation = self.maps.control(Control::Generation)?;
        let header = RuleSetHeader::from_raw(self.maps.control(header_of(generation))?);
        let over = self.now() >= Ticks::new(self.maps.control(Control::TrialEnd)?);
        Ok(if header.is_on_trial() && over { generation + 1 } else { generation })
    }

    /// Reads the rules of the generation in force. Returns the limits and records whose slots are
    /// still marked as having left force.
    pub(crate) fn adopt(&mut self, generation: u64) -> Result<Slots, DatapathError> {
        self.generation = generation;
        self.installed = held_rules::adopt(&self.maps, &self.tables, generation, &self.pins)?;
        Ok(self.installed.take_back_in_force())
    }
}

/// A data path over opened maps.
pub(crate) trait HasMaps {
    fn held(&self) -> &OpenMaps;
}

impl HasMaps for OpenMaps {
    fn held(&self) -> &OpenMaps {
        self
    }
}

/// Adds the drops that CPUs have not yet added to the buckets.
fn add_uncounted(
    held: &OpenMaps,
    bucket_keys: &mut [(BucketKey, Bucket)],
) -> Result<(), DatapathError> {
    let mut uncounted: BTreeMap<BucketKey, u64> = BTreeMap::new();
    for (bucket_key, drops) in held.maps.uncounted()? {
        *uncounted.entry(bucket_key).or_default() += drops;
    }
    if !uncounted.is_empty() {
        for (bucket_key, bucket) in bucket_keys {
            let drops = uncounted.get(bucket_key).copied().unwrap_or_default();
            bucket.dropped = bucket.dropped.wrapping_add(drops);
        }
    }
    Ok(())
}

impl<T: HasMaps + Reading<Error = DatapathError>> Observed for T {
    fn attachments(&self) -> &[Attachment] {
        &self.held().attachments
    }

    fn is_at(&self, hook: Hook) -> bool {
        let held = self.held();
        held.hooks.contains(&hook) || held.attachments.iter().any(|at| at.mode.hook() == hook)
    }

    fn queueing(&self, interface: &str) -> Result<Queueing, DatapathError> {
        queueing(interface)
    }

    fn max_frame(&self) -> u64 {
        self.held().max_frame
    }

    fn installed(&self) -> &Installed {
        &self.held().installed
    }

    fn generation(&self) -> u64 {
        self.held().generation
    }

    fn capacity(&self) -> u32 {
        self.held().maps.capacity()
    }

    fn max_sources(&self) -> u32 {
        self.held().source_store.sources
    }

    fn source_table(&self) -> SourceTable {
        self.held().source_store.table
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        let found = Interface::query(name).ok().map(|interface| interface.index);
        // Rules on a renamed interface stay in force, unless another interface has its name now.
        let renamed = |at: &&Attachment| at.asked == name && at.ifindex != 0;
        found.or_else(|| self.held().attachments.iter().find(renamed).map(|at| at.ifindex))
    }

    fn interface_name(&self, index: u32) -> Option<String> {
        let attached = self.held().attachments.iter().find(|at| at.ifindex == index);
        attached.map(|at| at.asked.clone()).or_else(|| Some(Interface::at(index).ok()??.name))
    }

    fn labels(&self) -> BTreeMap<u32, String> {
        let here = self.held().attachments.iter().filter(|at| at.state == LinkState::Attached);
        let indices: BTreeSet<u32> = here.map(|at| at.ifindex).collect();
        labels::labels(indices.into_iter()).unwrap_or_else(|error| {
            tracing::debug!(%error, "not known what is behind the interfaces");
            BTreeMap::new()
        })
    }

    fn neighbours(&self, at: &Attachment) -> Result<Vec<Neighbour>, DatapathError> {
        let held = self.held();
        let here = match at.state {
            LinkState::Attached => Interface::at(at.ifindex)?,
            _ => None,
        };
        let own: Vec<u32> = held.attachments.iter().map(|own| own.program_id).collect();
        here.map_or_else(
            || Ok(Vec::new()),
            |here| neighbours(&here, at.mode.hook().direction(), &own, &held.pins),
        )
    }

    fn own_addresses(&self) -> Result<Vec<(String, IpNet)>, DatapathError> {
        let found = own_addresses().map_err(|source| DatapathError::Netlink {
            interface: "all interfaces".to_owned(),
            source,
        })?;
        let named = found.into_iter().map(|(index, net)| {
            let name = self.interface_name(index).unwrap_or_else(|| format!("interface {index}"));
            (name, net)
        });
        Ok(named.collect())
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError> {
        let mut tallies = [Tally::default(); Reason::COUNT];
        for (tally, reason) in tallies.iter_mut().zip(Reason::ALL) {
            *tally = self.held().maps.reason(reason)?;
        }
        Ok(tallies)
    }

    fn interface_counters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<InterfaceCounters, DatapathError> {
        self.held().maps.interface_counters(index, direction)
    }

    fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError> {
        self.held().maps.rule_counters(number)
    }

    fn list_entries(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError> {
        self.held().lists.all()
    }

    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        self.held().tables.bans()
    }

    fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        if let Some((EntryKind::Keyed, _)) = sweep.place() {
            return self.held().keyed.read(sweep, most);
        }
        let mut sources = self.held().sources.read(sweep, most)?;
        add_uncounted(self.held(), &mut sources)?;
        let source =
            |(bucket_key, bucket): (BucketKey, Bucket)| Some((bucket_key.source()?, bucket));
        Ok(sources.into_iter().filter_map(source).collect())
    }

    fn keys(&self, from: Option<KeyPlace>, most: usize) -> Result<Keys, DatapathError> {
        let held = self.held();
        let tables = &held.installed.tables;
        if let Some((EntryKind::Compact, from)) = from {
            let (mut compact, next) = held.sources.compact(from, most)?;
            add_uncounted(held, &mut compact)?;
            // The remaining entries belong to tables that are no longer compact.
            let key = |(bucket_key, bucket): &_| {
                Some((tables.compact_key(bucket_key)?, of_compact(bucket)))
            };
            let next = next.map(|next| (EntryKind::Compact, Some(next)));
            return Ok((compact.iter().filter_map(key).collect(), next));
        }
        let (mut keys, next) = held.keyed.keys(from.and_then(|(_, from)| from), most)?;
        // Left over from when their table was not compact.
        keys.retain(|(key, _)| tables.compact_bucket_key(key).is_none());
        let next = match next {
            Some(next) => Some((EntryKind::Keyed, Some(next))),
            None => (!tables.compact.is_empty()).then_some((EntryKind::Compact, None)),
        };
        Ok((keys, next))
    }

    fn now(&self) -> Ticks {
        Ticks::from_nanos(clock::kernel_nanos())
    }
}
