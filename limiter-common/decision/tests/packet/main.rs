//! The packet parser: a table of every kind of header, etherparse as an oracle that shares no code
//! with it, and properties of frames that nobody would send.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails where its machinery does"
)]

mod bytes;
mod generate;
mod oracle;
mod properties;
mod table;
mod tunnels;

use limiter_common::verdict::Reason;
use limiter_decision::packet::{self, Facts};

fn facts(frame: &[u8]) -> Result<Facts, Reason> {
    let mut facts = Facts::EMPTY;
    packet::facts(&frame, &mut facts).map(|()| facts)
}
