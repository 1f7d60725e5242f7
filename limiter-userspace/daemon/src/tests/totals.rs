//! One total for each source: `show`, `sources` and `top` agree, and no rate mixes two counters.

use limiter_api::lists::{ListName, SetList};
use limiter_api::rules::ApplyRules;
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::sources::{AskSources, By, SourceRow};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Ban, Event};

use super::Daemon;
use super::rule_sets::documents;
use super::sources::listed;

/// The first drops what the others would let pass.
const TWO: &str = "descriptors:
  - key: protocol
    value: udp
    descriptors: [{key: remote_address, rate_limit: {name: datagrams, rate: 20/hour, burst: 2}}]
  - {key: remote_address, rate_limit: {rate: 1000/s, burst: 1000}}
";

const PLAIN: &str = "descriptors: [{key: remote_address, rate_limit: {rate: 5/hour, burst: 5}}]";

const BUDGET: &str = "budgets: [{name: all, rate_limit: {rate: 3/hour, burst: 3}}]
descriptors: [{key: remote_address, budget: all}]";

const ADDRESS: &str = "203.0.113.10";

const SOURCE: Source = Source::V4([203, 0, 113, 10]);

fn with(rules: &str) -> Daemon {
    let mut daemon = Daemon::start(&[]);
    daemon.write(rules);
    daemon.service.reload().unwrap();
    daemon
}

fn at(daemon: &Daemon, seconds: u64) {
    daemon.fake.state().now = Ticks::from_nanos(seconds * 1_000_000_000);
}

fn look(daemon: &mut Daemon, by: By) -> Top {
    daemon.service.top(&AskTop { by, ..AskTop::default() }).unwrap()
}

fn row(rows: &[SourceRow]) -> SourceRow {
    rows.iter().find(|row| row.source == ADDRESS).cloned().unwrap_or_default()
}

/// The event of a drop, as the program reports it.
fn report(daemon: &Daemon, reason: Reason, rule: u32) {
    let mut state = daemon.fake.state();
    let reason = u8::try_from(reason.index()).unwrap();
    let event = Event {
        source: SOURCE.trie_key(),
        time: state.now.get(),
        reason,
        rule,
        ..Event::default()
    };
    state.events.push_back(event);
}

fn counts(row: &SourceRow) -> (u64, u64, bool, bool) {
    (row.passed, row.dropped, row.passed_at_least, row.dropped_at_least)
}

fn shown(view: &SourceView) -> (u64, u64, bool, bool) {
    (view.passed, view.dropped, view.passed_at_least, view.dropped_at_least)
}

#[test]
fn drops_of_all_rules_are_one_total_in_every_answer() {
    let mut daemon = with(TWO);
    at(&daemon, 1);
    daemon.fake.send(SOURCE, 10, 60);
    daemon.fake.send(Source::V4([203, 0, 113, 11]), 5, 60);
    let top = look(&mut daemon, By::Dropped);
    assert_eq!(counts(&row(&top.sources)), (2, 8, false, false), "{top:?}");
    assert_eq!(top.sources[0].source, ADDRESS, "the most drops first");
    let list = listed(&daemon, &AskSources::default(), || {}).unwrap();
    assert_eq!(counts(&row(&list.sources)), (2, 8, false, false), "{list:?}");
    let view = daemon.service.source(ADDRESS).unwrap();
    assert_eq!(shown(&view), (2, 8, false, false), "{view:?}");
    let by_rule: u64 = view.by_rule.iter().map(|by| by.dropped).sum();
    assert_eq!(by_rule, view.dropped, "{view:?}");
    for rows in [&top.sources, &list.sources, &view.rows] {
        let [by] = <[_; 1]>::try_from(row(rows).by).unwrap();
        assert_eq!((by.dropped, by.exact, by.rule_name.as_deref()), (8, true, Some("datagrams")));
    }
    // All drops of all sources are those of the rules that count each source.
    let by = (list.dropped_by.sources, list.dropped_by.others, list.dropped_by.lists);
    assert_eq!(by, (Some(8 + 3), Some(0), 0));
    // They rank, and have a rate.
    at(&daemon, 2);
    daemon.fake.send(SOURCE, 400, 60);
    daemon.fake.send(Source::V4([203, 0, 113, 11]), 40, 60);
    let top = look(&mut daemon, By::DropRate);
    assert_eq!(top.sources[0].source, ADDRESS);
    assert_eq!(top.sources[0].dropped_per_second, Some(400.0));
    assert_eq!(top.sources[0].passed_per_second, Some(0.0));
    let send = || {
        at(&daemon, 3);
        daemon.fake.send(SOURCE, 7, 60);
    };
    let asked = AskSources { by: By::DropRate, ..AskSources::default() };
    let list = listed(&daemon, &asked, send).unwrap();
    assert_eq!(list.sources[0].dropped_per_second, Some(7.0), "{list:?}");
}

