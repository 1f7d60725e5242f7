//! The data path of tests: the [`Model`] behind the trait [`Datapath`], with a clock that stands
//! still until it is set, a switch that refuses, and counters that a test may add to.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails where its machinery does"
)]

mod leases;
mod memory_leases;
mod reading;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aya::maps::MapError;
use ipnet::IpNet;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, CaptureBudget, CaptureFilter, Control, EntryKind, EntryTable, Event,
    EventBudget, InterfaceCounters, ListEntry, RuleCounters, Tally, map,
};
use limiter_datapath::{
    Attachment, Backend, CapturedPacket, Datapath, DatapathError, Framing, KeyPlace, Keys,
    LinkChange, LinkState, Mode, ModeChoice, Observed, Options, Reading as _, SourceTable, Sweep,
    TrialOutcome, of_key,
};
use limiter_model::Model;
use limiter_rules::{Installed, Plan, Selector};
use limiter_sharing::Leases;

pub use memory_leases::MemoryLeases;

/// Sources that the model has room for, per family: so many that 60,000 at once get entries.
pub const SOURCES: u32 = 1 << 18;

/// Keys of tables that the model has room for.
const KEYS: u32 = 1 << 10;

/// Index of the one interface, `fake0`.
const INTERFACE: u32 = 7;

/// The model, and what a test decides or wants to know.
#[expect(clippy::struct_excessive_bools, reason = "a test's tick list, not a state machine")]
#[derive(Debug)]
pub struct State {
    /// The maps.
    pub model: Model,
    /// Rule sets that were put in force.
    pub commits: usize,
    /// Makes the next commits fail.
    pub refuse_commits: bool,
    /// True if interfaces take VLAN tags off; `None` for a kernel that does not say.
    pub strips_tags: Option<bool>,
    /// Time that the last sign of life lasts.
    pub sign_of_life: Option<Duration>,
    /// True once the program was taken off.
    pub detached: bool,
    /// True if an opened data path was let go and not detached.
    pub left: bool,
    /// How often it was opened.
    pub opened: usize,
    /// Finding of the next look at the interfaces.
    pub link_changes: Vec<LinkChange>,
    /// True if somebody removed the pins.
    pub unpinned: bool,
    /// True if maps were there at the start.
    pub adopted: bool,
    /// Largest frame of the interface in bytes.
    pub max_frame: u64,
    /// Slots for limits.
    pub capacity: u32,
    /// The clock.
    pub now: Ticks,
    /// The wall clock, if it is not this machine's.
    pub wall: Option<Duration>,
    /// Sources that have sent something.
    sources: BTreeSet<Source>,
    /// Places in the map of sources for each source that is there: more than one as in lines.
    pub places: usize,
    /// Counts of new entries, beside the model's.
    pub admission: HashMap<EntryKind, Admission>,
    /// Counts of rules, beside the model's.
    pub rules: HashMap<u32, RuleCounters>,
    /// Counts of reasons, beside the model's.
    pub reasons: [Tally; Reason::COUNT],
    /// The lists as the model has them.
    pub lists: BTreeMap<Selector, ListEntry>,
    /// Addresses of the machine, each with the name of its interface and its network.
    pub own_addresses: Vec<(String, IpNet)>,
    /// How often the wall clock was set.
    pub clock_refreshed: usize,
    /// Drops that the program has told, and nobody has taken.
    pub events: VecDeque<Event>,
    /// Counts of events.
    pub event_counts: EventBudget,
    /// Events a second.
    pub event_rate: Option<NonZero<u32>>,
    /// Store of the buckets of sources.
    pub source_table: SourceTable,
    /// Packets that the program has told whole, and nobody has taken.
    pub captured: VecDeque<CapturedPacket>,
    /// Packets that a capture takes.
    pub capture_filter: CaptureFilter,
    /// End of the capture.
    pub capture_end: Ticks,
    /// Counts of the capture.
    pub capture_counts: CaptureBudget,
}

impl State {
    /// The rules in force.
    pub fn installed(&self) -> &Installed {
        self.model.installed()
    }

    /// True if every packet passes.
    pub fn is_off(&self) -> bool {
        self.model.control(Control::Brake).unwrap() != 0
    }

