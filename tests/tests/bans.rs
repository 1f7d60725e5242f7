//! Bans by the clock, in the kernel and in the model.

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Ban, ListEntry, Listed};
use limiter_datapath::Datapath as _;
use limiter_decision::packet;
use limiter_rules::Selector;
use limiter_tests::packet::{Frame, Transport};
use limiter_tests::pair::Pair;
use limiter_tests::root::require_root;

const SECOND: u64 = 1_000_000_000;
const TO: [u8; 4] = [192, 0, 2, 254];

const OVER: Reason = Reason::OverLimit;
const BANNED: Reason = Reason::Banned;

fn frame(last: u8) -> Vec<u8> {
    Frame::ipv4([198, 51, 100, last], TO).build()
}

const fn source(last: u8) -> Source {
    Source::V4([198, 51, 100, last])
}

/// Nothing passes within the hour after the first packet; the third over the limit bans for 2 s.
/// In the source table, and in a table.
fn both(more: &str) -> [String; 2] {
    let rule = "rate_limit: {unit: hour, requests_per_unit: 1}, action: {ban: {first: 2s, \
                longest: 10s, memory: 20s, strikes: 3, evidence: none}}";
    [
        format!("{more}\ndescriptors: [{{key: remote_address, {rule}}}]\n"),
        format!(
            "{more}\ndescriptors: [{{key: protocol, \
             descriptors: [{{key: remote_address, {rule}}}]}}]\n"
        ),
    ]
}

/// After so many packets over the limit, for so long, to the nanosecond.
#[test]
fn the_last_strike_bans_and_the_ban_ends_on_time() {
    require_root();
    for rules in both("") {
        let mut pair = Pair::load(&rules).unwrap();
        let reasons = pair.reasons_of(&frame(1), 6).unwrap();
        // The packet that causes the ban is over its limit; those after it are banned.
        assert_eq!(reasons, [Reason::Conforming, OVER, OVER, OVER, BANNED, BANNED]);
        assert_eq!(pair.reasons_of(&frame(2), 1).unwrap(), [Reason::Conforming]);
        pair.after(2 * SECOND - 1).unwrap();
        assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [BANNED]);
        pair.after(1).unwrap();
        assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [OVER]);
    }
}

/// A limit that is only tried drops nobody, for its bans neither.
#[test]
fn a_rule_in_shadow_mode_bans_nobody() {
    require_root();
    for rules in both("") {
        let rules = rules.replace("evidence: none}}", "evidence: none}}, shadow_mode: true");
        let mut pair = Pair::load(&rules).unwrap();
        let reasons = pair.reasons_of(&frame(1), 6).unwrap();
        let (first, more) = reasons.split_first().unwrap();
        assert_eq!((*first, more), (Reason::Conforming, &[Reason::Shadow; 5][..]), "{rules}");
    }
}

/// 2, 4, 8, 10, 10 seconds; and 2 again once 20 seconds without a ban have passed.
#[test]
fn bans_double_up_to_the_longest_and_are_forgotten() {
    require_root();
    for rules in both("") {
        let mut pair = Pair::load(&rules).unwrap();
        pair.send(&frame(1)).unwrap();
        for seconds in [2, 4, 8, 10, 10, 10] {
            assert_eq!(pair.reasons_of(&frame(1), 4).unwrap(), [OVER, OVER, OVER, BANNED]);
            let end = pair.now().plus(Ticks::from_nanos(seconds * SECOND));
            assert_eq!(pair.banned_until(source(1)).unwrap(), end);
            pair.at(end).unwrap();
        }
        pair.after(20 * SECOND + 1).unwrap();
        pair.reasons_of(&frame(1), 3).unwrap();
        let end = pair.now().plus(Ticks::from_nanos(2 * SECOND));
        assert_eq!(pair.banned_until(source(1)).unwrap(), end);
    }
}

/// Strikes are forgotten 20 seconds after the first of them.
#[test]
fn strikes_are_forgotten() {
    require_root();
    for rules in both("") {
        let mut pair = Pair::load(&rules).unwrap();
        pair.reasons_of(&frame(1), 3).unwrap();
        pair.after(20 * SECOND + 1).unwrap();
        let reasons = pair.reasons_of(&frame(1), 4).unwrap();
        assert_eq!(reasons, [OVER, OVER, OVER, BANNED]);
    }
}

/// As many new bans as `bans` says; who was spared is banned when there is room again.
#[test]
fn new_bans_are_capped() {
    require_root();
    for rules in both("bans: {unit: second, requests_per_unit: 1, burst: 4}") {
        let mut pair = Pair::load(&rules).unwrap();
        let banned = |pair: &mut Pair| {
            let all = (1..=10).map(|last| pair.reasons_of(&frame(last), 5).unwrap());
            all.filter(|reasons| reasons.contains(&BANNED)).count()
        };
        assert_eq!(banned(&mut pair), 4);
        assert_eq!(banned(&mut pair), 4);
        pair.after(SECOND).unwrap();
        assert_eq!(banned(&mut pair), 5);
    }
}

