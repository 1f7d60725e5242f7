//! Loading or adopting the data path, and changing it.

use std::cell::RefCell;
use std::collections::BTreeMap;

use aya::Ebpf;
use aya::programs::Xdp;
use limiter_common::algorithm::window::WallOffset;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    ABI_VERSION, Admission, Ban, Bucket, Control, KeyedBucket, Lane, Limit, Record, RuleCounters,
    RuleSetHeader, Space, TableKey, Tally, map,
};

use super::Sweep;
use super::events::EventMaps;
use super::home::{Home, Objects, SourceTable};
use super::lists::Lists;
use super::load::{capacity, load, warn_of_size};
use super::log::KernelLog;
use super::maps::Maps;
use super::programs::{self, Framing};
use super::reading::ProgramMaps;
use super::room::RoomMaps;
use super::sources::Sources;
use super::tables::TableMaps;
use super::trial::{self, Trial};
use super::{Attachment, DatapathError, ModeChoice, Options, PinDir, attach, features};
use crate::rules::plan::HeldTables;
use crate::rules::{Installed, Plan};

/// The XDP program as the build script left it; empty when there was no BPF toolchain.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/limiter"));

/// The same with the buckets of sources in lines.
static LINES: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/limiter-lines"));

/// A loaded program and its pinned maps.
pub struct Kernel {
    pub(super) ebpf: Ebpf,
    pub(super) pins: PinDir,
    pub(super) attachments: Vec<Attachment>,
    pub(super) maps: Maps,
    pub(super) sources: Sources,
    home: Home,
    pub(super) lists: Lists,
    pub(super) tables: TableMaps,
    pub(super) room: RoomMaps,
    pub(super) program_maps: ProgramMaps,
    pub(super) events: EventMaps,
    installed: Installed,
    generation: u64,
    pub(super) trial: Option<Trial>,
    pub(super) max_frame: u64,
    pub(super) choice: ModeChoice,
    logging: bool,
    /// Whether this opening made the maps.
    is_new: bool,
    /// Whether it did, or they had no rules and nothing attached to them.
    fresh: bool,
}

impl Kernel {
    /// Loads the program, with new maps or with the pinned ones of the same ABI. Nothing is attached
    /// and no rule changes.
    pub fn open(options: &Options) -> Result<Self, DatapathError> {
        Self::open_objects(Objects { hash: OBJECT, lines: LINES }, options)
    }

    /// As [`Kernel::open`], with other object files: the test program.
    pub fn open_objects(objects: Objects<'_>, options: &Options) -> Result<Self, DatapathError> {
        if objects.hash.is_empty() || objects.lines.is_empty() {
            return Err(DatapathError::NoObject);
        }
        features::check()?;
        let pins = PinDir::new(&options.pin_dir);
        let mut fresh = false;
        pins.create().and_then(|()| Self::open_at(objects, options, &pins, &mut fresh)).inspect_err(
            |_| {
                if fresh {
                    // Nothing is attached to these maps, and nobody can use them.
                    if let Err(error) = pins.remove_maps() {
                        tracing::warn!(%error, "half-made maps are left: the next start removes them");
                    }
                }
                pins.remove_if_empty();
            },
        )
    }

    /// Says in `fresh` whether the maps are new.
    fn open_at(
        objects: Objects<'_>,
        options: &Options,
        pins: &PinDir,
        fresh: &mut bool,
    ) -> Result<Self, DatapathError> {
        match Maps::open(pins).and_then(|maps| maps.control(Control::Abi)) {
            Ok(ABI_VERSION) => {}
            // A start that was cut short: nothing is attached to these maps yet.
            Ok(0) | Err(_) if pins.interfaces()?.is_empty() => {
                pins.remove_maps()?;
                *fresh = true;
            }
            Ok(found) => {
                return Err(DatapathError::Abi {
                    path: options.pin_dir.clone(),
                    found,
                    expected: ABI_VERSION,
                });
            }
            Err(error) => return Err(error),
        }
        let home = if *fresh { Home::new(options)? } else { Home::adopted(pins)? };
        let mut ebpf = load(objects.of(home.table), options, &home, pins)?;
        let mut maps = Maps::take(&mut ebpf)?;
        let lists = Lists::take(&mut ebpf)?;
        let tables = TableMaps::take(&mut ebpf)?;
        let max_keys = capacity(pins, map::KEYED)?;
        let room = RoomMaps::take(&mut ebpf, &home, max_keys)?;
        let program_maps = ProgramMaps::take(&mut ebpf)?;
        let events = EventMaps::take(&mut ebpf)?;
        let sources = Sources::open(pins, &home)?;
        programs::loaded(&mut ebpf, Framing::Ethernet)?;
        let in_force = maps.control(Control::Generation)?;
        let generation = trial::settle(&mut maps, in_force)?;
        let installed = adopt(&maps, &tables, generation, pins)?;
        let is_new = *fresh;
        let fresh = is_new || installed.is_empty() && pins.interfaces()?.is_empty();
        // The last step: from here on a restart adopts.
        maps.set_control(Control::Abi, ABI_VERSION)?;
        warn_of_size("--max-keys", options.max_keys, max_keys);
        warn_of_size("--max-sources", options.max_sources, home.sources);
        warn_of_size("--max-rules", options.max_rules, maps.capacity());
        Ok(Self {
            ebpf,
            pins: pins.clone(),
            attachments: Vec::new(),
            maps,
            sources,
            home,
            lists,
            tables,
            room,
            program_maps,
            events,
            installed,
            generation,
            trial: None,
            max_frame: attach::MIN_MAX_FRAME,
            choice: ModeChoice::Native,
            logging: options.kernel_log > 0,
            is_new,
            fresh,
        })
    }

