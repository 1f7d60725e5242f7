//! The row of a source: what drops most of it, wherever a row stands.

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Event, RULE_NONE};

use super::Daemon;
use super::sources::listed;
use crate::api::explain::AskExplain;
use crate::api::sources::{AskSources, By, SourceRow};
use crate::api::top::{AskTop, Top};
use crate::routes::explain::explained;

/// `game` drops what `everybody` would let pass; a packet to another port is charged to a budget.
const RULES: &str = "budgets: [{name: uplink, rate_limit: {rate: 3/hour, burst: 3}}]
descriptors:
  - key: protocol
    value: udp
    descriptors: [{key: remote_address, rate_limit: {name: game, rate: 5/hour, burst: 5}}]
  - {key: protocol, value: tcp, budget: uplink}
  - {key: remote_address, rate_limit: {name: everybody, rate: 1000/s, burst: 1000}}
";

const PLAYER: &str = "203.0.113.21";
const DENIED: &str = "203.0.113.22";
const BANNED: &str = "203.0.113.23";
const CHARGED: &str = "203.0.113.24";

fn at(daemon: &Daemon, seconds: u64) {
    daemon.fake.state().now = Ticks::from_nanos(seconds * 1_000_000_000);
}

const fn source(last: u8) -> Source {
    Source::V4([203, 0, 113, last])
}

/// Events of drops, as the program reports them.
fn report(daemon: &Daemon, last: u8, (reason, rule, known): (Reason, u32, u8), drops: usize) {
    let mut state = daemon.fake.state();
    let event = Event {
        source: source(last).trie_key(),
        time: state.now.get(),
        reason: u8::try_from(reason.index()).unwrap(),
        rule,
        known,
        ..Event::default()
    };
    state.events.extend(std::iter::repeat_n(event, drops));
}

fn budget(daemon: &Daemon) -> u32 {
    let service = &daemon.service;
    let names = crate::views::rule_names(service.datapath().unwrap(), &service.rule_sets.effective);
    names.into_iter().find(|(_, title)| title.rule == "budget uplink").unwrap().0
}

/// A second of traffic: 70 drops of the player by `game`, 30 of one on the deny list, 20 of a
/// banned one, 10 by the budget. Spoofed sources send a packet each.
fn second(daemon: &Daemon, second: u64) {
    at(daemon, second);
    daemon.fake.send(source(21), if second == 1 { 75 } else { 70 }, 60);
    report(daemon, 22, (Reason::Denied, RULE_NONE, 0), 30);
    report(daemon, 23, (Reason::Banned, RULE_NONE, 0), 20);
    let uplink = budget(daemon);
    report(daemon, 24, (Reason::OverLimit, uplink, 0), 10);
    if second == 1 {
        for number in 0..2000u16 {
            let [high, low] = number.to_be_bytes();
            daemon.fake.send(Source::V4([10, 0, high, low]), 1, 60);
        }
    }
}

fn look(daemon: &mut Daemon) -> Top {
    let asked = AskTop { by: By::DropRate, ..AskTop::default() };
    daemon.service.top(&asked).unwrap()
}

/// A row in short: source, drops a second, what drops, why, and whether there may be more.
fn short(row: &SourceRow) -> (&str, Option<f64>, String, String, bool) {
    let rate = row.dropped_per_second;
    (&row.source, rate, row.by_text(), row.reason(), row.dropped_at_least)
}

