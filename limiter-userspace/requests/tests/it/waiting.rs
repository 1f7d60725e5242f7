//! What a request that waits costs others: no more than one that goes at once.

use std::io::Cursor;
use std::time::Duration;

use limiter_requests::{Asked, Detail, GivenBack, Left, Limiter, Reserved, Snapshot};
use proptest::prelude::*;

use crate::support::*;

const DAY: u64 = 86_400 * SECOND;

fn reserve(limiter: &Limiter, texts: &[&str], hits: u64, nanos: u64, longest: u64) -> Reserved {
    let asked = Asked { domain: "d", descriptors: descriptors(texts), hits };
    limiter.reserve(&limiter.rules(), &asked, &at(nanos), longest).unwrap()
}

/// What is left of the nearest limit of a descriptor.
fn state(limiter: &Limiter, text: &str, nanos: u64) -> Left {
    let mut asked = Asked { domain: "d", descriptors: descriptors(&[text]), hits: 1 };
    // A look.
    asked.descriptors[0].hits = Some(0);
    let answer = limiter.decide(&limiter.rules(), &asked, &at(nanos), Detail::Left).unwrap();
    answer.statuses[0].nearest.unwrap().1
}

fn left(limiter: &Limiter, text: &str, nanos: u64) -> u64 {
    state(limiter, text, nanos).remaining
}

/// A day long, of which each user may do five things a day, and all together a thousand a second.
const SHARED: &str = "
domain: d
descriptors:
  - {key: user, rate_limit: {rate: 5/day, burst: 1}}
  - {key: all, rate_limit: {rate: 1000/s}}
";

#[test]
fn who_waits_for_a_limit_of_its_own_leaves_a_shared_one_to_others() {
    let limiter = limiter(SHARED, 100);
    let waits = |n| reserve(&limiter, &["user=evil", "all=1"], 1, n, DAY).wait.unwrap();
    assert_eq!([waits(0), waits(0), waits(0)], [0, DAY / 5, 2 * DAY / 5]);
    assert_eq!(left(&limiter, "all=1", 0), 997, "one each");
    assert_eq!(left(&limiter, "all=1", SECOND), 1000);
    // A restart and a change of the limit leave it so.
    let mut bytes = Vec::new();
    limiter.save(&mut bytes, &at(0), Some("a")).unwrap();
    let snapshot = Snapshot::open(Cursor::new(bytes)).unwrap();
    let next = Limiter::of(100, &snapshot);
    let files = |text: &str| [("r.yaml".to_owned(), file(text))];
    next.apply(&files(SHARED), &at(1)).unwrap();
    next.load(snapshot, &at(1), Some("a")).unwrap();
    assert!((997..=998).contains(&left(&next, "all=1", 1)));
    next.apply(&files(&SHARED.replace("1000/s", "1001/s")), &at(1)).unwrap();
    assert!((997..=998).contains(&left(&next, "all=1", 2)));
    assert!(!passes(&next, &["user=evil"], 3 * DAY / 5 - 1));
    assert!(passes(&next, &["user=evil"], 3 * DAY / 5));
}

#[test]
fn aggregates_budgets_and_other_limits_of_its_rule_are_left_to_others() {
    let text = "
domain: d
budgets:
  - {name: all, rate_limit: {rate: 100/s}}
descriptors:
  - key: remote_address
    rate_limit: {rate: 5/min}
    aggregates: [{v4_prefix_mask_len: 24, rate_limit: {rate: 50/min}}]
  - {key: mail, budget: all}
  - {key: user, rate_limit: {rate: 1/min}}
  - {key: both, rate_limits: [{rate: 1/hour}, {rate: 10/s, algorithm: leaky_bucket, backlog: 1s}]}
  - {key: trial, rate_limit: {rate: 10/s}, shadow_mode: true}
  - {key: soft, rate_limit: {rate: 10/s, ceiling: {rate: 20/s}}}
";
    let limiter = limiter(text, 100);
    let hour = 3600 * SECOND;
    let waits = |texts: &[&str]| reserve(&limiter, texts, 1, 0, hour).wait.unwrap();
    // 25 of one source, of which 20 wait for up to four minutes.
    let all: Vec<u64> = (0..25).map(|_| waits(&["remote_address=192.0.2.1"])).collect();
    assert_eq!(all.last(), Some(&(240 * SECOND)));
    let neighbours =
        (2..102).filter(|n| passes(&limiter, &[&format!("remote_address=192.0.2.{n}")], 0));
    assert_eq!(neighbours.count(), 25);
    let others = ["mail=1", "trial=1", "soft=1"];
    for _ in 0..4 {
        waits(&["user=evil", "mail=1", "trial=1", "soft=1"]);
    }
    assert_eq!(others.map(|other| left(&limiter, other, 0)), [96, 6, 6]);
    assert_eq!([waits(&["both=1"]), waits(&["both=1"])], [0, hour]);
    let answer = reserve(&limiter, &["both=1"], 1, 0, 0).answer;
    let [slow, fast] = &answer.statuses[0].limits[..] else { panic!("{answer:?}") };
    assert_eq!((slow.1.wait, fast.1.wait), (Some(2 * hour), Some(0)));
    assert_eq!(fast.1.reset, SECOND / 5, "two of ten a second");
}

