//! Clients with the arithmetic of Envoy's filter, on a clock of the test.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "Envoy counts tokens in floating point"
)]

use limiter_rules::file::requests::RequestFile;
use smallvec::smallvec;

use super::*;
use crate::decide::question::{Asked, Descriptor, Detail};

const STEP: u64 = SECOND / 1000;

/// Monday, 2 November 2026, 00:00 UTC, an hour after the boot.
fn at(nanos: u64) -> Moment {
    Moment::of_nanos(3600 * SECOND + nanos, 1_793_577_600 * SECOND + nanos)
}

fn limiter(limit: &str) -> Limiter {
    let text = format!(
        "domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{{limit}}}}}\n  - key: a\n    \
         descriptors: [{{key: b, rate_limit: {{{limit}}}}}]\n  - {{key: shadow, shadow_mode: \
         true, rate_limit: {{{limit}}}}}\n  - {{key: free, rate_limit: {{unlimited: true}}}}\n  - \
         {{key: never, rate_limit: {{unit: day, requests_per_unit: 0}}}}\n"
    );
    let (file, errors) = RequestFile::check("r.yaml", text.as_bytes());
    assert!(errors.is_empty(), "{errors:?}");
    let limiter = Limiter::new(1000).unwrap();
    limiter.apply(&[("r.yaml".to_owned(), file)], &at(0)).unwrap();
    limiter
}

fn bucket(text: &str) -> BTreeMap<String, String> {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    text.split(' ').map(entry).collect()
}

/// True if `/json` lets so many hits pass.
fn passes(limiter: &Limiter, hits: u64, moment: &Moment) -> bool {
    let asked = Asked {
        domain: "d",
        descriptors: smallvec![Descriptor {
            entries: smallvec![("k", "1")],
            ..Descriptor::default()
        }],
        hits,
    };
    !limiter.decide(&limiter.rules(), &asked, moment, Detail::Decision).unwrap().over
}

/// The filter of Envoy 1.40 with one bucket, which denies all while it has no assignment: its
/// `global_client_impl.cc` and `token_bucket_impl.h`, as they were tried with Envoy itself.
struct Client {
    session: Session,
    /// Nanoseconds between two reports: 5 s in Envoy, whatever its configuration says.
    interval: u64,
    /// Nanoseconds until an assignment arrives.
    latency: u64,
    /// As by the protocol, and in Envoy before 1.33: a changed bucket begins full.
    begins_full: bool,
    strategy: Option<Strategy>,
    tokens: f64,
    /// Tokens a second.
    rate: f64,
    filled: u64,
    ends: u64,
    usage: Usage,
    reported: Option<u64>,
    arriving: Vec<(u64, Action)>,
    passed: u64,
    changes: u64,
    /// True if its stream has ended.
    is_cut: bool,
}

impl Client {
    fn new(quotas: &Quotas) -> Self {
        Self {
            session: Session::new(quotas, "d"),
            interval: 5 * SECOND,
            latency: 2 * STEP,
            begins_full: false,
            strategy: None,
            tokens: 0.0,
            rate: 0.0,
            filled: 0,
            ends: 0,
            usage: Usage::default(),
            reported: None,
            arriving: Vec::new(),
            passed: 0,
            changes: 0,
            is_cut: false,
        }
    }

    fn many(quotas: &Quotas, count: u64) -> Vec<Self> {
        (0..count).map(|_| Self::new(quotas)).collect()
    }

    fn report(&mut self, server: (&Limiter, &Quotas), now: u64) {
        let elapsed = (now - self.reported.unwrap_or(now)) / SECOND * SECOND;
        let usage = Usage { elapsed, ..std::mem::take(&mut self.usage) };
        self.reported = Some(now);
        let action = self.session.report(server, &bucket("k=1"), usage, &at(now)).unwrap();
        self.arriving.extend(action.map(|action| (now + self.latency, action)));
    }

    fn take(&mut self, action: Action, now: u64) {
        let Action::Assign { strategy, life, full } = action else {
            (self.strategy, self.reported) = (None, None);
            return;
        };
        assert!(life >= 1, "{action:?}");
        self.ends = now + life * SECOND;
        if full {
            self.strategy = Some(Strategy::DenyAll);
        }
        let before = self.strategy.replace(strategy);
        if let Strategy::Bucket { most, per_fill, seconds } = strategy
            && before != self.strategy
        {
            assert!(most > 0 && per_fill > 0 && seconds > 0, "{strategy:?}");
            self.changes += 1;
            self.tokens = match before {
                Some(Strategy::Bucket { most: last, .. }) if !self.begins_full => {
                    (f64::from(most) * (self.tokens / f64::from(last))).floor()
                }
                _ => f64::from(most),
            };
            self.rate = f64::from(per_fill) / f64::from(seconds);
            self.filled = now;
        }
    }

