//! A packet's way through the model: judged, carried out and counted.

use limiter_common::time::Ticks;
use limiter_common::wire::InterfaceCounters;
use limiter_decision::host;
use limiter_decision::outcome::Outcome;
use limiter_decision::packet::{Bytes, Layer3};
use limiter_decision::table::Scratch;

use super::way::Framing;
use super::{Model, Packet, actions};

/// Interface by which every frame of a test run comes in.
const INTERFACE: u32 = 1;

impl Model {
    /// Judges a whole frame in one piece, carries out the outcome, and counts it. The frame came in
    /// by the interface with the index 1, as in a test run of the kernel. [`Model::way`] and
    /// [`Model::frame`] tell how it left.
    pub fn judge(&mut self, frame: &[u8], now: Ticks) -> Outcome {
        let length = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        self.judge_packet(&Packet::received(Framing::Ethernet, frame, length, INTERFACE), now)
    }

    /// Like [`Model::judge`], for a described packet.
    pub fn judge_packet(&mut self, packet: &Packet<'_>, now: Ticks) -> Outcome {
        match packet.framing {
            Framing::Ethernet => self.judge_bytes(&packet.bytes(packet.frame), packet, now),
            Framing::Layer3 => self.judge_bytes(&packet.bytes(Layer3(packet.frame)), packet, now),
        }
    }

    fn judge_bytes(&mut self, read: &impl Bytes, packet: &Packet<'_>, now: Ticks) -> Outcome {
        let Packet { frame, size, interface, direction, .. } = *packet;
        let mut scratch = Scratch::empty();
        let recent = now.since(self.lag);
        self.judged_at = now;
        self.steps.begin();
        let judged = host::judge(&*self, &mut scratch, read, interface, size, recent);
        let trail = self.steps.trail(&scratch, judged.unpack().reason);
        let (outcome, left) = actions::carry_out(self, &scratch, judged, frame, trail);
        self.left = left;
        let outcome = outcome.unpack();
        if let Some(tally) =
            usize::try_from(outcome.reason.index()).ok().and_then(|i| self.reasons.get_mut(i))
        {
            tally.add(size);
        }
        let place = InterfaceCounters::place(interface, direction);
        self.interfaces.entry(place).or_default().add(outcome.reason, size);
        self.rules_mut().entry(outcome.rule).or_default().add(outcome.counted, size);
        outcome
    }
}
