//! [`Kernel`] as the daemon uses it: a [`Datapath`] by the kernel's own clock.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::window::WallOffset;
use limiter_common::wire::{
    Ban, CaptureBudget, CaptureFilter, Control, Event, EventBudget, LISTS_AUTHORS, ListEntry, map,
};
use limiter_decision::event::EventRate;
use limiter_rules::{Plan, Selector};
use limiter_sharing::Leases;
use limiter_text::pattern::Pattern;

use super::Kernel;
use crate::interfaces::{links, own_links};
use crate::maps::events;
use crate::maps::found::removed;
use crate::maps::leases::HeldLeases;
use crate::maps::pod::Wire;
use crate::netlink::ifb;
use crate::{
    CapturedPacket, Datapath, DatapathError, LeftBehind, LinkChange, Observed as _, Refused, Then,
    ThenChange, TrialOutcome, strips_tags, xdp,
};

impl Datapath for Kernel {
    fn take_over(&mut self) -> Result<(), DatapathError> {
        self.succeed()?;
        // Remove the program that an earlier start set.
        if self.then.now().is_none() {
            self.then.clear()?;
        }
        self.end_other_hooks()
    }

    fn look_after_links(&mut self) -> Vec<LinkChange> {
        links::look_after(self)
    }

    fn then(&self) -> Option<&Then> {
        self.then.now()
    }

    fn look_after_then(&mut self) -> Option<ThenChange> {
        // Another daemon may own the array now.
        if self.is_pinned() { self.then.look() } else { None }
    }

    fn left_behind(&self) -> Vec<LeftBehind> {
        // The directory belongs to another daemon now, so there is nothing to report.
        if !self.is_pinned() {
            return Vec::new();
        }
        own_links::limited_beside(&self.held.pins, &self.held.attachments)
    }

    fn refused(&self) -> Vec<Refused> {
        self.retries.all()
    }

    fn patterns(&self) -> &[Pattern] {
        match &self.predecessor {
            Some(before) => &before.wanted.patterns,
            None => &self.wanted.patterns,
        }
    }

    fn is_pinned(&self) -> bool {
        let pin = self.held.pins.map(map::CONTROL);
        let gone = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        self.lock.holds() && !pin.symlink_metadata().is_err_and(gone)
    }

    fn is_new(&self) -> bool {
        self.is_new
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

    fn cpus(&self) -> u32 {
        xdp::cpus()
    }

    fn strips_tags(&self, interface: &str) -> Result<bool, DatapathError> {
        strips_tags(interface)
    }

    fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError> {
        Self::hold_incoming(self, packets)
    }

    fn set_bypass(&mut self, engaged: bool) -> Result<(), DatapathError> {
        self.held.maps.set_control(Control::Bypass, u64::from(engaged))
    }

    fn list(&mut self, selector: &Selector, entry: ListEntry) -> Result<(), DatapathError> {
        // The author of the first entry must be recorded, even if this daemon is killed now.
        if self.held.lists.is_empty() {
            self.held.maps.set_control(Control::Lists, LISTS_AUTHORS)?;
        }
        self.held.lists.put(selector, entry)?;
        self.held.maps.set_control(Control::Lists, self.held.lists.word())
    }

    fn unlist(&mut self, selector: &Selector) -> Result<bool, DatapathError> {
        let removed = self.held.lists.remove(selector)?;
        if removed {
            self.held.maps.set_control(Control::Lists, self.held.lists.word())?;
        }
        Ok(removed)
    }

    fn leases(&self) -> Result<Box<dyn Leases>, DatapathError> {
        Ok(Box::new(HeldLeases(Arc::clone(self.held.leases()?))))
    }

    fn put_ban(&mut self, source: &Source, ban: Ban) -> Result<(), DatapathError> {
        let bans = &mut self.held.tables.bans;
        bans.insert(source.trie_key(), Wire(ban), 0).map_err(DatapathError::map(map::BANS))?;
        self.held.maps.set_control(Control::BansKept, 1)
    }

    fn unban(&mut self, source: &Source) -> Result<bool, DatapathError> {
        removed(map::BANS, self.held.tables.bans.remove(&source.trie_key()))
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
        // The cost comes last, because it enables events.
        self.held.maps.set_control(Control::EventCredit, credit)?;
        self.held.maps.set_control(Control::EventCost, cost)
    }

    fn begin_capture(&mut self, filter: &CaptureFilter, until: Ticks) -> Result<(), DatapathError> {
        // Nothing reads the filter while there is no capture.
        self.capture_until(Ticks::ZERO)?;
        self.captures.open_ring(&self.held.pins)?;
        self.captures.set_filter(filter)?;
        self.capture_until(until)
    }

    fn capture_until(&mut self, until: Ticks) -> Result<(), DatapathError> {
        self.held.maps.set_control(Control::CaptureEnd, until.get())
    }

    fn set_capture_level(
        &mut self,
        filter: &CaptureFilter,
        level: u32,
    ) -> Result<(), DatapathError> {
        // All other words stay the same: a packet sees either the old level or the new one.
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
            return self.held.pins.remove_next();
        }
        let made = self.held.attachments.iter().filter(|at| !at.adopted);
        for at in made {
            own_links::end_named(&self.held.pins, at.mode.hook(), &at.interface)?;
        }
        let adopted = self.held.attachments.iter().any(|at| at.adopted);
        // Existing rules or links mean that the maps are not ours to remove.
        if adopted || !self.fresh || self.held.pins.has_links()? {
            return Ok(());
        }
        own_links::end_filters(&self.held.pins)?;
        self.held.pins.remove()?;
        ifb::remove(self.held.pins.path())
    }

    fn free(&mut self, interface: &str) -> Result<(), DatapathError> {
        self.check_pinned()?;
        own_links::free(&self.held.pins, interface)
    }

    fn detach(self: Box<Self>) -> Result<Vec<String>, DatapathError> {
        self.check_pinned()?;
        let interfaces = own_links::names(&self.held.pins)?;
        own_links::end_filters(&self.held.pins)?;
        // Dropping the handles afterwards frees the maps.
        self.held.pins.remove()?;
        ifb::remove(self.held.pins.path())?;
        Ok(interfaces)
    }
}
