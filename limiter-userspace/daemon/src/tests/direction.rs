//! Rules for packets that go out: their guards, their words, and what no packet is there for.

use std::path::Path;

use limiter_api::explain::AskExplain;
use limiter_api::limits::LimitEntry;
use limiter_api::rules::{ApplyRules, Document, ExportRules, Session};
use limiter_datapath::Backend as _;

use super::*;
use crate::control::Refusal;
use crate::views::from_maps;

const PEER: &str = "203.0.113.7";

impl Daemon {
    fn apply_typed(&mut self, text: &str, force: bool) -> Result<Changed, Refusal> {
        let session = Some(Session { peer: PEER.parse().unwrap(), port: Some(22) });
        let documents = vec![Document { name: "r.yaml".into(), text: text.into() }];
        let confirm_seconds = None;
        self.service.apply_rules(&ApplyRules { documents, force, confirm_seconds, session })
    }

    fn set_going(&mut self, direction: &str, source: &str, rate: &str) -> Result<Changed, Refusal> {
        self.service.set(&SetLimit {
            source: Some(source.into()),
            rate: rate.into(),
            direction: Some(direction.into()),
            session: Some(Session { peer: PEER.parse().unwrap(), port: Some(22) }),
            ..SetLimit::default()
        })
    }

    fn entry(&self, source: &str) -> LimitEntry {
        let limits = self.service.limits().unwrap().limits;
        limits.into_iter().find(|entry| entry.source == source).unwrap()
    }
}

fn rule(keys: &str, direction: &str, terms: &str) -> String {
    let keys: Vec<_> = keys.split("; ").collect();
    let (outer, inner) = keys.split_first().unwrap();
    let outer = format!("{outer}, direction: {direction}");
    match inner {
        [] => format!("  - {{{outer}, {terms}}}\n"),
        [inner] => format!("  - {{{outer}, descriptors: [{{{inner}, {terms}}}]}}\n"),
        _ => panic!("{keys:?}"),
    }
}