/// A full table is searched as of now, so nobody is forgotten for what another one has ahead.
#[test]
fn what_is_ahead_of_its_time_makes_nobody_forgotten() {
    let text = "
domain: d
descriptors:
  - {key: slow, rate_limit: {rate: 2/day, burst: 1}}
  - {key: login, rate_limit: {rate: 5/hour}}
  - {key: new, rate_limit: {rate: 1000/s}}
";
    let limiter = limiter(text, 201);
    assert_eq!(reserve(&limiter, &["slow=evil"], 1, 0, DAY).wait, Some(0));
    let users: Vec<String> = (0..200).map(|n| format!("login={n}")).collect();
    for user in &users {
        assert!(!ask(&limiter, &[user], 5, 0).over);
    }
    assert_eq!(limiter.keys(), 201);
    for n in 0..2000 {
        // Each of them finds no room, or that of another one like it.
        let nanos = SECOND + n * 101_000_000;
        let reserved = reserve(&limiter, &["slow=evil", &format!("new={n}")], 1, nanos, DAY);
        if let Some(id) = reserved.id {
            limiter.give_back(&id, &at(nanos));
        }
    }
    let passed = users.iter().filter(|user| passes(&limiter, &[user], 300 * SECOND));
    assert_eq!(passed.count(), 0);
}

#[test]
fn rules_that_count_together_let_a_request_go_when_one_of_them_does() {
    let text = "
domain: d
descriptors:
  - {key: a, rate_limit: {rate: 1/hour}, quota_mode: true}
  - {key: b, rate_limit: {rate: 3/hour}, quota_mode: true}
";
    let both = ["a=1", "b=1"];
    for longest in [0, SECOND, DAY] {
        let (one, other) = (limiter(text, 10), limiter(text, 10));
        for _ in 0..3 {
            assert!(passes(&one, &both, 0));
            assert_eq!(reserve(&other, &both, 1, 0, longest).wait, Some(0), "{longest}");
        }
        assert!(!passes(&one, &both, 0));
        let last = reserve(&other, &both, 1, 0, longest);
        let third = 1200 * SECOND;
        let wait = (longest == DAY).then_some(third);
        assert_eq!((last.wait, last.needed), (wait, Some(third)), "that of b, the nearest");
        // Nothing was charged to `a`, which is still over.
        assert!(passes(&other, &["a=1"], 3600 * SECOND));
    }
}

#[test]
fn what_was_given_back_is_all_that_is_charged() {
    let limiter = limiter(SHARED, 100);
    let take = |n| reserve(&limiter, &["user=evil", "all=1"], 1, n, DAY);
    assert_eq!(take(0).wait, Some(0));
    let give_back = |id: &str, n| limiter.give_back(id, &at(n));
    // A look at a key that was never seen is no charge.
    let asked = {
        let mut asked = descriptors(&["user=evil", "user=new"]);
        asked[1].hits = Some(0);
        Asked { domain: "d", descriptors: asked, hits: 1 }
    };
    let looked = limiter.reserve(&limiter.rules(), &asked, &at(0), DAY).unwrap();
    assert_eq!(give_back(&looked.id.unwrap(), 1), GivenBack::Returned);
    // Others were charged to `all` since: that stays, until time has given it back.
    let (one, other) = (take(0).id.unwrap(), take(0).id.unwrap());
    assert!(passes(&limiter, &["all=1"], 0));
    assert_eq!(give_back(&other, 1), GivenBack::Kept);
    assert_eq!(left(&limiter, "all=1", 0), 996);
    assert!(passes(&limiter, &["all=1"], SECOND));
    assert_eq!(give_back(&one, SECOND), GivenBack::Returned);
    assert_eq!(take(SECOND).wait, Some(DAY / 5 - SECOND), "both places are free");
}

#[test]
fn a_name_of_before_a_restart_is_nobody_elses_behind_it() {
    let before = limiter(SHARED, 100);
    let reserve = |limiter: &Limiter, n| reserve(limiter, &["user=a"], 1, n, DAY).id;
    let ids = [reserve(&before, 0), reserve(&before, 0)];
    let mut bytes = Vec::new();
    before.save(&mut bytes, &at(1), Some("a")).unwrap();
    let snapshot = Snapshot::open(Cursor::new(bytes)).unwrap();
    let next = Limiter::of(100, &snapshot);
    next.apply(&[("r.yaml".to_owned(), file(SHARED))], &at(1)).unwrap();
    next.load(snapshot, &at(1), Some("a")).unwrap();
    let other = [reserve(&next, 2), reserve(&next, 2)];
    for id in ids.iter().flatten() {
        assert_eq!(next.give_back(id, &at(3)), GivenBack::Unknown);
    }
    assert_eq!(next.give_back(other[1].as_ref().unwrap(), &at(3)), GivenBack::Returned);
}

