//! What the daemon and the command line need of the data path. The kernel's side implements it; the
//! tests have one in memory.

use std::io;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, Event, EventBudget, Lane, Limit, ListEntry, RuleCounters, Tally,
};

use crate::datapath::{
    Attachment, LinkChange, ModeChoice, Options, Reading, SourceTable, Sweep, TrialOutcome,
};
use crate::rules::{Installed, Plan, Selector};

/// An error of the data path; its text names the object, the place and the remedy.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct Fault {
    /// Whether the user can mend it, rather than the kernel or this program being at fault.
    pub refusal: bool,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl Fault {
    /// What the user can mend.
    pub fn refused(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { refusal: true, source: source.into() }
    }

    /// What the user cannot.
    pub fn failed(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { refusal: false, source: source.into() }
    }
}

/// A data path in force.
pub trait Datapath: Send {
    /// Interfaces under limits.
    fn attachments(&self) -> &[Attachment];
    /// Attaches to those that went away and came back; says what changed since the last look.
    fn look_after_links(&mut self) -> Vec<LinkChange>;
    /// Whether its pins are still there: not after a `limiter detach` that did not ask the daemon.
    fn is_pinned(&self) -> bool;
    /// Whether its maps were made by this opening: then they hold nothing that was there before.
    fn is_new(&self) -> bool;
    /// Largest frame of these interfaces in bytes, at least 1,522.
    fn max_frame(&self) -> u64;
    /// The rule set in the maps.
    fn installed(&self) -> &Installed;
    /// Its number.
    fn generation(&self) -> u64;
    /// Puts a plan in force, whole or not at all; says the new generation.
    fn commit(&mut self, plan: Plan) -> Result<u64, Fault>;
    /// As [`Datapath::commit`]; without [`Datapath::confirm`] the rule set before is in force again from
    /// `end` on, with or without the daemon.
    fn commit_on_trial(&mut self, plan: Plan, end: Ticks) -> Result<u64, Fault>;
    /// Keeps what is on trial, unless its time is over.
    fn confirm(&mut self) -> Result<TrialOutcome, Fault>;
    /// Takes back what is on trial.
    fn revert(&mut self) -> Result<(), Fault>;
    /// Rules that fit, with those being replaced.
    fn capacity(&self) -> u32;
    /// Sources that fit, per family.
    fn max_sources(&self) -> u32;
    /// Where they have their buckets.
    fn source_table(&self) -> SourceTable;
    /// Entries that a table holds.
    fn entries(&self, lane: Lane) -> Result<u64, Fault>;
    /// What became of new entries of a table since its map was made.
    fn admission(&self, lane: Lane) -> Result<Admission, Fault>;
    /// The index of an interface by its name, or by the one that it was asked to be limited by.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// How many CPUs there are: 0 to one less.
    fn cpus(&self) -> u32;
    /// Whether an interface takes VLAN tags off before the program sees a frame.
    fn strips_tags(&self, interface: &str) -> Result<bool, Fault>;
    /// Lets every packet pass, or no longer.
    fn set_brake(&mut self, engaged: bool) -> Result<(), Fault>;
    /// Whether every packet passes.
    fn brake(&self) -> Result<bool, Fault>;
    /// Packets by [`Reason`], summed over the CPUs.
    fn reasons(&self) -> Result<[Tally; Reason::COUNT], Fault>;
    /// What a rule did, summed over the CPUs.
    fn rule_counters(&self, number: u32) -> Result<RuleCounters, Fault>;
    /// Puts a prefix on a list, in place of what was there.
    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), Fault>;
    /// Takes a prefix off its list; says whether it was on one.
    fn unlist(&mut self, selector: &Selector) -> Result<bool, Fault>;
    /// Everything on the lists, expired entries included.
    fn listed(&self) -> Result<Vec<(Selector, ListEntry)>, Fault>;
    /// Sources with a ban on record, also one that has ended: as the trie knows them.
    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, Fault>;
    /// What is on record of the bans of one source.
    fn ban(&self, source: &Source) -> Result<Option<Ban>, Fault>;
    /// Forgets the bans of a source; says whether there were any.
    fn unban(&mut self, source: &Source) -> Result<bool, Fault>;
    /// Tells the program where the windows of the wall clock begin.
    fn refresh_wall_clock(&mut self) -> Result<(), Fault>;
    /// Tells the program that there is a daemon, for as long as that may be without being told again.
    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), Fault>;
    /// What a slot holds, also one that no rule in force has any more.
    fn limit(&self, slot: u32) -> Result<Limit, Fault>;
    /// The bucket of a source.
    fn bucket(&self, source: &Source) -> Result<Option<Bucket>, Fault>;
    /// The maps as the program reads them.
    fn reading(&self) -> &dyn Reading;
    /// Reads on in the buckets of all sources: about `most` of them, which may be none before the
    /// end of the sweep. Of one in a keyed table it has what [`crate::datapath::of_key`] says.
    fn sources(&self, sweep: &mut Sweep, most: usize) -> Result<Vec<(Source, Bucket)>, Fault>;
    /// The program's clock.
    fn now(&self) -> Ticks;
    /// The wall clock: since 1970, UTC. Only what outlives a boot is measured by it.
    fn wall(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }
    /// The oldest drop that was told and that nobody has taken.
    fn next_event(&mut self) -> Option<Event>;
    /// Becomes readable when there is one; without it they are asked for now and then.
    fn event_descriptor(&self) -> Result<Option<OwnedFd>, Fault>;
    /// What became of all drops, summed over the CPUs.
    fn event_counts(&self) -> Result<EventBudget, Fault>;
    /// How many drops each CPU tells a second, and how many at once.
    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        burst: NonZero<u32>,
    ) -> Result<(), Fault>;
    /// Undoes the opening: removes what is new, leaves in force what was there before.
    fn give_back(self: Box<Self>) -> Result<(), Fault>;
    /// Removes programs, links and maps; says which interfaces are free now.
    fn detach(self: Box<Self>) -> Result<Vec<String>, Fault>;
    /// Lets go; the limits stay in force.
    fn leave(self: Box<Self>);
}

/// Where data paths come from.
pub trait Backend {
    /// Checks, without changing anything, that the interfaces are there and that this process may
    /// limit them. Says the largest frame of them in bytes as far as it can be known, at least
    /// 1,522. The pins tell what became of an interface that is not there.
    fn check(&self, interfaces: &[String], pin_dir: &Path) -> Result<u64, Fault>;
    /// The index of an interface by its name.
    fn interface_index(&self, name: &str) -> Option<u32>;
    /// As [`Datapath::cpus`].
    fn cpus(&self) -> u32;
    /// Loads the program or adopts the pinned one, and attaches it to `interfaces`. Called inside a
    /// tokio runtime. On an error nothing new is left behind.
    fn open(
        &self,
        options: &Options,
        interfaces: &[String],
        mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, Fault>;
    /// Gives up for good what this process may do beyond running an opened data path. Called while
    /// there is one thread.
    fn give_up_privileges(&self) -> io::Result<()>;
    /// Without a daemon: lets every packet pass, or no longer.
    fn set_brake(&self, pin_dir: &Path, engaged: bool) -> Result<(), Fault>;
    /// Without a daemon: removes everything; says which interfaces are free now.
    fn detach(&self, pin_dir: &Path) -> Result<Vec<String>, Fault>;
}
