//! The opened data path, and what a daemon does with it.

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::{
    CapturedPacket, Datapath, DatapathError, LinkChange, Observed as _, Refused, Then, TrialOutcome,
};
use aya::maps::MapError;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Ban, CaptureBudget, CaptureFilter, Event, EventBudget, ListEntry, map};
use limiter_rules::{Installed, Plan, Selector};
use limiter_sharing::Leases;
use limiter_text::pattern::Pattern;

use super::Fake;

/// An opened data path. It has a copy of the installed rules beside the shared state, because the
/// trait returns a reference.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fake: Fake,
    pub(crate) installed: Installed,
    pub(crate) trial_end: Option<Ticks>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // A failed test has poisoned the lock, and reports itself.
        if let Ok(mut state) = self.fake.state.lock() {
            state.left = !state.detached;
        }
    }
}

impl Datapath for Opened {
    fn look_after_links(&mut self) -> Vec<LinkChange> {
        std::mem::take(&mut self.fake.state().link_changes)
    }

    fn refused(&self) -> Vec<Refused> {
        self.fake.state().refused.clone()
    }

    fn patterns(&self) -> &[Pattern] {
        &self.fake.patterns
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

    fn then(&self) -> Option<&Then> {
        self.fake.then.as_ref()
    }

    fn hold_incoming(&mut self, packets: Option<u64>) -> Result<(), DatapathError> {
        self.fake.state().held_back = packets;
        Ok(())
    }

    fn set_bypass(&mut self, engaged: bool) -> Result<(), DatapathError> {
        self.fake.state().model.set_bypass(engaged);
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
