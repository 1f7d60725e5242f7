//! Reports whole packets within a budget: [`limiter_decision::capture`].

use core::hint::black_box;

use aya_ebpf::{
    bindings::BPF_RB_AVAIL_DATA,
    btf_maps::{Array, PerCpuArray, RingBuf},
    helpers::generated::{bpf_ringbuf_output, bpf_ringbuf_query},
    macros::btf_map,
};
use limiter_common::frame_size::FrameSize;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{
    CAPTURED_BYTES, CaptureBudget, CaptureFilter, CaptureFrame, CaptureRecord, Control, MAX_SNAP,
};
use limiter_decision::capture::{self, Level};
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::Packed;
use limiter_decision::packet::{self, Packet};

use crate::call::call;
use crate::context::Frame;
use crate::events::ScratchFacts;
use crate::hook;
use crate::maps::{self, Kernel};

/// The packets that are reported. Written by the daemon before [`Control::CaptureEnd`].
#[btf_map]
static CAPTURE: Array<CaptureFilter, 1> = Array::new();

/// Packets that nobody has read yet. Written here, read by the daemon. A packet for which there is
/// no space is lost, and counted. Untyped, because libbpf does not make a ring of a type with a
/// size.
#[btf_map]
static CAPTURED: RingBuf<[u8; 0], { CAPTURED_BYTES as usize }> = RingBuf::new();

/// The budget of each CPU, and its counts. Written here, summed by the daemon.
#[btf_map]
static CAPTURE_BUDGET: PerCpuArray<CaptureBudget, 1> = PerCpuArray::new();

/// The packet to report, per CPU. Written and read here.
#[btf_map]
static CAPTURE_FRAME: PerCpuArray<CaptureFrame, 1> = PerCpuArray::new();

#[inline(always)]
fn is_on(now: Ticks) -> bool {
    now.get() < Kernel.control(Control::CaptureEnd)
}

/// Reports a packet, if a capture asks for it.
#[inline(always)]
pub(crate) fn report<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    scratch_facts: ScratchFacts,
) {
    if !is_on(now) {
        return;
    }
    let level: Option<Level> = call!(capture_level(; frame, outcome, scratch_facts));
    if level.is_some() {
        // No action has been carried out before the tables.
        let outcome = match scratch_facts {
            ScratchFacts::Missing => outcome.without_action(),
            ScratchFacts::Present => outcome,
        };
        call!(capture(; frame, outcome, size, now, level));
    }
}

/// Keeps the bytes of a packet before an action changes it, if there is a capture.
#[inline(always)]
pub(crate) fn keep<const LAYER_3: bool>(frame: &Frame<LAYER_3>, now: Ticks) {
    if is_on(now) {
        call!(keep_bytes(; frame));
    }
}

/// Copies the bytes of a packet that an action may change.
#[inline(always)]
pub(crate) fn keep_bytes<const LAYER_3: bool>(frame: &Frame<LAYER_3>) {
    let (Some(filter), Some(kept)) = (CAPTURE.get(0), CAPTURE_FRAME.get_ptr_mut(0)) else {
        return;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let kept = unsafe { &mut *kept };
    kept.kept = if load(frame, kept, filter.snap) { filter.session } else { 0 };
}

/// Copies the beginning of a packet to its record; false if it cannot be read.
#[inline(always)]
fn load<const LAYER_3: bool>(frame: &Frame<LAYER_3>, to: &mut CaptureFrame, snap: u32) -> bool {
    let (length, snap) = (hook::length(frame.context()), u64::from(snap));
    let captured = if length < snap { length } else { snap };
    to.record.captured = 0;
    to.record.interface = frame.interface();
    to.record.layer_3 = u8::from(LAYER_3);
    if captured == 0 {
        return true;
    }
    // Linux 6.1 does not conclude from `captured != 0` that there is at least one byte, but needs
    // to know that about the length.
    let last = black_box(captured - 1);
    if last >= u64::from(MAX_SNAP) {
        return false;
    }
    let captured = ((last + 1) & 0xffff_ffff) as u32;
    // SAFETY: there is space for so many bytes.
    if !unsafe { hook::load(frame.context(), 0, to.bytes.as_mut_ptr(), captured) } {
        return false;
    }
    to.record.captured = captured;
    true
}

/// Reports a packet that the capture asks for, if the budget allows it, and counts it.
#[inline(always)]
pub(crate) fn capture<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    level: Option<Level>,
) {
    // Not before the time at which it was judged.
    let now = Kernel.now(now).max(now);
    if !call!(charge_capture(; level, now)) {
        return;
    }
    // The bytes of a packet that an action may have changed were kept before.
    let kept = outcome.action() != 0;
    if kept || call!(fill_capture(; frame)) {
        call!(send_capture(; outcome, size, now, level, kept));
    } else {
        call!(miss_capture(; level, true));
    }
}

