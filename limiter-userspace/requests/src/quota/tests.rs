//! Clients that do what Envoy's documentation of the service says, on a clock of the test.

use limiter_rules::file::requests::RequestFile;

use super::*;
use crate::question::Detail;

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
    limiter.apply(&[("r.yaml".to_owned(), file)]).unwrap();
    limiter
}

fn bucket(text: &str) -> BTreeMap<String, String> {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    text.split(' ').map(entry).collect()
}

/// A client of one bucket.
struct Client {
    session: Session,
    interval: u64,
    /// Nanoseconds until an assignment arrives.
    latency: u64,
    strategy: Option<Strategy>,
    tokens: u64,
    filled: u64,
    ends: u64,
    usage: Usage,
    reported: Option<u64>,
    arriving: Vec<(u64, Action)>,
    passed: u64,
    answers: u64,
}

impl Client {
    fn new(quotas: &Quotas, interval: u64, latency: u64) -> Self {
        Self {
            session: Session::new(quotas, "d"),
            interval,
            latency,
            strategy: None,
            tokens: 0,
            filled: 0,
            ends: 0,
            usage: Usage::default(),
            reported: None,
            arriving: Vec::new(),
            passed: 0,
            answers: 0,
        }
    }

    fn report(&mut self, server: (&Limiter, &Quotas), now: u64) {
        let elapsed = now - self.reported.unwrap_or(now);
        let usage = Usage { elapsed, ..std::mem::take(&mut self.usage) };
        self.reported = Some(now);
        let action = self.session.report(server, &bucket("k=1"), usage, &at(now)).unwrap();
        if let Some(action) = action {
            self.answers += 1;
            self.arriving.push((now + self.latency, action));
        }
    }

    fn step(&mut self, server: (&Limiter, &Quotas), now: u64, wanted: u64) -> u64 {
        while let Some(index) = self.arriving.iter().position(|(at, _)| *at <= now) {
            let Action::Assign(strategy, life) = self.arriving.remove(index).1 else {
                (self.strategy, self.reported) = (None, None);
                continue;
            };
            self.ends = now + life;
            if self.strategy != Some(strategy) {
                self.report(server, now);
                self.strategy = Some(strategy);
                if let Strategy::Bucket { most, .. } = strategy {
                    (self.tokens, self.filled) = (most.into(), now);
                }
            }
        }
        if self.strategy.is_some() && now >= self.ends {
            self.strategy = None;
        }
        if let Some(Strategy::Bucket { most, per_fill, interval }) = self.strategy {
            let fills = (now - self.filled) / interval;
            self.filled += fills * interval;
            self.tokens = (self.tokens + fills * u64::from(per_fill)).min(most.into());
        }
        let room = match self.strategy {
            None | Some(Strategy::DenyAll) => 0,
            Some(Strategy::AllowAll) => u64::MAX,
            Some(Strategy::Bucket { .. }) => self.tokens,
        };
        let passed = wanted.min(room);
        self.tokens -= passed.min(self.tokens);
        self.usage.allowed += passed;
        self.usage.denied += wanted - passed;
        self.passed += passed;
        let due = match self.reported {
            None => wanted > 0,
            Some(reported) => now - reported >= self.interval,
        };
        if due {
            self.report(server, now);
        }
        passed
    }
}

/// A token bucket of what passed, which says how far it was ever over.
#[derive(Default)]
struct Bound {
    rate: u64,
    /// Thousandths of hits that are missing.
    owed: u64,
    most: u64,
}

impl Bound {
    fn of(rate: u64) -> Self {
        Self { rate, ..Self::default() }
    }

    /// One step of a thousandth of a second, with so many hits.
    fn step(&mut self, hits: u64) {
        self.owed = self.owed.saturating_sub(self.rate) + 1000 * hits;
        self.most = self.most.max(self.owed);
    }
}

