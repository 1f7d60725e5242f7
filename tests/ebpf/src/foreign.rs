//! Programs that are not limiter's. Never shipped.

#![no_std]
#![no_main]

use aya_ebpf::Global;
use aya_ebpf::bindings::{BPF_F_MMAPABLE, xdp_action};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::macros::{btf_map, classifier, xdp};
use aya_ebpf::programs::{TcContext, XdpContext};

limiter_tests_ebpf::licence!();

/// The answer of `foreign_tc`.
#[unsafe(no_mangle)]
static ANSWER: Global<i32> = Global::new(-1);

/// The UDP port whose datagrams `foreign_port` drops.
#[unsafe(no_mangle)]
static PORT: Global<u16> = Global::new(9);

/// Packets that `foreign_port` or `foreign_tc` was asked about, and those of them that
/// `foreign_port` dropped.
#[btf_map]
static SEEN: Array<u64, 2, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Place of the destination port behind Ethernet and an IPv4 header without options.
const PORT_AT: usize = 14 + 20 + 2;

fn count(index: u32) {
    if let Some(seen) = SEEN.get_ptr_mut(index) {
        // SAFETY: the map has that entry; tests send from one CPU, one packet after the other.
        unsafe { *seen += 1 };
    }
}

/// Passes everything.
#[xdp]
pub(crate) fn foreign(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// Counts, and drops the datagrams to one port.
#[expect(clippy::needless_pass_by_value, reason = "the xdp macro passes the context so")]
#[xdp(frags)]
pub(crate) fn foreign_port(ctx: XdpContext) -> u32 {
    count(0);
    let (data, end) = (ctx.data(), ctx.data_end());
    if data + PORT_AT + 2 > end {
        return xdp_action::XDP_PASS;
    }
    // SAFETY: the bytes are before the end, as was compared.
    let (protocol, port) = unsafe {
        (*((data + 23) as *const u8), u16::from_be_bytes(*((data + PORT_AT) as *const [u8; 2])))
    };
    if protocol == 17 && port == PORT.load() {
        count(1);
        return xdp_action::XDP_DROP;
    }
    xdp_action::XDP_PASS
}

/// Counts, and answers with `ANSWER`.
#[classifier]
pub(crate) fn foreign_tc(_ctx: TcContext) -> i32 {
    count(0);
    ANSWER.load()
}