    fn step(&mut self, server: (&Limiter, &Quotas), now: u64, wanted: u64) -> u64 {
        if now.is_multiple_of(SECOND) && !self.is_cut {
            let changed = self.session.tick(server, &at(now));
            self.arriving.extend(changed.into_iter().map(|(_, of)| (now + self.latency, of)));
        }
        while let Some(index) = self.arriving.iter().position(|(at, _)| *at <= now) {
            let (_, action) = self.arriving.remove(index);
            self.take(action, now);
        }
        if self.strategy.is_some() && now >= self.ends {
            self.strategy = None;
        }
        if let Some(Strategy::Bucket { most, .. }) = self.strategy {
            let more = self.rate * (now - self.filled) as f64 / SECOND as f64;
            self.tokens = (self.tokens + more).min(most.into());
            self.filled = now;
        }
        let room = match self.strategy {
            None | Some(Strategy::DenyAll) => 0,
            Some(Strategy::AllowAll) => u64::MAX,
            // A sum of many parts may be a little too small.
            Some(Strategy::Bucket { .. }) => (self.tokens + 1e-6) as u64,
        };
        let passed = wanted.min(room);
        self.tokens -= passed as f64;
        self.usage.allowed += passed;
        self.usage.denied += wanted - passed;
        self.passed += passed;
        let due = match self.reported {
            None => wanted > 0,
            Some(reported) => now - reported >= self.interval,
        };
        if due && !self.is_cut {
            self.report(server, now);
        }
        passed
    }
}

/// A token bucket of what passed, which says how far it was ever over.
#[derive(Default)]
struct Bound {
    /// Thousandths of hits a millisecond.
    rate: f64,
    /// Hits that are missing.
    owed: f64,
    most: f64,
}

impl Bound {
    /// A bound of so many hits a second.
    fn of(rate: f64) -> Self {
        Self { rate: rate / 1000.0, ..Self::default() }
    }

    /// One step of a thousandth of a second, with so many hits.
    fn step(&mut self, hits: u64) {
        self.owed = (self.owed - self.rate).max(0.0) + hits as f64;
        self.most = self.most.max(self.owed);
    }
}

/// Runs clients for so many seconds; returns the hits of each in the second half, and by how many
/// hits a bucket of the rate was ever over.
fn run(
    rate: f64,
    seconds: u64,
    clients: &mut [Client],
    server: (&Limiter, &Quotas),
    mut wanted: impl FnMut(usize, u64) -> u64,
) -> (Vec<u64>, f64) {
    let mut bound = Bound::of(rate);
    let mut half = vec![0; clients.len()];
    for step in 0..seconds * 1000 {
        let mut hits = 0;
        for (index, client) in clients.iter_mut().enumerate() {
            let passed = client.step(server, step * STEP, wanted(index, step));
            hits += passed;
            if step >= seconds * 500 {
                half[index] += passed;
            }
        }
        bound.step(hits);
    }
    (half, bound.most)
}

/// What the page promises, with the shortest life: so many hits over rate x t.
fn promised(rate: f64, burst: f64, proxies: u64) -> f64 {
    burst + 12.0 * rate + proxies as f64
}

/// Limits of requests with their rate a second and their burst.
const LIMITS: [(&str, f64, f64); 7] = [
    ("rate: 1/min", 1.0 / 60.0, 1.0),
    ("rate: 10/min", 1.0 / 6.0, 10.0),
    ("rate: 40/min, algorithm: leaky_bucket", 2.0 / 3.0, 1.0),
    ("rate: 3/s, burst: 20", 3.0, 20.0),
    ("rate: 100/s", 100.0, 100.0),
    ("rate: 1000/s, burst: 100", 1000.0, 100.0),
    ("rate: 1000/s, algorithm: leaky_bucket", 1000.0, 1.0),
];

/// What clients want that together want so many hits a second, evenly.
fn evenly(rate: f64, clients: u64) -> impl Fn(usize, u64) -> u64 {
    let each = rate / clients as f64 / 1000.0;
    move |index, step| {
        let at = |step: u64| (step as f64 * each + index as f64 * 0.31) as u64;
        at(step + 1) - at(step)
    }
}

