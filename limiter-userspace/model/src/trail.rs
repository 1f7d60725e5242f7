//! The steps of the decision that a packet reached, and the one that dropped it.

use std::cell::RefCell;

use limiter_common::verdict::{Reason, Verdict};
use limiter_decision::table::{SOURCE_CLASS, Scratch};

/// A step of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `limiter off`.
    Bypass,
    /// The allow list, the deny list and the management prefixes.
    Lists,
    /// The look-up of a ban.
    Bans,
    /// Sources that cannot be a real host.
    Martians,
    /// A table, by its place in the order.
    Table(u32),
    /// The source table.
    Sources,
}

/// The steps that a packet reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    reached: Vec<Step>,
    stopped: Option<Step>,
}

impl Trail {
    /// True if the packet reached a step.
    pub fn reaches(&self, step: Step) -> bool {
        self.reached.contains(&step)
    }

    /// True if the packet reached the rules.
    pub fn reaches_rules(&self) -> bool {
        self.reached.iter().any(|step| matches!(step, Step::Table(_) | Step::Sources))
    }

    /// The step that dropped the packet; `None` if it passes.
    pub const fn stopped(&self) -> Option<Step> {
        self.stopped
    }
}

/// The steps of the current packet, recorded as the decision looks things up.
#[derive(Debug, Default)]
pub(super) struct Steps(RefCell<Vec<Step>>);

impl Steps {
    pub(super) fn reach(&self, step: Step) {
        let mut reached = self.0.borrow_mut();
        if !reached.contains(&step) {
            reached.push(step);
        }
    }

    /// Forgets the previous packet.
    pub(super) fn begin(&self) {
        self.0.borrow_mut().clear();
    }

    /// The trail of a packet that left with a reason. If it was dropped, the last step that it
    /// reached dropped it, unless a table reports that it did.
    pub(super) fn trail(&self, scratch: &Scratch, reason: Reason) -> Trail {
        let reached = self.0.take();
        let stopped = match (reason.verdict(), scratch.stopped()) {
            (Verdict::Pass, _) => None,
            (Verdict::Drop, Some(SOURCE_CLASS)) => Some(Step::Sources),
            (Verdict::Drop, Some(index)) => Some(Step::Table(index)),
            (Verdict::Drop, None) => reached.last().copied(),
        };
        Trail { reached, stopped }
    }
}
