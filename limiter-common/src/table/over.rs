//! What an action makes of a packet that is over a hard limit, and how much that tells.

use super::code::Code;
use super::held::{Found, hold};
use super::ready;
use super::scratch::{Planned, REPAIR_KEY, SOURCE_CLASS, Scratch};
use super::sight::{Sight, look};
use crate::bucket::Slot;
use crate::engine::source::count_source;
use crate::outcome::{Outcome, Packed};
use crate::step::step;
use crate::verdict::{Reason, Verdict};
use crate::wire::ActionKind;
use crate::world::World;

/// What an action makes of a packet that is over a hard limit.
pub(super) struct Over {
    pub(super) planned: Planned,
    pub(super) reason: Reason,
    pub(super) code: Code,
    pub(super) repair: u32,
}

/// Reads the action; for a class, looks whether its budget has room.
#[inline(always)]
pub(super) fn over<W: World>(maps: &W, scratch: &Scratch, action: u32) -> Over {
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

/// What the action of a source table's limit makes of a packet that is over it; a class is charged
/// at the step [`SOURCE_CLASS`].
#[inline(always)]
pub fn over_source<W: World>(maps: &W, scratch: &Scratch, outcome: Packed) -> Packed {
    let outcome = outcome.unpack();
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
        step!(count_class(maps, scratch; SOURCE_CLASS, false, true));
    }
    let reason = match over.code {
        Code::Ready | Code::Over => over.reason,
        Code::Stale | Code::Contended => Reason::Contended,
    };
    let passed = matches!(reason.verdict(), Verdict::Pass);
    step!(count_source(maps; &scratch.facts.source(), passed));
    Outcome { reason, counted: reason, ..outcome }.pack()
}

/// Counts a packet under the budget of the class that step `index` sends it to, if it does; takes
/// it back when `add` is false.
#[inline(always)]
pub fn count_class<W: World>(maps: &W, scratch: &Scratch, index: u32, passed: bool, add: bool) {
    if let Some(step) = scratch.step(index)
        && matches!(Planned::from_raw(step.planned.get()), Planned::Class)
        && let Some(action) = maps.action(step.action.get())
        && let Some(record) = maps.record(Slot::new(action.target))
    {
        let reason = if passed { Reason::Conforming } else { Reason::OverLimit };
        maps.count_rule(record.rule, reason, scratch.length(), add);
    }
}
