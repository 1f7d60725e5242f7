//! [`Kernel`] as the daemon uses it: a [`Datapath`] by the kernel's own clock.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use aya::maps::MapError;
use limiter_common::algorithm::window::WallOffset;
use limiter_common::event::EventRate;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{
    Admission, Ban, Bucket, CaptureBudget, CaptureFilter, Control, EntryKind, EntryTable, Event,
    EventBudget, InterfaceCounters, ListEntry, RuleCounters, Tally, map,
};

use super::Kernel;
use crate::cluster::Leases;
use crate::datapath::pod::Wire;
use crate::datapath::{
    Attachment, CapturedPacket, Datapath, DatapathError, Interface, LinkChange, SourceTable, Sweep,
    TrialOutcome, events, links, own_links, strips_tags, xdp,
};
use crate::rules::{Installed, Plan, Selector};

impl Datapath for Kernel {
    fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    fn take_over(&mut self) -> Result<(), DatapathError> {
        self.succeed()
    }

    fn look_after_links(&mut self) -> Vec<LinkChange> {
        links::look_after(self)
    }

    fn is_pinned(&self) -> bool {
        let pin = self.pins.map(map::CONTROL);
        let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        self.lock.holds() && !pin.symlink_metadata().is_err_and(gone)
    }

    fn is_new(&self) -> bool {
        self.is_new
    }

    fn max_frame(&self) -> u64 {
        self.max_frame
    }

    fn installed(&self) -> &Installed {
        &self.installed
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn put_in_force(&mut self, plan: Plan, end: Option<Ticks>) -> Result<u64, DatapathError> {
        match end {
            None => self.commit(plan, Self::now),
            Some(end) => self.commit_on_trial(plan, end, Self::now),
        }
    }

    fn confirm(&mut self) -> Result<TrialOutcome, DatapathError> {
        self.confirm_by(Self::now)
    }

    fn revert(&mut self) -> Result<(), DatapathError> {
        self.revert_by(Self::now).map(drop)
    }

    fn capacity(&self) -> u32 {
        self.maps.capacity()
    }

    fn max_sources(&self) -> u32 {
        self.source_store.sources
    }

    fn source_table(&self) -> SourceTable {
        self.source_store.table
    }

    fn entries(&self, kind: EntryKind) -> Result<(EntryTable, Admission), DatapathError> {
        Ok((self.entries.entry_table(kind)?, self.entries.admission(kind)?))
    }

    fn interface_index(&self, name: &str) -> Option<u32> {
        let found = Interface::query(name).ok().map(|interface| interface.index);
        // Rules on an interface that was renamed stay in force, unless another one has its name.
        let renamed = |at: &&Attachment| at.asked == name && at.ifindex != 0;
        found.or_else(|| self.attachments.iter().find(renamed).map(|at| at.ifindex))
    }

    fn cpus(&self) -> u32 {
        xdp::cpus()
    }

    fn strips_tags(&self, interface: &str) -> Result<bool, DatapathError> {
        strips_tags(interface)
    }

    fn set_brake(&mut self, engaged: bool) -> Result<(), DatapathError> {
        self.maps.set_control(Control::Brake, u64::from(engaged))
    }

    fn reasons(&self) -> Result<[Tally; Reason::COUNT], DatapathError> {
        let mut tallies = [Tally::default(); Reason::COUNT];
        for (tally, reason) in tallies.iter_mut().zip(Reason::ALL) {
            *tally = self.maps.reason(reason)?;
        }
        Ok(tallies)
    }

    fn interface_counters(&self, index: u32) -> Result<InterfaceCounters, DatapathError> {
        self.maps.interface_counters(index)
    }

    fn rule_counters(&self, number: u32) -> Result<RuleCounters, DatapathError> {
        self.maps.rule_counters(number)
    }

    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), DatapathError> {
        self.lists.put(selector, entry)?;
        self.maps.set_control(Control::Lists, self.lists.word())
    }

    fn unlist(&mut self, selector: &Selector) -> Result<bool, DatapathError> {
        let removed = self.lists.remove(selector)?;
        if removed {
            self.maps.set_control(Control::Lists, self.lists.word())?;
        }
        Ok(removed)
    }

    fn list_entries(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError> {
        self.lists.all()
    }

    fn leases(&self) -> Box<dyn Leases> {
        Box::new(Arc::clone(&self.leases))
    }

    fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        self.tables.bans()
    }

