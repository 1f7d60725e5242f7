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

use super::words::header_of;
use super::{
    Attachment, CapturedPacket, DatapathError, Hook, LeftBehind, LinkChange, ModeChoice, Neighbour,
    Options, Pattern, Queueing, Refused, SourceTable, Sweep, Then, ThenChange, TrialOutcome,
    Wanted,
};

/// Keys of tables with their buckets, and the place after them.
pub type Keys = (Vec<(TableKey, KeyedBucket)>, Option<KeyPlace>);

/// A place in a reading of all keys of tables: the kind that is read, and where in its map.
pub type KeyPlace = (EntryKind, Option<u32>);

/// Everything that can be read of a data path in force, by the daemon that has it or from the pins
/// alone.
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
    /// Rules that there is room for, with those being replaced.
    fn capacity(&self) -> u32;
    /// Sources that there is room for, per family.
    fn max_sources(&self) -> u32;
    /// Store of the buckets of sources.
    fn source_table(&self) -> SourceTable;
    /// A table of entries: its settings, and what became of new entries since its map was made,
    /// over all CPUs.
    fn entries(&self, kind: EntryKind) -> Result<(EntryTable, Admission), DatapathError>;
    /// The index of an interface by its name, or by the one that it was asked to be limited by.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// The name of an interface by its index, in this network namespace; that by which it was asked
    /// to be limited, if it was.
    fn interface_name(&self, index: u32) -> Option<String>;
    /// Names of what is behind the interfaces that are limited here, by index: a container's or a
    /// guest's, where the kernel has one. Interfaces of which it does not say are left out.
    fn labels(&self) -> BTreeMap<u32, String>;
    /// Programs of others on an interface that is limited here, for the direction of the
    /// attachment: each hook's in the order in which they run.
    fn neighbours(&self, at: &Attachment) -> Result<Vec<Neighbour>, DatapathError>;
    /// The queueing discipline of what goes out by an interface.
    fn queueing(&self, interface: &str) -> Result<Queueing, DatapathError>;
    /// Addresses of this machine, each with the name of its interface and its network.
    fn own_addresses(&self) -> Result<Vec<(String, IpNet)>, DatapathError>;
    /// True if the bypass lets every packet pass.
    fn bypass(&self) -> Result<bool, DatapathError> {
        Ok(self.control(Control::Bypass)? != 0)
    }
    /// Packets and bytes by [`Reason`] since the maps were made, summed over the CPUs.
    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError>;
    /// Packets and bytes that came in by an interface or went out by it, by its index, since the
    /// program is on it, summed over the CPUs. Interfaces with one [`InterfaceCounters::place`]
    /// have the same counters.
    fn interface_counters(
        &self,
        index: u32,
        direction: Direction,
    ) -> Result<InterfaceCounters, DatapathError>;
    /// Counters of a rule, by its number, summed over the CPUs.
    fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError>;
    /// Everything on the lists, expired entries included.
    fn list_entries(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError>;
    /// Sources with a ban on record, also one that has ended: as the trie knows them.
    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError>;
    /// Reads on in the buckets of all sources: about `most` of them, which may be none before the
    /// end of the sweep. Of one in a keyed table it has what [`super::of_key`] says.
    fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError>;
    /// Reads on in the buckets of all keys of tables, from a place that an earlier call returned:
    /// about `most` of them, and the place after them; none at the end.
    fn keys(&self, from: Option<KeyPlace>, most: usize) -> Result<Keys, DatapathError>;
    /// The program's clock.
    fn now(&self) -> Ticks;
    /// The wall clock: since 1970, UTC. Only what outlives a boot is measured by it.
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
}

