//! Carrying out what an outcome says, each part a function of its own as in [`crate::tables`].

use core::ptr::NonNull;

use aya_ebpf::bindings::{bpf_sock_tuple, xdp_action, xdp_md};
use aya_ebpf::helpers::generated::{
    bpf_sk_lookup_tcp, bpf_sk_release, bpf_xdp_adjust_tail, bpf_xdp_store_bytes,
};
use limiter_common::act::{self, Acts, FrameMut};
use limiter_common::ban::{self, BanTerms, Bans, Entry, Recorded};
use limiter_common::cell::Cell;
use limiter_common::engine::{Insert, Packed};
use limiter_common::packet::{Facts, Version};
use limiter_common::reply::ReplyKind;
use limiter_common::source::Source;
use limiter_common::table::{self, Tables as _};
use limiter_common::wire::{Action, ActionKind, Ban, OwnBudget};

use crate::atomic::MapWord;
use crate::frame::{self, short};
use crate::maps::{self, KernelMaps};
use crate::tables::scratch;

/// Of the flags of a redirection: what follows when the map has no such entry.
const ELSE_PASS: u64 = xdp_action::XDP_PASS as u64;

/// `BPF_F_CURRENT_NETNS`: the network namespace of the interface.
const THIS_NETNS: u64 = u64::MAX;

/// `BPF_TCP_ESTABLISHED`.
const ESTABLISHED: u32 = 1;

/// The whole frame, fragments of a multi-buffer frame included.
struct Live(*mut xdp_md);

/// The length of an address tuple, as a helper takes it.
#[expect(clippy::cast_possible_truncation, reason = "12 or 36")]
const fn size_of_tuple<T>() -> u32 {
    size_of::<T>() as u32
}

impl FrameMut for Live {
    #[inline(always)]
    fn load<const N: usize>(&self, offset: u32) -> Option<[u8; N]> {
        frame::load(self.0, offset)
    }

    #[inline(always)]
    fn store<const N: usize>(&self, offset: u32, bytes: &[u8; N]) -> bool {
        let from = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the context is the kernel's; the helper only reads the N bytes.
        unsafe { bpf_xdp_store_bytes(self.0, offset, from, short::<N>()) == 0 }
    }

    #[inline(always)]
    fn cut(&self, length: u32, of: u32) -> bool {
        // SAFETY: the context is the kernel's, which checks the rest.
        unsafe { bpf_xdp_adjust_tail(self.0, length.wrapping_sub(of).cast_signed()) == 0 }
    }
}

#[inline(always)]
fn facts<'a>() -> Option<&'a Facts> {
    scratch().map(|scratch| &scratch.facts)
}

/// A source on record, inside the map.
pub(crate) struct MapBan(NonNull<Ban>);

impl MapBan {
    /// Takes what a map look-up returned.
    #[inline(always)]
    pub(crate) fn new(ban: NonNull<Ban>) -> Self {
        Self(ban)
    }
}

impl Entry for MapBan {
    #[inline(always)]
    fn until(&self) -> impl Cell {
        // SAFETY: a field of a whole value of a map, alive for this run of the program.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).until)) }
    }

    #[inline(always)]
    fn history(&self) -> impl Cell {
        // SAFETY: as above.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).history)) }
    }

    #[inline(always)]
    fn rule(&self) -> impl Cell {
        // SAFETY: as above.
        unsafe { MapWord::new(NonNull::new_unchecked(&raw mut (*self.0.as_ptr()).rule)) }
    }
}

impl Bans for KernelMaps {
    type Entry = MapBan;

    #[inline(always)]
    fn ban(&self, source: &Source) -> Option<MapBan> {
        maps::ban(source)
    }

    #[inline(always)]
    fn insert_ban(&self, source: &Source) -> Insert {
        maps::insert_ban(source)
    }
}

/// The parts of one packet in the kernel.
struct KernelActs(*mut xdp_md);