    /// Attaches to an interface and pins the link, or adopts the link that is pinned for it and
    /// replaces its program in place, without a packet in between.
    pub fn attach(
        &mut self,
        interface: &str,
        mode: ModeChoice,
    ) -> Result<Attachment, DatapathError> {
        let (attachment, frame) = attach::attach(self, interface, mode)?;
        self.max_frame = self.max_frame.max(frame);
        self.choice = mode;
        self.attachments.push(attachment.clone());
        Ok(attachment)
    }

    /// Interfaces that an earlier start attached and this one was not told to: the same maps, and
    /// the program of then.
    pub fn left_behind(&self) -> Result<Vec<String>, DatapathError> {
        let ours = |name: &String| self.attachments.iter().any(|at| at.interface == *name);
        Ok(self.pins.interfaces()?.into_iter().filter(|name| !ours(name)).collect())
    }

    /// Whether this opening made the maps: then they hold nothing that was there before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// What is attached by this process.
    pub fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// The largest frame in bytes of the attached interfaces, at least 1522.
    pub fn max_frame(&self) -> u64 {
        self.max_frame
    }

    /// The rules in force.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }

    /// Their number.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Rules that there is room for.
    pub fn capacity(&self) -> u32 {
        self.maps.capacity()
    }

    /// Sources tracked per family.
    pub fn max_sources(&self) -> u32 {
        self.home.sources
    }

    /// Where they have their buckets.
    pub fn source_table(&self) -> SourceTable {
        self.home.table
    }

    /// A table of entries: its settings and its hands, and what became of new entries.
    pub fn room(&self, lane: Lane) -> Result<(Space, Admission), DatapathError> {
        Ok((self.room.space(lane)?, self.room.admission(lane)?))
    }

    /// Changes the settings of a table of entries. Its size stays, and where sources have their lines until the program is
    /// loaded anew.
    pub fn set_space(&mut self, lane: Lane, space: Space) -> Result<(), DatapathError> {
        self.room.set_space(lane, space)
    }

    /// Puts a planned rule set in force. Until the last step the old one is.
    pub fn commit(&mut self, plan: Plan) -> Result<u64, DatapathError> {
        let ended = plan.ended.clone();
        let generation = self.put_in_force(plan, None)?;
        self.retire(&ended);
        Ok(generation)
    }

    /// Sums up the counts of rules that ended. The rule set is in force by now, so what fails here is told
    /// and is no failure of it.
    pub(super) fn retire(&mut self, ended: &[u32]) {
        if let Err(error) = self.maps.retire_rule_counters(ended) {
            tracing::warn!(%error, "the counts of rules that ended are lost");
        }
    }

    /// The same, without the counters of the rules that ended; on trial until `end`, if that is given.
    pub(super) fn put_in_force(
        &mut self,
        plan: Plan,
        end: Option<Ticks>,
    ) -> Result<u64, DatapathError> {
        // The buffers of the rule set before are needed until the trial is over.
        if self.trial.is_some() {
            return Err(DatapathError::OnTrial);
        }
        let Plan { limits, trie, tables, begun, ended: _, installed } = plan;
        let generation = self.generation + 1;
        self.maps.clear_rule_counters(&begun)?;
        self.maps.set_limits(&limits)?;
        self.tables.fill(generation, &tables, &self.pins)?;
        self.maps.set_trie(generation, &trie, &self.pins)?;
        if tables.keeps_bans {
            self.maps.set_control(Control::BansKept, 1)?;
        }
        let [replies, bans] = own_budgets_of(generation);
        self.maps.set_control(replies, tables.replies)?;
        self.maps.set_control(bans, tables.bans)?;
        if let Some(end) = end {
            self.maps.set_control(Control::TrialEnd, end.get())?;
        }
        let header = tables.header.with_trial(end.is_some());
        self.maps.set_control(header_of(generation), header.raw())?;
        self.maps.set_control(Control::Generation, generation)?;
        self.set_installed(generation, installed);
        Ok(generation)
    }

    pub(super) fn set_installed(&mut self, generation: u64, installed: Installed) {
        self.generation = generation;
        self.installed = installed;
    }

