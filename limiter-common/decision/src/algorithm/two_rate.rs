//! The two-rate three-colour markers of RFC 2698 and RFC 4115, of two token buckets.
//!
//! Both are made of two words of [`crate::gcra`], and differ in what a green packet is charged to:
//!
//! * RFC 2698: a packet over the *peak* is red; otherwise it is charged to the peak, and is green
//!   if the *committed* bucket takes it too, else yellow. Green and yellow together keep
//!   `PBS + PIR * t`, green alone `CBS + CIR * t`.
//! * RFC 4115: a packet that the *committed* bucket takes is green; otherwise it is yellow if the
//!   *excess* bucket takes it, else red. Green keeps `CBS + CIR * t`, yellow `EBS + EIR * t`, and
//!   green never suffers from yellow: the committed rate is there whatever the excess did.
//!
//! Colour-aware, an earlier marker's colour is never improved; colour-blind is the same with every
//! packet coming in green. A red one is charged to nothing.
//!
//! * Exact, like the token bucket, for every interleaving: each bucket is charged by an exchange of
//!   its own and nothing is given back, because the bucket that may refuse the packet as a whole is
//!   asked first. A committed bucket that is contended makes the packet yellow.
//! * State: two words. Cost: two exchanges for a green packet of RFC 2698, one for every other that
//!   passes; reads alone for a red one.
//! * A bucket conforms when it holds the whole packet, to the last token.
//! * The compile step refuses what the token bucket refuses, two limits that count different
//!   things, and for RFC 2698 a peak rate below the committed one.

use limiter_common::time::Ticks;
use limiter_common::wire::{Limit, TwoRate};

use crate::algorithm::soft::{Grade, grade};
use crate::algorithm::{self, Charged};
use crate::cell::Cell;
use crate::gcra;

/// A packet's colour, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Colour {
    /// Within the committed rate.
    Green,
    /// Over the committed rate, and to be marked.
    Yellow,
    /// Over both rates, and to be dropped.
    Red,
}

/// A packet: its time, its units, and the colour from an earlier marker ([`Colour::Green`] to
/// ignore that).
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Time of arrival.
    pub now: Ticks,
    /// Units that are charged.
    pub units: u64,
    /// The colour that the packet came with.
    pub colour: Colour,
}

/// Charges a packet to one token bucket.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn charge_bucket(limit: &Limit, cell: &impl Cell, now: Ticks, units: u64) -> Charged {
    let charge = gcra::Charge::new(limit, now, units);
    algorithm::charge(cell, |word| charge.apply(Ticks::new(word)).map(Ticks::get))
}

/// Marks a packet after RFC 2698.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn rfc2698(
    limits: &TwoRate,
    committed: &impl Cell,
    peak: &impl Cell,
    packet: Arrival,
) -> Grade {
    if packet.colour == Colour::Red {
        return Grade::Refused;
    }
    let Arrival { now, units, colour } = packet;
    grade(
        || charge_bucket(&limits.upper, peak, now, units),
        || match colour {
            Colour::Green => charge_bucket(&limits.committed, committed, now, units),
            Colour::Yellow | Colour::Red => Charged::Over,
        },
    )
}

/// Marks a packet after RFC 4115.
#[cfg_attr(target_arch = "bpf", inline(always))]
pub fn rfc4115(
    limits: &TwoRate,
    committed: &impl Cell,
    excess: &impl Cell,
    packet: Arrival,
) -> Grade {
    let Arrival { now, units, colour } = packet;
    if colour == Colour::Red {
        return Grade::Refused;
    }
    if colour == Colour::Green
        && charge_bucket(&limits.committed, committed, now, units) == Charged::Conforming
    {
        return Grade::Within;
    }
    match charge_bucket(&limits.upper, excess, now, units) {
        Charged::Conforming => Grade::Over,
        Charged::Over => Grade::Refused,
        Charged::Contended => Grade::Contended,
    }
}
