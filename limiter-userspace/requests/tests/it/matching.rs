//! Which rule a descriptor falls under, and what several descriptors do together.

use limiter_requests::{Asked, Descriptor, Detail, Refused};
use smallvec::smallvec;

use crate::support::*;

/// The path of the rule that a descriptor falls under.
fn rule(limiter: &limiter_requests::Limiter, text: &str) -> String {
    let answer = ask(limiter, &[text], 1, 0);
    answer.statuses[0].rule.as_ref().map_or_else(|| "-".to_owned(), |rule| rule.path.to_string())
}

#[test]
fn the_most_specific_value_of_each_level_is_taken() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: a, rate_limit: {rate: 9/s}}
  - {key: a, value: x, rate_limit: {rate: 9/s}}
  - {key: a, value: x*, rate_limit: {rate: 9/s}}
  - {key: a, value: xy*, rate_limit: {rate: 9/s}}
  - {key: a, value: '*z', rate_limit: {rate: 9/s}}
  - key: b
    descriptors: [{key: c, rate_limit: {rate: 9/s}}]
  - key: b
    value: only
    descriptors: [{key: e, rate_limit: {rate: 9/s}}]
  - {key: remote_address, rate_limit: {rate: 9/s}}
  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {rate: 9/s}}
  - {key: remote_address, value: 192.0.2.7}
",
        1000,
    );
    for (descriptor, expected) in [
        ("a=x", "a=x"),
        ("a=xx", "a=x*"),
        ("a=xyz", "a=xy*"),
        ("a=z", "a=*z"),
        ("a=q", "a"),
        // As many entries as levels.
        ("a=x b=y", "-"),
        ("b=any", "-"),
        ("b=any c=1", "b c"),
        // No way back from the value that was taken.
        ("b=only c=1", "-"),
        ("b=only e=1", "b=only e"),
        ("c=1", "-"),
        ("remote_address=192.0.3.1", "remote_address"),
        ("remote_address=192.0.2.1", "remote_address=192.0.2.0/24"),
        ("remote_address=::ffff:192.0.2.1", "remote_address=192.0.2.0/24"),
        // A value and nothing else: an exception.
        ("remote_address=192.0.2.7", "-"),
        ("remote_address=pipe", "remote_address"),
    ] {
        assert_eq!(rule(&limiter, descriptor), expected, "{descriptor}");
    }
}

#[test]
fn each_value_has_a_bucket_and_a_shared_pattern_has_one() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: k, rate_limit: {rate: 1/s}}
  - {key: p, value: a*, rate_limit: {rate: 1/s}}
  - {key: q, value: a*, share_threshold: true, rate_limit: {rate: 1/s}}
  - {key: e, value: [x, y], rate_limit: {rate: 1/s}}
  - {key: remote_address, rate_limit: {rate: 1/s}}
",
        1000,
    );
    let first_and_second = |first: &str, second: &str| {
        assert!(passes(&limiter, &[first], 0), "{first}");
        assert!(!passes(&limiter, &[first], 0), "{first}");
        passes(&limiter, &[second], 0)
    };
    assert!(first_and_second("k=1", "k=2"));
    assert!(first_and_second("p=a1", "p=a2"));
    assert!(!first_and_second("q=a1", "q=a2"));
    assert!(first_and_second("e=x", "e=y"));
    assert!(first_and_second("remote_address=192.0.2.1", "remote_address=192.0.2.2"));
    assert!(!passes(&limiter, &["remote_address=::ffff:192.0.2.2"], 0), "the same source");
    assert!(!first_and_second("remote_address=2001:db8::1", "remote_address=2001:db8::2:0:0:1"));
    assert!(passes(&limiter, &["remote_address=2001:db8:0:1::1"], 0));
}

#[test]
fn a_request_over_one_limit_is_charged_to_none() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: small, rate_limit: {rate: 1/hour}}
  - {key: large, rate_limit: {rate: 10/hour}}
  - {key: both, rate_limits: [{rate: 1/min}, {rate: 5/hour}]}
",
        1000,
    );
    let both = ["large=1", "small=1"];
    assert!(passes(&limiter, &both, 0));
    let left = |texts: &[&str], number: usize| {
        ask(&limiter, texts, 1, 0).statuses[number].nearest.unwrap().1.remaining
    };
    assert_eq!(left(&both, 0), 9);
    for _ in 0..5 {
        let answer = ask(&limiter, &both, 1, 0);
        assert!(answer.over);
        assert_eq!(
            answer.statuses.iter().map(|status| status.over).collect::<Vec<_>>(),
            [false, true]
        );
        assert_eq!(answer.statuses[0].nearest.unwrap().1.remaining, 9);
    }
    // The same key twice in one request.
    let twice = ["small=2", "small=2"];
    assert!(!passes(&limiter, &twice, 0));
    assert!(passes(&limiter, &["small=2"], 0), "what was charged first was taken back");
    // Several limits of a rule: a second one in this minute takes nothing of the hour.
    assert!(passes(&limiter, &["both=1"], 0));
    for _ in 0..9 {
        assert!(!passes(&limiter, &["both=1"], SECOND));
    }
    for minute in 1..5 {
        assert!(passes(&limiter, &["both=1"], minute * 60 * SECOND), "{minute}");
    }
    assert!(!passes(&limiter, &["both=1"], 5 * 60 * SECOND), "five in this hour");
}

