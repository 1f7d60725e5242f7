//! Computes how many packets of one source the other program may pass at least and at most, given
//! the differences that `limiter import` reported. A letter excuses no more than its difference.

use std::collections::BTreeSet;
use std::time::Duration;

use limiter_common::wire::Count;
use limiter_import::Effect;
use limiter_rules::model::{Limits, Meter, RuleLimit};

/// Slowest clock of a kernel, in ticks a second.
const SLOWEST: f64 = 100.0;

/// Bytes of an Ethernet header, which the other programs do not count.
const ETHERNET: u64 = 14;

/// The parts of a load that matter here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offered<'a> {
    pub(super) times: &'a [Duration],
    pub(super) length: u64,
}

/// Packets that may pass in the other program, and the letters that change the number from
/// limiter's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) least: u64,
    pub(super) most: u64,
    pub(super) fewer: BTreeSet<char>,
    pub(super) more: BTreeSet<char>,
}

/// State of a limit in the other program: a bucket, or a log of the packets in a window.
struct There {
    rate: f64,
    full: f64,
    tokens: f64,
    /// Time of the last packet, and the time since which the bucket exists.
    last: f64,
    born: f64,
    log: Option<Log>,
}

struct Log {
    times: Vec<f64>,
    most: usize,
    window: f64,
}

impl There {
    fn come_to(&mut self, now: f64, forgotten: Option<(f64, bool)>) {
        let gone = now - self.last;
        self.tokens = gone.mul_add(self.rate, self.tokens).min(self.full);
        let is_new =
            forgotten.is_some_and(
                |(after, always)| {
                    if always { now - self.born >= after } else { gone >= after }
                },
            );
        if is_new {
            (self.tokens, self.born) = (self.full, now);
        }
        self.last = now;
        if let Some(log) = &mut self.log {
            log.times.retain(|time| now - time < log.window);
        }
    }

    fn has(&self, cost: f64) -> bool {
        self.log.as_ref().map_or(self.tokens >= cost, |log| log.times.len() < log.most)
    }

    fn charge(&mut self, cost: f64, now: f64) {
        match &mut self.log {
            Some(log) => log.times.push(now),
            None => self.tokens -= cost,
        }
    }
}

const fn letter(effect: Effect) -> char {
    match effect {
        Effect::Ticks => 'B',
        Effect::Bytes { .. } => 'C',
        Effect::Forgotten { .. } => 'K',
        Effect::Refused => 'N',
        Effect::Several => 'O',
    }
}

/// Range of packets that may pass, over all subsets of `effects`.
pub(super) fn range(limits: &Limits, effects: &[Effect], offered: Offered<'_>) -> Range {
    let here = passes(limits, &[], offered, false);
    let mut range =
        Range { least: here, most: here, fewer: BTreeSet::new(), more: BTreeSet::new() };
    // Few letters have effects, and each occurs once.
    let effects = effects.get(..effects.len().min(6)).unwrap_or_default();
    for chosen in 0..1_u32 << effects.len() {
        let some: Vec<Effect> = effects
            .iter()
            .enumerate()
            .filter(|(at, _)| chosen & (1 << at) != 0)
            .map(|(_, effect)| *effect)
            .collect();
        for generous in [false, true] {
            let passed = passes(limits, &some, offered, generous);
            range.least = range.least.min(passed);
            range.most = range.most.max(passed);
            if let [one] = some.as_slice() {
                if passed < here {
                    range.fewer.insert(letter(*one));
                }
                if passed > here {
                    range.more.insert(letter(*one));
                }
            }
        }
    }
    range
}

