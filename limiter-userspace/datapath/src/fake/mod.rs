//! The data path of tests: the [`Model`] behind the trait [`Datapath`], with a clock that stands
//! still until it is set, a switch that refuses commits, and counters that a test may add to.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails where its machinery does"
)]

mod leases;
mod memory_leases;
mod observed;
mod opened;
mod reading;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::{
    Attachment, Backend, CapturedPacket, Datapath, DatapathError, Framing, LinkChange, LinkState,
    Mode, ModeChoice, Neighbour, Observed, Options, Queueing, Reading as _, Refused, SourceTable,
    Then, Wanted,
};
use ipnet::IpNet;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, CaptureBudget, CaptureFilter, Control, EntryKind, Event, EventBudget, ListEntry,
    RuleCounters, Tally,
};
use limiter_decision::outcome::Outcome;
use limiter_model::Model;
use limiter_rules::{Installed, Selector};
use limiter_text::pattern::Pattern;

use opened::Opened;

pub use memory_leases::MemoryLeases;

/// Sources that the model has space for, per family: enough that 60,000 at once get entries.
pub const SOURCES: u32 = 1 << 18;

/// Keys of tables that the model has space for.
const KEYS: u32 = 1 << 10;

/// Index of the one interface, `fake0`.
const INTERFACE: u32 = 7;

/// The model, and what a test sets or inspects.
#[expect(clippy::struct_excessive_bools, reason = "a test's tick list, not a state machine")]
#[derive(Debug)]
pub struct State {
    /// The maps.
    pub model: Model,
    /// Number of rule sets that were put in force.
    pub commits: usize,
    /// Makes the next commits fail.
    pub refuse_commits: bool,
    /// True if interfaces remove VLAN tags; `None` for a kernel that does not report it.
    pub strips_tags: Option<bool>,
    /// Queueing discipline of interfaces; `None` for a kernel that does not report it.
    pub queueing: Option<Queueing>,
    /// How many incoming packets of a flow may wait.
    pub held_back: Option<u64>,
    /// How long the last sign of life is valid.
    pub sign_of_life: Option<Duration>,
    /// True once the data path was detached.
    pub detached: bool,
    /// True if an open data path was dropped without being detached.
    pub left: bool,
    /// How often the data path was opened.
    pub opened: usize,
    /// Changes that the next look at the interfaces reports.
    pub link_changes: Vec<LinkChange>,
    /// Hooks that could not be limited.
    pub refused: Vec<Refused>,
    /// True if somebody removed the pins.
    pub unpinned: bool,
    /// True if the maps existed at the start.
    pub adopted: bool,
    /// Largest frame of the interface in bytes.
    pub max_frame: u64,
    /// Slots for limits.
    pub capacity: u32,
    /// The clock.
    pub now: Ticks,
    /// The wall clock, if it differs from this machine's.
    pub wall: Option<Duration>,
    /// Sources that have sent something.
    sources: BTreeSet<Source>,
    /// Places that each source takes in the map of sources: more than one as in lines.
    pub places: usize,
    /// Counts of new entries, added to the model's.
    pub admission: HashMap<EntryKind, Admission>,
    /// Counts of rules, added to the model's.
    pub rules: HashMap<u32, RuleCounters>,
    /// Counts of reasons, added to the model's.
    pub reasons: [Tally; Reason::COUNT],
    /// The lists, in the form in which they were set.
    pub lists: BTreeMap<Selector, ListEntry>,
    /// Names of the containers or guests behind interfaces.
    pub labels: BTreeMap<u32, String>,
    /// Other programs on interfaces, by index.
    pub neighbours: BTreeMap<u32, Vec<Neighbour>>,
    /// Addresses of the machine, each with the name of its interface and its network.
    pub own_addresses: Vec<(String, IpNet)>,
    /// How often the wall clock was refreshed.
    pub clock_refreshed: usize,
    /// Reported drops that nobody has taken.
    pub events: VecDeque<Event>,
    /// Event counts that the program would have.
    pub event_counts: EventBudget,
    /// Events per second.
    pub event_rate: Option<NonZero<u32>>,
    /// Store of the buckets of sources.
    pub source_table: SourceTable,
    /// Packets reported whole that nobody has taken.
    pub captured: VecDeque<CapturedPacket>,
    /// Which packets a capture takes.
    pub capture_filter: CaptureFilter,
    /// Time at which the current capture ends.
    pub capture_end: Ticks,
    /// Capture counts that the program would have.
    pub capture_counts: CaptureBudget,
}