impl Acts for KernelActs {
    #[inline(always)]
    fn action(&self, index: u32) -> Option<&Action> {
        KernelMaps.action(index).map(|action| {
            // SAFETY: a value of an array, alive as long as the program.
            unsafe { &*core::ptr::from_ref(action) }
        })
    }

    #[inline(always)]
    fn mark(&self, dscp: u8) {
        limiter_mark(self.0, u32::from(dscp));
    }

    #[inline(always)]
    fn reply_kind(&self) -> Option<ReplyKind> {
        kind(limiter_reply_kind(self.0))
    }

    #[inline(always)]
    fn spend(&self, budget: OwnBudget, step: u32) -> bool {
        limiter_spend(budget as u32, step) != 0
    }

    #[inline(always)]
    fn answer(&self, kind: ReplyKind) -> bool {
        limiter_answer(self.0, number(kind)) != 0
    }

    #[inline(always)]
    fn established(&self) -> bool {
        limiter_established(self.0) != 0
    }

    #[inline(always)]
    fn is_last(&self, action: u32) -> bool {
        limiter_is_last(action) != 0
    }

    #[inline(always)]
    fn strike(&self, action: u32, rule: u32, leave: bool) -> Recorded {
        match limiter_strike(action, rule, u32::from(leave)) {
            0 => Recorded::Done,
            1 => Recorded::Banned,
            _ => Recorded::Lost,
        }
    }
}

#[inline(always)]
const fn number(kind: ReplyKind) -> u32 {
    match kind {
        ReplyKind::UnreachableV4 => 1,
        ReplyKind::UnreachableV6 => 2,
        ReplyKind::ResetV4 => 3,
        ReplyKind::ResetV6 => 4,
    }
}

#[inline(always)]
const fn kind(number: u32) -> Option<ReplyKind> {
    match number {
        1 => Some(ReplyKind::UnreachableV4),
        2 => Some(ReplyKind::UnreachableV6),
        3 => Some(ReplyKind::ResetV4),
        4 => Some(ReplyKind::ResetV6),
        _ => None,
    }
}

/// [`act::act`].
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_act(ctx: *mut xdp_md, outcome: u64) -> u64 {
    act::act(&KernelActs(ctx), Packed::from_raw(outcome)).raw()
}