    /// Empties the lists, as a restart of the machine does.
    pub fn clear_lists(&mut self) {
        for selector in std::mem::take(&mut self.lists).into_keys() {
            self.model.unlist(&selector);
        }
    }
}

/// The data path and, to the test, its inside.
#[derive(Clone, Debug)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    attachments: Vec<Attachment>,
}

impl Default for Fake {
    fn default() -> Self {
        let attachment = Attachment {
            interface: "fake0".to_owned(),
            ifindex: INTERFACE,
            mode: Mode::Native,
            program_id: 42,
            link_id: 4,
            adopted: false,
            state: LinkState::Attached,
            asked: "fake0".to_owned(),
        };
        let state = State {
            model: Model::with_room(SOURCES, KEYS, 0),
            commits: 0,
            refuse_commits: false,
            strips_tags: Some(false),
            sign_of_life: None,
            detached: false,
            left: false,
            opened: 0,
            link_changes: Vec::new(),
            unpinned: false,
            adopted: false,
            max_frame: 1522,
            capacity: 64,
            now: Ticks::ZERO,
            wall: None,
            sources: BTreeSet::new(),
            places: 1,
            admission: HashMap::new(),
            rules: HashMap::new(),
            reasons: [Tally::default(); Reason::COUNT],
            lists: BTreeMap::new(),
            clock_refreshed: 0,
            events: VecDeque::new(),
            event_counts: EventBudget::default(),
            event_rate: None,
            own_addresses: Vec::new(),
            source_table: SourceTable::default(),
            captured: VecDeque::new(),
            capture_filter: CaptureFilter::default(),
            capture_end: Ticks::ZERO,
            capture_counts: CaptureBudget::default(),
        };
        Self { state: Arc::new(Mutex::new(state)), attachments: vec![attachment] }
    }
}

/// The beginning of a frame of `length` bytes from a source: Ethernet, IP and nothing of UDP.
fn frame(source: Source, length: u64) -> Vec<u8> {
    let mut frame = vec![0; 12];
    let after_ethernet = u16::try_from(length - 14).unwrap();
    match source {
        Source::V4(address) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend(after_ethernet.to_be_bytes());
            frame.extend([0, 0, 0, 0, 64, 17, 0, 0]);
            frame.extend(address);
            frame.extend([198, 51, 100, 1]);
        }
        Source::V6(prefix) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((after_ethernet - 40).to_be_bytes());
            frame.extend([17, 64]);
            frame.extend(prefix);
            frame.extend([0, 0, 0, 0, 0, 0, 0, 1]);
            frame.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        }
    }
    frame
}

impl Fake {
    /// The state, locked.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Sends `packets` of `length` bytes, 60 at least.
    pub fn send(&self, source: Source, packets: u64, length: u64) {
        let mut state = self.state();
        state.sources.insert(source);
        let (now, frame) = (state.now, frame(source, length));
        for _ in 0..packets {
            state.model.judge_captured(Framing::Ethernet, &frame, length, INTERFACE, now);
        }
    }

    /// Opens it as a start does.
    pub fn open_now(&self) -> Box<dyn Datapath> {
        let installed = self.state().installed().clone();
        let mut fake = self.clone();
        fake.attachments[0].adopted = self.state().adopted;
        Box::new(Opened { fake, installed, trial_end: None })
    }
}

/// An opened data path. As the trait hands out a reference, it has a copy of the installed rules
/// beside the shared state.
#[derive(Debug)]
struct Opened {
    fake: Fake,
    installed: Installed,
    trial_end: Option<Ticks>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A test that failed says so itself.
        if let Ok(mut state) = self.fake.state.lock() {
            state.left = !state.detached;
        }
    }
}

