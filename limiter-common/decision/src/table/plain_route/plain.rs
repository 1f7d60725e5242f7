//! Rules of one or two plain limits, as most rules have: checked and charged without a subprogram.

use limiter_common::frame_size::FrameSize;
use limiter_common::window::WallOffset;
use limiter_common::wire::{LimitSpec, Record};

use crate::cell::Cell;
use crate::maps::{Keyed as _, Maps};
use crate::meter::{self, Arrival, Charged, Peek, Undo};
use crate::table::limits::check::{Check, check_target};
use crate::table::result::ChargeTarget;
use crate::table::scratch::{Account, Charge, Plan, Scratch};

/// The size of a frame, read where it is needed: keeping it would take stack.
pub(crate) trait Size: Copy + Fn() -> FrameSize {}

impl<F: Copy + Fn() -> FrameSize> Size for F {}

/// The arrival of a packet at a plain limit, which does not need the wall clock.
#[cfg_attr(target_arch = "bpf", inline(always))]
fn plain_arrival(scratch: &Scratch, spec: &LimitSpec, size: impl Size) -> Arrival {
    let size = size();
    let (now, units) = (scratch.now(), spec.plain_units(size));
    let is_super_frame = size.is_super_frame();
    Arrival { now, offset: WallOffset::from_raw(0), units, is_super_frame }
}

/// Checks the limits to which a packet is charged: the common case, [`Record::plain`], without a
/// subprogram.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn check_at_once<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    target: &ChargeTarget<'_, W::Keyed>,
) -> Check {
    let Some((first, second)) = target.record.plain() else {
        return check_target(maps, scratch, target);
    };
    let size = || scratch.size::<W>();
    let check = check_plain(scratch, &target.bucket.first(), first, target.scale, size);
    match second {
        Some(second) if check == Check::WITHIN => {
            check_plain(scratch, &target.bucket.second(), second, target.scale, size)
        }
        _ => check,
    }
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn check_plain(
    scratch: &Scratch,
    word: &impl Cell,
    spec: &LimitSpec,
    scale: bool,
    size: impl Size,
) -> Check {
    let Check(check) = match peek_plain(scratch, word, spec, scale, size) {
        Peek::Conforming => Check::WITHIN,
        Peek::Over => Check::OVER,
        Peek::Moved => Check::MOVED,
    };
    // One path from here on, instead of one for each path through the arithmetic.
    Check(scratch.unknown(check))
}

/// Which limits [`charge_at_once`] has charged: a number, like [`crate::table::TableResult`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AtOnce(u32);

impl AtOnce {
    pub(crate) const ALL: Self = Self(0);
    /// None: the packet is over the first one.
    pub(crate) const OVER: Self = Self(1);
    /// The first one. The second one would not take the packet, or another CPU interfered.
    pub(crate) const FIRST: Self = Self(2);
    /// None: these limits are not charged in this way, or another CPU interfered.
    pub(crate) const NONE: Self = Self(3);
}

/// The places of two limits in their record, and of their words in the bucket.
pub(crate) const FIRST: u32 = 0;
pub(crate) const SECOND: u32 = 1;

/// The common case of [`crate::table::charge()`]: [`Record::plain`], in the bucket of the key that
/// the check has found.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn charge_at_once<W: Maps>(
    maps: &W,
    scratch: &Scratch,
    bucket: &W::Keyed,
    account: &Account,
    index: u32,
) -> AtOnce {
    let (slot, scale) = account.target();
    if scratch.size::<W>().is_super_frame() {
        // Charging these takes more stack than is left here; the general route has it.
        return AtOnce::NONE;
    }
    let size = || scratch.size::<W>().at_hook(false);
    if account.plan.get() == Plan::Charge as u32
        && account.budget.get().is_own()
        && let Some((first, second)) = maps.record(slot).and_then(Record::plain)
    {
        let charged = charge_plain(scratch, &bucket.first(), (FIRST, first, size), scale, index);
        let Some(second) = second else { return charged };
        if charged != AtOnce::ALL {
            return charged;
        }
        return match charge_plain(scratch, &bucket.second(), (SECOND, second, size), scale, index) {
            AtOnce::ALL => AtOnce::ALL,
            _ => AtOnce::FIRST,
        };
    }
    AtOnce::NONE
}

#[cfg_attr(target_arch = "bpf", inline(always))]
fn charge_plain(
    scratch: &Scratch,
    word: &impl Cell,
    limit: (u32, &LimitSpec, impl Size),
    scale: bool,
    index: u32,
) -> AtOnce {
    let AtOnce(charged) = match attempt_plain(scratch, word, limit, scale, index) {
        Charged::Conforming => AtOnce::ALL,
        Charged::Over => AtOnce::OVER,
        Charged::Contended | Charged::Moved => AtOnce::NONE,
    };
    // One path from here on, instead of one for each path through the arithmetic.
    AtOnce(scratch.unknown(charged))
}

/// Checks a plain limit in its word: [`crate::table::limit::peek_limit`], [`Record::plain`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn peek_plain(
    scratch: &Scratch,
    word: &impl Cell,
    spec: &LimitSpec,
    scale: bool,
    size: impl Size,
) -> Peek {
    meter::plain::peek(spec, word, scale, &plain_arrival(scratch, spec, size))
}

/// [`peek_plain`] for a packet that will be charged: the account `index` gets the exchange of the
/// limit at `place` of the bucket.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn plan_plain(
    scratch: &Scratch,
    word: &impl Cell,
    (place, spec, size): (u32, &LimitSpec, impl Size),
    scale: bool,
    index: u32,
) -> Peek {
    let mut undo = Undo { index: place, ..Undo::default() };
    let arrival = plain_arrival(scratch, spec, size);
    let peek = meter::plain::plan(spec, word, scale, &arrival, &mut undo);
    if matches!(peek, Peek::Conforming) {
        scratch.note(index, Charge::Word(undo.index), undo.old, undo.new);
    }
    peek
}

/// Tries once to charge a frame of `size` to the plain limit `spec` in its word, at `place` of the
/// bucket: [`crate::table::limits::limit::attempt_limit`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub(crate) fn attempt_plain(
    scratch: &Scratch,
    word: &impl Cell,
    (place, spec, size): (u32, &LimitSpec, impl Size),
    scale: bool,
    index: u32,
) -> Charged {
    let mut undo = Undo { index: place, ..Undo::default() };
    let arrival = plain_arrival(scratch, spec, size);
    let charged = meter::plain::attempt(spec, word, scale, &arrival, &mut undo);
    if matches!(charged, Charged::Conforming) {
        scratch.note(index, Charge::Word(undo.index), undo.old, undo.new);
    }
    charged
}
