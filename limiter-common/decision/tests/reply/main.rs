//! Answers to packets that are over their limit: which packets get one, and what is in it.
//! etherparse reads every answer and computes its checksums anew.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

mod answer;
mod cause;
mod eligible;
mod reset;
mod rules;
mod unreachable;

use limiter_decision::packet::{self, Facts};
use limiter_decision::reply::{self, ReplyKind};

/// How a frame may be answered.
fn eligible(frame: &[u8]) -> Option<ReplyKind> {
    let mut facts = Facts::EMPTY;
    packet::facts(&frame, &mut facts).ok()?;
    reply::eligible(&facts, frame.first_chunk()?)
}
