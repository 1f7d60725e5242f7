//! Phases of a run, and what each of them must deliver.

use super::bound::{Bound, Packet, Span};
use super::{LIMIT, SHARES, SYNC, UNIT_LIVES};

/// Part of the rate that a phase must deliver when more than the rate is sent, in percent.
const REACHED: u64 = 90;

/// Packets that a phase must deliver, beside holding the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// All packets, except in the first two sync periods, in which leases grow to the demand.
    All,
    /// The rate.
    Rate,
    /// The shares, and no more than they, from the moment at which the leases have ended.
    Shares,
    /// No further requirement.
    Bound,
}

/// A phase.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Name of the phase in the report.
    pub name: &'static str,
    /// Time of the phase, and the units on top of the bound.
    pub span: Span,
    /// Packets that the phase must deliver.
    pub expected: Expected,
}

/// Packets delivered in the part of a phase that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Packets sent.
    pub offered: u64,
    /// Packets that arrived.
    pub delivered: u64,
    /// Fewest packets that must arrive.
    pub least: u64,
    /// Most packets that may arrive.
    pub most: u64,
}

impl Delivered {
    /// Returns true if as many packets arrived as must and may.
    pub fn is_good(&self) -> bool {
        (self.least..=self.most).contains(&self.delivered)
    }
}

impl Phase {
    fn judged(&self) -> Span {
        let later = match self.expected {
            Expected::All => 2 * SYNC,
            Expected::Shares => UNIT_LIVES,
            Expected::Rate | Expected::Bound => return self.span,
        };
        let later = u64::try_from(later.as_nanos()).unwrap_or(u64::MAX);
        Span { from: self.span.from.saturating_add(later).min(self.span.to), ..self.span }
    }

    /// Judges the packets that were sent in the phase. Except for [`Expected::All`], only packets
    /// that also arrived in the phase count, because only those were certainly decided in it.
    pub fn delivered(&self, sent: &[u64], packets: &[Packet]) -> Delivered {
        let span = self.judged();
        let seconds = |bound: &Bound| {
            u64::try_from(u128::from(bound.rate) * u128::from(span.to - span.from) / 1_000_000_000)
                .unwrap_or(u64::MAX)
        };
        let of = |time: u64| (span.from..span.to).contains(&time);
        let offered = sent.iter().filter(|time| of(**time)).count() as u64;
        let delivered = match self.expected {
            Expected::All => packets.iter().filter(|packet| of(packet.sent)).count(),
            _ => packets.iter().filter(|p| p.sent >= span.from && p.arrived <= span.to).count(),
        } as u64;
        let (least, most) = match self.expected {
            Expected::All => (offered, LIMIT.of(&span)),
            Expected::Rate => (seconds(&LIMIT) * REACHED / 100, LIMIT.of(&span)),
            Expected::Shares => (seconds(&SHARES) * REACHED / 100, seconds(&SHARES) + SHARES.burst),
            Expected::Bound => (0, LIMIT.of(&span)),
        };
        Delivered { offered, delivered, least, most }
    }
}
