//! The glue to the kernel: [`Kernel`] as a [`Datapath`]. The only place outside `datapath` that
//! names it.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, Event, EventBudget, Lane, Limit, ListEntry, RuleCounters, Tally,
};

use super::datapath::{Backend, Datapath, Fault};
use super::{capabilities, preflight};
use crate::datapath::{
    Attachment, DatapathError, Interface, Kernel, LinkChange, ModeChoice, Options, Reading,
    SourceTable, Sweep, TrialOutcome, pinned, strips_tags,
};
use crate::rules::rate_text::MIN_FULL_FRAME;
use crate::rules::{Installed, Plan, Selector};

/// How often the program's own log is read.
const LOG_INTERVAL: Duration = Duration::from_millis(100);

impl From<DatapathError> for Fault {
    fn from(error: DatapathError) -> Self {
        if error.is_refusal() { Self::refused(error) } else { Self::failed(error) }
    }
}

impl Datapath for Kernel {
    fn attachments(&self) -> &[Attachment] {
        Self::attachments(self)
    }

    fn look_after_links(&mut self) -> Vec<LinkChange> {
        Self::look_after_links(self)
    }

    fn is_pinned(&self) -> bool {
        Self::is_pinned(self)
    }

    fn is_new(&self) -> bool {
        Self::is_new(self)
    }

    fn max_frame(&self) -> u64 {
        Self::max_frame(self)
    }

    fn installed(&self) -> &Installed {
        Self::installed(self)
    }

    fn generation(&self) -> u64 {
        Self::generation(self)
    }

    fn commit(&mut self, plan: Plan) -> Result<u64, Fault> {
        Ok(Self::commit(self, plan, Self::now)?)
    }

    fn commit_on_trial(&mut self, plan: Plan, end: Ticks) -> Result<u64, Fault> {
        Ok(Self::commit_on_trial(self, plan, end, Self::now)?)
    }

    fn confirm(&mut self) -> Result<TrialOutcome, Fault> {
        Ok(Self::confirm(self, Self::now)?)
    }

    fn revert(&mut self) -> Result<(), Fault> {
        Ok(Self::revert(self, Self::now).map(drop)?)
    }

    fn capacity(&self) -> u32 {
        Self::capacity(self)
    }

    fn max_sources(&self) -> u32 {
        Self::max_sources(self)
    }

    fn source_table(&self) -> SourceTable {
        Self::source_table(self)
    }

    fn entries(&self, lane: Lane) -> Result<u64, Fault> {
        Ok(self.room(lane)?.0.entries)
    }

    fn admission(&self, lane: Lane) -> Result<Admission, Fault> {
        Ok(self.room(lane)?.1)
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        let found = Interface::query(name).ok().map(|interface| interface.index);
        // Rules on an interface that was renamed stay in force, unless another one has its name.
        let renamed = |at: &&Attachment| at.asked == name && at.ifindex != 0;
        found.or_else(|| Self::attachments(self).iter().find(renamed).map(|at| at.ifindex))
    }

    fn cpus(&self) -> u32 {
        cpus()
    }

    fn strips_tags(&self, interface: &str) -> Result<bool, Fault> {
        Ok(strips_tags(interface)?)
    }

    fn set_brake(&mut self, engaged: bool) -> Result<(), Fault> {
        Ok(Self::set_brake(self, engaged)?)
    }

    fn brake(&self) -> Result<bool, Fault> {
        Ok(Self::brake(self)?)
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], Fault> {
        Ok(Self::reasons(self)?)
    }

