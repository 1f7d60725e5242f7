//! Writes the mark of an action into the frame.

use limiter_common::header::Version;
use limiter_common::wire::MARK_ECN;

use super::FrameMut;
use crate::mark::{self, Mark};
use crate::table::Scratch;

/// Writes a DSCP, or ECN's congestion mark for [`MARK_ECN`], into the frame. A frame that must not
/// be marked stays unchanged: see [`mark::v4`].
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn mark(scratch: &Scratch, frame: &impl FrameMut, dscp: u8) {
    let facts = &scratch.facts;
    let mark = if dscp == MARK_ECN {
        Mark::CongestionExperienced
    } else {
        match Mark::dscp(dscp) {
            Some(mark) => mark,
            None => return,
        }
    };
    let offset = u32::from(facts.network_offset());
    match facts.version() {
        Version::V4 => {
            if let Some(head) = frame.load::<12>(offset)
                && let Some(marked) = mark::v4(&head, mark)
            {
                frame.store(offset, &marked);
            }
        }
        Version::V6 => {
            if let Some(head) = frame.load::<4>(offset)
                && let Some(marked) = mark::v6(&head, mark)
            {
                frame.store(offset, &marked);
            }
        }
    }
}
