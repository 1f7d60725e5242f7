//! Sources that stand out, over the data path in memory.

use limiter_api::check::CheckSource;
use limiter_api::explain::AskExplain;
use limiter_api::lists::{ListName, SetList};
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::sources::{AskSources, By, SourceList};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Ban, Event};

use super::{Daemon, select};
use crate::control::Refusal;
use crate::control::{Sliced as _, Step};
use crate::routes::sources::SourcesText;

fn at(daemon: &Daemon, millis: u64) {
    daemon.fake.state().now = Ticks::from_nanos(millis * 1_000_000);
}

fn source(number: u16) -> Source {
    let [high, low] = number.to_be_bytes();
    Source::V4([10, 0, high, low])
}

fn names(rows: &[limiter_api::sources::SourceRow]) -> Vec<&str> {
    rows.iter().map(|row| row.source.as_str()).collect()
}

/// Works an answer out; `waiting` is what happens between two readings.
pub(super) fn listed(
    daemon: &Daemon,
    asked: &AskSources,
    waiting: impl Fn(),
) -> Result<SourceList, Refusal> {
    let mut slices = SourcesText::begin(&daemon.service, asked)?;
    for _ in 0..100 {
        match slices.step(&daemon.service)? {
            Step::Again => {}
            Step::After(_) => waiting(),
            Step::Part(text) => {
                assert_eq!(slices.step(&daemon.service)?, Step::Done);
                return Ok(serde_json::from_slice(&text).unwrap());
            }
            Step::Done => break,
        }
    }
    panic!("no end");
}

/// 9,000 sources that sent one packet each, and three that were over the limit of 20 at once.
fn crowd() -> Daemon {
    let daemon = Daemon::start(&[]);
    at(&daemon, 1000);
    for number in 0..9000 {
        daemon.fake.send(source(number), 1, 60);
    }
    for (number, packets) in [(100, 50), (8000, 90), (4000, 70)] {
        daemon.fake.send(source(number), packets, 60);
    }
    daemon.fake.send(Source::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]), 12, 60);
    daemon
}

fn asked(by: By, limit: u32) -> AskSources {
    AskSources { by, limit: Some(limit), prefix: None }
}

#[test]
fn the_first_of_all_are_reported() {
    let daemon = crowd();
    let list = listed(&daemon, &asked(By::Dropped, 3), || {}).unwrap();
    assert_eq!((list.tracked_v4, list.tracked_v6, list.within), (9000, 1, 9001));
    assert_eq!(names(&list.sources), ["10.0.31.64", "10.0.15.160", "10.0.0.100"]);
    let first = &list.sources[0];
    assert_eq!((first.passed, first.dropped, first.utilization), (20, 71, Some(1.0)));
    assert_eq!(first.rule.as_deref(), Some("every source"));
    assert_eq!(first.dropped_per_second, None);
    let near = listed(&daemon, &asked(By::Utilization, 4), || {}).unwrap();
    assert_eq!(near.sources[3].source, "2001:db8:0:9::/64");
    assert_eq!(near.sources[3].utilization, Some(0.6));
    // The request for one source has the same numbers.
    let view = daemon.service.source("2001:db8:0:9::1").unwrap();
    assert_eq!((view.burst, view.remaining), (Some(20), Some(8)));
}

#[test]
fn a_prefix_bounds_what_is_reported() {
    let daemon = crowd();
    let asked = AskSources { prefix: Some("10.0.0.0/24".into()), ..asked(By::Dropped, 2) };
    let list = listed(&daemon, &asked, || {}).unwrap();
    assert_eq!((list.within, list.tracked_v4), (256, 9000));
    assert_eq!(list.sources[0].source, "10.0.0.100");
    for (prefix, limit) in [("10.0.0.1/24", Some(1)), ("x", None)] {
        let asked = AskSources { prefix: Some(prefix.into()), limit, by: By::Rate };
        let begun = SourcesText::begin(&daemon.service, &asked);
        assert!(matches!(begun, Err(Refusal::Invalid(_))), "{prefix}");
    }
    for limit in [0, 1001] {
        let asked = AskSources { limit: Some(limit), ..AskSources::default() };
        let begun = SourcesText::begin(&daemon.service, &asked);
        assert!(matches!(begun, Err(Refusal::Invalid(_))), "{limit}");
    }
}

