//! Carries out outcomes: marks, answers and bans.
//!
//! [`crate::table::run_tables`] decides; this follows for the few packets with an action.

mod answer;
mod frame;
mod marking;

pub use answer::{answer, reply_kind, reset_v4, reset_v6, unreachable_v4, unreachable_v6};
pub use frame::FrameMut;
pub use marking::mark;

use limiter_common::header::{Fragment, Reach, SYN, TCP};
use limiter_common::verdict::Reason;
use limiter_common::wire::{Action, ActionKind, Evidence, OwnBudget};

use crate::ban::{self, BanTerms, StrikeResult};
use crate::call::call;
use crate::maps::Maps;
use crate::outcome::{Insert, Packed};
use crate::packet::Facts;

use crate::table::{BANS, REPLIES, Scratch, spend};

/// Carries out an outcome. Returns the outcome afterwards. Leaves a redirection to the caller,
/// because it determines how the packet leaves.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn act<W, F>(maps: &W, scratch: &Scratch, frame: &F, outcome: Packed) -> Packed
where
    W: Maps,
    F: FrameMut,
{
    let Some(action) = maps.action(outcome.action()) else {
        return outcome;
    };
    let kind = action.kind();
    if outcome.is(Reason::Marked) {
        if matches!(kind, ActionKind::Mark) {
            call!(mark(scratch; frame, action.dscp));
        }
        return outcome;
    }
    if outcome.is(Reason::Delayed) {
        if matches!(kind, ActionKind::Delay) {
            call!(mark(scratch; frame, action.dscp));
        }
        return outcome;
    }
    if !outcome.is(Reason::OverLimit) && !outcome.is(Reason::Blocked) {
        return outcome;
    }
    if matches!(kind, ActionKind::Reject) {
        let reply = call!(reply_kind(scratch; frame));
        // The budget comes last, so that only an answer that can be sent is charged.
        return if reply.is_some()
            && call!(spend(maps, scratch; OwnBudget::Replies, REPLIES))
            && call!(answer(scratch; frame, reply))
        {
            outcome.rejected()
        } else {
            outcome
        };
    }
    if matches!(kind, ActionKind::Ban) && is_evident(scratch, frame, action) {
        let index = outcome.action();
        let allowed = call!(is_last(maps, scratch; index))
            && call!(spend(maps, scratch; OwnBudget::Bans, BANS));
        ban::record(|| call!(strike(maps, scratch; index, outcome.rule(), allowed)));
    }
    outcome
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn is_evident<F: FrameMut>(scratch: &Scratch, frame: &F, action: &Action) -> bool {
    action.evidence == Evidence::None as u8
        || may_belong(&scratch.facts) && frame.is_established(&scratch.facts)
}

/// [`ban::is_last`] with the terms of an action.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn is_last<W: Maps>(maps: &W, scratch: &Scratch, action: u32) -> bool {
    let Some(action) = maps.action(action) else {
        return false;
    };
    let entry = maps.ban(&scratch.facts.source());
    ban::is_last(entry.as_ref(), &BanTerms::of(action), scratch.now())
}

/// [`ban::attempt`] with the terms of an action.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn strike<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    action: u32,
    rule: u32,
    allowed: bool,
) -> StrikeResult {
    let Some(action) = maps.action(action) else {
        return StrikeResult::Done;
    };
    let source = scratch.facts.source();
    // The next attempt looks it up: a second look-up here would double the verifier's paths through
    // the rest.
    let Some(entry) = maps.ban(&source) else {
        return match maps.insert_ban(&source) {
            Insert::Made | Insert::Exists => StrikeResult::Lost,
            Insert::Refused => StrikeResult::Done,
        };
    };
    ban::attempt(&entry, &BanTerms::of(action), rule, scratch.now(), allowed)
}

/// True if a packet can belong to an established TCP connection: a whole segment without SYN.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn may_belong(facts: &Facts) -> bool {
    let whole = matches!((facts.reach(), facts.fragment()), (Reach::Transport, Fragment::Whole));
    let tcp = matches!(facts.protocol(), Some(TCP));
    whole && tcp && matches!(facts.tcp_flags(), Some(flags) if flags & SYN == 0)
}
