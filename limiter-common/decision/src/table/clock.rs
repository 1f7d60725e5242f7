//! The exact time of a packet.

use limiter_common::time::Ticks;

use super::scratch::Scratch;
use crate::maps::Maps;

/// The exact time of arrival. Reads the clock if it is not known yet.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn read_clock<W: Maps>(maps: &W, scratch: &Scratch) -> Ticks {
    if !scratch.is_exact() {
        scratch.set_now(maps.now(scratch.now()));
    }
    scratch.now()
}