/// Runs clients for so many seconds; returns the hits of each in the second half, and by how many
/// hits a bucket of the rate was ever over.
fn run(
    rate: u64,
    seconds: u64,
    clients: &mut [Client],
    (limiter, quotas): (&Limiter, &Quotas),
    mut wanted: impl FnMut(usize, u64) -> u64,
) -> (Vec<u64>, u64) {
    let mut bound = Bound::of(rate);
    let mut half = vec![0; clients.len()];
    for step in 0..seconds * 1000 {
        let mut hits = 0;
        for (index, client) in clients.iter_mut().enumerate() {
            let passed = client.step((limiter, quotas), step * STEP, wanted(index, step));
            hits += passed;
            if step >= seconds * 500 {
                half[index] += passed;
            }
        }
        bound.step(hits);
    }
    (half, bound.most / 1000)
}

#[test]
fn clients_that_want_more_get_the_rate_in_equal_parts() {
    for (limit, burst) in [
        ("rate: 1000/s, burst: 100", 100),
        ("rate: 1000/s, burst: 1000", 1000),
        ("rate: 1000/s, algorithm: leaky_bucket", 1),
    ] {
        for count in [1, 2, 5] {
            let (limiter, quotas) = (limiter(limit), Quotas::default());
            let mut clients: Vec<_> =
                (0..count).map(|_| Client::new(&quotas, 5 * SECOND, 20 * STEP)).collect();
            let server = (&limiter, &quotas);
            let (half, over) = run(1000, 120, &mut clients, server, |_, _| 3);
            let all: u64 = half.iter().sum();
            assert!((58_000..=60_000 + 2 * burst).contains(&all), "{limit}, {count}: {all}");
            for hits in half {
                assert!((all / count * 9 / 10..=all / count * 11 / 10).contains(&hits), "{hits}");
            }
            assert!(over <= 3 * burst + 10, "{limit}, {count}: {over}");
        }
    }
}

#[test]
fn what_one_does_not_want_others_get() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 200"), Quotas::default());
    let mut clients: Vec<_> = (0..4).map(|_| Client::new(&quotas, 2 * SECOND, 5 * STEP)).collect();
    // One wants 50 a second, one begins late, one ends early, one wants all.
    let wanted = |index, step: u64| match index {
        0 => u64::from(step.is_multiple_of(20)),
        1 => u64::from(step > 100_000) * 2,
        2 => u64::from(step < 20_000) * 2,
        _ => 2,
    };
    let server = (&limiter, &quotas);
    let (half, over) = run(1000, 200, &mut clients, server, wanted);
    let all: u64 = half.iter().sum();
    assert!((90_000..=100_400).contains(&all), "{half:?}");
    assert_eq!((half[0], half[2]), (5000, 0));
    assert!(half[1].abs_diff(half[3]) < 10_000, "{half:?}");
    assert!(over <= 600, "{over}");
}

#[test]
fn requests_and_quotas_charge_the_same_buckets() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 100"), Quotas::default());
    let mut client = Client::new(&quotas, SECOND, STEP);
    let (mut direct, mut bound) = (0, Bound::of(1000));
    for step in 0..60_000 {
        let asked = Asked {
            domain: "d",
            descriptors: vec![Descriptor { entries: vec![("k", "1")], ..Descriptor::default() }],
            hits: 1,
        };
        let moment = at(step * STEP);
        let answer = limiter.decide(&limiter.rules(), &asked, &moment, Detail::Decision).unwrap();
        let passed = client.step((&limiter, &quotas), step * STEP, u64::from(step % 10 == 0));
        direct += u64::from(!answer.over);
        bound.step(passed + u64::from(!answer.over));
    }
    assert_eq!(client.passed, 5999, "all that it wants after its first report");
    assert!((20_000..=54_100).contains(&direct), "{direct}");
    assert!(bound.most <= 300_000, "{}", bound.most);
}

#[test]
fn a_window_is_never_passed() {
    for (limit, hits) in [
        ("fixed_window", 600),
        ("sliding_log", 30),
        ("sliding_counter", 600),
        ("sliding_slots", 600),
    ] {
        let limit = format!("unit: minute, requests_per_unit: {hits}, algorithm: {limit}");
        let (limiter, quotas) = (limiter(&limit), Quotas::default());
        let mut clients: Vec<_> =
            (0..3).map(|_| Client::new(&quotas, 2 * SECOND, 5 * STEP)).collect();
        let mut minutes = [0; 10];
        for step in 0..600_000 {
            for client in &mut clients {
                let passed = client.step((&limiter, &quotas), step * STEP, step % 2);
                minutes[usize::try_from(step / 60_000).unwrap()] += passed;
            }
        }
        let right = |passed: &u64| (hits * 9 / 10..=hits).contains(passed);
        assert!(minutes.iter().all(right), "{limit}: {minutes:?}");
    }
}