/// The way out of a packet that is redirected: by the map, and to the network stack if that has no
/// such entry.
#[unsafe(no_mangle)]
#[inline(never)]
pub(crate) extern "C" fn limiter_redirect(action: u32) -> u32 {
    let Some(action) = KernelMaps.action(action) else {
        return xdp_action::XDP_PASS;
    };
    let (kind, target) = (action.kind(), action.target);
    let way = match kind {
        ActionKind::Interface => maps::to_interface(target, ELSE_PASS),
        ActionKind::Cpu => maps::to_cpu(target, ELSE_PASS),
        _ => return xdp_action::XDP_PASS,
    };
    // The same number, with a bound that the verifier sees.
    if way == xdp_action::XDP_REDIRECT { xdp_action::XDP_REDIRECT } else { xdp_action::XDP_PASS }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_mark(ctx: *mut xdp_md, dscp: u32) -> u32 {
    if let Some(facts) = facts() {
        act::mark(&Live(ctx), facts, (dscp & 0xff) as u8);
    }
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_reply_kind(ctx: *mut xdp_md) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    act::reply_kind(&Live(ctx), &scratch.facts, scratch.length()).map_or(0, number)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_spend(budget: u32, step: u32) -> u32 {
    let Some(scratch) = scratch() else { return 0 };
    let slot = maps::control_at(OwnBudget::index(budget, scratch.generation()));
    u32::from(table::spend(&KernelMaps, scratch, slot, step))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_answer(ctx: *mut xdp_md, number: u32) -> u32 {
    let (Some(scratch), Some(kind)) = (scratch(), kind(number)) else { return 0 };
    let build = |offset| {
        let built = match kind {
            ReplyKind::UnreachableV4 => limiter_unreachable_v4(ctx, offset),
            ReplyKind::UnreachableV6 => limiter_unreachable_v6(ctx, offset),
            ReplyKind::ResetV4 => limiter_reset_v4(ctx, offset),
            ReplyKind::ResetV6 => limiter_reset_v6(ctx, offset),
        };
        built != 0
    };
    u32::from(act::answer(&Live(ctx), &scratch.facts, scratch.length(), kind, build))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_unreachable_v4(ctx: *mut xdp_md, offset: u32) -> u32 {
    u32::from(act::unreachable_v4(&Live(ctx), offset))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_unreachable_v6(ctx: *mut xdp_md, offset: u32) -> u32 {
    u32::from(act::unreachable_v6(&Live(ctx), offset))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_reset_v4(ctx: *mut xdp_md, offset: u32) -> u32 {
    u32::from(act::reset_v4(&Live(ctx), offset))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_reset_v6(ctx: *mut xdp_md, offset: u32) -> u32 {
    u32::from(act::reset_v6(&Live(ctx), offset))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_is_last(action: u32) -> u32 {
    let (Some(scratch), Some(action)) = (scratch(), KernelMaps.action(action)) else { return 0 };
    let (source, now) = (scratch.facts.source(), scratch.now());
    u32::from(ban::is_last(&KernelMaps, &source, &BanTerms::of(action), now))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_strike(action: u32, rule: u32, leave: u32) -> u32 {
    let (Some(scratch), Some(action)) = (scratch(), KernelMaps.action(action)) else { return 0 };
    let (source, now) = (scratch.facts.source(), scratch.now());
    ban::attempt(&KernelMaps, &source, &BanTerms::of(action), rule, now, leave != 0) as u32
}

/// The part of `bpf_sock_tuple` for IPv4, in network order, and its size for the helper.
#[repr(C)]
struct TupleV4 {
    source: [u8; 4],
    destination: [u8; 4],
    source_port: u16,
    destination_port: u16,
}

/// The same for IPv6.
#[repr(C, align(4))]
struct TupleV6 {
    source: [u8; 16],
    destination: [u8; 16],
    source_port: u16,
    destination_port: u16,
}

const _: () = assert!(size_of::<TupleV4>() == 12 && size_of::<TupleV6>() == 36);

/// Whether this host has an established TCP connection with the addresses and ports of the packet.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn limiter_established(ctx: *mut xdp_md) -> u32 {
    let Some(facts) = facts() else { return 0 };
    if !act::may_belong(facts) {
        return 0;
    }
    let Some(ports) = facts.ports() else { return 0 };
    let (source_port, destination_port) = (ports.source.to_be(), ports.destination.to_be());
    let (from, to) = (facts.source_address(), facts.destination_address());
    let found = match facts.version() {
        Version::V4 => {
            let [.., a, b, c, d] = from;
            let source = [a, b, c, d];
            let [.., a, b, c, d] = to;
            let destination = [a, b, c, d];
            lookup(ctx, TupleV4 { source, destination, source_port, destination_port })
        }
        Version::V6 => {
            lookup(ctx, TupleV6 { source: from, destination: to, source_port, destination_port })
        }
    };
    u32::from(found)
}

/// `T` is one of the two tuples.
#[inline(always)]
fn lookup<T>(ctx: *mut xdp_md, mut tuple: T) -> bool {
    let place = (&raw mut tuple).cast::<bpf_sock_tuple>();
    // SAFETY: the helper reads as many bytes of the tuple as it is told. It returns null, or a socket
    // that is ours until it is released, which the verifier insists on.
    unsafe {
        let socket = bpf_sk_lookup_tcp(ctx.cast(), place, size_of_tuple::<T>(), THIS_NETNS, 0);
        if socket.is_null() {
            return false;
        }
        let state = (&raw const (*socket).state).read_volatile();
        bpf_sk_release(socket.cast());
        state == ESTABLISHED
    }
}
