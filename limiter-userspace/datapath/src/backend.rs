//! The data path as the daemon and the command line see it. [`Kernel`](super::Kernel) implements it
//! over BPF maps; the daemon's tests have the model behind it.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ipnet::IpNet;
use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, CaptureBudget, CaptureFilter, Control, EntryKind, EntryTable, Event,
    EventBudget, InterfaceCounters, KeyedBucket, ListEntry, RuleCounters, RuleSetHeader, TableKey,
    Tally,
};
use limiter_model::Reading;
use limiter_rules::{Installed, Plan, Selector};
use limiter_sharing::Leases;
use limiter_text::pattern::Pattern;

use super::maps::words::header_of;
use super::{
    Attachment, CapturedPacket, DatapathError, Hook, LeftBehind, LinkChange, ModeChoice, Neighbour,
    Options, Queueing, Refused, SourceTable, Sweep, Then, ThenChange, TrialOutcome, Wanted,
};

/// Keys of tables with their buckets, and where to continue.
pub type Keys = (Vec<(TableKey, KeyedBucket)>, Option<KeyPlace>);

/// Where to continue reading the keys of all tables: the kind, and the place in its map.
pub type KeyPlace = (EntryKind, Option<u32>);

/// Everything that can be read from a data path in force, by its daemon or from the pins alone.
pub trait Observed: Reading<Error = DatapathError> {
    /// Interfaces under limits.
    fn attachments(&self) -> &[Attachment];
    /// True if interfaces are limited at a hook, or will be once there are any.
    fn is_at(&self, hook: Hook) -> bool {
        self.attachments().iter().any(|at| at.mode.hook() == hook)
    }
    /// Largest frame of the attached interfaces in bytes, at least 1,522.
    fn max_frame(&self) -> u64;
    /// The rules in force.
    fn installed(&self) -> &Installed;
    /// The number of the rule set in force.
    fn generation(&self) -> u64;
    /// The header of the rule set in force.
    fn header(&self) -> Result<RuleSetHeader, DatapathError> {
        Ok(RuleSetHeader::from_raw(self.control(header_of(self.generation()))?))
    }
    /// The number of rules that fit, including those being replaced.
    fn capacity(&self) -> u32;
    /// The number of sources that fit, per family.
    fn max_sources(&self) -> u32;
    /// Store of the buckets of sources.
    fn source_table(&self) -> SourceTable;
    /// Settings of an entry table, and counts of new entries since its map was made, summed over
    /// all CPUs.
    fn entries(&self, kind: EntryKind) -> Result<(EntryTable, Admission), DatapathError> {
        let (entry_table, cpus) = self.admissions(kind)?;
        let mut sum = Admission::default();
        for cpu in cpus {
            sum.merge(cpu);
        }
        Ok((entry_table, sum))
    }
    /// The index of an interface by its current name, or by the name in the request to limit it.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// The name of an interface in this network namespace by its index. If it is limited, the name
    /// in the request to limit it.
    fn interface_name(&self, index: u32) -> Option<String>;
    /// Names of the containers or guests behind the limited interfaces here, by index. Interfaces
    /// without a name in the kernel are left out.
    fn labels(&self) -> BTreeMap<u32, String>;
    /// Other programs on an interface that is limited here, for the direction of the attachment, in
    /// the order in which each hook runs them.
    fn neighbours(&self, at: &Attachment) -> Result<Vec<Neighbour>, DatapathError>;
    /// The queueing discipline of an interface's outgoing packets.
    fn queueing(&self, interface: &str) -> Result<Queueing, DatapathError>;
    /// Addresses of this machine, each with the name of its interface and its network.
    fn own_addresses(&self) -> Result<Vec<(String, IpNet)>, DatapathError>;
    /// True if the bypass lets every packet pass.
    fn bypass(&self) -> Result<bool, DatapathError> {
        Ok(self.control(Control::Bypass)? != 0)
    }
    /// Packets and bytes by [`Reason`] since the maps were made, summed over the CPUs.
    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError>;
    /// Packets and bytes that came in or went out by an interface since the program was attached to
    /// it, summed over the CPUs. Interfaces with the same [`InterfaceCounters::place`] share their
    /// counters.
    fn interface_counters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<InterfaceCounters, DatapathError>;
    /// Counters of a rule, by its number, summed over the CPUs.
    fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError>;
    /// Everything on the lists, expired entries included.
    fn list_entries(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError>;
    /// Sources with a ban on record, ended bans included, by their addresses in the trie.
    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError>;
    /// Continues a sweep over the buckets of all sources. Returns about `most` of them; an empty
    /// result does not mean the end. Sources in a keyed table have what [`super::of_key`] returns.
    fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError>;
    /// Reads the buckets of keys of all tables, from where an earlier call stopped. Returns about
    /// `most` of them and where to continue; `None` at the end.
    fn keys(&self, from: Option<KeyPlace>, most: usize) -> Result<Keys, DatapathError>;
    /// The program's clock.
    fn now(&self) -> Ticks;
    /// The wall clock: time since 1970, UTC. Used only for what outlives a boot.
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A data path in force that can be changed. Dropping it leaves the limits in force for the next
/// start to adopt.
pub trait Datapath: Observed + Send {
    /// Completes an opening over maps of another version's layout, once lists and rules are in the
    /// new maps: attaches the new program to the interfaces. Does nothing for other openings. On an
    /// error the old state stays in force, unless one of several links has already changed.
    fn take_over(&mut self) -> Result<(), DatapathError> {
        Ok(())
    }
    /// Attaches to interfaces that came back, and to new ones that match a pattern. Returns the
    /// changes since the last look.
    fn look_after_links(&mut self) -> Vec<LinkChange>;
    /// The other XDP program that continues with the packets that pass, if there is one.
    fn then(&self) -> Option<&Then> {
        None
    }
    /// Checks the pin of that program: if it holds another program, this is called from now on.
    /// Returns the change since the last look.
    fn look_after_then(&mut self) -> Option<ThenChange> {
        None
    }
    /// Interfaces that an earlier start limited and this one was not asked to. Their program keeps
    /// running, with these maps.
    fn left_behind(&self) -> Vec<LeftBehind> {
        Vec::new()
    }
    /// Hooks of present interfaces that should be limited but are not.
    fn refused(&self) -> Vec<Refused>;
    /// The patterns by which interfaces are limited.
    fn patterns(&self) -> &[Pattern];
    /// True if the maps are still pinned where this process pinned or found them. False after a
    /// `limiter detach` that did not go through the daemon.
    fn is_pinned(&self) -> bool;
    /// True if this opening made the maps, so that they hold no earlier state.
    fn is_new(&self) -> bool;
    /// Puts a plan in force, as a whole or not at all. Returns the new generation. With `end`, a
    /// time of [`Observed::now`], the plan is on trial: without [`Datapath::confirm`] the previous
    /// rule set is in force again from `end` on, with or without the daemon.
    fn put_in_force(&mut self, plan: Plan, end: Option<Ticks>) -> Result<u64, DatapathError>;
    /// Confirms the rule set on trial, unless its time is over.
    fn confirm(&mut self) -> Result<TrialOutcome, DatapathError>;
    /// Reverts the rule set on trial.
    fn revert(&mut self) -> Result<(), DatapathError>;
    /// The number of CPUs; their numbers begin at 0.
    fn cpus(&self) -> u32;
    /// True if an interface removes VLAN tags before the program sees a frame.
    fn strips_tags(&self, interface: &str) -> Result<bool, DatapathError>;
    /// Lets incoming packets wait in an `ifb`, at most `packets` of one flow; `None` if none is to
    /// wait.
    fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError>;
    /// Sets the bypass, which lets every packet pass: `limiter off` and `limiter on`.
    fn set_bypass(&mut self, engaged: bool) -> Result<(), DatapathError>;
    /// Puts a prefix on a list, in place of what was there. [`Selector::Every`] changes nothing.
    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), DatapathError>;
    /// Removes a prefix from its list. Returns whether it was on one.
    fn unlist(&mut self, selector: &Selector) -> Result<bool, DatapathError>;
    /// The leases of limits that nodes share, to be used by a separate thread.
    fn leases(&self) -> Result<Box<dyn Leases>, DatapathError>;
    /// Records a ban in place of an existing one, and makes the program check for bans.
    fn put_ban(&mut self, source: &Source, ban: Ban) -> Result<(), DatapathError>;
    /// Removes the bans of a source. Returns whether there were any.
    fn unban(&mut self, source: &Source) -> Result<bool, DatapathError>;
    /// Tells the program where the windows of the wall clock begin. Call it regularly: the wall
    /// clock can be set, the monotonic clock cannot.
    fn refresh_wall_clock(&mut self) -> Result<(), DatapathError>;
    /// Tells the program that a daemon is running, and for how long it may assume so without
    /// another sign.
    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), DatapathError>;
    /// Takes the oldest event.
    fn next_event(&mut self) -> Option<Event>;
    /// A descriptor that becomes readable when there is an event. Without one, the daemon polls.
    fn event_descriptor(&self) -> Result<Option<OwnedFd>, DatapathError>;
    /// Counts of all drops since the maps were made, summed over the CPUs.
    fn event_counts(&self) -> Result<EventBudget, DatapathError>;
    /// Sets how many events each CPU may send per second and at once. `None` sends no events.
    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        burst: NonZero<u32>,
    ) -> Result<(), DatapathError>;
    /// Begins to report whole packets until `until`, a time of [`Observed::now`]. Discards earlier
    /// reports.
    fn begin_capture(&mut self, filter: &CaptureFilter, until: Ticks) -> Result<(), DatapathError>;
    /// Extends a capture to another end; [`Ticks::ZERO`] ends it now.
    fn capture_until(&mut self, until: Ticks) -> Result<(), DatapathError>;
    /// Restricts a capture to sources of this level and above.
    fn set_capture_level(
        &mut self,
        filter: &CaptureFilter,
        level: u32,
    ) -> Result<(), DatapathError>;
    /// Takes the oldest reported packet.
    fn next_captured(&mut self) -> Option<CapturedPacket>;
    /// Counts of all packets that matched a capture since the maps were made, summed over the CPUs.
    fn capture_counts(&self) -> Result<CaptureBudget, DatapathError>;
    /// Undoes the opening: detaches what it attached, and removes the maps if nothing was attached
    /// before. What it adopted stays in force.
    fn give_back(self: Box<Self>) -> Result<(), DatapathError>;
    /// Detaches from one interface and keeps everything else. [`Datapath::look_after_links`] then
    /// treats the interface like one whose pin was removed.
    fn free(&mut self, interface: &str) -> Result<(), DatapathError>;
    /// Detaches from every interface and removes every pin. Returns the interfaces that were freed.
    fn detach(self: Box<Self>) -> Result<Vec<String>, DatapathError>;
}