/// The half of a session that goes out has its port as the source port, and the peer as its
/// destination.
#[test]
fn the_outgoing_half_of_a_session_is_guarded_as_the_incoming_one() {
    let slow = "rate_limit: {unit: second, requests_per_unit: 5}";
    let shadow = format!("{slow}, shadow_mode: true");
    let port = |key: &str, value: &str| format!("key: {key}, value: {value}");
    let to = |net: &str| format!("key: remote_address, value: {net}");
    let both = |one: &str, other: &str| format!("{one}; {other}");
    let tcp = "key: protocol, value: tcp";
    let refused: Vec<(String, &str, &str)> = vec![
        ("key: remote_address".into(), "out", slow),
        ("key: remote_address".into(), "both", slow),
        (to("203.0.113.0/24"), "out", slow),
        (to(PEER), "both", slow),
        ("key: masked_remote_address, v4_prefix_mask_len: 24".into(), "out", slow),
        (port("source_port", "22"), "out", slow),
        (port("source_port", "20-25"), "out", slow),
        (port("source_port", "22"), "out", "action: drop"),
        (both(&port("source_port", "22"), &to(PEER)), "out", slow),
        (both(tcp, "key: remote_address"), "out", slow),
        (port("destination_port", "22"), "both", slow),
        (both(&port("destination_port", "22"), tcp), "both", slow),
        ("key: generic_key, value: all".into(), "out", slow),
        ("key: generic_key, value: all".into(), "both", slow),
    ];
    let maybe: Vec<(String, &str, &str)> = vec![
        ("key: destination_port".into(), "out", slow),
        (port("destination_port", "443"), "out", slow),
        ("key: source_address, value: 192.0.2.1".into(), "out", slow),
        ("key: interface, value: fake0".into(), "out", slow),
        ("key: packet_length, value: 1000-1500".into(), "out", slow),
    ];
    let taken: Vec<(String, &str, &str)> = vec![
        (to("198.51.100.0/24"), "out", slow),
        (to("198.51.100.0/24"), "both", slow),
        (port("source_port", "443"), "out", slow),
        (port("destination_port", "443"), "both", slow),
        (both(&port("source_port", "22"), &to("198.51.100.0/24")), "out", slow),
        ("key: protocol, value: udp".into(), "out", slow),
        (port("fragment", "later"), "out", slow),
        ("key: icmp_type".into(), "both", slow),
        ("key: remote_address".into(), "out", &shadow),
        (port("source_port", "22"), "out", "rate_limit: {unlimited: true}"),
    ];
    let mut daemon = Daemon::start(&[]);
    let sure = refused.into_iter().map(|rule| (rule, "would"));
    for ((keys, direction, terms), verb) in sure.chain(maybe.into_iter().map(|rule| (rule, "may")))
    {
        let text = format!("descriptors:\n{}", rule(&keys, direction, terms));
        match daemon.apply_typed(&text, false) {
            Err(Refusal::Conflict(refusal)) => {
                let words = &format!("{verb} limit your own SSH session from 203.0.113.7");
                assert!(refusal.starts_with("not applied: the rule for "), "{refusal}");
                assert!(refusal.contains(words), "{refusal}");
            }
            other => panic!("{text}: {other:?}"),
        }
        daemon.apply_typed(&text, true).unwrap();
    }
    for (keys, direction, terms) in taken {
        let text = format!("descriptors:\n{}", rule(&keys, direction, terms));
        daemon.apply_typed(&text, false).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
    // The most specific rule of a table decides, among those of its direction.
    let all = rule("key: masked_remote_address, v4_prefix_mask_len: 24", "out", slow);
    let not = "key: masked_remote_address, v4_prefix_mask_len: 24, value: 203.0.113.0/24";
    let free = "rate_limit: {unlimited: true}";
    let text = format!("descriptors:\n{all}{}", rule(not, "out", free));
    daemon.apply_typed(&text, false).unwrap();
    let text = format!("descriptors:\n{all}{}", rule(not, "in", free));
    daemon.apply_typed(&text, false).unwrap_err();
}

/// A limit no tighter than the previous one is not new; a limit in the other direction is.
#[test]
fn a_limit_set_on_what_goes_out_is_guarded() {
    let mut daemon = Daemon::start(&[]);
    let refusal = daemon.set_going("out", PEER, "100/s").unwrap_err().to_string();
    assert!(
        refusal.contains(
            "the rule for direction=out remote_address=203.0.113.7 would limit your own SSH session"
        ),
        "{refusal}"
    );
    daemon
        .apply_typed(
            "descriptors: [{key: remote_address, direction: out, rate_limit: {rate: 100/s, burst: \
         100}}]\n",
            true,
        )
        .unwrap();
    daemon.set_going("out", PEER, "200/s").unwrap();
    daemon.set_going("out", PEER, "50/s").unwrap_err();
    daemon.set_going("both", PEER, "500/s").unwrap_err();
}

#[test]
fn a_limit_is_set_listed_and_removed_in_its_direction() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let out = SetLimit {
        to: Some("53/udp".into()),
        direction: Some("out".into()),
        rate: "5/min".into(),
        ..SetLimit::default()
    };
    assert_eq!(
        daemon.service.set(&out).unwrap().done.unwrap(),
        "direction=out protocol=udp destination_port=53 remote_address: 5/min burst 5, was no \
         limit; each address, or IPv6 /64, has it"
    );
    let done = daemon.set_going("both", "198.51.100.7", "70/s").unwrap().done.unwrap();
    assert_eq!(done, "direction=both remote_address=198.51.100.7: 70/s burst 70, was no limit");
    daemon.set("198.51.100.7", "80/s", None).unwrap();
    let mut daemon = daemon.restart(&["192.0.2.99"]);
    let key = "direction=out protocol=udp destination_port=53 remote_address";
    let shown = |daemon: &Daemon, source: &str| {
        let LimitEntry { direction, limit, origin, .. } = daemon.entry(source);
        (direction.unwrap(), limit, origin)
    };
    assert_eq!(shown(&daemon, key), ("out".into(), "5/min".into(), Origin::Cli));
    let both = "direction=both remote_address=198.51.100.7";
    assert_eq!(shown(&daemon, both), ("both".into(), "70/s".into(), Origin::Cli));
    assert_eq!(shown(&daemon, "198.51.100.7"), ("in".into(), "80/s".into(), Origin::Cli));
    let unset = |to: Option<&str>, source: Option<&str>, direction: Option<&str>| UnsetLimit {
        to: to.map(str::to_owned),
        source: source.map(str::to_owned),
        direction: direction.map(str::to_owned),
        ..UnsetLimit::default()
    };
    // The same words of the other direction are of another rule.
    let other = daemon.service.unset(&unset(Some("53/udp"), None, None)).unwrap_err();
    assert_eq!(
        other.to_string(),
        "there is no rule for protocol=udp destination_port=53 remote_address, but one that \
         differs in --direction: `limiter unset --port 53/udp --direction out` removes it"
    );
    daemon.service.unset(&unset(Some("53/udp"), None, Some("out"))).unwrap();
    daemon.service.unset(&unset(None, Some("198.51.100.7"), Some("both"))).unwrap();
    assert_eq!(shown(&daemon, "198.51.100.7").1, "80/s");
    for (limit, words) in [
        (
            SetLimit { direction: Some("up".into()), ..out.clone() },
            "direction: \"up\" is no direction: write in, out or both",
        ),
        (SetLimit { reject: true, ..out.clone() }, "rule for direction=out protocol=udp"),
        (
            SetLimit { source: Some("192.0.2.99".into()), to: None, ..out },
            "192.0.2.99 is inside the management prefix",
        ),
    ] {
        let error = daemon.service.set(&limit).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn rules_of_what_goes_out_warn_as_long_as_nothing_is_seen() {
    let slow = "rate_limit: {rate: 1000/s, burst: 1000}";
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let mut warnings = |rules: &[String]| {
        daemon.write(&format!("descriptors:\n{}", rules.concat()));
        daemon.service.reload().unwrap();
        daemon.service.status().unwrap().warnings
    };
    let none = "limiter sees no outgoing";
    let out = rule("key: remote_address", "out", slow);
    let both = rule("key: vlan; key: remote_address", "both", slow);
    let on = rule("key: interface, value: fake1; key: remote_address", "out", slow);
    let reported = warnings(&[out.clone(), both]);
    assert_eq!(
        reported,
        [
            format!(
                "the rule for direction=out remote_address limits nothing: {none} packets on any \
                 interface; start the daemon with --direction out or both, or write `direction: in`"
            ),
            format!(
                "the rule for direction=both vlan remote_address limits incoming packets alone: \
                 {none} ones on any interface; start the daemon with --direction both, or write \
                 `direction: in`"
            ),
        ]
    );
    let reported = warnings(&[on]);
    assert!(
        reported.iter().any(|line| line.contains(
            "limiter is not on fake1, and no packet that goes out by it is seen; write the \
             interface that packets go out by (limited: fake0)"
        )),
        "{reported:?}"
    );
    // Tags are taken off what comes in alone.
    daemon.fake.state().strips_tags = Some(true);
    let tagged = rule("key: vlan; key: remote_address", "out", slow);
    daemon.write(&format!("descriptors:\n{tagged}"));
    daemon.service.reload().unwrap();
    let reported = daemon.service.status().unwrap().warnings;
    assert!(reported.len() == 1 && reported[0].contains(none), "{reported:?}");
    daemon.write(&format!("descriptors:\n{}", rule("key: remote_address", "in", slow)));
    daemon.service.reload().unwrap();
    assert_eq!(daemon.service.status().unwrap().warnings, [""; 0]);
    // On the command line it is an option.
    let done = daemon.set_going("out", "198.51.100.7", "70/s").unwrap();
    let option = "with --direction out or both, or set it with `--direction in`";
    assert!(done.warnings.iter().any(|line| line.ends_with(option)), "{:?}", done.warnings);
}

/// Without a daemon, the direction is read from the maps.
#[test]
fn the_maps_say_which_way_packets_go() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let slow = "rate_limit: {rate: 1000/s, burst: 1000}";
    let rules: Vec<String> = ["in", "out", "both"]
        .iter()
        .flat_map(|direction| {
            [
                rule("key: remote_address", direction, slow),
                rule("key: protocol, value: udp; key: remote_address", direction, slow),
                rule("key: generic_key, value: all", direction, slow),
            ]
        })
        .collect();
    daemon.write(&format!("descriptors:\n{}", rules.concat()));
    daemon.service.reload().unwrap();
    let known = |limits: Vec<LimitEntry>| {
        let mut known: Vec<_> =
            limits.into_iter().map(|entry| (entry.source, entry.direction, entry.limit)).collect();
        known.sort();
        known
    };
    let reported = known(daemon.service.limits().unwrap().limits);
    let maps = daemon.fake.read(Path::new("pinned")).unwrap();
    assert_eq!(known(from_maps::limits(&*maps).unwrap().limits), reported);
    let ways: Vec<_> = reported.iter().filter_map(|(_, way, _)| way.as_deref()).collect();
    for (direction, count) in [("in", 4), ("out", 3), ("both", 3)] {
        assert_eq!(ways.iter().filter(|way| **way == direction).count(), count, "{reported:?}");
    }
}

/// Each direction has its own table, and `check` lists it.
#[test]
fn a_check_lists_tables_by_direction() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("r.yaml");
    let slow = "rate_limit: {rate: 1000/s, burst: 1000}";
    let rules = ["in", "out", "both"].map(|direction| {
        let port = "key: protocol, value: udp; key: destination_port, value: 53";
        rule("key: remote_address", direction, slow) + &rule(port, direction, slow)
    });
    fs::write(&file, format!("descriptors:\n{}", rules.concat())).unwrap();
    let checked = crate::rule_sets::check::check(&[file], &mut std::io::empty(), 1522, 64);
    assert_eq!(checked.errors, []);
    let tables: Vec<_> = checked.tables.iter().map(|table| table.keys.as_str()).collect();
    assert_eq!(
        tables,
        [
            "remote_address",
            "protocol destination_port",
            "direction=out remote_address",
            "direction=out protocol destination_port",
            "direction=both remote_address",
            "direction=both protocol destination_port",
        ]
    );
    assert_eq!(checked.tables_taken, 5);
}