/// Reports once, after a second, and returns what the server says.
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
        assert_eq!(action, Some(Action::Assign(strategy, FIRST_LIFE)), "{of}");
    }
}

#[test]
fn entries_of_a_bucket_have_no_order() {
    let rules = "domain: d\ndescriptors:\n  - key: z\n    descriptors: [{key: b, rate_limit: \
                 {name: found, rate: 1/s}}]\n  - {key: b, rate_limit: {name: other, rate: 1/s}}\n";
    let (file, errors) = RequestFile::check("r.yaml", rules.as_bytes());
    assert!(errors.is_empty(), "{errors:?}");
    let limiter = Limiter::new(10).unwrap();
    let rules = limiter.apply(&[("r.yaml".to_owned(), file)]).unwrap();
    let domain = rules.domain("d").unwrap();
    let (rule, ordered) = domain.find_in_any_order(&[("b", "1"), ("z", "2")]).unwrap();
    assert_eq!(rule.name.as_deref(), Some("found"));
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
    assert!(matches!(report(0, 1), Some(Action::Assign(Strategy::Bucket { most: 100, .. }, _))));
    for second in (10..=60).step_by(10) {
        assert!(!matches!(report(second, 0), Some(Action::Abandon)), "{second}");
    }
    assert_eq!(report(70, 0), Some(Action::Abandon));
    assert_eq!(quotas.counts()[0], 0);
    // Nothing of it is charged any more.
    let asked = Asked {
        domain: "d",
        descriptors: vec![Descriptor { entries: vec![("k", "1")], ..Descriptor::default() }],
        hits: 100,
    };
    let moment = at(71 * SECOND);
    assert!(!limiter.decide(&limiter.rules(), &asked, &moment, Detail::Decision).unwrap().over);
}

#[test]
fn a_client_that_has_gone_leaves_its_part_to_others_after_its_life() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 10"), Quotas::default());
    let server = (&limiter, &quotas);
    let (mut one, mut two) =
        (Client::new(&quotas, SECOND, STEP), Client::new(&quotas, SECOND, STEP));
    let (mut passed, mut bound) = (0, Bound::of(1000));
    for step in 0..200_000 {
        let now = step * STEP;
        let hits = if step < 50_000 { one.step(server, now, 2) } else { 0 };
        if step == 50_000 {
            one.session.end(&quotas);
        }
        let of_two = two.step(server, now, 2);
        bound.step(hits + of_two);
        passed += if step >= 100_000 { of_two } else { 0 };
    }
    assert!((95_000..=100_100).contains(&passed), "{passed}");
    assert!(bound.most <= 50_000, "{}", bound.most);
    assert_eq!(quotas.counts()[0], 1);
}

#[test]
fn one_that_wants_everything_takes_nothing_from_others() {
    let (limiter, quotas) = (limiter("rate: 1000/s, burst: 500"), Quotas::default());
    let intervals = [1, 2, 3, 5, 7, 10, 1, 4];
    let mut clients: Vec<_> =
        intervals.iter().map(|of| Client::new(&quotas, of * SECOND, 30 * STEP)).collect();
    // Seven want 20 a second in bunches of two; the last one wants all, for ten seconds of twenty.
    let wanted = |index: usize, step: u64| match index {
        7 => 3 * u64::from(step % 20_000 < 10_000),
        _ => 2 * u64::from((step + 13 * index as u64).is_multiple_of(100)),
    };
    let (half, over) = run(1000, 200, &mut clients, (&limiter, &quotas), wanted);
    for hits in &half[..7] {
        assert!((1960..=2000).contains(hits), "{half:?}");
    }
    assert!(half[7] > 30_000, "{half:?}");
    assert!(over <= 2500, "{over}");
}
