//! How many requests of a source an exact limiter allows. A request is decided at some moment
//! between the one at which it was sent and the one at which its answer was there; the next one is
//! sent after that.

use std::ops::RangeInclusive;

use crate::oracle::Limit;

/// A request that was answered, in nanoseconds of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Just before it was sent.
    pub sent: u64,
    /// Just after its answer was there.
    pub answered: u64,
}

/// By how much limits are off at most, in nanoseconds: their rates are rounded up to whole ticks.
const ROUNDING: u64 = 1_000;

/// The least and the most requests that a token bucket allows, over all moments at which they may
/// have been decided.
pub fn allowed(asked: &[Asked], limit: &Limit) -> RangeInclusive<u64> {
    let per = limit.per.as_nanos() / u128::from(limit.units.max(1));
    let per = u64::try_from(per).unwrap_or(u64::MAX);
    let room = per.saturating_mul(u64::from(limit.burst.saturating_sub(1)));
    // A bucket is the moment at which nothing of it is used. It allows a request if that is at most
    // `room` away. To allow few, refuse whenever it may be, and otherwise allow as late as may be;
    // to allow many, allow whenever it may be, as early as may be.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(moments: impl IntoIterator<Item = u64>, takes: u64) -> Vec<Asked> {
        let asked = |sent| Asked { sent, answered: sent + takes };
        moments.into_iter().map(asked).collect()
    }

    #[test]
    fn answers_at_once_leave_one_number() {
        let limit = Limit::per_second(5, 5);
        // 5 at once, then one in 200 ms; 2 s at 40/s. The last one is 1975 ms after the first.
        let over = at((0..80).map(|n| SECOND + n * SECOND / 40 + n * 1_000), 0);
        assert_eq!(allowed(&over, &limit), 14..=14);
        let within = at((0..80).map(|n| SECOND + n * SECOND / 4), 0);
        assert_eq!(allowed(&within, &limit), 80..=80);
        assert_eq!(allowed(&[], &limit), 0..=0);
    }

    #[test]
    fn every_choice_of_moments_is_between_and_both_ends_are_met() {
        // Five requests of which each may be decided at one of ten moments: all ways.
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
        assert_eq!(allowed(&asked, &limit), found);
        assert!(found.start() < found.end(), "{found:?}");
    }
}
