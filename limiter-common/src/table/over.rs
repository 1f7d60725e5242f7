//! What an action makes of a packet that is over a hard limit, and how much that tells.

use super::held::{Found, hold};
use super::judge::{Sight, look};
use super::scratch::{Planned, REPAIR_KEY};
use super::{Code, SOURCE_CLASS, Scratch, Tables, ready};
use crate::bucket::Slot;
use crate::engine::{Maps, Outcome};
use crate::verdict::{Reason, Verdict};
use crate::wire::ActionKind;

/// What an action makes of a packet that is over a hard limit.
pub(super) struct Over {
    pub(super) planned: Planned,
    pub(super) reason: Reason,
    pub(super) code: Code,
    pub(super) repair: u32,
}

/// Reads the action; for a class, looks whether its budget has room.
#[inline(always)]
pub(super) fn over<T: Tables>(maps: &T, scratch: &Scratch, action: u32) -> Over {
    let gone = Over {
        planned: Planned::Nothing,
        reason: Reason::OverLimit,
        code: Code::Over,
        repair: REPAIR_KEY,
    };
    let Some(action) = maps.action(action) else {
        return gone;
    };
    let goes_on = Over { planned: Planned::Count, code: Code::Ready, ..gone };
    match action.kind() {
        ActionKind::Drop | ActionKind::Reject | ActionKind::Ban => gone,
        ActionKind::Mark | ActionKind::Pass => Over { reason: Reason::Marked, ..goes_on },
        ActionKind::Interface | ActionKind::Cpu => Over { reason: Reason::Redirected, ..goes_on },
        ActionKind::Class => match hold(maps, scratch, Slot::new(action.target), None) {
            Found::Free(_) | Found::Full(_) => gone,
            Found::Stale(repair) => Over { code: Code::Stale, repair, ..gone },
            Found::Held(held) => match look(maps, scratch, &held) {
                Sight::Within | Sight::Soft => {
                    Over { planned: Planned::Class, reason: Reason::Class, ..goes_on }
                }
                Sight::Over => Over { planned: Planned::Class, ..gone },
                Sight::Moved => Over { code: Code::Stale, repair: held.repair, ..gone },
            },
        },
    }
}

/// What the action of a source table's limit makes of a packet that is over it; a class is charged at
/// the step [`SOURCE_CLASS`].
#[inline(always)]
pub fn over_source<M: Maps + Tables>(maps: &M, scratch: &Scratch, outcome: Outcome) -> Outcome {
    let action = u32::from(outcome.action);
    let mut over = over(maps, scratch, action);
    if matches!(over.code, Code::Stale) {
        ready::repair_budget(maps, scratch, over.repair);
        over = self::over(maps, scratch, action);
    }
    if let Some(step) = scratch.step(SOURCE_CLASS) {
        step.planned.set(match over.planned {
            Planned::Class => Planned::Class as u32,
            _ => Planned::Nothing as u32,
        });
        step.rule.set(outcome.rule);
        step.reason.set(Reason::Class.index());
        step.action.set(action);
    }
    if matches!(over.code, Code::Over) {
        maps.count_class(scratch, SOURCE_CLASS, false, true);
    }
    let reason = match over.code {
        Code::Ready | Code::Over => over.reason,
        Code::Stale | Code::Contended => Reason::Contended,
    };
    let passed = matches!(reason.verdict(), Verdict::Pass);
    maps.count_source(&scratch.facts.source(), passed);
    Outcome { reason, counted: reason, ..outcome }
}

/// Counts a packet under the budget of the class that step `index` sends it to, if it does; takes
/// it back when `add` is false.
#[inline(always)]
pub fn count_class<T: Tables>(maps: &T, scratch: &Scratch, index: u32, passed: bool, add: bool) {
    if let Some(step) = scratch.step(index)
        && matches!(Planned::from_raw(step.planned.get()), Planned::Class)
        && let Some(action) = maps.action(step.action.get())
        && let Some(record) = maps.record(Slot::new(action.target))
    {
        let reason = if passed { Reason::Conforming } else { Reason::OverLimit };
        maps.count_rule(record.rule, reason, scratch.length(), add);
    }
}

/// How much a reason tells of a packet that passes.
#[inline(always)]
pub(super) const fn weight(reason: Reason) -> u32 {
    match reason {
        Reason::NoRule => 0,
        Reason::Unlimited => 1,
        Reason::Conforming => CONFORMING,
        Reason::Untracked | Reason::Aggregate => 3,
        Reason::Shadow => 4,
        Reason::Marked => MARKED,
        Reason::Class => 6,
        _ => 7,
    }
}

/// [`weight`] of the reason with a number, without a branch for each: four bits of it for each reason.
#[inline(always)]
pub(super) const fn weight_of(index: u32) -> u32 {
    let (low, high) = WEIGHTS;
    let half = if index < 16 { low } else { high };
    (half >> (index.wrapping_mul(4) & 63) & 15) as u32
}

const WEIGHTS: (u64, u64) = {
    let (mut low, mut high) = (0, 0);
    let mut index = 0;
    while index < 16 {
        low |= (weight(Reason::from_index(index)) as u64) << (4 * index);
        high |= (weight(Reason::from_index(16 + index)) as u64) << (4 * index);
        index += 1;
    }
    (low, high)
};

const _: () = assert!(Reason::COUNT <= 32);

pub(super) const CONFORMING: u32 = 2;
pub(super) const MARKED: u32 = 5;