#[test]
fn proxies_that_want_more_get_the_rate_within_the_bound() {
    for (limit, rate, burst) in LIMITS {
        for (count, begins_full) in [(1, false), (2, false), (4, false), (3, true)] {
            let (limiter, quotas) = (limiter(limit), Quotas::default());
            let mut clients = Client::many(&quotas, count);
            for client in &mut clients {
                client.begins_full = begins_full;
            }
            let seconds = if rate < 1.0 { 1200 } else { 120 };
            let wanted = evenly(3.0 * rate, count);
            let (half, over) = run(rate, seconds, &mut clients, (&limiter, &quotas), wanted);
            let (all, right) = (half.iter().sum::<u64>() as f64, rate * seconds as f64 / 2.0);
            let of = format!("{limit}, {count} proxies, {begins_full}: {half:?} of {right}");
            // Of slow ones little is known, and some wait for a token that another one has.
            let least = if rate < 10.0 { 0.75 * right - 2.0 } else { 0.93 * right };
            assert!((least..=1.05 * right + burst + 2.0).contains(&all), "{of}");
            assert!(over <= promised(rate, burst, count), "{of}: {over} at once");
            if rate >= 100.0 {
                let equal = all / count as f64;
                let fair = |hits: &u64| (0.7 * equal..=1.3 * equal).contains(&(*hits as f64));
                assert!(half.iter().all(fair), "{of}");
            }
        }
    }
}

#[test]
fn eight_proxies_that_join_are_within_the_bound() {
    for begins_full in [false, true] {
        let (limiter, quotas) = (limiter("rate: 20/s, burst: 100"), Quotas::default());
        let mut clients = Client::many(&quotas, 8);
        for client in &mut clients {
            client.begins_full = begins_full;
        }
        let each = evenly(60.0, 8);
        let joined = |index: usize, step: u64| step >= 400 * index as u64;
        let wanted = |index, step| each(index, step) * u64::from(joined(index, step));
        let (half, over) = run(20.0, 60, &mut clients, (&limiter, &quotas), wanted);
        assert!(over <= promised(20.0, 100.0, 8), "{over}");
        let all: u64 = half.iter().sum();
        assert!((550..=640).contains(&all), "{half:?}");
    }
}

/// What proxies do not use stays charged, so that it is not used together with a burst of others.
#[test]
fn what_proxies_hold_and_a_burst_of_others_are_within_the_bound() {
    for count in [1, 4] {
        let (limiter, quotas) = (limiter("rate: 1/s, burst: 100"), Quotas::default());
        let mut clients = Client::many(&quotas, count);
        let mut wanted = |_, step: u64| u64::from(step.is_multiple_of(10_000));
        run(1.0, 200, &mut clients, (&limiter, &quotas), &mut wanted);
        let mut all = 0;
        for step in 200_000..201_000 {
            for client in &mut clients {
                all += client.step((&limiter, &quotas), step * STEP, 1);
            }
            all += u64::from(passes(&limiter, 1, &at(step * STEP)));
        }
        assert!(all as f64 <= promised(1.0, 100.0, count), "{count}: {all}");
        assert!(all >= 80, "{count}: {all}");
    }
}

#[test]
fn a_new_proxy_leaves_others_what_it_does_not_want() {
    let (limiter, quotas) = (limiter("rate: 100/s"), Quotas::default());
    // Each one begins when the last one has gone.
    for round in 0..3 {
        let mut client = Client::new(&quotas);
        let (mut others, start) = (0, round * 30_000);
        for step in start..start + 30_000 {
            client.step((&limiter, &quotas), step * STEP, u64::from(step % 50 == 0));
            let asks = step % 250 == 0;
            others += u64::from(asks && passes(&limiter, 1, &at(step * STEP)));
        }
        client.session.end(&quotas, &at((start + 30_000) * STEP));
        // Of 120 in 30 s; 80 a second are left.
        assert!(others >= 90, "{round}: {others}");
        assert!(client.passed >= 590, "{round}: {}", client.passed);
    }
}