impl Observed for Opened {
    fn attachments(&self) -> &[Attachment] {
        &self.fake.attachments
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

    fn entries(&self, kind: EntryKind) -> Result<(EntryTable, Admission), DatapathError> {
        let state = self.fake.state();
        let (entry_table, mut admission) = state.model.entries(kind);
        admission.merge(state.admission.get(&kind).copied().unwrap_or_default());
        Ok((entry_table, admission))
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

    fn own_addresses(&self) -> Result<Vec<(String, IpNet)>, DatapathError> {
        Ok(self.fake.state().own_addresses.clone())
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError> {
        let state = self.fake.state();
        let mut reasons = state.model.reasons();
        reasons.iter_mut().zip(state.reasons).for_each(|(tally, more)| tally.merge(more));
        Ok(reasons)
    }

    fn interface_counters(&self, index: u32) -> Result<InterfaceCounters, DatapathError> {
        Ok(self.fake.state().model.interface_counters(index))
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

impl Datapath for Opened {
    fn look_after_links(&mut self) -> Vec<LinkChange> {
        std::mem::take(&mut self.fake.state().link_changes)
    }

    fn is_pinned(&self) -> bool {
        !self.fake.state().unpinned
    }

    fn is_new(&self) -> bool {
        !self.fake.state().adopted
    }

    fn put_in_force(&mut self, plan: Plan, end: Option<Ticks>) -> Result<u64, DatapathError> {
        if self.trial_end.is_some() {
            return Err(DatapathError::OnTrial);
        }
        let mut state = self.fake.state();
        if state.refuse_commits {
            return Err(DatapathError::Map { map: map::LIMITS, source: MapError::KeyNotFound });
        }
        state.commits += 1;
        let now = state.now;
        let generation = match end {
            None => state.model.commit(plan, now),
            Some(end) => state.model.commit_on_trial(plan, end, now),
        };
        self.trial_end = end;
        self.installed = state.installed().clone();
        Ok(generation)
    }

    fn confirm(&mut self) -> Result<TrialOutcome, DatapathError> {
        match self.trial_end {
            None => Err(DatapathError::NoTrial),
            Some(end) if end <= self.now() => {
                self.revert()?;
                Ok(TrialOutcome::Reverted)
            }
            Some(_) => {
                self.trial_end = None;
                self.fake.state().model.confirm();
                Ok(TrialOutcome::Confirmed)
            }
        }
    }

    fn revert(&mut self) -> Result<(), DatapathError> {
        self.trial_end.take().ok_or(DatapathError::NoTrial)?;
        let mut state = self.fake.state();
        let now = state.now;
        state.model.revert(now);
        self.installed = state.installed().clone();
        Ok(())
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn strips_tags(&self, interface: &str) -> Result<bool, DatapathError> {
        let refused = || DatapathError::Netlink {
            interface: interface.to_owned(),
            source: std::io::Error::other("the fake refuses"),
        };
        self.fake.state().strips_tags.ok_or_else(refused)
    }

    fn set_brake(&mut self, engaged: bool) -> Result<(), DatapathError> {
        self.fake.state().model.set_brake(engaged);
        Ok(())
    }

    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), DatapathError> {
        let mut state = self.fake.state();
        state.model.list(selector, entry);
        state.lists.insert(*selector, entry);
        Ok(())
    }

    fn unlist(&mut self, selector: &Selector) -> Result<bool, DatapathError> {
        let mut state = self.fake.state();
        state.model.unlist(selector);
        Ok(state.lists.remove(selector).is_some())
    }

    fn leases(&self) -> Result<Box<dyn Leases>, DatapathError> {
        Ok(Box::new(self.fake.clone()))
    }

    fn put_ban(&mut self, source: &Source, ban: Ban) -> Result<(), DatapathError> {
        self.fake.state().model.put_ban(source, &ban);
        Ok(())
    }

    fn unban(&mut self, source: &Source) -> Result<bool, DatapathError> {
        Ok(self.fake.state().model.unban(source))
    }

    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), DatapathError> {
        let mut state = self.fake.state();
        state.sign_of_life = Some(lasts);
        let nanos = u64::try_from(lasts.as_nanos()).unwrap();
        let lost = state.now.plus(Ticks::from_nanos(nanos));
        state.model.set_daemon_lost(lost);
        Ok(())
    }

    fn refresh_wall_clock(&mut self) -> Result<(), DatapathError> {
        self.fake.state().clock_refreshed += 1;
        Ok(())
    }

    fn next_event(&mut self) -> Option<Event> {
        self.fake.state().events.pop_front()
    }

    fn event_descriptor(&self) -> Result<Option<OwnedFd>, DatapathError> {
        Ok(None)
    }

    fn event_counts(&self) -> Result<EventBudget, DatapathError> {
        Ok(self.fake.state().event_counts)
    }

    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        _burst: NonZero<u32>,
    ) -> Result<(), DatapathError> {
        self.fake.state().event_rate = per_second;
        Ok(())
    }

    fn begin_capture(&mut self, filter: &CaptureFilter, until: Ticks) -> Result<(), DatapathError> {
        let mut state = self.fake.state();
        state.captured.clear();
        state.capture_filter = *filter;
        state.capture_end = until;
        Ok(())
    }

    fn capture_until(&mut self, until: Ticks) -> Result<(), DatapathError> {
        self.fake.state().capture_end = until;
        Ok(())
    }

    fn set_capture_level(
        &mut self,
        _filter: &CaptureFilter,
        level: u32,
    ) -> Result<(), DatapathError> {
        self.fake.state().capture_filter.level = level;
        Ok(())
    }

    fn next_captured(&mut self) -> Option<CapturedPacket> {
        self.fake.state().captured.pop_front()
    }

    fn capture_counts(&self) -> Result<CaptureBudget, DatapathError> {
        Ok(self.fake.state().capture_counts)
    }

    fn give_back(self: Box<Self>) -> Result<(), DatapathError> {
        if self.fake.attachments.iter().any(|at| !at.adopted) {
            self.detach()?;
        }
        Ok(())
    }

    fn free(&mut self, interface: &str) -> Result<(), DatapathError> {
        let Some(at) = self.fake.attachments.iter().position(|at| at.interface == interface) else {
            let limited = self.fake.attachments.iter().map(|at| at.interface.clone()).collect();
            return Err(DatapathError::NotLimited { name: interface.to_owned(), limited });
        };
        self.fake.attachments.remove(at);
        Ok(())
    }

    fn detach(self: Box<Self>) -> Result<Vec<String>, DatapathError> {
        self.fake.state().detached = true;
        Ok(self.fake.attachments.iter().map(|at| at.interface.clone()).collect())
    }
}

fn interface_index(name: &str) -> Option<u32> {
    match name {
        "fake0" => Some(INTERFACE),
        "fake1" => Some(8),
        _ => None,
    }
}

impl Backend for Fake {
    fn check(&self, interfaces: &[String], _pin_dir: &Path) -> Result<u64, DatapathError> {
        match interfaces.iter().find(|name| *name != "fake0") {
            Some(name) => Err(DatapathError::NoInterface(name.clone())),
            None => Ok(1522),
        }
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        interface_index(name)
    }

    fn cpus(&self) -> u32 {
        2
    }

    fn open(
        &self,
        options: &Options,
        _interfaces: &[String],
        _mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, DatapathError> {
        self.state().opened += 1;
        self.state().source_table = options.source_table;
        Ok(self.open_now())
    }

    fn give_up_privileges(&self) -> std::io::Result<()> {
        // The tests are threads of one process.
        Ok(())
    }

    fn read(&self, pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError> {
        if !pin_dir.ends_with("pinned") {
            return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
        }
        let installed = self.state().installed().clone();
        Ok(Box::new(Opened { fake: self.clone(), installed, trial_end: None }))
    }

    fn set_brake(&self, pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
        if !pin_dir.ends_with("pinned") {
            return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
        }
        self.state().model.set_brake(engaged);
        Ok(())
    }

    fn limited(&self, _pin_dir: &Path) -> Vec<String> {
        let brake = self.state().model.control(Control::Brake);
        let engaged = brake.is_ok_and(|brake| brake != 0);
        if engaged { Vec::new() } else { vec!["fake0".to_owned()] }
    }

    fn free(&self, _pin_dir: &Path, _interface: &str) -> Result<(), DatapathError> {
        Ok(())
    }

    fn detach(&self, _pin_dir: &Path) -> Result<Vec<String>, DatapathError> {
        self.state().detached = true;
        Ok(vec!["fake0".to_owned()])
    }
}
