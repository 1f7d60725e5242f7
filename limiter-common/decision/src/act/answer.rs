//! Replaces a frame by its answer, see [`crate::reply`].

use limiter_common::header::Version;

use super::FrameMut;
use crate::call::call;
use crate::reply::{self, ReplyKind};
use crate::table::Scratch;

/// The kind of answer for a frame; `None` if it must not be answered.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reply_kind(scratch: &Scratch, frame: &impl FrameMut) -> Option<ReplyKind> {
    let facts = &scratch.facts;
    let kind = reply::eligible(facts, &frame.load::<12>(0)?)?;
    let offset = u32::from(facts.network_offset());
    let claimed = match facts.version() {
        Version::V4 => {
            let header = frame.load::<20>(offset)?;
            if !reply::is_intact_v4(&header) {
                return None;
            }
            let [_, _, l0, l1, ..] = header;
            u32::from(u16::from_be_bytes([l0, l1]))
        }
        Version::V6 => {
            let [_, _, _, _, l0, l1] = frame.load::<6>(offset)?;
            u32::from(u16::from_be_bytes([l0, l1])) + 40
        }
    };
    let received = low_32(scratch.bytes()).saturating_sub(offset);
    kind.length_within(claimed, received).map(|_| kind)
}

/// Turns a frame into the answer of [`reply_kind`]. If that fails, nothing may be sent: the frame
/// may be half changed.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn answer<F: FrameMut>(scratch: &Scratch, frame: &F, kind: Option<ReplyKind>) -> bool {
    let Some(kind) = kind else {
        return false;
    };
    let offset = u32::from(scratch.facts.network_offset());
    let built = match kind {
        ReplyKind::UnreachableV4 => call!(unreachable_v4(; frame, offset)),
        ReplyKind::UnreachableV6 => call!(unreachable_v6(; frame, offset)),
        ReplyKind::ResetV4 => call!(reset_v4(; frame, offset)),
        ReplyKind::ResetV6 => call!(reset_v6(; frame, offset)),
    };
    if !built {
        return false;
    }
    let Some(link) = frame.load::<12>(0) else {
        return false;
    };
    frame.store(0, &reply::link(&link))
        && frame.cut(offset + kind.length(), low_32(scratch.bytes()))
}

/// Builds [`reply::unreachable_v4`] at `offset`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v4(frame: &impl FrameMut, offset: u32) -> bool {
    let Some(original) = frame.load::<28>(offset) else {
        return false;
    };
    frame.store(offset, &reply::unreachable_v4_head(&original))
        && frame.store(offset + 28, &original)
}

/// Builds [`reply::unreachable_v6`] at `offset`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn unreachable_v6(frame: &impl FrameMut, offset: u32) -> bool {
    let Some(original) = frame.load::<48>(offset) else {
        return false;
    };
    frame.store(offset, &reply::unreachable_v6_head(&original))
        && frame.store(offset + 48, &original)
}

/// Builds [`reply::reset_v4`] at `offset`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reset_v4(frame: &impl FrameMut, offset: u32) -> bool {
    let Some(original) = frame.load::<40>(offset) else {
        return false;
    };
    frame.store(offset, &reply::reset_v4(&original))
}

/// Builds [`reply::reset_v6`] at `offset`.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn reset_v6(frame: &impl FrameMut, offset: u32) -> bool {
    let Some(original) = frame.load::<60>(offset) else {
        return false;
    };
    frame.store(offset, &reply::reset_v6(&original))
}

/// The length of a frame, which is far below 2^32.
#[cfg_attr(target_arch = "bpf", inline(always))]
const fn low_32(length: u64) -> u32 {
    (length & 0xffff_ffff) as u32
}
