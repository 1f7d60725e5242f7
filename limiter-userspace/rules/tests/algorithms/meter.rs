//! The one interface: every algorithm as it is by itself, whatever the scale bit and the place of
//! its words; charges that are taken back; words that have moved to another limit.

use std::sync::atomic::{AtomicU64, Ordering};

use limiter_common::time::Ticks;
use limiter_common::window::{self, WallOffset};
use limiter_common::wire::{Algorithm, LimitSpec};
use limiter_decision::algorithm::two_rate::charge_bucket;
use limiter_decision::algorithm::{
    Charged, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_slots,
};
use limiter_decision::meter::{self, Peek};
use proptest::prelude::*;

use crate::metered::{ALGORITHMS, Metered, in_bound, offset, parts, scale_of, spec};
use crate::support::{Packet, config, pattern};

#[derive(Default)]
struct Plain {
    head: AtomicU64,
    words: [AtomicU64; 31],
}

impl Plain {
    fn passes(&self, spec: &LimitSpec, offset: WallOffset, packet: Packet) -> bool {
        let Packet { at, units } = packet;
        let now = Ticks::from_nanos(at);
        let words = &self.words;
        let [one, two, ..] = words;
        let charged = match spec.algorithm() {
            Algorithm::TokenBucket => charge_bucket(&spec.rate(), one, now, units),
            Algorithm::LeakyBucket => leaky_bucket::charge(&spec.rate(), one, now, units),
            Algorithm::FixedWindow => fixed_window::charge(&spec.window(), offset, one, now, units),
            Algorithm::SlidingCounter => {
                sliding_counter::charge(&spec.window(), &&[one, two].map(Shared), now, units)
            }
            Algorithm::SlidingSlots => sliding_slots::charge(&spec.window(), &words, now, units),
            Algorithm::SlidingLog => sliding_log::charge(&spec.log(), &self.head, &words, now),
        };
        assert_ne!(charged, Charged::Contended, "there is one CPU");
        charged == Charged::Conforming
    }
}

/// A word that is one of two.
struct Shared<'word>(&'word AtomicU64);

impl limiter_decision::cell::Cell for Shared<'_> {
    fn load(&self) -> u64 {
        limiter_decision::cell::Cell::load(self.0)
    }

    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        limiter_decision::cell::Cell::compare_exchange(self.0, current, new)
    }
}

