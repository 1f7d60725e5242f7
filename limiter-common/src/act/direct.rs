//! The parts as plain function calls: the engine of the host.

use super::{Acts, FrameMut, answer, may_belong, reply_kind};
use crate::ban::{self, BanTerms, Bans, Recorded};
use crate::bucket::Generation;
use crate::packet::Facts;
use crate::reply::ReplyKind;
use crate::table::{self, Scratch, Tables};
use crate::wire::{Action, OwnBudget};

/// A packet that was judged, with what it takes to carry the outcome out.
pub struct DirectActs<'a, M, F> {
    /// The maps.
    pub maps: &'a M,
    /// The packet.
    pub scratch: &'a Scratch,
    /// Its bytes.
    pub frame: &'a F,
    /// What the word of an [`OwnBudget`] says.
    pub slots: fn(&M, Generation, OwnBudget) -> u64,
    /// Whether there is such a connection.
    pub established: fn(&M, &Facts) -> bool,
}

impl<M: Tables + Bans, F: FrameMut> Acts for DirectActs<'_, M, F> {
    fn action(&self, index: u32) -> Option<&Action> {
        self.maps.action(index)
    }

    fn mark(&self, dscp: u8) {
        super::mark(self.frame, &self.scratch.facts, dscp);
    }

    fn reply_kind(&self) -> Option<ReplyKind> {
        reply_kind(self.frame, &self.scratch.facts, self.scratch.length())
    }

    fn spend(&self, budget: OwnBudget, step: u32) -> bool {
        let slot = (self.slots)(self.maps, self.scratch.generation(), budget);
        table::spend(self.maps, self.scratch, slot, step)
    }

    fn answer(&self, kind: ReplyKind) -> bool {
        let build = |offset| match kind {
            ReplyKind::UnreachableV4 => super::unreachable_v4(self.frame, offset),
            ReplyKind::UnreachableV6 => super::unreachable_v6(self.frame, offset),
            ReplyKind::ResetV4 => super::reset_v4(self.frame, offset),
            ReplyKind::ResetV6 => super::reset_v6(self.frame, offset),
        };
        answer(self.frame, &self.scratch.facts, self.scratch.length(), kind, build)
    }

    fn established(&self) -> bool {
        let facts = &self.scratch.facts;
        may_belong(facts) && (self.established)(self.maps, facts)
    }

    fn is_last(&self, action: u32) -> bool {
        let (source, now) = (self.scratch.facts.source(), self.scratch.now());
        let last = |action| ban::is_last(self.maps, &source, &BanTerms::of(action), now);
        self.maps.action(action).is_some_and(last)
    }

    fn strike(&self, action: u32, rule: u32, leave: bool) -> Recorded {
        let Some(action) = self.maps.action(action) else {
            return Recorded::Done;
        };
        let (source, now) = (self.scratch.facts.source(), self.scratch.now());
        ban::attempt(self.maps, &source, &BanTerms::of(action), rule, now, leave)
    }
}