/// A source without a rule on sources is listed as well, and the answer says what else may have
/// passed.
#[test]
fn a_source_without_a_rule_of_its_own_is_counted_by_others() {
    let mut daemon = with(
        "descriptors: [{key: protocol, value: udp, descriptors: [{key: remote_address, \
         rate_limit: {rate: 20/hour, burst: 2}}]}]",
    );
    at(&daemon, 1);
    daemon.fake.send(SOURCE, 10, 60);
    let expected = (2, 8, true, false);
    assert_eq!(counts(&row(&look(&mut daemon, By::Dropped).sources)), expected);
    let list = listed(&daemon, &AskSources::default(), || {}).unwrap();
    assert_eq!((counts(&row(&list.sources)), list.within), (expected, 1));
    assert_eq!(shown(&daemon.service.source(ADDRESS).unwrap()), expected);
}

/// A list, a ban and what many share keep no count of a source: the total is a part, and says so.
#[test]
fn drops_that_nobody_counts_by_source_make_a_total_at_least() {
    let mut daemon = with(PLAIN);
    at(&daemon, 1);
    daemon.fake.send(SOURCE, 7, 60);
    for _ in 0..4 {
        report(&daemon, Reason::Denied, limiter_common::wire::RULE_NONE);
    }
    let expected = (5, 6, false, true);
    assert_eq!(counts(&row(&look(&mut daemon, By::Dropped).sources)), expected);
    let view = daemon.service.source(ADDRESS).unwrap();
    assert_eq!(shown(&view), expected);
    let denied = view.by_rule.iter().find(|by| by.reason == "denied").unwrap();
    assert_eq!((denied.dropped, denied.exact, denied.rule.as_deref()), (4, false, None));
    // The bucket has all that the rule of the source dropped: events of that add nothing.
    let rule = {
        let state = daemon.fake.state();
        let every = limiter_rules::Path::of_source(&limiter_rules::Selector::Every);
        state.installed().number(&every, &|_| None).unwrap()
    };
    report(&daemon, Reason::OverLimit, rule);
    at(&daemon, 2);
    report(&daemon, Reason::Denied, limiter_common::wire::RULE_NONE);
    let mine = row(&look(&mut daemon, By::Dropped).sources);
    assert_eq!(counts(&mine), (5, 7, false, true));
    assert_eq!(mine.dropped_per_second, Some(1.0));
    // They stay known when the episode has ended.
    at(&daemon, 90);
    daemon.service.housekeep().unwrap();
    assert_eq!(shown(&daemon.service.source(ADDRESS).unwrap()), (5, 7, false, true));
    // No drop of this source, which is denied now, was reported.
    let (sources, list) = (vec!["203.0.113.12".to_owned()], ListName::Deny);
    let denied = SetList { list, sources, seconds: None, ..SetList::default() };
    daemon.service.list(&denied).unwrap();
    assert_eq!(shown(&daemon.service.source("203.0.113.12").unwrap()), (0, 0, true, true));
    let until = Ticks::from_nanos(900_000_000_000).get();
    let banned = Source::V4([203, 0, 113, 13]);
    daemon.fake.state().model.put_ban(&banned, &Ban { until, history: 0, rule: 0 });
    assert!(daemon.service.source("203.0.113.13").unwrap().dropped_at_least);
    // A bucket of a /24 is not the source's.
    let mut daemon = with(
        "descriptors: [{key: masked_remote_address, v4_prefix_mask_len: 24, rate_limit: {rate: \
         20/hour, burst: 2}}]",
    );
    at(&daemon, 1);
    daemon.fake.send(Source::V4([203, 0, 113, 11]), 10, 60);
    let view = daemon.service.source(ADDRESS).unwrap();
    assert_eq!(shown(&view), (0, 0, true, true), "{view:?}");
    assert_eq!(view.by_rule[0].of.as_deref(), Some("203.0.113.0/24"));
    assert_eq!(view.by_rule[0].dropped, 8);
    assert_eq!(look(&mut daemon, By::Dropped).sources, []);
}