/// Allowed and management sources are never asked, so they are never banned; a ban does not
/// outlive its source's listing.
#[test]
fn protected_prefixes_are_never_banned() {
    require_root();
    let prefix = Selector::prefix("198.51.100.0/24".parse().unwrap()).unwrap();
    for rules in both("") {
        for listed in [Listed::Allow, Listed::Management] {
            let mut pair = Pair::load(&rules).unwrap();
            pair.reasons_of(&frame(1), 4).unwrap();
            pair.list(&prefix, ListEntry::new(listed, None)).unwrap();
            for last in [1, 2] {
                let reasons = pair.reasons_of(&frame(last), 20).unwrap();
                assert!(reasons.iter().all(|reason| *reason == Reason::Allowed));
            }
            assert_eq!(pair.bans().unwrap().len(), 1, "only the ban from before");
        }
    }
}

/// Without evidence that the source is its own, nobody is banned: not by UDP, not by SYNs, and not
/// by segments of connections that this host does not have.
#[test]
fn forged_packets_ban_nobody() {
    require_root();
    for rules in both("") {
        let rules = rules.replace("evidence: none", "evidence: established");
        let mut pair = Pair::load(&rules).unwrap();
        for flags in [0, 2, 16, 18] {
            let segment = Transport::Tcp { source: 40_000, destination: 9, flags };
            let frame = Frame::ipv4([198, 51, 100, 1], TO).transport(segment).build();
            let reasons = pair.reasons_of(&frame, 20).unwrap();
            assert!(!reasons.contains(&BANNED));
        }
        assert!(!pair.reasons_of(&frame(1), 20).unwrap().contains(&BANNED));
        assert_eq!(pair.bans().unwrap(), []);
    }
}

/// In the model, an established connection is evidence; its SYN is not.
#[test]
fn the_model_knows_connections() {
    let frame = |flags| {
        let segment = Transport::Tcp { source: 40_000, destination: 80, flags };
        Frame::ipv4([198, 51, 100, 1], TO).transport(segment).build()
    };
    let mut facts = packet::Facts::EMPTY;
    packet::facts(&frame(16).as_slice(), &mut facts).unwrap();
    let [rules, _] = both("");
    let rules = rules.replace("evidence: none", "evidence: established");
    let mut model = limiter_model::Model::new();
    let set = limiter_rules::RuleFile::parse("r.yaml", rules.as_bytes(), 1522).unwrap();
    let machine = limiter_rules::Environment::of_frame(1522);
    let plan = model.installed().plan(&set.rules, 1, 64, &machine).unwrap();
    model.commit(plan, Ticks::ZERO);
    model.connect(facts.flow());
    let mut judge = |flags| model.judge(&frame(flags), Ticks::from_nanos(SECOND)).reason;
    assert_eq!(judge(16), Reason::Conforming);
    assert!((0..10).all(|_| judge(2) == OVER));
    assert!((0..3).all(|_| judge(16) == OVER));
    assert_eq!(judge(16), BANNED);
}

/// A source that is unbanned begins anew.
#[test]
fn an_unbanned_source_begins_anew() {
    require_root();
    let [rules, _] = both("");
    let mut pair = Pair::load(&rules).unwrap();
    pair.reasons_of(&frame(1), 5).unwrap();
    assert!(pair.program.kernel().unban(&source(1)).unwrap());
    assert!(pair.model.unban(&source(1)));
    assert!(!pair.program.kernel().unban(&source(1)).unwrap());
    assert_eq!(pair.reasons_of(&frame(1), 4).unwrap(), [OVER, OVER, OVER, BANNED]);
    let end = pair.now().plus(Ticks::from_nanos(2 * SECOND));
    assert_eq!(pair.banned_until(source(1)).unwrap(), end);
}

/// A ban by hand needs no rule that bans, neither before nor now.
#[test]
fn a_ban_by_hand_needs_no_rule() {
    require_root();
    let mut pair = Pair::load("descriptors: []\n").unwrap();
    assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [Reason::NoRule]);
    let until = pair.now().plus(Ticks::from_nanos(2 * SECOND)).get();
    let ban = Ban { until, ..Ban::default() };
    pair.program.kernel().put_ban(&source(1), ban).unwrap();
    pair.model.put_ban(&source(1), &ban);
    assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [BANNED]);
    assert_eq!(pair.reasons_of(&frame(2), 1).unwrap(), [Reason::NoRule]);
    pair.after(2 * SECOND).unwrap();
    assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [Reason::NoRule]);
}

/// A ban holds without the rule that caused it, until it ends.
#[test]
fn a_ban_outlives_its_rule() {
    require_root();
    let [rules, _] = both("");
    let mut pair = Pair::load(&rules).unwrap();
    pair.reasons_of(&frame(1), 5).unwrap();
    pair.apply("descriptors: []\n").unwrap();
    assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [BANNED]);
    pair.after(2 * SECOND).unwrap();
    assert_eq!(pair.reasons_of(&frame(1), 1).unwrap(), [Reason::NoRule]);
}
