//! The way of one packet, from the driver to the verdict.

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::programs::XdpContext;
use aya_log_ebpf::debug;
use aya_log_ebpf::macro_support::{Level, level_enabled};
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::ActionKind;
use limiter_decision::act::act;
use limiter_decision::engine::{self, Next, plain_source};
use limiter_decision::maps::Maps as _;
use limiter_decision::outcome::{BeforeTables, InForce, Outcome, Packed};
use limiter_decision::packet;
use limiter_decision::table::{self, Plain, judge_plain, run_tables};

use crate::call::call;
use crate::capture;
use crate::context::Frame;
use crate::events::{self, ScratchFacts};
use crate::maps::definitions::{CPUS, INTERFACES};
use crate::maps::{self, Clock as _, Kernel};

#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter(ctx: XdpContext) -> u32 {
    run::<false>(&ctx)
}

/// Judges one frame of an interface without Ethernet headers.
#[aya_ebpf::macros::xdp(frags)]
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
pub(crate) fn limiter_l3(ctx: XdpContext) -> u32 {
    run::<true>(&ctx)
}

/// Judges the frame, carries out what follows, and counts it. With `LAYER_3`, it begins with its IP
/// header.
#[inline(always)]
fn run<const LAYER_3: bool>(ctx: &XdpContext) -> u32 {
    let frame = Frame::<LAYER_3>::new(ctx.ctx);
    let length = frame.length();
    let now = Kernel.recent(&frame);
    let in_force = match call!(before_tables(; &frame, length, now)) {
        BeforeTables::Judged(outcome) => {
            count(&frame, outcome, length);
            events::emit(&frame, outcome, length, now, ScratchFacts::Missing);
            capture::report(&frame, outcome, length, now, ScratchFacts::Missing);
            return pass_or_drop(outcome);
        }
        BeforeTables::Tables(in_force) => in_force,
    };
    call!(begin_packet(; &frame, in_force, length, now));
    let Some(outcome) = decide(&frame, in_force.header().tables(), length, now) else {
        return xdp_action::XDP_PASS;
    };
    count(&frame, outcome, length);
    // The frame may be an answer by now; what it said is in the scratch.
    events::emit(&frame, outcome, length, now, ScratchFacts::Present);
    capture::report(&frame, outcome, length, now, ScratchFacts::Present);
    if outcome.is(Reason::Rejected) {
        return xdp_action::XDP_TX;
    }
    // A frame that begins with its IP header is not redirected: behind another interface nobody
    // could read it.
    if outcome.is(Reason::Redirected) && !LAYER_3 {
        return call!(redirect(; outcome.action()));
    }
    pass_or_drop(outcome)
}

#[inline(always)]
fn pass_or_drop(outcome: Packed) -> u32 {
    if outcome.drops() { xdp_action::XDP_DROP } else { xdp_action::XDP_PASS }
}

/// The decision over the tables, and what follows from it: by the route of plain tables, if that is
/// one for the packet, and else by the general one.
#[inline(always)]
fn decide<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    tables: u32,
    length: u64,
    now: Ticks,
) -> Option<Packed> {
    let scratch = maps::scratch()?;
    if let Plain::Judged(outcome) = judge_plain(&Kernel, scratch, tables) {
        return Some(outcome);
    }
    let outcome = call!(run_tables(&Kernel, scratch; tables));
    if outcome.action() == 0 {
        return Some(outcome);
    }
    capture::keep(frame, length, now);
    Some(call!(act(&Kernel, scratch; frame, outcome)))
}

/// Everything before the tables. A subprogram, so that the stack of [`run`] stays small: what that
/// calls shares 512 bytes with it.
#[inline(always)]
pub(crate) fn before_tables<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    length: u64,
    now: Ticks,
) -> BeforeTables {
    match engine::classify(&Kernel, frame, length, now) {
        Next::Done(reason) => BeforeTables::Judged(Outcome::without_rule(reason).pack()),
        Next::Sources(packet) => BeforeTables::Judged(call!(plain_source(&Kernel; &packet))),
        Next::Tables { generation, header, .. } => {
            BeforeTables::Tables(InForce::new(generation, header))
        }
    }
}