    fn rule_counters(&self, number: u32) -> Result<RuleCounters, Fault> {
        Ok(Self::rule_counters(self, number)?)
    }

    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), Fault> {
        Ok(Self::list(self, selector, entry)?)
    }

    fn unlist(&mut self, selector: &Selector) -> Result<bool, Fault> {
        Ok(Self::unlist(self, selector)?)
    }

    fn listed(&self) -> Result<Vec<(Selector, ListEntry)>, Fault> {
        Ok(Self::listed(self)?)
    }

    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, Fault> {
        Ok(Self::bans(self)?)
    }

    fn ban(&self, source: &Source) -> Result<Option<Ban>, Fault> {
        Ok(Self::ban(self, source)?)
    }

    fn unban(&mut self, source: &Source) -> Result<bool, Fault> {
        Ok(Self::unban(self, source)?)
    }

    fn refresh_wall_clock(&mut self) -> Result<(), Fault> {
        Ok(Self::refresh_wall_clock(self)?)
    }

    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), Fault> {
        let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let now = Self::now(self).as_nanos();
        Ok(self.set_daemon_lost(Ticks::from_nanos(now.saturating_add(nanos)))?)
    }

    fn limit(&self, slot: u32) -> Result<Limit, Fault> {
        Ok(Self::limit(self, slot)?)
    }

    fn bucket(&self, source: &Source) -> Result<Option<Bucket>, Fault> {
        Ok(Self::bucket(self, source)?)
    }

    fn reading(&self) -> &dyn Reading {
        self
    }

    fn sources(&self, sweep: &mut Sweep, most: usize) -> Result<Vec<(Source, Bucket)>, Fault> {
        Ok(Self::sources(self, sweep, most)?)
    }

    fn now(&self) -> Ticks {
        Self::now(self)
    }

    fn next_event(&mut self) -> Option<Event> {
        Self::next_event(self)
    }

    fn event_descriptor(&self) -> Result<Option<OwnedFd>, Fault> {
        Ok(Some(Self::event_descriptor(self)?))
    }

    fn event_counts(&self) -> Result<EventBudget, Fault> {
        Ok(Self::event_counts(self)?)
    }

    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        burst: NonZero<u32>,
    ) -> Result<(), Fault> {
        Ok(Self::set_event_rate(self, per_second, burst)?)
    }

    fn give_back(self: Box<Self>) -> Result<(), Fault> {
        Ok(Self::give_back(*self)?)
    }

    fn detach(self: Box<Self>) -> Result<Vec<String>, Fault> {
        Ok(Self::detach(*self)?)
    }

    fn leave(self: Box<Self>) {
        Self::leave(*self);
    }
}

/// How many CPUs are online, those that this process may not use among them.
fn cpus() -> u32 {
    // A list of ranges: `0-3,5`. Its end is the last CPU.
    std::fs::read_to_string("/sys/devices/system/cpu/online")
        .ok()
        .and_then(|list| list.trim().rsplit(['-', ',']).next()?.parse::<u32>().ok())
        .map_or(1, |last| last.saturating_add(1))
}

/// There is no interface of a name: it may be limited under another one.
fn missing(name: String, interfaces: &[String], pin_dir: &Path) -> DatapathError {
    let mut limited = pinned::limited(pin_dir);
    limited.retain(
        |left| if left.here { !interfaces.contains(&left.name) } else { left.name == name },
    );
    // The one that was called so comes first.
    limited.sort_by_key(|left| left.was.as_ref() != Some(&name));
    match limited.into_iter().next() {
        Some(left) => DatapathError::Moved { interface: name, left },
        None => DatapathError::NoInterface(name),
    }
}

/// The running kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Xdp;

impl Backend for Xdp {
    fn check(&self, interfaces: &[String], pin_dir: &Path) -> Result<u64, Fault> {
        let mut frame = MIN_FULL_FRAME;
        for interface in interfaces {
            let found = Interface::query(interface).map_err(|error| match error {
                DatapathError::NoInterface(name) => missing(name, interfaces, pin_dir),
                error => error,
            })?;
            frame = frame.max(found.max_frame());
        }
        preflight::privileges()?;
        Ok(frame)
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        Interface::query(name).ok().map(|interface| interface.index)
    }

    fn cpus(&self) -> u32 {
        cpus()
    }

    fn open(
        &self,
        options: &Options,
        interfaces: &[String],
        mode: ModeChoice,
    ) -> Result<Box<dyn Datapath>, Fault> {
        let mut kernel = Kernel::open(options)?;
        let attached = interfaces
            .iter()
            .try_for_each(|interface| kernel.attach(interface, mode).map(drop))
            .and_then(|()| kernel.left_behind());
        let left_behind = match attached {
            Ok(left_behind) => left_behind,
            Err(error) => {
                if let Err(left) = kernel.give_back() {
                    tracing::error!(%left, "what was attached could not be removed again: run `limiter detach`");
                }
                return Err(error.into());
            }
        };
        for left in left_behind {
            let pin = left.pin.display();
            if left.here {
                tracing::warn!("{left}: name it with --iface, or remove its pin {pin} to end it");
            } else {
                tracing::warn!(
                    "{left}, as an earlier start left it: remove its pin {pin} to end it"
                );
            }
        }
        if let Some(mut log) = kernel.take_log() {
            tokio::spawn(async move {
                let mut tick = tokio::time::interval(LOG_INTERVAL);
                loop {
                    tick.tick().await;
                    log.flush();
                }
            });
        }
        Ok(Box::new(kernel))
    }

    fn give_up_privileges(&self) -> std::io::Result<()> {
        capabilities::keep_needed()
    }

    fn set_brake(&self, pin_dir: &Path, engaged: bool) -> Result<(), Fault> {
        Ok(pinned::set_brake(pin_dir, engaged)?)
    }

    fn detach(&self, pin_dir: &Path) -> Result<Vec<String>, Fault> {
        Ok(pinned::detach(pin_dir)?)
    }
}
