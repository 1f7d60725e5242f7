//! Computes how many requests of a source an exact limiter allows. A request is decided at some
//! moment between its sending and the arrival of its answer; the next request is sent after that.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::oracle::Limit;

/// A request that was answered, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Time just before it was sent.
    pub sent: u64,
    /// Time just after its answer arrived.
    pub answered: u64,
}

/// Largest error of the limits, in nanoseconds: their rates are rounded up to whole ticks.
const ROUNDING: u64 = 1_000;

/// Nanoseconds that one unit takes, and nanoseconds that a full bucket is ahead.
fn per_and_room(limit: &Limit) -> (u64, u64) {
    let per = limit.per.as_nanos() / u128::from(limit.units.max(1));
    let per = u64::try_from(per).unwrap_or(u64::MAX);
    (per, per.saturating_mul(u64::from(limit.burst.saturating_sub(1))))
}

/// Fewest and most requests that a token bucket allows, over all moments at which they may have
/// been decided, if each may wait up to `longest` until it conforms.
pub fn allowed(asked: &[Asked], limit: &Limit, longest: Duration) -> RangeInclusive<u64> {
    let (per, room) = per_and_room(limit);
    let room = room.saturating_add(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX));
    // A bucket is the moment at which it is full again. It allows a request if that moment is at
    // most `room` away. To allow few, refuse whenever possible and otherwise allow as late as
    // possible; to allow many, allow whenever possible, as early as possible.
    let [mut least, mut most] = [0, 0];
    let [mut full_of_least, mut full_of_most] = [0, 0];
    for Asked { sent, answered } in asked {
        let (sent, answered) = (sent.saturating_sub(ROUNDING), answered + ROUNDING);
        if sent + room >= full_of_least {
            least += 1;
            full_of_least = full_of_least.max(answered) + per;
        }
        if answered + room >= full_of_most {
            most += 1;
            let decided = sent.max(full_of_most.saturating_sub(room));
            full_of_most = full_of_most.max(decided) + per;
        }
    }
    least..=most
}

/// Earliest moments at which a token bucket lets these requests go, in their order, if all of them
/// may wait.
pub fn departures(asked: &[Asked], limit: &Limit) -> Vec<u64> {
    let (per, room) = per_and_room(limit);
    let mut full = 0;
    let departure = |Asked { sent, .. }: &Asked| {
        let departure = full.max(sent + room) - room;
        full = full.max(departure) + per;
        departure.saturating_sub(ROUNDING)
    };
    asked.iter().map(departure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NONE: Duration = Duration::ZERO;

    fn at(moments: impl IntoIterator<Item = u64>, takes: u64) -> Vec<Asked> {
        let asked = |sent| Asked { sent, answered: sent + takes };
        moments.into_iter().map(asked).collect()
    }

    #[test]
    fn answers_at_once_leave_one_number() {
        let limit = Limit::per_second(5, 5);
        // 5 at once, then one in 200 ms; 2 s at 40/s. The last one is 1975 ms after the first.
        let over = at((0..80).map(|n| SECOND + n * SECOND / 40 + n * 1_000), 0);
        assert_eq!(allowed(&over, &limit, NONE), 14..=14);
        let within = at((0..80).map(|n| SECOND + n * SECOND / 4), 0);
        assert_eq!(allowed(&within, &limit, NONE), 80..=80);
        assert_eq!(allowed(&[], &limit, NONE), 0..=0);
    }

    #[test]
    fn what_waits_passes_as_with_a_larger_burst_and_departs_at_the_rate() {
        let limit = Limit::per_second(100, 2);
        let at_once = at((0..10).map(|n| SECOND + n * 1_000), 0);
        // 2 at once, and 5 that wait 10 ms to 50 ms.
        let longest = Duration::from_millis(55);
        assert_eq!(allowed(&at_once, &limit, longest), 7..=7);
        let after = |departure: u64| (departure + ROUNDING - SECOND) / 1_000_000;
        let departures: Vec<u64> =
            departures(&at_once[..7], &limit).into_iter().map(after).collect();
        assert_eq!(departures, [0, 0, 10, 20, 30, 40, 50]);
    }

    #[test]
    fn every_choice_of_moments_is_between_and_both_ends_are_met() {
        // Five requests, each decided at one of ten moments, in all combinations.
        let (steps, step) = (10, 10_000);
        let mut sent = 1_000_000;
        let asked: Vec<Asked> = [130, 110, 120, 100, 140]
            .iter()
            .map(|gap| {
                sent += gap * 1_000;
                Asked { sent, answered: sent + (steps - 1) * step }
            })
            .collect();
        let (per, burst) = (250_000, 2);
        let mut counts = Vec::new();
        for way in 0..steps.pow(5) {
            let (mut full, mut count, mut rest) = (0, 0, way);
            for request in &asked {
                let decided = request.sent + rest % steps * step;
                rest /= steps;
                if decided + per * (burst - 1) >= full {
                    count += 1;
                    full = decided.max(full) + per;
                }
            }
            counts.push(count);
        }
        let found = *counts.iter().min().expect("some")..=*counts.iter().max().expect("some");
        let limit = Limit { units: 1, per: Duration::from_nanos(per), burst: 2 };
        assert_eq!(allowed(&asked, &limit, NONE), found);
        assert!(found.start() < found.end(), "{found:?}");
    }
}