proptest! {
    #![proptest_config(config())]

    /// Packet by packet the verdict of the algorithm alone; a look says it before and changes
    /// nothing; nothing but the limit's own words is ever touched, and those keep their scale bit.
    #[test]
    fn agrees_with_the_plain_algorithm(
        spec in spec(), scale: bool, offset in offset(), pattern in pattern(), late: bool,
    ) {
        let (meter, plain) = (Metered::new(&spec, scale, offset), Plain::default());
        let width = scale_of(&spec);
        let packets = if late {
            pattern.with_late_clocks(width, spec.counts())
        } else {
            pattern.offered(width, spec.counts())
        };
        let first = meter.raw();
        for packet in packets {
            let before = meter.raw();
            let peek = meter.peek(&spec, packet);
            prop_assert_eq!(meter.raw(), before);
            let passes = meter.passes(&spec, packet);
            prop_assert_eq!(passes, plain.passes(&spec, offset, packet));
            prop_assert_eq!(peek == Peek::Conforming, passes);
            if !passes {
                prop_assert_eq!(peek, Peek::Over);
                prop_assert_eq!(meter.raw(), before);
            }
        }
        for (index, (new, old)) in meter.raw().into_iter().zip(first).enumerate() {
            let own = index.checked_sub(spec.first.into()).is_some_and(|at| at < spec.words.into());
            let kept = if own { new & 1 == u64::from(scale) } else { new == old };
            prop_assert!(kept);
        }
    }

    /// A charge that is taken back was never there: all is restored, but for the head of a log. And
    /// however often that happens, what stays charged keeps the bound of the algorithm, and all the
    /// others pass what they would have passed.
    #[test]
    fn a_charge_that_is_taken_back_leaves_nothing(
        spec in spec(), scale: bool, offset in offset(), pattern in pattern(),
        back in prop::collection::vec(any::<bool>(), 150),
    ) {
        let (meter, plain) = (Metered::new(&spec, scale, offset), Plain::default());
        let is_log = spec.algorithm() == Algorithm::SlidingLog;
        let mut kept = Vec::new();
        for (packet, back) in pattern.offered(scale_of(&spec), spec.counts()).into_iter().zip(back) {
            let before = meter.raw();
            if back {
                if let Ok(undo) = meter.charge(&spec, packet) {
                    prop_assert!(meter.undo(&undo));
                    let mut after = meter.raw();
                    if is_log {
                        after[usize::from(spec.first)] = before[usize::from(spec.first)];
                    }
                    prop_assert_eq!(after, before);
                }
                continue;
            }
            let passes = meter.passes(&spec, packet);
            if passes {
                kept.push(packet);
            }
            if !is_log {
                prop_assert_eq!(passes, plain.passes(&spec, offset, packet));
            }
        }
        prop_assert!(in_bound(&spec, &kept));
    }

    /// One charge after it, and it stays.
    #[test]
    fn a_charge_that_was_built_upon_stays(spec in spec(), offset in offset(), at in 0u64..1 << 57) {
        let meter = Metered::new(&spec, false, offset);
        let packet = Packet { at, units: 1 };
        let Ok(undo) = meter.charge(&spec, packet) else { return Ok(()) };
        if spec.algorithm() != Algorithm::SlidingLog && meter.passes(&spec, packet) {
            let before = meter.raw();
            prop_assert!(!meter.undo(&undo));
            prop_assert_eq!(meter.raw(), before);
        }
    }

    /// A limit's words with another scale bit belong to another limit: any one of them that the
    /// packet would look at is enough, and nothing is stored.
    #[test]
    fn nothing_is_stored_in_words_that_moved(
        spec in spec(), scale: bool, offset in offset(), pattern in pattern(), which: u8,
    ) {
        let mut meter = Metered::new(&spec, scale, offset);
        let packets = pattern.offered(scale_of(&spec), spec.counts());
        let (last, before) = packets.split_last().unwrap();
        for packet in before {
            meter.passes(&spec, *packet);
        }
        let index = usize::from(spec.first + which % spec.words);
        let head = meter.raw()[usize::from(spec.first)] >> 1 & 31;
        let looked_at = spec.algorithm() != Algorithm::SlidingLog
            || which % spec.words == 0
            || u64::from(which % spec.words) == head + 1;
        meter.words[index].fetch_xor(1, Ordering::Relaxed);
        let words = meter.raw();
        if looked_at {
            prop_assert_eq!(meter.peek(&spec, *last), Peek::Moved);
            prop_assert_eq!(meter.charge(&spec, *last), Err(meter::Charged::Moved));
            prop_assert_eq!(meter.raw(), words);
        }
        // All of them.
        meter.words[index].fetch_xor(1, Ordering::Relaxed);
        let words = meter.raw();
        meter.scale = !meter.scale;
        prop_assert_eq!(meter.peek(&spec, *last), Peek::Moved);
        prop_assert_eq!(meter.charge(&spec, *last), Err(meter::Charged::Moved));
        prop_assert_eq!(meter.raw(), words);
    }

    /// A packet of no units is nowhere over and nowhere charged.
    #[test]
    fn no_units_are_no_charge(spec in spec(), offset in offset(), at in 0u64..1 << 57) {
        let meter = Metered::new(&spec, false, offset);
        meter.exhaust(&spec, Packet { at, units: 1514 });
        let before = meter.raw();
        let nothing = Packet { at, units: 0 };
        prop_assert_eq!(meter.peek(&spec, nothing), Peek::Conforming);
        let undo = meter.charge(&spec, nothing).unwrap();
        prop_assert!(meter.undo(&undo));
        prop_assert_eq!(meter.raw(), before);
    }

    /// More of the same limit never passes fewer of the same packets. Of packets: where sizes
    /// differ, a large one that the smaller limit refused may take the room of several.
    #[test]
    fn monotone(
        parts in parts(Some(limiter_common::wire::Count::Packets)),
        offset in offset(), pattern in pattern(),
    ) {
        for algorithm in ALGORITHMS {
            let (less, more) = (parts.spec(algorithm), parts.more().spec(algorithm));
            let offered = pattern.offered(scale_of(&less), less.counts());
            let count = |spec: &LimitSpec| {
                let meter = Metered::new(spec, false, offset);
                offered.iter().filter(|packet| meter.passes(spec, **packet)).count()
            };
            prop_assert!(count(&more) >= count(&less), "{algorithm:?}");
        }
    }
}

/// A head that another CPU has not moved yet: looked past, moved by the next charge.
#[test]
fn a_head_that_lags_is_looked_past() {
    let limit = window::LogLimit { window: 1000, size: 3, ..Default::default() };
    let count = limiter_common::wire::Count::Packets;
    let spec = LimitSpec::of_log(&limit, count, limiter_common::wire::Role::Hard).at(4);
    let meter = Metered::new(&spec, true, WallOffset::BOOT);
    let packet = |at| Packet { at, units: 1 };
    let head = || meter.words[4].load(Ordering::Relaxed);
    for charged in 0..7 {
        let before = head();
        let at = 10 + charged / 3 * 1000;
        assert!(meter.passes(&spec, packet(at)));
        let after = meter.words[4].swap(before, Ordering::Relaxed);
        let expected = if charged % 3 == 2 { Peek::Over } else { Peek::Conforming };
        assert_eq!(meter.peek(&spec, packet(at)), expected, "{charged}");
        assert_eq!(head(), before, "a look moves nothing");
        let passes = meter.charge(&spec, packet(at)).map(|undo| meter.undo(&undo));
        assert_eq!(passes.is_ok(), expected == Peek::Conforming);
        assert_ne!(head(), before, "a charge does");
        meter.words[4].store(after, Ordering::Relaxed);
    }
}