    fn put_ban(&mut self, source: &Source, ban: Ban) -> Result<(), DatapathError> {
        let bans = &mut self.tables.bans;
        bans.insert(source.trie_key(), Wire(ban), 0).map_err(DatapathError::map(map::BANS))?;
        self.maps.set_control(Control::BansKept, 1)
    }

    fn unban(&mut self, source: &Source) -> Result<bool, DatapathError> {
        match self.tables.bans.remove(&source.trie_key()) {
            Ok(()) => Ok(true),
            Err(MapError::KeyNotFound) => Ok(false),
            // The system call as it is: removing says it in this way, looking up in the other.
            Err(MapError::SyscallError(call))
                if call.io_error.kind() == std::io::ErrorKind::NotFound =>
            {
                Ok(false)
            }
            Err(source) => Err(DatapathError::Map { map: map::BANS, source }),
        }
    }

    fn refresh_wall_clock(&mut self) -> Result<(), DatapathError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
        let realtime = seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
        let offset = WallOffset::of_clocks(realtime, self.now().as_nanos());
        self.set_wall_offset(offset)
    }

    fn sign_of_life(&mut self, lasts: Duration) -> Result<(), DatapathError> {
        let nanos = u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX);
        let now = self.now().as_nanos();
        self.set_daemon_lost(Ticks::from_nanos(now.saturating_add(nanos)))
    }

    fn sources(
        &self,
        sweep: &mut Sweep,
        most: usize,
    ) -> Result<Vec<(Source, Bucket)>, DatapathError> {
        if let Some((EntryKind::Keyed, _)) = sweep.place() {
            return self.keyed.read(sweep, most);
        }
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

    fn now(&self) -> Ticks {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
        Ticks::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
    }

    fn next_event(&mut self) -> Option<Event> {
        self.events.next()
    }

    fn event_descriptor(&self) -> Result<Option<OwnedFd>, DatapathError> {
        self.events.descriptor().map(Some)
    }

    fn event_counts(&self) -> Result<EventBudget, DatapathError> {
        self.events.counts()
    }

    fn set_event_rate(
        &mut self,
        per_second: Option<NonZero<u32>>,
        burst: NonZero<u32>,
    ) -> Result<(), DatapathError> {
        let EventRate { cost, credit } = events::rate(per_second, burst);
        // The cost last: it is what sends events.
        self.maps.set_control(Control::EventCredit, credit)?;
        self.maps.set_control(Control::EventCost, cost)
    }

    fn begin_capture(&mut self, filter: &CaptureFilter, until: Ticks) -> Result<(), DatapathError> {
        // Nobody reads the filter while there is no capture.
        self.capture_until(Ticks::ZERO)?;
        self.captures.empty();
        self.captures.set_filter(filter)?;
        self.capture_until(until)
    }

    fn capture_until(&mut self, until: Ticks) -> Result<(), DatapathError> {
        self.maps.set_control(Control::CaptureEnd, until.get())
    }

    fn set_capture_level(
        &mut self,
        filter: &CaptureFilter,
        level: u32,
    ) -> Result<(), DatapathError> {
        // All other words stay as they are: a packet of this moment sees the old level or the new
        // one.
        self.captures.set_filter(&CaptureFilter { level, ..*filter })
    }

    fn next_captured(&mut self) -> Option<CapturedPacket> {
        self.captures.next()
    }

    fn capture_counts(&self) -> Result<CaptureBudget, DatapathError> {
        self.captures.counts()
    }

    fn give_back(self: Box<Self>) -> Result<(), DatapathError> {
        if self.is_successor() {
            return self.pins.remove_next();
        }
        let made = self.attachments.iter().filter(|at| !at.adopted);
        for at in made {
            self.pins.remove_link(&at.interface)?;
        }
        let adopted = self.attachments.iter().any(|at| at.adopted);
        // With rules or links there already, the maps are not ours to remove.
        if adopted || !self.fresh || self.pins.has_links()? {
            return Ok(());
        }
        self.pins.remove()
    }

    fn free(&mut self, interface: &str) -> Result<(), DatapathError> {
        self.check_pinned()?;
        own_links::free(&self.pins, interface)
    }

    fn detach(self: Box<Self>) -> Result<Vec<String>, DatapathError> {
        self.check_pinned()?;
        let interfaces = own_links::names(&self.pins)?;
        // Dropping the handles afterwards frees the maps.
        self.pins.remove()?;
        Ok(interfaces)
    }
}