/// The export states the direction and can be read again.
#[test]
fn an_export_says_which_way_packets_go() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    daemon.set_going("out", "198.51.100.7", "70/s").unwrap();
    let what = ExportRules { edits: true };
    let text = daemon.service.export(what).unwrap().text;
    assert!(text.contains("direction: out"), "{text}");
    let file = limiter_rules::RuleFile::parse("x", text.as_bytes(), 1522).unwrap();
    let paths: Vec<_> = file.rules.rules.iter().map(|rule| rule.path.to_string()).collect();
    assert!(paths.contains(&"direction=out remote_address=198.51.100.7".to_owned()), "{paths:?}");
}

/// A rule for what goes out is no rule that a packet that comes in may fall under.
#[test]
fn what_comes_in_is_not_asked_about_rules_for_what_goes_out() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let slow = "rate_limit: {rate: 1000/s, burst: 1000}";
    let key = "key: destination_port, value: 53; key: remote_address";
    let ask = |daemon: &mut Daemon, direction: &str| {
        daemon.write(&format!("descriptors:\n{}", rule(key, direction, slow)));
        daemon.service.reload().unwrap();
        let of_source = AskExplain { from: "192.0.2.1".into(), ..AskExplain::default() };
        let of_packet = AskExplain { to: Some("80/udp".into()), ..of_source.clone() };
        let [source, packet] =
            [of_source, of_packet].map(|asked| daemon.service.explain(&asked).unwrap());
        (source.not_looked_at, packet.assumed)
    };
    let none: (Vec<String>, Vec<String>) = Default::default();
    assert_eq!(ask(&mut daemon, "out"), none);
    let (not_looked_at, _) = ask(&mut daemon, "both");
    assert_eq!(not_looked_at, ["rule for direction=both destination_port=53 remote_address"]);
    let (not_looked_at, _) = ask(&mut daemon, "in");
    assert_eq!(not_looked_at, ["rule for destination_port=53 remote_address"]);
}

#[test]
fn nothing_that_goes_out_is_judged_as_long_as_nothing_is_seen() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let ask = |fields: AskExplain| AskExplain { from: "192.0.2.1".into(), ..fields };
    let out = || ask(AskExplain { direction: Some("out".into()), ..AskExplain::default() });
    let address = || Some("198.51.100.1".to_owned());
    for (asked, words) in [
        (
            out(),
            "direction: limiter sees no outgoing packets on any interface, so all of them pass: \
             `limiter run --direction both` limits them",
        ),
        (
            ask(AskExplain { direction: Some("both".into()), ..AskExplain::default() }),
            "direction: a packet comes in or goes out: write in or out",
        ),
        (
            AskExplain { destination: address(), ..out() },
            "destination: of a packet that goes out it is the address that is asked about: write \
             source for the address of this side",
        ),
        (
            ask(AskExplain { source: address(), ..AskExplain::default() }),
            "source: of a packet that comes in it is the address that is asked about: write \
             destination for the address of this side",
        ),
        (
            AskExplain { source: Some("2001:db8::1".into()), ..out() },
            "source: it is of another IP version than 192.0.2.1",
        ),
    ] {
        assert_eq!(daemon.service.explain(&asked).unwrap_err().to_string(), words);
    }
}