/// Sends ten packets in the next second, and returns how many a second `top` has of the source.
fn ten_more(daemon: &mut Daemon, seconds: &mut u64) -> Option<f64> {
    *seconds += 1;
    at(daemon, *seconds);
    daemon.fake.send(SOURCE, 10, 60);
    let row = row(&look(daemon, By::Rate).sources);
    row.passed_per_second.zip(row.dropped_per_second).map(|(passed, dropped)| passed + dropped)
}

/// Each rate is that of the packets sent, or unknown for a look or two.
fn known(daemon: &mut Daemon, seconds: &mut u64, what: &str) {
    for look in 0..4 {
        let rate = ten_more(daemon, seconds);
        assert!(rate.is_none_or(|rate| (rate - 10.0).abs() < 1e-6), "{what}, {look}: {rate:?}");
        assert!(look < 2 || rate.is_some(), "{what}, {look}");
    }
}

/// Whatever happens to the rules, a rate is that of the packets sent, or unknown.
#[test]
fn no_rate_is_of_two_counters() {
    let mut daemon = with(PLAIN);
    let mut seconds = 1;
    at(&daemon, seconds);
    daemon.fake.send(SOURCE, 50_000, 60);
    ten_more(&mut daemon, &mut seconds);
    assert_eq!(ten_more(&mut daemon, &mut seconds), Some(10.0));
    let try_out = |daemon: &mut Daemon, rules: &str| {
        let confirm_seconds = std::num::NonZeroU32::new(1000);
        let documents = documents(&[rules]);
        let apply = ApplyRules { documents, force: false, confirm_seconds, session: None };
        daemon.service.apply_rules(&apply).unwrap();
    };
    for (rules, what) in [(BUDGET, "budget"), (TWO, "two"), ("descriptors: []", "none")] {
        try_out(&mut daemon, rules);
        if what != "none" {
            known(&mut daemon, &mut seconds, what);
        }
        daemon.service.revert().unwrap();
        known(&mut daemon, &mut seconds, &format!("{what} taken back"));
    }
    for (rules, what) in [
        (TWO.to_owned(), "two"),
        (TWO.replace("datagrams", "renamed"), "renamed"),
        (PLAIN.to_owned(), "without the other"),
        (TWO.to_owned(), "with it again"),
        (BUDGET.to_owned(), "budget"),
        (PLAIN.replace("5/hour", "6/hour"), "other rate"),
    ] {
        daemon.write(&rules);
        daemon.service.reload().unwrap();
        known(&mut daemon, &mut seconds, what);
    }
    // Keys that were counted before are there again once a trial is taken back.
    daemon.write(TWO);
    daemon.service.reload().unwrap();
    seconds += 1;
    at(&daemon, seconds);
    daemon.fake.send(SOURCE, 50_000, 60);
    look(&mut daemon, By::Rate);
    known(&mut daemon, &mut seconds, "two for long");
    try_out(&mut daemon, PLAIN);
    known(&mut daemon, &mut seconds, "without the keys");
    daemon.service.revert().unwrap();
    known(&mut daemon, &mut seconds, "keys are back");
    let before = look(&mut daemon, By::Rate).began_ns;
    let mut daemon = daemon.restart(&[]);
    assert_ne!(look(&mut daemon, By::Rate).began_ns, before, "another run of the daemon");
    known(&mut daemon, &mut seconds, "restart");
}
