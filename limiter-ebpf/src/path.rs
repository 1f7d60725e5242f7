//! The path of one packet, from the hook to the verdict.

use aya_log_ebpf::debug;
use aya_log_ebpf::macro_support::{Level, level_enabled};
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_decision::act::act;
use limiter_decision::engine::{self, Next, plain_source};
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::{BeforeTables, InForce, Outcome, Packed};
use limiter_decision::table::{self, Plain, judge_plain, run_tables};

use crate::call::call;
use crate::capture;
use crate::context::Frame;
use crate::events::{self, ScratchFacts};
use crate::facts::{facts, inner};
use crate::hook;
use crate::maps::{self, Clock as _, Kernel};
use crate::program::{self, redirect};

/// Judges the frame. If it passes, lets the next program continue. With `LAYER_3`, the frame begins
/// with its IP header.
#[inline(always)]
pub(crate) fn run<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> u32 {
    let verdict = judge(frame);
    if verdict == hook::PASS {
        hook::go_on(frame.context());
    }
    verdict
}

/// Judges the frame, carries out the outcome, and counts it.
#[inline(always)]
fn judge<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> u32 {
    let size = program::size(frame);
    let now = Kernel.recent(frame);
    let in_force = match call!(before_tables(; frame, size, now)) {
        BeforeTables::Judged(outcome) => {
            count(frame, outcome, size);
            events::emit(frame, outcome, size, now, ScratchFacts::Missing);
            capture::report(frame, outcome, size, now, ScratchFacts::Missing);
            return pass_or_drop(outcome);
        }
        BeforeTables::Tables(in_force) => in_force,
    };
    call!(begin_packet(; frame, in_force, size, now));
    let Some(outcome) = decide(frame, in_force.header().tables(), now) else {
        return hook::PASS;
    };
    count(frame, outcome, size);
    // The frame may be an answer now; its original facts are in the scratch.
    events::emit(frame, outcome, size, now, ScratchFacts::Present);
    capture::report(frame, outcome, size, now, ScratchFacts::Present);
    if outcome.is(Reason::Rejected) {
        return hook::answered(frame.context());
    }
    // A frame that begins with its IP header is not redirected: on another interface nobody could
    // read it.
    if outcome.is(Reason::Redirected) && !LAYER_3 {
        return call!(redirect(; outcome.action()));
    }
    if hook::DELAYS && !outcome.drops() {
        return program::delay(frame);
    }
    pass_or_drop(outcome)
}

#[inline(always)]
fn pass_or_drop(outcome: Packed) -> u32 {
    if outcome.drops() { hook::DROP } else { hook::PASS }
}

/// Decides by the tables and carries out the action: by the route of plain tables if the packet
/// qualifies, otherwise by the general one.
#[inline(always)]
fn decide<const LAYER_3: bool>(frame: &Frame<LAYER_3>, tables: u32, now: Ticks) -> Option<Packed> {
    let scratch = maps::scratch()?;
    if let Plain::Judged(outcome) = judge_plain(&Kernel, scratch, tables) {
        return Some(outcome);
    }
    let outcome = call!(run_tables(&Kernel, scratch; tables));
    if outcome.action() == 0 {
        return Some(outcome);
    }
    capture::keep(frame, now);
    Some(call!(act(&Kernel, scratch; frame, outcome)))
}

/// Everything before the tables. A subprogram, so that the stack of [`run`] stays small: what it
/// calls shares 512 bytes with it.
#[inline(always)]
pub(crate) fn before_tables<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    size: FrameSize,
    now: Ticks,
) -> BeforeTables {
    match engine::classify(&Kernel, frame, size, now) {
        Next::Done(reason) => BeforeTables::Judged(Outcome::without_rule(reason).pack()),
        Next::Sources(packet) => BeforeTables::Judged(call!(plain_source(&Kernel; &packet))),
        Next::Tables { generation, header, .. } => {
            BeforeTables::Tables(InForce::new(generation, header))
        }
    }
}

/// Writes the facts of a packet into the scratch, for the tables.
#[inline(always)]
pub(crate) fn begin_packet<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    in_force: InForce,
    size: FrameSize,
    now: Ticks,
) {
    let header = in_force.header();
    if !facts(frame) {
        return;
    }
    if header.inner() {
        call!(inner(; frame));
    }
    // Other rule sets read the clock when they need it.
    let asks = header.flows() || header.asks_for_daemon();
    let now = if asks { Kernel.now(now) } else { now };
    if let Some(scratch) = maps::scratch() {
        table::begin_packet(&Kernel, scratch, in_force.generation(), header, size, now);
    }
}

/// Counts the packet by reason, interface and rule, and logs it. If logging is off, which is a
/// load-time constant, the verifier removes the call.
#[inline(always)]
fn count<const LAYER_3: bool>(frame: &Frame<LAYER_3>, outcome: Packed, size: FrameSize) {
    let Outcome { reason, rule, counted, .. } = outcome.unpack();
    Kernel::count_reason(reason, size);
    Kernel::count_interface(frame.interface(), reason, size);
    Kernel.count_rule(rule, counted, size, true);
    if level_enabled(Level::Debug) {
        call!(log(; outcome, size));
    }
}

/// Logs a packet. A subprogram, so that its buffers take no stack when nothing is logged.
#[inline(always)]
pub(crate) fn log(outcome: Packed, size: FrameSize) {
    let outcome = outcome.unpack();
    // The log is written to a ring buffer and needs no context.
    let bytes = size.bytes();
    debug!((), "reason {} rule {} length {}", outcome.reason.index(), outcome.rule, bytes);
}