#[test]
fn what_one_does_not_want_others_get() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 200"), Quotas::default());
    let mut clients = Client::many(&quotas, 4);
    // One wants 50 a second, one begins late, one ends early, one wants all.
    let wanted = |index, step: u64| match index {
        0 => u64::from(step.is_multiple_of(20)),
        1 => u64::from(step > 100_000) * 2,
        2 => u64::from(step < 20_000) * 2,
        _ => 2,
    };
    let server = (&limiter, &quotas);
    let (half, over) = run(1000.0, 200, &mut clients, server, wanted);
    let all: u64 = half.iter().sum();
    assert!((90_000..=103_000).contains(&all), "{half:?}");
    assert!((4900..=5000).contains(&half[0]) && half[2] == 0, "{half:?}");
    assert!(half[1].abs_diff(half[3]) < 12_000, "{half:?}");
    assert!(over <= promised(1000.0, 200.0, 4), "{over}");
}

#[test]
fn a_fixed_window_is_never_passed() {
    for (unit, seconds, hits) in [("second", 1, 5), ("second", 1, 1000), ("minute", 60, 100)] {
        for count in [1, 3] {
            let limit = format!("unit: {unit}, requests_per_unit: {hits}, algorithm: fixed_window");
            let (limiter, quotas) = (limiter(&limit), Quotas::default());
            let mut clients = Client::many(&quotas, count);
            let windows = if seconds == 1 { 40 } else { 5 };
            let mut passed = vec![0; windows];
            let wanted = evenly(3.0 * hits as f64 / seconds as f64, count);
            for step in 0..windows as u64 * seconds * 1000 {
                for (index, client) in clients.iter_mut().enumerate() {
                    let hits = client.step((&limiter, &quotas), step * STEP, wanted(index, step));
                    // What is on its way when a window begins is of the last one.
                    let window = step.saturating_sub(client.latency / STEP) / (seconds * 1000);
                    passed[window as usize] += hits;
                }
            }
            // Of the first ones little is known.
            let known = &passed[windows / 4 + 1..];
            let right = |passed: &u64| (hits * 7 / 10..=hits).contains(passed);
            assert!(known.iter().all(right), "{limit}, {count}: {passed:?}");
            assert!(passed.iter().all(|passed| *passed <= hits), "{limit}, {count}: {passed:?}");
        }
    }
}

#[test]
fn a_window_is_not_used_up_by_proxies_that_use_nothing() {
    let (limiter, quotas) = (
        limiter("unit: day, requests_per_unit: 10000, algorithm: fixed_window"),
        Quotas::default(),
    );
    let mut clients = Client::many(&quotas, 12);
    for step in 0..50_000 {
        for client in &mut clients {
            client.step((&limiter, &quotas), step * STEP, u64::from(step == 0));
        }
    }
    assert!(passes(&limiter, 9000, &at(50 * SECOND)), "they took more than a tenth");
}

#[test]
fn a_report_of_many_refused_takes_no_whole_window() {
    let (limiter, quotas) = (
        limiter("unit: minute, requests_per_unit: 600, algorithm: fixed_window"),
        Quotas::default(),
    );
    let mut session = Session::new(&quotas, "d");
    for second in [0, 5] {
        let usage = Usage { allowed: 0, denied: 1000, elapsed: second * SECOND };
        session.report((&limiter, &quotas), &bucket("k=1"), usage, &at(second * SECOND)).unwrap();
        assert!(passes(&limiter, 200, &at(second * SECOND)), "{second}");
    }
    let refused = limiter.refused(None, &at(5 * SECOND)).unwrap();
    assert_eq!((refused.keys[0].refused, refused.refused), (2000, 2000));
}

/// Reports once, and returns what the server says.
fn once(server: (&Limiter, &Quotas), of: &str, allowed: u64) -> Option<Action> {
    let usage = Usage { allowed, denied: 0, elapsed: SECOND };
    Session::new(server.1, "d").report(server, &bucket(of), usage, &at(0)).unwrap()
}

#[test]
fn what_has_no_limit_passes_and_what_is_blocked_does_not() {
    let (limiter, quotas) = (limiter("rate: 10/s, burst: 1"), Quotas::default());
    for (of, strategy) in [
        ("unknown=1", Strategy::AllowAll),
        ("k=1 more=1", Strategy::AllowAll),
        ("shadow=1", Strategy::AllowAll),
        ("free=1", Strategy::AllowAll),
        ("never=1", Strategy::DenyAll),
    ] {
        let action = once((&limiter, &quotas), of, 1);
        let life = FIRST_LIFE / SECOND;
        assert_eq!(action, Some(Action::Assign { strategy, life, full: false }), "{of}");
    }
}