#[test]
fn rates_take_two_readings() {
    let daemon = crowd();
    let send = || {
        at(&daemon, 1250);
        daemon.fake.send(source(4000), 50, 60);
        daemon.fake.send(source(8000), 30, 60);
    };
    let list = listed(&daemon, &asked(By::Rate, 2), send).unwrap();
    assert_eq!(names(&list.sources), ["10.0.15.160", "10.0.31.64"]);
    let first = &list.sources[0];
    let sum = first.passed_per_second.unwrap() + first.dropped_per_second.unwrap();
    assert!((sum - 200.0).abs() < 1e-6, "{first:?}");
    assert!(list.headline.is_some_and(|said| said.contains("of them from")));
    // Nobody is tracked: the sentence still takes two readings.
    let empty = Daemon::start(&[]);
    at(&empty, 1000);
    let wait = || at(&empty, 1250);
    let list = listed(&empty, &asked(By::DropRate, 2), wait).unwrap();
    assert_eq!(list.headline.as_deref(), Some("No packets come, and none are dropped"));
    assert!(list.sources.is_empty());
    // An order without rates waits for nothing.
    let wait = || panic!("waits for nothing");
    assert_eq!(listed(&empty, &asked(By::Dropped, 2), wait).unwrap().headline, None);
}

fn look(daemon: &mut Daemon, by: By) -> Top {
    daemon.service.top(&AskTop { by, limit: Some(5), ..AskTop::default() }).unwrap()
}

#[test]
fn whoever_begins_to_send_is_found_within_a_round() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1000);
    for number in 0..60_000 {
        daemon.fake.send(source(number), 1, 60);
    }
    // More sources than are kept have sent more than this one, and are silent now.
    for number in 0..300 {
        daemon.fake.send(source(number), 19, 60);
    }
    let mut found = None;
    for turn in 1..=10 {
        at(&daemon, 1000 + 1000 * turn);
        // The source that is read last, whose bucket has drained by then.
        daemon.fake.send(source(59_999), 1, 60);
        at(&daemon, 1500 + 1000 * turn);
        let top = look(&mut daemon, By::Rate);
        if names(&top.sources).first() == Some(&"10.0.234.95") {
            found = Some((turn, top));
            break;
        }
    }
    let (turn, top) = found.expect("it was not found");
    // Three slices, and a look more to compare.
    assert!((2..=5).contains(&turn), "at look {turn}");
    assert_eq!(top.sources[0].passed_per_second, Some(1.0), "{:?}", top.sources[0]);
    assert!(top.rounds > 0.5, "{}", top.rounds);
}

#[test]
fn who_comes_behind_the_reading_is_found_at_the_next_look() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1000);
    for number in 1..60_000 {
        daemon.fake.send(source(number), 1, 60);
    }
    look(&mut daemon, By::DropRate);
    at(&daemon, 2000);
    // The source that would be read first.
    daemon.fake.send(source(0), 40, 60);
    let top = look(&mut daemon, By::Dropped);
    assert_eq!(names(&top.sources).first(), Some(&"10.0.0.0"), "{:?}", top.sources);
    assert!(top.sources[0].dropped_per_second.is_some_and(|rate| rate > 10.0), "{top:?}");
}

#[test]
fn whose_drops_are_reported_is_known_at_once() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1000);
    for number in 0..60_000 {
        daemon.fake.send(source(number), 1, 60);
    }
    // The source that would be read last.
    let late = source(59_998);
    daemon.fake.send(late, 40, 60);
    let event =
        Event { source: late.trie_key(), time: daemon.fake.state().now.get(), ..Event::default() };
    daemon.fake.state().events.push_back(event);
    let top = look(&mut daemon, By::Dropped);
    assert_eq!(names(&top.sources)[0], "10.0.234.94");
    at(&daemon, 2000);
    daemon.fake.send(late, 300, 60);
    let top = look(&mut daemon, By::DropRate);
    assert_eq!(top.sources[0].source, "10.0.234.94");
    assert!(top.sources[0].dropped_per_second.unwrap() > 200.0, "{:?}", top.sources[0]);
}

#[test]
fn looks_that_come_too_soon_change_nothing() {
    let mut daemon = crowd();
    look(&mut daemon, By::Rate);
    at(&daemon, 2000);
    daemon.fake.send(source(8000), 100, 60);
    let first = look(&mut daemon, By::Rate);
    at(&daemon, 2100);
    let second = look(&mut daemon, By::Rate);
    let rates = |top: &Top| -> Vec<_> {
        top.sources.iter().map(|row| (row.source.clone(), row.dropped_per_second)).collect()
    };
    assert_eq!(rates(&first), rates(&second));
    assert_eq!(first.sources[0].source, "10.0.31.64");
}

#[test]
fn nothing_is_kept_when_nobody_looks() {
    let mut daemon = crowd();
    look(&mut daemon, By::Rate);
    at(&daemon, 6000);
    daemon.service.housekeep().unwrap();
    assert!(!daemon.service.gauges.views.is_empty());
    at(&daemon, 12_000);
    daemon.service.housekeep().unwrap();
    assert!(daemon.service.gauges.views.is_empty());
}