fn expected() -> [(&'static str, Option<f64>, String, String, bool); 4] {
    let row = |source, rate, by: &str, reason: &str, at_least| {
        (source, Some(rate), by.to_owned(), reason.to_owned(), at_least)
    };
    [
        row(PLAYER, 70.0, "game", "over-limit", false),
        row(DENIED, 30.0, "deny list", "denied", true),
        row(BANNED, 20.0, "ban", "banned", true),
        row(CHARGED, 10.0, "budget uplink", "over-limit", true),
    ]
}

fn started() -> Daemon {
    let mut daemon = Daemon::start(&[]);
    daemon.write(RULES);
    daemon.service.reload().unwrap();
    second(&daemon, 1);
    daemon
}

#[test]
fn every_answer_names_what_drops_most_of_a_source() {
    let mut daemon = started();
    look(&mut daemon);
    second(&daemon, 2);
    let top = look(&mut daemon);
    let shown: Vec<_> = top.sources.iter().map(short).collect();
    assert_eq!(shown, expected(), "{top:?}");
    assert_eq!(top.lose_nothing, 2000);
    let said = top.headline.clone().unwrap();
    let end = "70 of them from 203.0.113.21 by game; 2 sources on lists or banned";
    assert!(said.ends_with(end), "{said}");
    assert_eq!(top.sources[0].by[0].since, None, "no event was sent of it");
    assert!(top.sources[1].by[0].since.is_some());
    // `limiter sources`: the same rows, and in text.
    let send = || second(&daemon, 3);
    let asked = AskSources { by: By::DropRate, ..AskSources::default() };
    let list = listed(&daemon, &asked, send).unwrap();
    let first = short(&list.sources[0]);
    assert_eq!(first, expected()[0], "{list:?}");
    assert_eq!((list.sources.len(), list.lose_nothing), (4, 2000));
    let text = crate::render::text(&list);
    assert!(text.contains("and 2,000 that lose nothing\n"), "{text}");
    // One source, and `limiter explain` of it.
    look(&mut daemon);
    second(&daemon, 4);
    look(&mut daemon);
    let rows = daemon.service.source(PLAYER).unwrap().rows;
    assert_eq!(rows.iter().map(short).collect::<Vec<_>>(), expected()[..1]);
    let ask = |from: &str| AskExplain { from: from.to_owned(), ..AskExplain::default() };
    let player = explained(&mut daemon.service, &ask(PLAYER)).unwrap();
    assert_eq!(player.drops.iter().map(short).collect::<Vec<_>>(), expected()[..1]);
    assert_eq!(player.verdict, "unknown");
    let text = crate::render::text(&player);
    assert!(text.contains("\nnow        dropped: 70/s by game (over-limit)\n"), "{text}");
    let nobody = explained(&mut daemon.service, &ask("203.0.113.99")).unwrap();
    assert_eq!((nobody.drops, nobody.verdict.as_str()), (vec![], "unknown"));
}

/// Several that drop: the one that drops most now is named, and the others are counted.
#[test]
fn the_rule_that_drops_most_now_is_named_before_the_one_that_dropped_most() {
    let mut daemon = started();
    look(&mut daemon);
    at(&daemon, 2);
    report(&daemon, 21, (Reason::Denied, RULE_NONE, 0), 9);
    let top = look(&mut daemon);
    let row = top.sources.iter().find(|row| row.source == PLAYER).unwrap();
    let by: Vec<_> = row.by.iter().map(|by| (by.title(), by.dropped)).collect();
    assert_eq!(by, [("deny list".to_owned(), 9), ("game".to_owned(), 70)]);
    assert_eq!(row.by_text(), "deny list +1");
    // Nothing now: in all.
    at(&daemon, 3);
    let top = look(&mut daemon);
    let row = top.sources.iter().find(|row| row.source == PLAYER).unwrap();
    assert_eq!((row.by_text(), row.dropped_per_second), ("game +1".to_owned(), Some(0.0)));
    // Those that lost most are before the others as long as nobody loses anything.
    let names: Vec<_> = top.sources.iter().map(|row| row.source.as_str()).collect();
    assert_eq!(names, [PLAYER, DENIED, BANNED, CHARGED]);
}

/// What comes in and what goes out are two rows.
#[test]
fn each_direction_has_a_row() {
    let mut daemon = started();
    look(&mut daemon);
    at(&daemon, 2);
    daemon.fake.send(source(21), 6, 60);
    report(&daemon, 21, (Reason::Denied, RULE_NONE, Event::OUT), 8);
    let top = look(&mut daemon);
    let rows: Vec<_> = top.sources.iter().filter(|row| row.source == PLAYER).collect();
    let of = |row: &&SourceRow| (row.name(), row.by_text(), row.dropped_per_second);
    let expected = [
        ("203.0.113.21 out".to_owned(), "deny list".to_owned(), Some(8.0)),
        ("203.0.113.21".to_owned(), "game".to_owned(), Some(6.0)),
    ];
    assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), expected, "{top:?}");
}