    /// `limiter off` and `on`: with the brake every packet passes.
    pub fn set_brake(&mut self, engaged: bool) -> Result<(), DatapathError> {
        self.maps.set_control(Control::Brake, u64::from(engaged))
    }

    /// Whether the brake is engaged.
    pub fn brake(&self) -> Result<bool, DatapathError> {
        Ok(self.maps.control(Control::Brake)? != 0)
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

    /// Reads on in all sources: about `most` of them. At the end of the sweep, none.
    pub fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
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

    /// Forgets the bans of a source. Says whether there were any.
    pub fn unban(&mut self, source: &Source) -> Result<bool, DatapathError> {
        self.tables.unban(&source.trie_key())
    }

    /// Tells the program where the windows of the wall clock begin: to be called now and then,
    /// because the wall clock is set and the monotonic one is not.
    pub fn refresh_wall_clock(&mut self) -> Result<(), DatapathError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        let realtime = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        let offset = WallOffset::of_clocks(realtime, self.now().as_nanos());
        self.set_wall_offset(offset)
    }

    /// Sets where the windows of the wall clock begin.
    pub fn set_wall_offset(&mut self, offset: WallOffset) -> Result<(), DatapathError> {
        self.maps.set_control(Control::WallOffset, offset.nanos())
    }

    /// Says from when on the daemon counts as lost, for rules that then only count. Later than 0.
    pub fn set_daemon_lost(&mut self, from: Ticks) -> Result<(), DatapathError> {
        self.maps.set_control(Control::DaemonLost, from.get())
    }

    /// The program's clock.
    pub fn now(&self) -> Ticks {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Ticks::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    /// The program's own log, once; `None` when the level is off.
    pub fn take_log(&mut self) -> Option<KernelLog> {
        if self.logging { KernelLog::take(&mut self.ebpf) } else { None }
    }

    /// Lets go without detaching: the limits stay in force, for the next start to adopt.
    pub fn leave(self) {
        drop(self);
    }

    /// Detaches from every interface and removes every pin: links first.
    pub fn detach(self) -> Result<(), DatapathError> {
        // Dropping the handles afterwards frees the maps.
        self.pins.remove()
    }

    /// Undoes what this start did: detaches where it attached, and removes maps that nothing was attached to
    /// before. What it adopted stays in force.
    pub fn give_back(self) -> Result<(), DatapathError> {
        let made = self.attachments.iter().filter(|at| !at.adopted);
        for at in made {
            self.pins.remove_link(&at.interface)?;
        }
        let adopted = self.attachments.iter().any(|at| at.adopted);
        // With rules or links there already, the maps are not ours to remove.
        if adopted || !self.fresh || !self.pins.interfaces()?.is_empty() {
            return Ok(());
        }
        self.pins.remove()
    }

    /// The program for such frames.
    pub(super) fn program(&mut self, framing: Framing) -> Result<&mut Xdp, DatapathError> {
        programs::loaded(&mut self.ebpf, framing)
    }
}

/// The rules in the maps. One that cannot be read is an error: without it, its slot would seem to be free.
fn adopt(
    maps: &Maps,
    tables: &TableMaps,
    generation: u64,
    pins: &PinDir,
) -> Result<Installed, DatapathError> {
    let failed = RefCell::new(None);
    let installed = Installed::from_maps(&maps.trie(generation, pins)?, |slot| {
        noted(&failed, maps.limit(slot))
    })
    .with_tables(
        &held(maps, tables, generation, pins)?,
        |slot| noted(&failed, tables.record(slot)),
        |index| noted(&failed, tables.action(u32::from(index))),
    );
    failed.into_inner().map_or(Ok(installed), Err)
}

/// What was found; keeps why it was not.
fn noted<T>(failed: &RefCell<Option<DatapathError>>, found: Result<T, DatapathError>) -> Option<T> {
    found.map_err(|error| failed.replace(Some(error))).ok()
}

/// What the maps hold beside the source table.
fn held(
    maps: &Maps,
    tables: &TableMaps,
    generation: u64,
    pins: &PinDir,
) -> Result<HeldTables, DatapathError> {
    let header = RuleSetHeader::from_raw(maps.control(header_of(generation))?);
    let [replies, bans] = own_budgets_of(generation);
    Ok(HeldTables {
        tables: tables.tables(generation, header.tables())?,
        trie: tables.trie(generation, pins)?,
        replies: maps.control(replies)?,
        bans: maps.control(bans)?,
        interfaces: tables.interfaces()?,
    })
}

/// Where the header of a generation is.
pub(super) fn header_of(generation: u64) -> Control {
    if generation.is_multiple_of(2) { Control::EvenRuleSet } else { Control::OddRuleSet }
}

/// Where the budgets of replies and of bans of a generation are.
fn own_budgets_of(generation: u64) -> [Control; 2] {
    if generation.is_multiple_of(2) {
        [Control::EvenReplies, Control::EvenBans]
    } else {
        [Control::OddReplies, Control::OddBans]
    }
}
