//! Single drops, told within a budget: [`limiter_common::event`].

use aya_ebpf::{
    bindings::xdp_md,
    btf_maps::{PerCpuArray, RingBuf},
    macros::btf_map,
    programs::XdpContext,
};
use limiter_common::engine::Packed;
use limiter_common::event::{self, EventRate};
use limiter_common::time::Ticks;
use limiter_common::wire::{Control, EVENT_BYTES, Event, EventBudget};

use crate::maps;
use crate::tables::{limiter_facts, limiter_facts_l3, scratch};

/// Events that nobody has read yet. Written here, read by the daemon; what finds no room is lost, and
/// counted. Without a type: of one with a size, libbpf makes no ring.
#[btf_map]
static EVENTS: RingBuf<[u8; 0], { EVENT_BYTES as usize }> = RingBuf::new();

/// The budget of each CPU, and its counts. Written here, summed by the daemon.
#[btf_map]
static EVENT_BUDGET: PerCpuArray<EventBudget, 1> = PerCpuArray::new();

/// Nobody has looked at more of the packet than its source.
pub(crate) const FACTS_UNKNOWN: u32 = 0;

/// The facts of the packet are in the scratch.
pub(crate) const FACTS_KNOWN: u32 = 1;

/// Tells of a packet, if it is dropped and the budget allows.
#[inline(always)]
pub(crate) fn tell<const LAYER_3: bool>(
    ctx: &XdpContext,
    outcome: Packed,
    length: u64,
    now: u64,
    facts: u32,
) {
    if !outcome.is_told() {
        return;
    }
    let Some(budget) = EVENT_BUDGET.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    if EventRate::is_used_up(unsafe { &mut *budget }, Ticks::new(now)) {
        return;
    }
    let event = if LAYER_3 { limiter_event_l3 } else { limiter_event };
    event(ctx.ctx, outcome.raw(), length, now, facts);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_event(
    ctx: *mut xdp_md,
    outcome: u64,
    length: u64,
    now: u64,
    facts: u32,
) -> u32 {
    event::<false>(ctx, outcome, length, now, facts)
}

/// The same for frames without an Ethernet header.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_event_l3(
    ctx: *mut xdp_md,
    outcome: u64,
    length: u64,
    now: u64,
    facts: u32,
) -> u32 {
    event::<true>(ctx, outcome, length, now, facts)
}

#[inline(always)]
fn event<const LAYER_3: bool>(
    ctx: *mut xdp_md,
    outcome: u64,
    length: u64,
    now: u64,
    facts: u32,
) -> u32 {
    let Some(budget) = EVENT_BUDGET.get_ptr_mut(0) else { return 0 };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let budget = unsafe { &mut *budget };
    if !rate().admit(budget, Ticks::new(now)) {
        return 0;
    }
    let parse = if LAYER_3 { limiter_facts_l3 } else { limiter_facts };
    let known = facts == FACTS_KNOWN || parse(ctx) != 0;
    let sent = if known { limiter_send_event(outcome, length, now) } else { 0 };
    // Both change, by one or by nothing: as in `RuleCounters::add`.
    let sent = u64::from(sent & 1);
    budget.sent = budget.sent.wrapping_add(sent);
    budget.lost = budget.lost.wrapping_add(1 - sent);
    0
}

#[inline(always)]
fn rate() -> EventRate {
    EventRate {
        cost: maps::control(Control::EventCost),
        credit: maps::control(Control::EventCredit),
    }
}

/// Sends the event of the packet in the scratch: 1, or 0 when there is no room.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_send_event(outcome: u64, length: u64, now: u64) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    let outcome = Packed::from_raw(outcome);
    let event = event::of(&scratch.facts, outcome, length, Ticks::new(now));
    u32::from(EVENTS.output_untyped::<Event>(&event, 0).is_ok())
}