#[test]
fn a_source_is_asked_about_as_it_is_printed() {
    let mut daemon = crowd();
    let all = listed(&daemon, &asked(By::Passed, 10), || {}).unwrap();
    let printed = "2001:db8:0:9::/64";
    assert!(names(&all.sources).contains(&printed), "{:?}", names(&all.sources));
    let shown = daemon.service.source(printed).unwrap();
    assert_eq!((shown.source.as_str(), shown.passed), (printed, 12));
    let watch = Some(printed.to_owned());
    let top = daemon.service.top(&AskTop { watch, ..AskTop::default() }).unwrap();
    assert_eq!(top.watched[0].source, printed);
    let asked = AskExplain { from: printed.to_owned(), ..AskExplain::default() };
    assert_eq!(daemon.service.explain(&asked).unwrap().source, printed);
    let asked = CheckSource { address: printed.to_owned(), ..CheckSource::default() };
    assert_eq!(daemon.service.check(&asked).unwrap().source, printed);
    for other in ["2001:db8::/48", "10.0.0.0/24"] {
        let refused = daemon.service.source(other).unwrap_err().to_string();
        assert!(refused.contains("is more than one source"), "{refused}");
    }
}

#[test]
fn a_watched_source_is_reported_with_its_list_and_its_ban() {
    let mut daemon = crowd();
    let watched = |daemon: &mut Daemon| {
        let watch = Some("10.0.0.7".to_owned());
        let top = daemon.service.top(&AskTop { watch, ..AskTop::default() }).unwrap();
        top.watched[0].clone()
    };
    let row = watched(&mut daemon);
    assert_eq!((row.source.as_str(), row.listed, row.banned_seconds), ("10.0.0.7", None, None));
    at(&daemon, 2000);
    daemon.fake.send(source(7), 5, 60);
    let sources = vec!["10.0.0.7".to_owned()];
    daemon
        .service
        .list(&SetList { list: ListName::Deny, sources, seconds: None, ..SetList::default() })
        .unwrap();
    let until = Ticks::from_nanos(4_500_000_000).get();
    let ban = Ban { until, history: 0, rule: 0 };
    daemon.fake.state().model.put_ban(&source(7), &ban);
    let row = watched(&mut daemon);
    assert_eq!((row.listed, row.banned_seconds), (Some(ListName::Deny), Some(3)));
    assert_eq!(row.passed_per_second, Some(5.0));
    // An untracked source is reported as well.
    let watch = Some("203.0.113.9".to_owned());
    let top = daemon.service.top(&AskTop { watch, ..AskTop::default() }).unwrap();
    assert_eq!(top.watched[0].passed, 0);
    assert!(select("203.0.113.9").is_source());
}

/// A source whose rule is more than a token bucket is reported like any other, from the table that
/// has it.
#[test]
fn sources_of_rules_with_several_limits_are_reported_too() {
    let rules = "descriptors:
  - key: remote_address
    rate_limits:
      - {unit: minute, requests_per_unit: 60, burst: 20}
      - {unit: second, requests_per_unit: 5, count: syns}
  - {key: remote_address, value: 10.0.1.0/24, rate_limit: {unit: second, requests_per_unit: 10, \
                 burst: 20}}
";
    // A rest of the time when its rule was a token bucket.
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1000);
    daemon.fake.send(source(1), 1, 60);
    daemon.write(rules);
    daemon.service.reload().unwrap();
    at(&daemon, 45_000);
    daemon.fake.send(source(1), 60, 60);
    daemon.fake.send(Source::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]), 3, 60);
    at(&daemon, 60_000);
    // The keyed table, which is looked up first, remembers that the source has no rule there.
    daemon.fake.send(source(256), 30, 60);

    let view = daemon.service.source("10.0.0.1").unwrap();
    assert_eq!(view.rule.as_deref(), Some("every source"));
    // One of the packets passed before.
    assert_eq!((view.tracked, view.passed, view.dropped), (true, 21, 40));
    assert_eq!((view.burst, view.remaining), (Some(20), Some(15)));
    assert_eq!((view.full_in_ns, view.limits.len()), (5_000_000_000, 2));
    let view = daemon.service.source("10.0.0.2").unwrap();
    assert_eq!((view.tracked, view.remaining, view.full_in_ns), (false, Some(20), 0));
    let view = daemon.service.source("10.0.1.0").unwrap();
    assert_eq!((view.tracked, view.passed, view.dropped), (true, 20, 10));

    let list = listed(&daemon, &asked(By::Dropped, 9), || {}).unwrap();
    assert_eq!((list.tracked_v4, list.tracked_v6, list.within), (2, 1, 3));
    assert_eq!(names(&list.sources), ["10.0.0.1", "10.0.1.0"]);
    assert_eq!(list.lose_nothing, 1);
    let first = &list.sources[0];
    assert_eq!((first.passed, first.dropped, first.utilization), (21, 40, Some(0.25)));
    let near = listed(&daemon, &asked(By::Utilization, 2), || {}).unwrap();
    assert_eq!(names(&near.sources), ["10.0.1.0", "10.0.0.1"]);

    let top = daemon.service.top(&AskTop { by: By::Dropped, ..AskTop::default() }).unwrap();
    assert_eq!(names(&top.sources)[..2], ["10.0.0.1", "10.0.1.0"]);
    // The answer has the rest, too.
    assert_eq!((top.tracked_v4, top.tracked_v6), (3, 1));
    at(&daemon, 61_000);
    daemon.fake.send(source(1), 25, 60);
    let top = daemon.service.top(&AskTop { by: By::DropRate, ..AskTop::default() }).unwrap();
    let first = &top.sources[0];
    assert_eq!((first.source.as_str(), first.dropped_per_second), ("10.0.0.1", Some(9.0)));

    // Drops are reported by what dropped them: this is a rule by source.
    let top = daemon.service.top(&AskTop::default()).unwrap();
    assert_eq!((top.dropped_by.sources, top.dropped_by.others), (Some(59), Some(0)));
}