#[test]
fn entries_of_a_bucket_have_no_order() {
    let rules = "domain: d\ndescriptors:\n  - key: z\n    descriptors: [{key: b, rate_limit: \
                 {name: found, rate: 1/s}}]\n  - {key: b, rate_limit: {name: other, rate: 1/s}}\n";
    let (file, errors) = RequestFile::check("r.yaml", rules.as_bytes());
    assert!(errors.is_empty(), "{errors:?}");
    let limiter = Limiter::new(10).unwrap();
    let rules = limiter.apply(&[("r.yaml".to_owned(), file)], &at(0)).unwrap();
    let domain = rules.domain("d").unwrap();
    let (rule, ordered) = domain.find_in_any_order(&[("b", "1"), ("z", "2")]).unwrap();
    assert_eq!(rule.written.name.as_deref(), Some("found"));
    assert_eq!(ordered, [("z", "2"), ("b", "1")]);
    assert!(domain.find_in_any_order(&[("b", "1"), ("x", "2")]).is_none());
    assert!(domain.find_in_any_order(&[]).is_none());
}

#[test]
fn a_bucket_without_requests_is_given_up_and_its_hits_given_back() {
    let (limiter, quotas) = (limiter("rate: 1/s, burst: 100"), Quotas::default());
    let server = (&limiter, &quotas);
    let mut session = Session::new(&quotas, "d");
    let mut report = |second: u64, allowed| {
        let usage = Usage { allowed, denied: 0, elapsed: 10 * SECOND };
        session.report(server, &bucket("k=1"), usage, &at(second * SECOND)).unwrap()
    };
    let first = report(0, 1);
    let Some(Action::Assign { strategy: Strategy::Bucket { most, .. }, .. }) = first else {
        panic!("{first:?}");
    };
    assert!((80..=90).contains(&most), "{most}");
    for second in (10..=60).step_by(10) {
        assert!(!matches!(report(second, 0), Some(Action::Abandon)), "{second}");
    }
    assert_eq!(report(70, 0), Some(Action::Abandon));
    assert_eq!(quotas.counts()[0], 0);
    assert!(passes(&limiter, 100, &at(71 * SECOND)), "nothing of it is charged any more");
}

#[test]
fn a_client_that_has_gone_leaves_its_part_to_others_after_its_life() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 10"), Quotas::default());
    let server = (&limiter, &quotas);
    let (mut one, mut two) = (Client::new(&quotas), Client::new(&quotas));
    let (mut passed, mut bound) = (0, Bound::of(1000.0));
    for step in 0..200_000 {
        let now = step * STEP;
        if step == 50_000 {
            one.session.end(&quotas, &at(now));
            one.is_cut = true;
        }
        let hits = one.step(server, now, 2);
        let of_two = two.step(server, now, 2);
        bound.step(hits + of_two);
        passed += if step >= 100_000 { of_two } else { 0 };
    }
    assert!((93_000..=105_000).contains(&passed), "{passed}");
    assert!(bound.most <= promised(1000.0, 10.0, 2), "{}", bound.most);
    assert_eq!(quotas.counts()[0], 1);
}

#[test]
fn a_client_that_is_back_goes_on() {
    let (limiter, quotas) = (limiter("rate: 100/s"), Quotas::default());
    let server = (&limiter, &quotas);
    let mut client = Client::new(&quotas);
    let mut bound = Bound::of(100.0);
    for step in 0..60_000 {
        let now = step * STEP;
        if step % 10_000 == 9_500 {
            // Its stream ends; the next report opens another one.
            client.session.end(&quotas, &at(now));
            client.session = Session::new(&quotas, "d");
        }
        bound.step(client.step(server, now, u64::from(step % 3 == 0)));
    }
    assert!((5400..=6200).contains(&client.passed), "{}", client.passed);
    assert!(bound.most <= promised(100.0, 100.0, 1), "{}", bound.most);
}

#[test]
fn one_that_wants_everything_takes_nothing_from_others() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 500"), Quotas::default());
    let mut clients = Client::many(&quotas, 8);
    // Seven want 20 a second in bunches of two; the last one wants all, for ten seconds of twenty.
    let wanted = |index: usize, step: u64| match index {
        7 => 3 * u64::from(step % 20_000 < 10_000),
        _ => 2 * u64::from((step + 13 * index as u64).is_multiple_of(100)),
    };
    let (half, over) = run(1000.0, 200, &mut clients, (&limiter, &quotas), wanted);
    for hits in &half[..7] {
        assert!((1940..=2000).contains(hits), "{half:?}");
    }
    assert!(half[7] > 25_000, "{half:?}");
    assert!(over <= promised(1000.0, 500.0, 8), "{over}");
}