/// A data path in force, which can be changed. Dropping it lets go: the limits stay in force, for
/// the next start to adopt.
pub trait Datapath: Observed + Send {
    /// Ends an opening over maps of another version's layout, once lists and rules are in the new
    /// ones: from here on the new program is on the interfaces. There is nothing to do otherwise.
    /// On an error what was in force is in force, unless one of several links has changed by then.
    fn take_over(&mut self) -> Result<(), DatapathError> {
        Ok(())
    }
    /// Attaches to those that went away and came back, and to those that match a pattern; says what
    /// changed since the last look.
    fn look_after_links(&mut self) -> Vec<LinkChange>;
    /// The XDP program of somebody else that goes on with what passes, if there is one.
    fn then(&self) -> Option<&Then> {
        None
    }
    /// Looks at the pin of that program: another one there is called from now on. Says what changed
    /// since the last look.
    fn look_after_then(&mut self) -> Option<ThenChange> {
        None
    }
    /// Interfaces that this opening was not asked for, and that an earlier one limited: its program
    /// goes on there, with the maps of this one.
    fn left_behind(&self) -> Vec<LeftBehind> {
        Vec::new()
    }
    /// Hooks of interfaces that are here and are to be limited, and are not.
    fn refused(&self) -> Vec<Refused>;
    /// The patterns by which interfaces are limited.
    fn patterns(&self) -> &[Pattern];
    /// True if the maps are still pinned where this process pinned them or found them: not after a
    /// `limiter detach` that did not ask the daemon.
    fn is_pinned(&self) -> bool;
    /// True if this opening made the maps: then they hold nothing that was there before.
    fn is_new(&self) -> bool;
    /// Puts a plan in force, whole or not at all; says the new generation. With `end`, a time of
    /// [`Observed::now`], it is on trial: without [`Datapath::confirm`] the rule set before is in
    /// force again from then on, with or without the daemon.
    fn put_in_force(&mut self, plan: Plan, end: Option<Ticks>) -> Result<u64, DatapathError>;
    /// Keeps what is on trial, unless its time is over.
    fn confirm(&mut self) -> Result<TrialOutcome, DatapathError>;
    /// Takes back what is on trial.
    fn revert(&mut self) -> Result<(), DatapathError>;
    /// How many CPUs there are: 0 to one less.
    fn cpus(&self) -> u32;
    /// True if an interface takes VLAN tags off before the program sees a frame.
    fn strips_tags(&self, interface: &str) -> Result<bool, DatapathError>;
    /// Has packets that come in wait in an `ifb`, so many of one flow; `None` if none is to wait.
    fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError>;
    /// `limiter off` and `on`: with the bypass every packet passes.
    fn set_bypass(&mut self, engaged: bool) -> Result<(), DatapathError>;
    /// Puts a prefix on a list, in place of what was there. [`Selector::Every`] changes nothing.
    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), DatapathError>;
    /// Takes a prefix off its list; says whether it was on one.
    fn unlist(&mut self, selector: &Selector) -> Result<bool, DatapathError>;
    /// The leases of limits that nodes share, for a thread of its own.
    fn leases(&self) -> Result<Box<dyn Leases>, DatapathError>;
    /// Puts a ban on record, in the place of what is there, and has the program ask for bans.
    fn put_ban(&mut self, source: &Source, ban: Ban) -> Result<(), DatapathError>;
    /// Forgets the bans of a source; says whether there were any.
    fn unban(&mut self, source: &Source) -> Result<bool, DatapathError>;
    /// Tells the program where the windows of the wall clock begin: to be called now and then,
    /// because the wall clock is set and the monotonic one is not.
    fn refresh_wall_clock(&mut self) -> Result<(), DatapathError>;
    /// Tells the program that there is a daemon, for as long as that may be without being informed
    /// again.
    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), DatapathError>;
    /// The oldest event that nobody has taken.
    fn next_event(&mut self) -> Option<Event>;
    /// Becomes readable when there is an event; without it events are asked for now and then.
    fn event_descriptor(&self) -> Result<Option<OwnedFd>, DatapathError>;
    /// Counts of all drops since the maps were made, summed over the CPUs.
    fn event_counts(&self) -> Result<EventBudget, DatapathError>;
    /// How many events each CPU may send a second, and how many at once; none at all without.
    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        burst: NonZero<u32>,
    ) -> Result<(), DatapathError>;
    /// Begins to report packets whole, until [`Observed::now`] is that time; what was reported
    /// before is forgotten.
    fn begin_capture(&mut self, filter: &CaptureFilter, until: Ticks) -> Result<(), DatapathError>;
    /// Puts the end of a capture off; with [`Ticks::ZERO`], it ends now.
    fn capture_until(&mut self, until: Ticks) -> Result<(), DatapathError>;
    /// Changes the sources of which a capture reports packets: those of this level and above.
    fn set_capture_level(
        &mut self,
        filter: &CaptureFilter,
        level: u32,
    ) -> Result<(), DatapathError>;
    /// The oldest packet that was reported and nobody has taken.
    fn next_captured(&mut self) -> Option<CapturedPacket>;
    /// Counts of all packets that were to be reported since the maps were made, summed over the
    /// CPUs.
    fn capture_counts(&self) -> Result<CaptureBudget, DatapathError>;
    /// Undoes the opening: detaches where it attached, and removes maps that nothing was attached
    /// to before. What it adopted stays in force.
    fn give_back(self: Box<Self>) -> Result<(), DatapathError>;
    /// Detaches from one interface, and keeps everything else. [`Datapath::look_after_links`] then
    /// finds it as one whose pin was removed.
    fn free(&mut self, interface: &str) -> Result<(), DatapathError>;
    /// Detaches from every interface and removes every pin; says which interfaces are free now.
    fn detach(self: Box<Self>) -> Result<Vec<String>, DatapathError>;
}

/// Source of data paths.
pub trait Backend {
    /// Checks, without changing anything, that the interfaces that are wanted by name are there,
    /// and that this process may limit them. Says the largest frame of them, and of those that
    /// match a pattern, in bytes as far as it can be known, at least 1,522. The pins say what
    /// became of an interface that is not there.
    fn check(&self, wanted: &Wanted, pin_dir: &Path) -> Result<u64, DatapathError>;
    /// The index of an interface by its name.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// How many CPUs there are: 0 to one less.
    fn cpus(&self) -> u32;
    /// Loads the programs or adopts the pinned ones, and attaches them to the hooks of the
    /// interfaces that are wanted; of those that match a pattern, as far as that can be. Over maps
    /// of another layout [`Datapath::take_over`] does that. Called inside a tokio runtime. On an
    /// error nothing new is left behind.
    fn open(
        &self,
        options: &Options,
        wanted: &Wanted,
        hooks: &[Hook],
        mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, DatapathError>;
    /// Gives up for good what this process may do beyond running an opened data path. Called while
    /// there is one thread.
    fn give_up_privileges(&self) -> io::Result<()>;
    /// Without a daemon: opens the pinned maps to read them. Nothing is loaded, and nothing
    /// changes.
    fn read(&self, pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError>;
    /// Without a daemon: lets every packet pass, or no longer.
    fn set_bypass(&self, pin_dir: &Path, engaged: bool) -> Result<(), DatapathError>;
    /// Without a daemon: the interfaces that the pins keep limited, as far as this process may see
    /// that; none while the bypass lets every packet pass.
    fn limited(&self, pin_dir: &Path) -> Vec<String>;
    /// Without a daemon: ends the limits on one interface.
    fn free(&self, pin_dir: &Path, interface: &str) -> Result<(), DatapathError>;
    /// Without a daemon: removes everything; says which interfaces are free now.
    fn detach(&self, pin_dir: &Path) -> Result<Vec<String>, DatapathError>;
}
