//! A program that is not limiter's, and passes everything. Never shipped.

#![no_std]
#![no_main]

use aya_ebpf::{bindings::xdp_action, macros::xdp, programs::XdpContext};

limiter_tests_ebpf::licence!();

#[xdp]
pub(crate) fn foreign(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}
