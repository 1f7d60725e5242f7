//! Carrying out what an outcome says: marks, answers and bans.
//!
//! [`crate::table::drive`] decides; this comes after it, for the few packets with an action.
//! [`Acts`] are its parts, as [`crate::table::Steps`] are those of the decision: on the host each
//! is a function call, in the kernel a function that the verifier proves by itself.

mod answer;
#[cfg(not(target_arch = "bpf"))]
mod direct;
mod marking;

pub use answer::{answer, reply_kind, reset_v4, reset_v6, unreachable_v4, unreachable_v6};
#[cfg(not(target_arch = "bpf"))]
pub use direct::DirectActs;
pub use marking::mark;

use crate::ban::{self, Recorded};
use crate::engine::Packed;
use crate::packet::{Facts, Fragment, Reach, SYN, TCP};
use crate::reply::ReplyKind;
use crate::verdict::Reason;
use crate::wire::{Action, ActionKind, Evidence, OwnBudget};

/// A frame that may be changed. Offsets count from the Ethernet header.
pub trait FrameMut {
    /// The `N` bytes at `offset`, `None` when the frame ends before them.
    fn load<const N: usize>(&self, offset: u32) -> Option<[u8; N]>;

    /// Overwrites the bytes at `offset`; false when the frame ends before them.
    fn store<const N: usize>(&self, offset: u32, bytes: &[u8; N]) -> bool;

    /// Cuts the frame off behind `length` bytes, of the `of` that it has.
    fn cut(&self, length: u32, of: u32) -> bool;
}

/// The parts of [`act`].
pub trait Acts {
    /// An action.
    fn action(&self, index: u32) -> Option<&Action>;

    /// [`mark`].
    fn mark(&self, dscp: u8);

    /// [`reply_kind`].
    fn reply_kind(&self) -> Option<ReplyKind>;

    /// Charges the packet to a budget of the limiter itself, at a step of its own. False when there is
    /// none or it is used up.
    fn spend(&self, budget: OwnBudget, step: u32) -> bool;

    /// [`answer`].
    fn answer(&self, kind: ReplyKind) -> bool;

    /// Whether the packet belongs to an established TCP connection of this host. Asked only where
    /// [`may_belong`] says that it could.
    fn established(&self) -> bool;

    /// [`crate::ban::is_last`] with the terms of an action.
    fn is_last(&self, action: u32) -> bool;

    /// [`crate::ban::attempt`] with the terms of an action.
    fn strike(&self, action: u32, rule: u32, leave: bool) -> Recorded;
}

/// Carries out what an outcome says, and returns what became of it. A redirection is left to the
/// caller: it is the packet's way out.
#[inline(always)]
pub fn act<A: Acts>(acts: &A, outcome: Packed) -> Packed {
    let Some(action) = acts.action(outcome.action()) else {
        return outcome;
    };
    let kind = action.kind();
    if outcome.is(Reason::Marked) {
        if matches!(kind, ActionKind::Mark) {
            acts.mark(action.dscp);
        }
        return outcome;
    }
    if !outcome.is(Reason::OverLimit) {
        return outcome;
    }
    if matches!(kind, ActionKind::Reject) {
        // The budget comes last: only an answer that can be sent is charged.
        return match acts.reply_kind() {
            Some(kind)
                if acts.spend(OwnBudget::Replies, crate::table::REPLIES) && acts.answer(kind) =>
            {
                outcome.rejected()
            }
            _ => outcome,
        };
    }
    if matches!(kind, ActionKind::Ban) && is_evident(acts, action) {
        let index = outcome.action();
        let leave = acts.is_last(index) && acts.spend(OwnBudget::Bans, crate::table::BANS);
        ban::record(|| acts.strike(index, outcome.rule(), leave));
    }
    outcome
}

#[inline(always)]
fn is_evident<A: Acts>(acts: &A, action: &Action) -> bool {
    action.evidence == Evidence::None as u8 || acts.established()
}

/// Whether a packet can belong to an established TCP connection: a whole segment without SYN.
#[inline(always)]
pub fn may_belong(facts: &Facts) -> bool {
    let whole = matches!((facts.reach(), facts.fragment()), (Reach::Transport, Fragment::Whole));
    let tcp = matches!(facts.protocol(), Some(TCP));
    whole && tcp && matches!(facts.tcp_flags(), Some(flags) if flags & SYN == 0)
}