impl State {
    /// The rules in force.
    pub fn installed(&self) -> &Installed {
        self.model.installed()
    }

    /// True if every packet passes.
    pub fn is_off(&self) -> bool {
        self.model.control(Control::Bypass).unwrap() != 0
    }

    /// Empties the lists, as a restart of the machine does.
    pub fn clear_lists(&mut self) {
        for selector in std::mem::take(&mut self.lists).into_keys() {
            self.model.unlist(&selector);
        }
    }
}

/// The data path and, for the test, its state.
#[derive(Clone, Debug)]
pub struct Fake {
    state: Arc<Mutex<State>>,
    attachments: Vec<Attachment>,
    /// Patterns by which interfaces are limited.
    pub patterns: Vec<Pattern>,
    /// The program that continues with the packets that pass.
    pub then: Option<Then>,
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
            queueing: Some(Queueing::Other("pfifo_fast".to_owned())),
            held_back: None,
            sign_of_life: None,
            detached: false,
            left: false,
            opened: 0,
            link_changes: Vec::new(),
            refused: Vec::new(),
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
            labels: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            own_addresses: Vec::new(),
            source_table: SourceTable::default(),
            captured: VecDeque::new(),
            capture_filter: CaptureFilter::default(),
            capture_end: Ticks::ZERO,
            capture_counts: CaptureBudget::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            attachments: vec![attachment],
            patterns: Vec::new(),
            then: None,
        }
    }
}

/// The beginning of a frame of `length` bytes from a source: Ethernet and IP headers, no UDP
/// header.
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

    /// Sends `packets` of `length` bytes, at least 60.
    pub fn send(&self, source: Source, packets: u64, length: u64) {
        let frame = frame(source, length);
        for _ in 0..packets {
            self.send_frame(source, &frame, length);
        }
    }

    /// Sends a frame of `length` bytes, of which `frame` is the beginning; what becomes of it.
    pub fn send_frame(&self, source: Source, frame: &[u8], length: u64) -> Outcome {
        let mut state = self.state();
        state.sources.insert(source);
        let now = state.now;
        let packet = limiter_model::Packet::received(Framing::Ethernet, frame, length, INTERFACE);
        state.model.judge_packet(&packet, now)
    }

    /// This data path with its interface limited in a mode.
    #[must_use]
    pub fn in_mode(mut self, mode: Mode) -> Self {
        for at in &mut self.attachments {
            at.mode = mode;
        }
        self
    }

    /// This data path with a second interface, `fake1`, limited in a mode.
    #[must_use]
    pub fn beside(mut self, mode: Mode) -> Self {
        let interface = "fake1".to_owned();
        let second = self.attachments.first().cloned().map(|first| Attachment {
            asked: interface.clone(),
            interface,
            ifindex: 8,
            mode,
            ..first
        });
        self.attachments.extend(second);
        self
    }

    /// Opens it as a start does.
    pub fn open_now(&self) -> Box<dyn Datapath> {
        let installed = self.state().installed().clone();
        let mut fake = self.clone();
        fake.attachments[0].adopted = self.state().adopted;
        Box::new(Opened { fake, installed, trial_end: None })
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
    fn check(&self, wanted: &Wanted, _pin_dir: &Path) -> Result<u64, DatapathError> {
        match wanted.names.iter().find(|name| *name != "fake0") {
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
        _wanted: &Wanted,
        _hooks: &[crate::Hook],
        _mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, DatapathError> {
        self.state().opened += 1;
        self.state().source_table = options.source_table;
        Ok(self.open_now())
    }

    fn give_up_privileges(&self) -> std::io::Result<()> {
        // Nothing to do: the tests are threads of one process.
        Ok(())
    }

    fn read(&self, pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError> {
        if !pin_dir.ends_with("pinned") {
            return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
        }
        let installed = self.state().installed().clone();
        Ok(Box::new(Opened { fake: self.clone(), installed, trial_end: None }))
    }

    fn set_bypass(&self, pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
        if !pin_dir.ends_with("pinned") {
            return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
        }
        self.state().model.set_bypass(engaged);
        Ok(())
    }

    fn limited(&self, _pin_dir: &Path) -> Vec<String> {
        let bypass = self.state().model.control(Control::Bypass);
        let engaged = bypass.is_ok_and(|bypass| bypass != 0);
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