/// Leaves the facts of a packet in the scratch, for the tables.
#[inline(always)]
pub(crate) fn begin_packet<const LAYER_3: bool>(
    frame: &Frame<LAYER_3>,
    in_force: InForce,
    length: u64,
    now: Ticks,
) {
    let header = in_force.header();
    if !facts(frame) {
        return;
    }
    if header.inner() {
        call!(inner(; frame));
    }
    // The others read the clock when they need it.
    let asks = header.flows() || header.asks_for_daemon();
    let now = if asks { Kernel.now(now) } else { now };
    if let Some(scratch) = maps::scratch() {
        table::begin_packet(&Kernel, scratch, in_force.generation(), header, length, now);
    }
}

/// Leaves the facts of a frame in the scratch, and its interface; false for a frame without a
/// source.
#[inline(always)]
pub(crate) fn facts<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> bool {
    let Some(facts) = maps::facts() else {
        return false;
    };
    if !packet::read_simple(frame, facts) && !call!(walked_facts(; frame)) {
        return false;
    }
    facts.set_interface(frame.interface());
    true
}

/// Leaves the facts of a frame in the scratch that are not read at once; false for one without a
/// source. A subprogram, so that those of most frames need little of the stack.
#[inline(always)]
pub(crate) fn walked_facts<const LAYER_3: bool>(frame: &Frame<LAYER_3>) -> bool {
    maps::facts().is_some_and(|facts| packet::walk(frame, facts).is_ok())
}

/// Leaves the facts of a packet inside a tunnel in the scratch, after [`facts`]. No offset in it
/// depends on the Ethernet header.
#[inline(always)]
pub(crate) fn inner<const LAYER_3: bool>(frame: &Frame<LAYER_3>) {
    if let Some(facts) = maps::facts() {
        packet::inner(frame, facts);
    }
}

/// The way out of a packet that is redirected: by the map of its action, and to the network stack
/// if that has no such entry.
#[inline(always)]
pub(crate) fn redirect(action: u32) -> u32 {
    let Some(action) = Kernel.action(action) else {
        return xdp_action::XDP_PASS;
    };
    let way = match action.kind() {
        ActionKind::Interface => INTERFACES.redirect(action.target, ELSE_PASS),
        ActionKind::Cpu => CPUS.redirect(action.target, ELSE_PASS),
        _ => return xdp_action::XDP_PASS,
    };
    // Behind this match the verifier sees the bound of the number.
    match way {
        Ok(xdp_action::XDP_REDIRECT) | Err(xdp_action::XDP_REDIRECT) => xdp_action::XDP_REDIRECT,
        _ => xdp_action::XDP_PASS,
    }
}

/// The flag of a redirection for a map that has no such entry: pass.
const ELSE_PASS: u64 = xdp_action::XDP_PASS as u64;

/// Counts the packet, by reason, interface and rule, and logs it. Without a log, which is a
/// load-time constant, the verifier removes the call.
#[inline(always)]
fn count<const LAYER_3: bool>(frame: &Frame<LAYER_3>, outcome: Packed, length: u64) {
    let Outcome { reason, rule, counted, .. } = outcome.unpack();
    Kernel::count_reason(reason, length);
    Kernel::count_interface(frame.interface(), reason, length);
    Kernel.count_rule(rule, counted, length, true);
    if level_enabled(Level::Debug) {
        call!(log(; outcome, length));
    }
}

/// Logs a packet. A subprogram: its buffers are not to be on the stack of those who do not log.
#[inline(always)]
pub(crate) fn log(outcome: Packed, length: u64) {
    let outcome = outcome.unpack();
    // The log goes to a ring buffer and asks for no context.
    debug!((), "reason {} rule {} length {}", outcome.reason.index(), outcome.rule, length);
}
