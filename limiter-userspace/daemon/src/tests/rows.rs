//! The row of a source names the rule that drops most of it, wherever the row appears.

use std::collections::BTreeMap;

use limiter_api::explain::AskExplain;
use limiter_api::lists::{ListName, SetList};
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::sources::{AskSources, By, RuleDrops, SourceRow, per_second};
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{Event, RULE_NONE};
use proptest::prelude::*;

use super::Daemon;
use super::sources::listed;
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
    if rule == RULE_NONE {
        state.reasons[reason.index() as usize].packets += u64::try_from(drops).unwrap();
    }
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
    let end = "70 of them from 203.0.113.21 by game, 50 by lists and bans (≥2 sources, ≥30 from \
               203.0.113.22)";
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
    // Its sentence is of the same readings.
    let end = format!("{} of them from {PLAYER} by game", per_second(expected()[0].1));
    assert!(list.headline.as_ref().unwrap().contains(&end), "{list:?}");
    let by = list.dropped_by;
    let of_rules = by.sources.unwrap() + by.others.unwrap() + by.removed;
    // The spoofed sources, for which there was no room, are counted with the rule.
    assert_eq!((of_rules + by.lists, by.lists), (look(&mut daemon).dropped, 3 * 50), "{list:?}");
    let text = limiter_api::render::text(&list);
    assert!(text.contains("and 2,000 of which no drop was seen\n"), "{text}");
    // One source, and `limiter explain` of it.
    second(&daemon, 4);
    look(&mut daemon);
    let rows = daemon.service.source(PLAYER).unwrap().rows;
    assert_eq!(rows.iter().map(short).collect::<Vec<_>>(), expected()[..1]);
    let ask = |from: &str| AskExplain { from: from.to_owned(), ..AskExplain::default() };
    let player = explained(&mut daemon.service, &ask(PLAYER)).unwrap();
    assert_eq!(player.drops.iter().map(short).collect::<Vec<_>>(), expected()[..1]);
    assert_eq!(player.verdict, "unknown");
    let text = limiter_api::render::text(&player);
    let lines = "\nnow        dropped: 70/s by game (over-limit); passed 0/s\n\
                 verdict    it depends on the packet\n";
    assert!(text.contains(lines), "{text}");
    // The rule that drops was looked at, and the other was not.
    assert_eq!(player.not_looked_at, ["rule for protocol=tcp"]);
    // The answer about the other direction is one about the source, too.
    let out = AskExplain { direction: Some("out".into()), ..ask(PLAYER) };
    assert!(out.is_of_source());
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
    assert_eq!(row.by_text(), "deny list", "the other drops none now");
    // Nothing now: in all.
    at(&daemon, 3);
    let top = look(&mut daemon);
    let row = top.sources.iter().find(|row| row.source == PLAYER).unwrap();
    assert_eq!((row.by_text(), row.dropped_per_second), ("game +1".to_owned(), Some(0.0)));
    // Those that lost most are before the others as long as nobody loses anything.
    let names: Vec<_> = top.sources.iter().map(|row| row.source.as_str()).collect();
    assert_eq!(names, [PLAYER, DENIED, BANNED, CHARGED]);
}

/// A bucket keeps its counts when the rules change: the rule of `limiter set` has none that it did
/// not count itself, and of a rule of many sources that is not known.
#[test]
fn a_new_rule_has_no_counts_of_the_rules_before() {
    let mut daemon = Daemon::start(&[]);
    at(&daemon, 1);
    daemon.fake.send(source(21), 50, 60);
    let by_rule = |daemon: &Daemon| -> Vec<_> {
        let rows = daemon.service.source(PLAYER).unwrap().by_rule.into_iter();
        rows.map(|by| (by.rule.unwrap(), by.passed.unwrap(), by.dropped, by.with_before)).collect()
    };
    let row = |rule: &str, passed, dropped, mixed| (rule.to_owned(), passed, dropped, mixed);
    assert_eq!(by_rule(&daemon), [row("every source", 20, 30, false)]);
    at(&daemon, 100);
    daemon.set(PLAYER, "5/hour", Some(5)).unwrap();
    at(&daemon, 3600);
    daemon.fake.send(source(21), 12, 60);
    let (now, before) = (row(PLAYER, 5, 7, false), row("(rules before)", 20, 30, false));
    assert_eq!(by_rule(&daemon), [before.clone(), now]);
    let top = look(&mut daemon);
    assert_eq!(top.sources[0].by_text(), "(rules before) +1");
    assert_eq!(top.dropped_by.sources, Some(37));
    // Its counts go to nobody else when it is removed.
    daemon.unset(PLAYER).unwrap();
    at(&daemon, 7200);
    daemon.fake.send(source(21), 4, 60);
    let (kept, rest) = (row("every source", 24, 30, true), row("(rules before)", 5, 7, false));
    assert_eq!(by_rule(&daemon), [kept, rest]);
    let view = daemon.service.source(PLAYER).unwrap();
    assert!(limiter_api::render::text(&view).contains("may include rules before"), "{view:?}");
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

/// Packets of a source: its last byte, whether they are TCP, their port, and how many they are.
type Sent = (u8, bool, u16, u8);

/// Rules, each with a burst or left out; all with keys, names and places of their own.
fn rules(bursts: &[u64; 6]) -> String {
    let limit = |name: &str, at: usize| {
        format!("rate_limit: {{name: {name}, rate: 1/hour, burst: {}}}", bursts[at])
    };
    let each = |name: &str, at| format!("{{key: remote_address, {}}}", limit(name, at));
    let nested = |key: &str, value: &str, inner: String| {
        format!("{{key: {key}, value: {value}, descriptors: [{inner}]}}")
    };
    let net =
        format!("{{key: masked_remote_address, v4_prefix_mask_len: 24, {}}}", limit("net", 4));
    let lines = [
        each("everybody", 0),
        format!("{{key: remote_address, value: 203.0.113.0/30, {}}}", limit("near", 1)),
        nested("protocol", "udp", each("datagrams", 2)),
        nested("destination_port", "53", each("names", 3)),
        nested("protocol", "tcp", net),
        "{key: destination_port, value: 22, budget: uplink}".to_owned(),
    ];
    let burst = bursts[5].max(1);
    let mut text =
        format!("budgets: [{{name: uplink, rate_limit: {{rate: 1/hour, burst: {burst}}}}}]\n");
    text.push_str("descriptors:\n");
    let wanted = lines.iter().zip(bursts).filter(|(_, burst)| **burst > 0);
    text.extend(wanted.flat_map(|(line, _)| ["  - ", line, "\n"]));
    text
}

/// A datagram, or a segment with SYN.
fn frame((last, tcp, port, _): Sent) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
    frame.extend([203, 0, 113, last, 198, 51, 100, 1, 0x9c, 0x40]);
    frame.extend(port.to_be_bytes());
    frame.extend(if tcp { [0; 8] } else { [0, 26, 0, 0, 0, 0, 0, 0] });
    frame.extend([0x50, 2]);
    frame.resize(60, 0);
    frame
}