#[test]
fn shadow_quota_and_replaces_have_their_meaning() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: s, rate_limit: {rate: 1/hour}, shadow_mode: true}
  - {key: q1, rate_limit: {rate: 1/hour}, quota_mode: true}
  - {key: q2, rate_limit: {rate: 2/hour}, quota_mode: true}
  - {key: general, rate_limit: {name: general, rate: 1/hour}}
  - {key: special, rate_limit: {replaces: [{name: general}], rate: 3/hour}}
  - {key: free, rate_limit: {unlimited: true, replaces: [{name: general}]}}
  - {key: never, rate_limit: {unit: day, requests_per_unit: 0}}
",
        1000,
    );
    // Over its limit it passes, and is not charged.
    assert!((0..5).all(|_| passes(&limiter, &["s=1"], 0)));
    // Over only where all quotas are.
    let quotas = ["q1=1", "q2=1"];
    assert!(passes(&limiter, &quotas, 0));
    assert!(passes(&limiter, &quotas, 0), "one of them has something left");
    assert!(!passes(&limiter, &quotas, 0));
    assert!(!passes(&limiter, &["q1=1"], 0));
    // The other limit is not charged while it is replaced.
    for _ in 0..3 {
        assert!(passes(&limiter, &["general=1", "special=1"], 0));
    }
    assert!(!passes(&limiter, &["general=1", "special=1"], 0));
    assert!(passes(&limiter, &["general=1"], 0));
    assert!(!passes(&limiter, &["general=1"], 0));
    assert!(passes(&limiter, &["general=1", "free=1"], 0));
    assert!(!passes(&limiter, &["never=1"], 0));
    let answer = ask(&limiter, &["free=1"], 1, 0);
    assert!(answer.statuses[0].unlimited && !answer.over);
}

#[test]
fn hits_are_of_the_request_or_of_a_descriptor() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - {key: a, rate_limit: {rate: 10/hour}}
  - {key: b, rate_limit: {rate: 10/hour, algorithm: sliding_log}}
",
        1000,
    );
    let left = |hits: [Option<u64>; 2], all: u64| {
        let mut asked = Asked { domain: "d", descriptors: descriptors(&["a=1", "b=1"]), hits: all };
        for (descriptor, hits) in asked.descriptors.iter_mut().zip(hits) {
            descriptor.hits = hits;
        }
        let answer = limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).unwrap();
        let left = |index: usize| answer.statuses[index].nearest.unwrap().1.remaining;
        (answer.over, left(0), left(1))
    };
    assert_eq!(left([None, None], 0), (false, 9, 9), "none said is one");
    assert_eq!(left([None, Some(0)], 3), (false, 6, 9), "none of this one");
    assert_eq!(left([Some(1), Some(8)], 3), (false, 5, 1));
    assert_eq!(left([None, None], 2), (true, 5, 1), "all or nothing");
    assert_eq!(left([Some(5), Some(1)], 1), (false, 0, 0));
    assert_eq!(left([Some(0), Some(0)], 1), (true, 0, 0), "nothing is left");
}

#[test]
fn a_request_brings_a_limit_of_its_own() {
    let limiter = limiter("domain: d\ndescriptors: [{key: a, rate_limit: {rate: 1/hour}}]\n", 10);
    let other = with_limit("rate: 3/hour");
    let answer = ask(&other, &["k=1"], 1, 0);
    let limit = answer.statuses[0].nearest.unwrap().0;
    let asked = Asked {
        domain: "d",
        descriptors: smallvec![Descriptor {
            entries: smallvec![("a", "1")],
            limit: Some(limit),
            ..Descriptor::default()
        }],
        hits: 1,
    };
    let pass = || !limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).unwrap().over;
    assert_eq!([pass(), pass(), pass(), pass()], [true, true, true, false]);
    assert!(passes(&limiter, &["a=1"], 0), "that of the rule is another");
}

#[test]
fn what_cannot_be_decided_is_refused_and_what_nobody_limits_passes() {
    let limiter = with_limit("rate: 1/hour");
    let refused = |domain, texts: &[&'static str]| {
        let asked = Asked { domain, descriptors: descriptors(texts), hits: 1 };
        limiter.decide(&limiter.rules(), &asked, &at(0), Detail::Left).map(|answer| answer.over)
    };
    assert_eq!(refused("", &["k=1"]), Err(Refused::NoDomain));
    assert_eq!(refused("d", &[]), Err(Refused::NoDescriptors));
    assert_eq!(refused("d", &vec!["k=1"; 1025]), Err(Refused::TooMany(1025)));
    for _ in 0..3 {
        assert_eq!(refused("other", &["k=1"]), Ok(false), "as in envoyproxy/ratelimit");
        assert_eq!(refused("d", &["unknown=1"]), Ok(false));
        assert_eq!(refused("d", &["=1"]), Ok(false));
    }
    // Nothing of it was charged.
    assert_eq!(refused("d", &["k=1"]), Ok(false));
    assert_eq!(refused("d", &["k=1"]), Ok(true));
}