/// The remainder is reported for each algorithm, and of several limits the one that drops is named.
#[test]
fn what_is_left_is_said_of_every_algorithm_and_of_the_limit_that_drops() {
    use limiter_api::render::text;
    for (limit, size) in [
        ("algorithm: fixed_window", Some(20)),
        ("algorithm: sliding_counter", Some(20)),
        ("algorithm: sliding_log", Some(20)),
        ("algorithm: sliding_slots", Some(20)),
        ("algorithm: leaky_bucket, backlog: 1h", None),
        ("burst: 20", Some(20)),
    ] {
        let mut daemon = Daemon::start(&[]);
        daemon.write(&format!(
            "descriptors: [{{key: remote_address, rate_limit: {{rate: 20/hour, {limit}}}}}]"
        ));
        daemon.service.reload().unwrap();
        let fresh = daemon.service.source("203.0.113.7").unwrap();
        daemon.fake.send(Source::V4([203, 0, 113, 7]), 5, 60);
        let view = daemon.service.source("203.0.113.7").unwrap();
        assert_eq!((view.passed, view.of), (5, size), "{limit}");
        assert_eq!(view.remaining, fresh.remaining.map(|all| all - 5), "{limit}");
        assert_eq!(view.remaining, Some(size.map_or(view.remaining.unwrap(), |all| all - 5)));
        assert!(view.full_in_ns > 0 && view.left.len() == 1, "{limit}: {:?}", view.left);
        let said = text(&view);
        assert!(said.contains("remaining") && said.contains("full in"), "{limit}: {said}");
    }
    let mut daemon = Daemon::start(&[]);
    daemon.write(
        "descriptors: [{key: remote_address, rate_limits: [{rate: 2500/s}, {rate: 10/hour}]}]",
    );
    daemon.service.reload().unwrap();
    daemon.fake.send(Source::V4([203, 0, 113, 7]), 15, 60);
    let view = daemon.service.source("203.0.113.7").unwrap();
    assert_eq!((view.remaining, view.of, view.passed), (Some(0), Some(10), 10), "{view:?}");
    assert!(view.left[0].conforms && !view.left[1].conforms, "{:?}", view.left);
    // The used share belongs to that limit as well.
    daemon.fake.send(Source::V4([203, 0, 113, 9]), 3, 60);
    let list = listed(&daemon, &asked(By::Utilization, 2), || {}).unwrap();
    let used: Vec<_> = list.sources.iter().map(|row| row.utilization).collect();
    assert_eq!(used, [Some(1.0), Some(0.3)], "{list:?}");
    let said = text(&view);
    assert!(
        said.contains("0 of 10 packets of 10/hour burst 10: this one drops now, full in"),
        "{said}"
    );
    assert!(said.contains("packets of 2500/s"), "{said}");
    // The limit that drops may be a budget to which the rule is charged.
    daemon.write(
        "budgets: [{name: all, rate_limit: {rate: 3/hour}}]\ndescriptors: [{key: remote_address, \
         budget: all}]",
    );
    daemon.service.reload().unwrap();
    daemon.fake.send(Source::V4([203, 0, 113, 8]), 5, 60);
    let view = daemon.service.source("203.0.113.8").unwrap();
    assert_eq!((view.remaining, view.of), (Some(0), Some(3)), "{view:?}");
    assert_eq!((view.passed, view.dropped, view.dropped_at_least), (3, 2, false), "{view:?}");
    assert!(view.left[0].limit.starts_with("budget all: 3/hour"), "{:?}", view.left);
}