/// Drops by what dropped them: the rule, or the reason where none was asked.
type Drops = BTreeMap<(Option<String>, &'static str), u64>;

/// Sends it, reports each drop as the program does, and says what dropped it.
fn drops_of(daemon: &Daemon, sent: Sent, titles: &BTreeMap<u32, crate::views::Title>) -> Drops {
    let mut drops = Drops::new();
    for _ in 0..sent.3 {
        let outcome = daemon.fake.send_frame(source(sent.0), &frame(sent), 60);
        if outcome.reason.verdict() != Verdict::Drop {
            continue;
        }
        let rule = titles.get(&outcome.rule).map(|title| title.rule.clone());
        *drops.entry((rule, outcome.reason.name())).or_default() += 1;
        let mut state = daemon.fake.state();
        let event = Event {
            source: source(sent.0).trie_key(),
            time: state.now.get(),
            reason: u8::try_from(outcome.reason.index()).unwrap(),
            rule: outcome.rule,
            ..Event::default()
        };
        state.events.push_back(event);
    }
    drops
}

fn add(sums: &mut BTreeMap<u8, Drops>, last: u8, drops: Drops) {
    let sum = sums.entry(last).or_default();
    for (by, number) in drops {
        *sum.entry(by).or_default() += number;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the rules: the row of a source names what drops most of it now, and has what each
    /// dropped of it in all, as the program decided.
    #[test]
    fn a_row_names_the_rule_that_drops_most_of_its_source(
        bursts in prop::array::uniform6(prop_oneof![1 => Just(0u64), 3 => 1u64..30]),
        denied in prop::option::of(1u8..6),
        seconds in prop::collection::vec(
            prop::collection::vec(
                (1u8..6, any::<bool>(), prop::sample::select(vec![22u16, 53, 443]), 1u8..30),
                1..12,
            ),
            2..5,
        ),
    ) {
        prop_assume!(bursts.iter().any(|burst| *burst > 0));
        let mut daemon = Daemon::start(&[]);
        daemon.write(&rules(&bursts));
        daemon.service.reload().unwrap();
        if let Some(last) = denied {
            let (list, sources) = (ListName::Deny, vec![format!("203.0.113.{last}")]);
            let request = SetList { list, sources, ..SetList::default() };
            daemon.service.list(&request).unwrap();
        }
        let service = &daemon.service;
        let titles =
            crate::views::rule_names(service.datapath().unwrap(), &service.rule_sets.effective);
        let mut all = BTreeMap::new();
        for (second, sent) in (1..).zip(&seconds) {
            at(&daemon, second);
            let mut now = BTreeMap::new();
            for sent in sent {
                let drops = drops_of(&daemon, *sent, &titles);
                add(&mut now, sent.0, drops.clone());
                add(&mut all, sent.0, drops);
            }
            let top = look(&mut daemon);
            let by = top.dropped_by;
            if let (Some(sources), Some(others)) = (by.sources, by.others) {
                prop_assert_eq!(sources + others + by.lists + by.removed, top.dropped);
            }
            for (last, drops) in all.iter().filter(|(_, drops)| !drops.is_empty()) {
                let name = format!("203.0.113.{last}");
                let row = top.sources.iter().find(|row| row.source == name);
                prop_assert!(row.is_some(), "{name}: {drops:?}, {top:?}");
                let by = &row.unwrap().by;
                let of = |by: &RuleDrops| drops.get(&(by.rule.clone(), &*by.reason)).copied();
                for by in by {
                    prop_assert_eq!(of(by), Some(by.dropped), "{}: {:?}", name, drops);
                }
                prop_assert_eq!(by.len(), drops.len(), "{}: {:?}, {:?}", name, by, drops);
                // The first look has no rates.
                let just = now.get(last).filter(|just| second > 1 && !just.is_empty());
                let most = just.unwrap_or(drops);
                let of_first = most.get(&(by[0].rule.clone(), &*by[0].reason)).copied();
                prop_assert_eq!(of_first, most.values().max().copied(), "{}: {:?}", name, by);
            }
        }
    }
}
