//! Sends events of single drops within a budget: [`limiter_decision::event`].

use aya_ebpf::{
    btf_maps::{PerCpuArray, RingBuf},
    macros::btf_map,
};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::wire::{Control, EVENT_BYTES, Event, EventBudget};
use limiter_decision::event::EventRate;
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::Packed;
use limiter_decision::register::Register;
use limiter_decision::table::Scratch;

use crate::call::call;
use crate::context::Frame;
use crate::facts::facts;
use crate::maps::{self, Kernel};

/// Events that nobody has read yet. Written here, read by the daemon. An event for which there is
/// no space is lost, and counted. Untyped, because libbpf does not make a ring of a type with a
/// size.
#[btf_map]
static EVENTS: RingBuf<[u8; 0], { EVENT_BYTES as usize }> = RingBuf::new();

/// The budget of each CPU, and its counts. Written here, summed by the daemon.
#[btf_map]
static EVENT_BUDGET: PerCpuArray<EventBudget, 1> = PerCpuArray::new();

/// Whether the scratch holds the facts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScratchFacts {
    /// The packet was not parsed beyond its source.
    Missing,
    /// The facts are those of this packet.
    Present,
}

impl Register for ScratchFacts {
    const LOST: Self = Self::Missing;

    #[inline(always)]
    fn to_register(self) -> u64 {
        self as u64
    }

    #[inline(always)]
    fn of_register(register: u64) -> Self {
        if register == Self::Present as u64 { Self::Present } else { Self::Missing }
    }
}

/// Sends the event of a packet, if it is dropped and the budget allows it.
#[inline(always)]
pub(crate) fn emit<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    scratch_facts: ScratchFacts,
) {
    if !outcome.is_reported() {
        return;
    }
    let Some(budget) = EVENT_BUDGET.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    if EventRate::is_used_up(unsafe { &mut *budget }, now) {
        return;
    }
    call!(event(; frame, outcome, size, now, scratch_facts));
}

/// Sends the event of a packet, if the budget allows it, and counts it.
#[inline(always)]
pub(crate) fn event<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    scratch_facts: ScratchFacts,
) {
    let Some(budget) = EVENT_BUDGET.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let budget = unsafe { &mut *budget };
    if !rate().admit(budget, now) {
        return;
    }
    let known = scratch_facts == ScratchFacts::Present || call!(facts(; frame));
    let sent = match maps::scratch() {
        Some(scratch) if known => call!(send_event(scratch; outcome, size, now)),
        _ => false,
    };
    // Both counters are written, with one or zero: as in `RuleCounters::add`.
    let sent = u64::from(sent);
    budget.sent = budget.sent.wrapping_add(sent);
    budget.lost = budget.lost.wrapping_add(1 - sent);
}

#[inline(always)]
fn rate() -> EventRate {
    EventRate {
        cost: Kernel.control(Control::EventCost),
        credit: Kernel.control(Control::EventCredit),
    }
}

/// Sends the event of the packet in the scratch; false if there is no space.
#[inline(always)]
pub(crate) fn send_event(scratch: &Scratch, outcome: Packed, size: FrameSize, now: Ticks) -> bool {
    let event = limiter_decision::event::of(&scratch.facts, outcome, size, now);
    EVENTS.output_untyped::<Event>(&event, 0).is_ok()
}