/// The level of a packet; `None` if the capture does not ask for it. Writes the source into the
/// packet's record. If an action may have changed the packet, the source is taken from the scratch.
#[inline(always)]
pub(crate) fn capture_level<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    outcome: Packed,
    scratch_facts: ScratchFacts,
) -> Option<Level> {
    let filter = CAPTURE.get(0)?;
    if !capture::asks_for(filter, outcome) {
        return None;
    }
    if scratch_facts == ScratchFacts::Present {
        return from(filter, &maps::scratch()?.facts.source());
    }
    match packet::parse(frame) {
        Packet::From(source) => from(filter, &source),
        Packet::Exempt(_) => {
            note([0; 2], 0)?;
            if capture::takes_every_source(filter) { Some(Level::ONLY) } else { None }
        }
    }
}

/// The level of a packet from a source.
#[inline(always)]
fn from(filter: &CaptureFilter, source: &Source) -> Option<Level> {
    let level = capture::chosen(filter, source)?;
    let (high, low) = source.trie_words();
    note([high, low], capture::version(source))?;
    Some(level)
}

/// Writes the source of a packet into its record.
#[inline(always)]
fn note(source: [u64; 2], version: u8) -> Option<()> {
    let frame = CAPTURE_FRAME.get_ptr_mut(0)?;
    let [high, low] = source;
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU. Volatile, so that zeros do not
    // become a memset, which loops over a pointer.
    unsafe {
        (&raw mut (*frame).record.source[0]).write_volatile(high);
        (&raw mut (*frame).record.source[1]).write_volatile(low);
        (&raw mut (*frame).record.version).write_volatile(version);
    }
    Some(())
}

/// Charges a packet to the budget of this CPU. False if the budget is used up; the packet is then
/// counted.
#[inline(always)]
pub(crate) fn charge_capture(level: Option<Level>, now: Ticks) -> bool {
    let (Some(filter), Some(level)) = (CAPTURE.get(0), level) else { return false };
    let Some(budget) = CAPTURE_BUDGET.get_ptr_mut(0) else { return false };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let admitted = capture::admit(filter, unsafe { &mut (*budget).reported }, level, now);
    if !admitted {
        call!(miss_capture(; Some(level), false));
    }
    admitted
}

/// Copies the bytes of a packet to its record; false if they cannot be read.
#[inline(always)]
pub(crate) fn fill_capture<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> bool {
    let (Some(filter), Some(to)) = (CAPTURE.get(0), CAPTURE_FRAME.get_ptr_mut(0)) else {
        return false;
    };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    load(frame, unsafe { &mut *to }, filter.snap)
}

/// Counts a packet of a level that is not reported. `lost` means that it was within the budget.
#[inline(always)]
pub(crate) fn miss_capture(level: Option<Level>, lost: bool) {
    let Some(budget) = CAPTURE_BUDGET.get_ptr_mut(0) else { return };
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let budget = unsafe { &mut *budget };
    budget.reported.lost = budget.reported.lost.wrapping_add(u64::from(lost));
    if let Some(level) = level
        && let Some(missed) = budget.missed.get_mut(level.level as usize)
    {
        *missed = missed.wrapping_add(1);
    }
}

/// Sends the record of this CPU, and counts it. `kept` means that [`keep_bytes`] has left the bytes
/// there.
#[inline(always)]
pub(crate) fn send_capture(
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    level: Option<Level>,
    kept: bool,
) {
    let sent = output(outcome, size, now, level, kept).is_some();
    if !sent {
        call!(miss_capture(; level, true));
    } else if let Some(budget) = CAPTURE_BUDGET.get_ptr_mut(0) {
        // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
        let reported = unsafe { &mut (*budget).reported };
        reported.sent = reported.sent.wrapping_add(1);
    }
}

/// Puts the record into the ring; `None` if there is no space, or the bytes are not the packet's.
#[inline(always)]
fn output(
    outcome: Packed,
    size: FrameSize,
    now: Ticks,
    level: Option<Level>,
    kept: bool,
) -> Option<()> {
    let (filter, level) = (CAPTURE.get(0)?, level?);
    let frame = CAPTURE_FRAME.get_ptr_mut(0)?;
    // SAFETY: this CPU's own copy; XDP does not nest on a CPU.
    let frame = unsafe { &mut *frame };
    if kept && frame.kept != filter.session {
        return None;
    }
    frame.kept = 0;
    let record = &mut frame.record;
    record.session = filter.session;
    record.time = now.get();
    record.rule = outcome.rule();
    record.length = (size.bytes() & 0xffff_ffff) as u32;
    record.packets = (size.packets() & 0xffff) as u16;
    record.direction = hook::direction() as u8;
    record.reason = (outcome.reason_index() & 0xff) as u8;
    record.level = (level.level & 0xff) as u8;
    let captured = record.captured;
    if captured > MAX_SNAP {
        return None;
    }
    let bytes = u64::from(captured) + size_of::<CaptureRecord>() as u64;
    let ring = (&raw const CAPTURED).cast_mut().cast();
    // SAFETY: a ring of the kernel; the answer is a number.
    let used = unsafe { bpf_ringbuf_query(ring, u64::from(BPF_RB_AVAIL_DATA)) };
    if !level.has_room(used, bytes) {
        return None;
    }
    let from = (&raw mut frame.record).cast();
    // SAFETY: the kernel only reads the record and the bytes that follow it.
    if unsafe { bpf_ringbuf_output(ring, from, bytes, 0) } == 0 { Some(()) } else { None }
}