/// As seen elsewhere: who asks when it may go and gives that up, over and over, leaves others with
/// next to nothing.
#[test]
fn who_only_asks_when_it_may_go_takes_nothing_from_others() {
    let limiter = with_limit("rate: 100/s, burst: 1");
    let mut passed = 0;
    for n in 0..1000 {
        let nanos = n * 1_000_000;
        for longest in [0, 1, DAY] {
            let reserved = reserve(&limiter, &["k=1"], 1, nanos, longest);
            if let Some(id) = reserved.id.filter(|_| reserved.wait != Some(0)) {
                assert_eq!(limiter.give_back(&id, &at(nanos)), GivenBack::Returned);
            }
            passed += usize::from(reserved.wait == Some(0));
        }
        passed += usize::from(passes(&limiter, &["k=1"], nanos));
    }
    assert_eq!(passed, 100);
}

/// Steps of a run: time since the one before, who, and whether it may wait.
fn run() -> impl Strategy<Value = Vec<(u64, usize, bool)>> {
    let gap = prop::sample::select(vec![0, 0, 1, 7_000_000, 50_000_000, 100_000_000, 900_000_000]);
    prop::collection::vec((gap, 0..4_usize, any::<bool>()), 1..150)
}

/// A limit for all, beside one of each user.
const ALL: [(&str, f64, f64); 3] = [
    ("rate: 20/s, burst: 5", 20.0, 5.0),
    ("rate: 3/s, burst: 2", 3.0, 2.0),
    ("rate: 7/s, algorithm: leaky_bucket, backlog: 1s", 7.0, 8.0),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Beside another limiter, of which whoever waits asks for the shared limit alone and goes at
    /// once: as long as that limit does not make it wait, it has the same for others.
    #[test]
    fn nobody_else_loses_by_a_request_that_waits(
        run in run(),
        (all, ..) in prop::sample::select(ALL.to_vec()),
    ) {
        let text = format!(
            "domain: d\ndescriptors:\n  - {{key: user, rate_limit: {{rate: 1/s, burst: 2}}}}\n  - \
             {{key: all, rate_limit: {{{all}}}}}\n"
        );
        let (limiter, plain) = (limiter(&text, 100), limiter(&text, 100));
        let mut now = 0;
        for (gap, user, waits) in run {
            now += gap;
            let user = format!("user={user}");
            if !waits {
                let over = |of| ask(of, &["all=1"], 1, now).over;
                prop_assert_eq!(over(&limiter), over(&plain));
            } else if left(&plain, "all=1", now) > 0
                && reserve(&limiter, &[&user, "all=1"], 1, now, 5 * SECOND).wait.is_some()
            {
                prop_assert!(passes(&plain, &["all=1"], now));
            }
            prop_assert_eq!(state(&limiter, "all=1", now), state(&plain, "all=1", now));
        }
    }

    /// By the moments at which requests go, a limit that alone makes them wait passes no more than
    /// its bound, and another one no more than its bound in a time that is longer by the wait.
    #[test]
    fn the_bound_of_each_limit_holds_for_requests_that_wait(
        run in run(),
        (all, rate, burst) in prop::sample::select(ALL.to_vec()),
    ) {
        let text = format!(
            "domain: d\ndescriptors:\n  - {{key: user, rate_limit: {{rate: 1/s, burst: 2}}}}\n  - \
             {{key: all, rate_limit: {{{all}}}}}\n"
        );
        let limiter = limiter(&text, 100);
        let (mut now, mut longest) = (0, 0);
        let (mut of_all, mut of_user) = (Vec::new(), Vec::new());
        for (gap, user, waits) in run {
            now += gap;
            let (user_name, most) = (format!("user={user}"), if waits { 5 * SECOND } else { 0 });
            let reserved = reserve(&limiter, &[&user_name, "all=1"], 1, now, most);
            let Some(wait) = reserved.wait else { continue };
            longest = longest.max(wait);
            of_all.push(now + wait);
            if user == 0 {
                of_user.push(now + wait);
            }
        }
        let holds = |times: &mut [u64], rate: f64, burst: f64, longer: u64| {
            times.sort_unstable();
            let seconds = |nanos| Duration::from_nanos(nanos).as_secs_f64();
            (0..times.len()).all(|first| {
                (1_u32..).zip(&times[first..]).all(|(count, last)| {
                    let most = burst + rate * seconds(last - times[first] + longer);
                    f64::from(count) <= most + 1e-6
                })
            })
        };
        prop_assert!(holds(&mut of_all, rate, burst, longest), "{of_all:?}");
        prop_assert!(holds(&mut of_user, 1.0, 2.0, longest), "{of_user:?}");
    }
}
