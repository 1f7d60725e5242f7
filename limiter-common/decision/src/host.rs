//! Judges a packet on the host: the whole way, with the subprograms as plain function calls.

use limiter_common::bucket::Generation;
use limiter_common::frame_size::FrameSize;
use limiter_common::time::Ticks;
use limiter_common::wire::RuleSetHeader;

use crate::engine::{self, Next};
use crate::maps::Maps;
use crate::outcome::{Outcome, Packed};
use crate::packet::{self, Bytes};
use crate::table::{self, Scratch};

/// Judges a frame that came in by an interface; `frame` may show only its beginning. Details remain
/// in `scratch`.
pub fn judge<W: Maps>(
    maps: &W,
    scratch: &mut Scratch,
    frame: &impl Bytes,
    interface: u32,
    size: FrameSize,
    now: Ticks,
) -> Packed {
    match engine::classify(maps, frame, size, now) {
        Next::Done(reason) => Outcome::without_rule(reason).pack(),
        Next::Sources(packet) => engine::plain_source(maps, &packet),
        Next::Tables { generation, header, now } => {
            let now = maps.now(now);
            *scratch = begin(maps, frame, interface, (generation, header), size, now);
            table::run_tables(maps, scratch, header.tables())
        }
    }
}

/// Begins a packet that came in by an interface, for the tables of a rule set.
pub fn begin<W: Maps>(
    maps: &W,
    frame: &impl Bytes,
    interface: u32,
    (generation, header): (Generation, RuleSetHeader),
    size: FrameSize,
    now: Ticks,
) -> Scratch {
    let mut scratch = Scratch::empty();
    // The frame was parsed before, so it has facts.
    let _ = packet::facts(frame, &mut scratch.facts);
    if header.inner() {
        packet::inner(frame, &mut scratch.facts);
    }
    scratch.facts.set_interface(interface);
    table::begin_packet(maps, &scratch, generation, header, size, now);
    scratch
}