/// Source of data paths.
pub trait Backend {
    /// Checks, without changing anything, that the interfaces wanted by name exist and that this
    /// process may limit them. Returns the largest frame in bytes of these and of the interfaces
    /// that match a pattern, as far as it is known, at least 1,522. The pins tell what became of a
    /// missing interface.
    fn check(&self, wanted: &Wanted, pin_dir: &Path) -> Result<u64, DatapathError>;
    /// The index of an interface by its name.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// The number of CPUs; their numbers begin at 0.
    fn cpus(&self) -> u32;
    /// Loads the programs or adopts the pinned ones, and attaches them to the hooks of the wanted
    /// interfaces. Interfaces that match a pattern are attached on a best-effort basis. Over maps
    /// of another layout, [`Datapath::take_over`] attaches instead. Called inside a tokio runtime.
    /// On an error nothing new is left behind.
    fn open(
        &self,
        options: &Options,
        wanted: &Wanted,
        hooks: &[Hook],
        mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, DatapathError>;
    /// Permanently gives up all privileges beyond those needed to run an open data path. Call it
    /// while there is only one thread.
    fn give_up_privileges(&self) -> io::Result<()>;
    /// Without a daemon: opens the pinned maps for reading. Loads and changes nothing.
    fn read(&self, pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError>;
    /// Without a daemon: sets or clears the bypass, which lets every packet pass.
    fn set_bypass(&self, pin_dir: &Path, engaged: bool) -> Result<(), DatapathError>;
    /// Without a daemon: the interfaces that the pins keep limited, as far as this process can see.
    /// Empty while the bypass lets every packet pass.
    fn limited(&self, pin_dir: &Path) -> Vec<String>;
    /// Without a daemon: ends the limits on one interface.
    fn free(&self, pin_dir: &Path, interface: &str) -> Result<(), DatapathError>;
    /// Without a daemon: removes everything. Returns the interfaces that were freed.
    fn detach(&self, pin_dir: &Path) -> Result<Vec<String>, DatapathError>;
}