/// Packets that pass with the given effects. `generous` selects the way to count bytes.
#[expect(clippy::cast_precision_loss, reason = "rates of rules are far under 2^52")]
fn passes(limits: &Limits, effects: &[Effect], offered: Offered<'_>, generous: bool) -> u64 {
    let has = |wanted: Effect| effects.contains(&wanted);
    let bytes = effects.iter().find_map(|effect| match effect {
        Effect::Bytes { piece, most } => Some((*piece, *most)),
        _ => None,
    });
    let forgotten = effects.iter().find_map(|effect| match effect {
        Effect::Forgotten { milliseconds, always } => {
            Some((*milliseconds as f64 / 1000.0, *always))
        }
        _ => None,
    });
    let cost = |count: Count| match (count, bytes) {
        (Count::Bytes, None) => offered.length as f64,
        (Count::Bytes, Some((piece, _))) => {
            let length = offered.length.saturating_sub(ETHERNET);
            (length.div_ceil(piece.max(1)) * piece.max(1)) as f64
        }
        (Count::Packets | Count::Syns | Count::Flows, _) => 1.0,
    };
    let there = |limit: RuleLimit| {
        let quota = limit.meter.quota();
        let (amount, window) = (quota.requests_per_unit as f64, quota.period.seconds() as f64);
        let full = match (&limit.meter, bytes) {
            (_, Some((_, most))) if generous && quota.count == Count::Bytes => most as f64,
            // Once the first amount is used up, the limit holds no more than a second of the rate.
            (_, Some(_)) if quota.count == Count::Bytes => amount / window,
            (Meter::TokenBucket(bucket), _) => bucket.burst as f64,
            _ => amount,
        };
        let log = matches!(limit.meter, Meter::SlidingLog(_)).then(|| Log {
            times: Vec::new(),
            most: usize::try_from(quota.requests_per_unit).unwrap_or(usize::MAX),
            window,
        });
        let there = There { rate: amount / window, full, tokens: full, last: 0.0, born: 0.0, log };
        (there, cost(quota.count))
    };
    let mut all: Vec<(There, f64)> = limits.limits.iter().map(there).collect();
    let mut passed = 0;
    for time in offered.times {
        let time = time.as_secs_f64();
        let now = if has(Effect::Ticks) { (time * SLOWEST).floor() / SLOWEST } else { time };
        let mut conforms = true;
        for (there, cost) in &mut all {
            there.come_to(now, forgotten);
            // Limits after one that drops a packet do not see the packet.
            if !has(Effect::Several) || conforms {
                let fits = there.has(*cost);
                if has(Effect::Several) && fits {
                    there.charge(*cost, now);
                }
                conforms &= fits;
            }
        }
        for (there, cost) in &mut all {
            let noted = has(Effect::Refused) && there.log.is_some();
            if !has(Effect::Several) && (conforms || noted) {
                there.charge(*cost, now);
            }
        }
        passed += u64::from(conforms);
    }
    passed
}

#[cfg(test)]
mod tests {
    use limiter_rules::RuleFile;
    use limiter_rules::Terms;

    use super::*;

    fn limits(text: &str) -> Limits {
        let text = format!("descriptors: [{{key: remote_address, {text}}}]");
        let file = RuleFile::parse("x", text.as_bytes(), 1522).unwrap_or_else(|e| panic!("{e}"));
        match &file.rules.rules[0].terms {
            Terms::Limits(limits) => limits.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// Least and most that pass of `packets` packets in a second.
    fn of(text: &str, effects: &[Effect], packets: u32) -> (u64, u64) {
        let at = |index| Duration::from_secs(1) * index / packets;
        let times: Vec<Duration> = (0..packets).map(at).collect();
        let range = range(&limits(text), effects, Offered { times: &times, length: 1000 });
        (range.least, range.most)
    }

    #[test]
    fn effects_have_a_size_and_a_direction() {
        let slow = "rate_limit: {rate: 10/s, burst: 5}";
        assert_eq!(of(slow, &[], 100), (14, 14));
        // A tick brings less than the burst, so nothing is lost.
        let (least, most) = of(slow, &[Effect::Ticks], 100);
        assert!((13..=14).contains(&least) && most <= 15, "{least} {most}");
        let fast = "rate_limit: {rate: 10000/s, burst: 5}";
        let (least, most) = of(fast, &[Effect::Ticks], 20_000);
        assert!((490..=510).contains(&least) && (9_990..=10_010).contains(&most), "{least} {most}");
        let log = "rate_limit: {rate: 4/60s, algorithm: sliding_log}";
        assert_eq!(of(log, &[Effect::Refused], 40), (4, 4));
        assert_eq!(of("rate_limit: {rate: 4/1s, algorithm: sliding_log}", &[], 40), (4, 4));
        let often = Effect::Forgotten { milliseconds: 200, always: true };
        assert_eq!(of(slow, &[often], 100), (14, 5 * 6));
        let idle = Effect::Forgotten { milliseconds: 200, always: false };
        assert_eq!(of(slow, &[idle], 100), (14, 14));
        let bytes = "rate_limit: {rate: 100kB/s, burst: 200kB}";
        let effect = Effect::Bytes { piece: 16, most: 300_000 };
        let (least, most) = of(bytes, &[effect], 1000);
        assert!((195..=205).contains(&least) && (395..=405).contains(&most), "{least} {most}");
        let two = "rate_limits: [{rate: 1/s, burst: 20}, {rate: 5/s, burst: 5}]";
        let (least, most) = of(two, &[Effect::Several], 100);
        assert!(least < most && most == 9, "{least} {most}");
    }
}
