//! Limiter as it is shipped, without an interface.

use std::net::Ipv4Addr;
use std::num::NonZero;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use aya::maps::{Array, Map, MapData};
use aya::programs::{ProgramFd, loaded_programs};
use limiter_common::bucket::Slot;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{BUDGET_LEASES, CaptureFilter, EntryKind, EntryTable, KeyLeases, map};
use limiter_datapath::{
    Datapath as _, Framing, Hook, Kernel, Observed as _, Options, SourceTable, Sweep, TcOrder,
};
use limiter_rules::Selector;

use crate::bpffs::Bpffs;
use crate::program::{self, SHIPPED};
use crate::work_dir::WorkDir;

/// The loaded program. Its pins go with it.
pub struct Subject {
    kernel: Kernel,
    fd: ProgramFd,
    /// How new entries are let in as shipped.
    entry_tables: Vec<(EntryKind, EntryTable)>,
    // Dropped in this order: the pins, then the directory that they are mounted on.
    bpffs: Bpffs,
    _dir: WorkDir,
}

impl Subject {
    /// Loads the test program, with maps of these sizes.
    pub fn load(max_sources: u32, max_keys: u32, max_rules: u32) -> Result<Self> {
        Self::load_in(SourceTable::Hash, max_sources, max_keys, max_rules)
    }

    /// Loads limiter with the buckets of sources in a store.
    pub fn load_in(
        source_table: SourceTable,
        max_sources: u32,
        max_keys: u32,
        max_rules: u32,
    ) -> Result<Self> {
        let dir = WorkDir::create("bench")?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let pin_dir = bpffs.path().join("limiter");
        let options = Options {
            pin_dir,
            max_sources,
            max_rules,
            max_keys,
            source_table,
            kernel_log: 0,
            tc_order: TcOrder::First,
            then: None,
        };
        let mut kernel = Kernel::open(SHIPPED, &options)?;
        let id = kernel.program_id(Hook::Xdp, Framing::Ethernet)?;
        let found = loaded_programs().filter_map(Result::ok).find(|info| info.id() == id);
        let fd = found.context("the program of limiter is gone")?.fd()?;
        let entry_tables = EntryKind::ALL
            .into_iter()
            .map(|kind| Ok((kind, kernel.entries(kind)?.0)))
            .collect::<Result<_>>()?;
        Ok(Self { kernel, fd, entry_tables, bpffs, _dir: dir })
    }

    /// Descriptor of the loaded program, for test-runs.
    pub const fn fd(&self) -> &ProgramFd {
        &self.fd
    }

    /// Directory of the pins of the maps.
    pub fn map_pins(&self) -> PathBuf {
        self.bpffs.path().join("limiter/maps")
    }

    /// Puts a rule file in force.
    pub fn apply(&mut self, rules: &str) -> Result<()> {
        program::commit(&mut self.kernel, &program::rule_set(rules)?)
    }

    /// Grants every lease more than packets can use, for ever.
    pub fn grant(&self) -> Result<()> {
        for lease in self.kernel.leases()?.all() {
            lease.grant(u64::MAX, Ticks::new(u64::MAX));
        }
        Ok(())
    }

    /// Gives the keys that have asked leases from number `first` on, one each; how many there were.
    pub fn answer(&self, first: u32) -> Result<u32> {
        let mut next = BUDGET_LEASES + first;
        for ask in self.kernel.leases()?.take_asks() {
            let leases = KeyLeases::new(Slot::new(ask.slot), next);
            self.kernel.leases()?.set_leased(&ask.key, Some(leases))?;
            next += 1;
        }
        Ok(next - BUDGET_LEASES - first)
    }

    /// Lets in any number of new entries, or as many as shipped.
    pub fn open_doors(&mut self, open: bool) -> Result<()> {
        for (kind, shipped) in &self.entry_tables {
            let (now, _) = self.kernel.entries(*kind)?;
            let (cost, tolerance) = if open { (0, 0) } else { (shipped.cost, shipped.tolerance) };
            self.kernel.set_entry_table(*kind, EntryTable { cost, tolerance, ..now })?;
        }
        Ok(())
    }

    /// Lets an entry leave as soon as it has drained, however lately, flood or not.
    pub fn spare_nobody(&mut self) -> Result<()> {
        for (kind, _) in &self.entry_tables {
            let (now, _) = self.kernel.entries(*kind)?;
            self.kernel.set_entry_table(*kind, EntryTable { keep: 0, ..now })?;
        }
        Ok(())
    }

    /// Packets of a source that passed, by the rule that it has of its own.
    pub fn passed(&self, address: Ipv4Addr) -> Result<u64> {
        let rules = &self.kernel.installed().rules;
        let rule = rules.get(&Selector::address(address.into())).context("it has no rule")?;
        Ok(self.kernel.rule_counters(rule.limit.rule)?.passed.packets)
    }

    /// Every source with a bucket.
    pub fn sources(&self) -> Result<Vec<Source>> {
        let (mut sweep, mut all) = (Sweep::default(), Vec::new());
        while !sweep.is_done() {
            all.extend(
                self.kernel.sources(&mut sweep, 4_096)?.into_iter().map(|(source, _)| source),
            );
        }
        Ok(all)
    }

    /// Lines in which somebody is about to make an entry.
    pub fn locked_lines(&self) -> Result<usize> {
        let lines = MapData::from_pin(self.map_pins().join(map::LINES))?;
        let lines: Array<_, [u64; 4]> = Map::from_map_data(lines)?.try_into()?;
        let mut locked = 0;
        // Of eight elements, the first is the head, and of that the first word the lock.
        for index in (0..lines.len()).step_by(8) {
            locked += usize::from(lines.get(&index, 0)?[0] != 0);
        }
        Ok(locked)
    }

    /// Reports so many drops a second on each CPU, or none.
    pub fn report(&mut self, per_second: u32) -> Result<()> {
        let rate = NonZero::new(per_second);
        Ok(self.kernel.set_event_rate(rate, rate.unwrap_or(NonZero::<u32>::MIN))?)
    }

    /// Begins a capture that lasts, or ends it.
    pub fn capture(&mut self, filter: Option<&CaptureFilter>) -> Result<()> {
        match filter {
            Some(filter) => self.kernel.begin_capture(filter, Ticks::new(1 << 62))?,
            None => self.kernel.capture_until(Ticks::ZERO)?,
        }
        Ok(())
    }

    /// Packets so far by reason.
    pub fn reasons(&self) -> Result<[u64; Reason::COUNT]> {
        Ok(self.kernel.reasons()?.map(|tally| tally.packets))
    }

    /// Takes what was reported, so that no ring fills up.
    pub fn drain(&mut self) {
        while self.kernel.next_event().is_some() {}
        while self.kernel.next_captured().is_some() {}
    }
}
