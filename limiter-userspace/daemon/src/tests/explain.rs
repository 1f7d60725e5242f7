//! `GET /v1/explain` over the data path in memory.

use std::num::NonZeroU32;
use std::time::Duration;

use limiter_api::check::CheckSource;
use limiter_api::explain::{AskExplain, ExplainStep, ExplainedNow};
use limiter_api::rules::{ApplyRules, Document};
use limiter_common::header::Direction as Way;
use limiter_datapath::{Fq, Framing, Mode, Queueing};
use limiter_model::Packet;

use super::*;

const PORTS: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: 100, burst: 20}}
  - key: destination_port
    value: 22
    descriptors: [{key: remote_address, rate_limit: {name: ssh, unit: hour, requests_per_unit: 2, \
                     burst: 2, count: syns}}]
  - {key: destination_port, value: 53, budget: dns}
budgets: [{name: dns, rate_limit: {unit: hour, requests_per_unit: 9, burst: 9}}]
";

fn ask(daemon: &mut Daemon, to: Option<&str>, flags: Option<&str>) -> ExplainedNow {
    let (to, flags) = (to.map(str::to_owned), flags.map(str::to_owned));
    let from = "192.0.2.1".to_owned();
    daemon.service.explain(&AskExplain { from, to, flags, ..AskExplain::default() }).unwrap()
}

fn step<'a>(reported: &'a ExplainedNow, rule: &str) -> &'a ExplainStep {
    reported.steps.iter().find(|step| step.rule.as_deref() == Some(rule)).unwrap()
}

fn with_ports() -> Daemon {
    let mut daemon = Daemon::start(&["192.0.2.8/30"]);
    daemon.write(PORTS);
    daemon.service.reload().unwrap();
    daemon.fake.state().now = Ticks::from_nanos(5_000_000_000);
    daemon
}

#[test]
fn every_rule_of_a_packet_is_reported_with_its_place() {
    let mut daemon = with_ports();
    let reported = ask(&mut daemon, Some("22/tcp"), Some("SYN"));
    assert_eq!((reported.verdict.as_str(), reported.reason.as_str()), ("pass", "conforming"));
    assert!(
        reported.exact && reported.assumed.is_empty() && reported.not_looked_at.is_empty(),
        "{reported:?}"
    );
    let of_port = step(&reported, "destination_port=22 remote_address");
    assert_eq!(of_port.name.as_deref(), Some("ssh"));
    assert!(of_port.place.as_ref().is_some_and(|place| place.ends_with("r.yaml:5:19")));
    assert_eq!(of_port.limits[0].limit, "2 syns/hour burst 2");
    assert_eq!((of_port.limits[0].remaining, of_port.limits[0].size), (2, Some(2)));
    assert_eq!(of_port.key.as_deref(), Some("port 22 from 192.0.2.1"));
    assert_eq!(step(&reported, "every source").limits[0].remaining, 20);
    let reported = ask(&mut daemon, Some("53/udp"), None);
    let of_budget = step(&reported, "destination_port=53");
    assert_eq!(of_budget.budget.as_deref(), Some("dns"));
    assert_eq!(of_budget.limits[0].limit, "budget dns: 9/hour burst 9");
    assert_eq!(of_budget.limits[0].remaining, 9);
}

/// The text of a step is true of the packet, whether or not the packet comes there.
#[test]
fn a_martian_that_comes_to_no_rule_is_one() {
    let mut daemon = Daemon::start(&["127.0.0.1"]);
    daemon.write("martians: drop\ndescriptors: []\n");
    daemon.service.reload().unwrap();
    let mut martians = |from: &str| {
        let asked = AskExplain { from: from.to_owned(), ..AskExplain::default() };
        let reported = daemon.service.explain(&asked).unwrap();
        let step = reported.steps.into_iter().find(|step| step.step == "martians").unwrap();
        (reported.reason, step.reached, step.says)
    };
    let step = |reason: &str, reached, says: &str| (reason.to_owned(), reached, says.to_owned());
    assert_eq!(martians("127.0.0.1"), step("allowed", false, "martian"));
    assert_eq!(martians("127.0.0.2"), step("martian", true, "martian"));
    assert_eq!(martians("192.0.2.1"), step("no-rule", true, "a host can have this source"));
}

#[test]
fn what_is_not_given_is_named() {
    let mut daemon = with_ports();
    let reported = ask(&mut daemon, Some("22/tcp"), None);
    assert_eq!(reported.assumed, ["TCP flags not given; assumed SYN"]);
    assert!(!reported.exact);
    // Nobody asks for the flags there.
    assert!(ask(&mut daemon, Some("80/tcp"), None).exact);
    let reported = ask(&mut daemon, Some("tcp"), Some("ACK"));
    assert_eq!(reported.assumed, ["destination port not given; assumed 0"]);
    let reported = ask(&mut daemon, None, None);
    let missing = ["rule for destination_port=22 remote_address", "rule for destination_port=53"];
    assert_eq!(reported.not_looked_at, missing);
    // A rule that was not looked at may drop it.
    let happens = "it may be dropped by what was not looked at: rule for destination_port=22 \
                   remote_address, rule for destination_port=53";
    assert_eq!((reported.verdict.as_str(), reported.happens.as_str()), ("unknown", happens));
    let text = limiter_api::render::text(&reported);
    assert!(text.contains("\nverdict    unknown\n") && !text.contains("it passes"), "{text}");
    // The lists come first, so none of this matters.
    let from = "192.0.2.9".to_owned();
    let reported = daemon.service.explain(&AskExplain { from, ..AskExplain::default() }).unwrap();
    assert!(reported.exact && reported.reason == "allowed", "{reported:?}");
    assert_eq!(reported.steps.iter().filter(|step| step.reached).count(), 2);
    for (field, asked) in [
        ("to", AskExplain { to: Some("ssh".into()), ..AskExplain::default() }),
        ("vlan", AskExplain { vlan: Some(5000), ..AskExplain::default() }),
        ("interface", AskExplain { interface: Some("lo".into()), ..AskExplain::default() }),
    ] {
        let asked = AskExplain { from: "192.0.2.1".into(), ..asked };
        let Err(Refusal::Invalid(error)) = daemon.service.explain(&asked) else {
            panic!("{field}")
        };
        assert!(error.starts_with(&format!("{field}: ")), "{error}");
    }
}

/// The rule on pings of each source.
const PINGS: &str = "icmp_type=echo-request remote_address";

#[test]
fn a_ping_falls_under_its_type_in_both_families() {
    let mut daemon = Daemon::start(&[]);
    daemon.write(
        "descriptors: [{key: icmp_type, value: echo-request, descriptors: [{key: remote_address, \
         rate_limit: {unit: hour, requests_per_unit: 2, burst: 2}}]}]\n",
    );
    daemon.service.reload().unwrap();
    let mut ask = |from: &str, to: &str, icmp_type: Option<&str>| {
        let (from, to) = (from.to_owned(), Some(to.to_owned()));
        let icmp_type = icmp_type.map(str::to_owned);
        daemon.service.explain(&AskExplain { from, to, icmp_type, ..AskExplain::default() })
    };
    for (from, to, key) in [
        ("192.0.2.1", "icmp", "ICMP echo-request from 192.0.2.1"),
        ("2001:db8::1", "icmpv6", "ICMP echo-request from 2001:db8::/64"),
    ] {
        for kind in ["echo-request", "8", "128"] {
            let reported = ask(from, to, Some(kind)).unwrap();
            assert_eq!(step(&reported, PINGS).key.as_deref(), Some(key), "{reported:?}");
            assert!(reported.exact, "{reported:?}");
        }
        let reported = ask(from, to, None).unwrap();
        assert_eq!(step(&reported, PINGS).key.as_deref(), Some(key));
        assert_eq!(reported.assumed, ["ICMP type not given; assumed echo-request"]);
        for kind in ["echo-reply", "time-exceeded", "143"] {
            let reported = ask(from, to, Some(kind)).unwrap();
            assert!(
                reported.exact && reported.steps.iter().all(|step| step.rule.is_none()),
                "{reported:?}"
            );
        }
    }
    // The type is not asked for of other protocols.
    assert!(ask("192.0.2.1", "22/tcp", None).unwrap().exact);
    for (to, kind, problem) in [
        ("icmp", "3", "icmp_type: \"3\" is no ICMP type: write a name"),
        ("22/tcp", "8", "icmp_type: only ICMP has types"),
    ] {
        let Err(Refusal::Invalid(error)) = ask("192.0.2.1", to, Some(kind)) else { panic!("{to}") };
        assert!(error.starts_with(problem), "{error}");
    }
}

#[test]
fn a_check_of_a_packet_is_exact() {
    let mut daemon = with_ports();
    let mut check = |to: Option<&str>, flags: Option<&str>| {
        let (to, flags) = (to.map(str::to_owned), flags.map(str::to_owned));
        let address = "192.0.2.1".to_owned();
        let asked = CheckSource { address, to, flags, ..CheckSource::default() };
        daemon.service.check(&asked).unwrap()
    };
    let reported = check(Some("22/tcp"), Some("SYN"));
    assert!(reported.exact, "{reported:?}");
    // The limit with the least left.
    assert_eq!((reported.limit, reported.remaining), (Some(2), Some(2)));
    assert_eq!(reported.count.as_deref(), Some("syns"));
    let reported = check(Some("22/tcp"), None);
    assert_eq!(reported.not_looked_at, ["TCP flags not given; assumed SYN"]);
    assert!(!check(None, None).exact);
}

/// The program takes the rules back by itself. Answers no longer name rules that it does not use.
#[test]
fn at_the_end_of_a_trial_the_rules_before_are_reported_at_once() {
    let mut daemon = with_ports();
    let text =
        "descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]\n";
    let documents = vec![Document { name: "new.yaml".into(), text: text.into() }];
    let rules =
        ApplyRules { documents, force: true, confirm_seconds: NonZeroU32::new(60), session: None };
    daemon.service.apply_rules(&rules).unwrap();
    let reported = ask(&mut daemon, Some("22/tcp"), Some("SYN"));
    assert_eq!(reported.trial_seconds_left, Some(60));
    let tried = step(&reported, "every source");
    assert_eq!(
        (tried.limits[0].limit.as_str(), tried.origin.as_deref()),
        ("1/day burst 1", Some("applied"))
    );
    daemon.fake.state().now = Ticks::from_nanos(65_000_000_000);
    let reported = ask(&mut daemon, Some("22/tcp"), Some("SYN"));
    assert_eq!(reported.trial_seconds_left, None);
    assert_eq!(step(&reported, "every source").limits[0].limit, "100/s burst 20");
    assert_eq!(reported.generation, daemon.fake.state().model.generation());
}

/// For a packet that waits, the answer gives the time, its end and whether it really waits; a
/// packet that would wait too long is dropped for that reason.
#[test]
fn a_packet_that_waits_is_told_how_long() {
    let mut daemon = Daemon::start_on(Fake::default().in_mode(Mode::Tc(Way::Out)), &[]);
    // One packet each 100 ms: with a burst of one, the second packet waits that long, and the
    // fourth would wait too long.
    daemon.write(
        "descriptors:
  - key: remote_address
    direction: out
    rate_limit: {unit: second, requests_per_unit: 10, burst: 1}
    action: {delay: {longest: 250ms}}
",
    );
    daemon.service.reload().unwrap();
    let at = Ticks::from_nanos(5_000_000_000);
    daemon.fake.state().now = at;
    daemon.fake.state().wall = Some(Duration::from_secs(1_700_000_000));
    let asked = AskExplain {
        from: "192.0.2.1".into(),
        direction: Some("out".into()),
        ..AskExplain::default()
    };
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 198, 51, 100, 1, 192, 0, 2, 1]);
    frame.resize(60, 0);
    let mut next = |queueing: Queueing| {
        daemon.fake.state().queueing = Some(queueing);
        let reported = daemon.service.explain(&asked).unwrap();
        let packet = Packet::at_tc(Framing::Ethernet, &frame, Way::Out, None, 7);
        let outcome = daemon.fake.state().model.judge_packet(&packet, at);
        assert_eq!(reported.reason, outcome.reason.name());
        let departure = daemon.fake.state().model.departure();
        let wait = departure.map(|departure| departure.since(at).as_nanos_rounded_up());
        assert_eq!(reported.waits_ns, wait.filter(|wait| *wait > 0));
        reported
    };
    let fq = || Queueing::Fq(Fq { packets: 1000, flow_packets: 1000 });
    let reported = next(fq());
    assert_eq!((reported.happens.as_str(), reported.departs_at), ("it passes", None));
    let reported = next(fq());
    assert_eq!(reported.waits_ns.map(|wait| wait / 1_000_000), Some(100));
    assert_eq!(reported.departs_at.as_deref(), Some("2023-11-14T22:13:20.100Z"));
    let waits = "it waits 100 ms, until 2023-11-14T22:13:20.100Z, and then passes";
    assert_eq!(reported.happens, waits);
    let limit = &step(&reported, "direction=out remote_address").limits[0];
    assert_eq!((limit.waits_ns, limit.conforms), (reported.waits_ns, true));
    // The rule that holds it back.
    assert_eq!(reported.rule, step(&reported, "direction=out remote_address").rule);
    assert!(reported.rule.is_some());
    let text = limiter_api::render::text(&reported);
    assert!(text.contains("waits 100 ms") && text.contains("pass: delayed"), "{text}");
    let reported = next(Queueing::Other("pfifo_fast".into()));
    let at_once = "it passes at once: fake0 has pfifo_fast, and with fq it would wait 200 ms, \
                   until 2023-11-14T22:13:20.200Z";
    assert_eq!(reported.happens, at_once);
    let reported = next(fq());
    assert_eq!((reported.verdict.as_str(), reported.waits_ns), ("drop", None));
    let too_long = "it is dropped: it would have to wait longer than 250 ms";
    assert_eq!(reported.happens, too_long);
    let limit = &step(&reported, "direction=out remote_address").limits[0];
    assert_eq!((limit.waits_ns, limit.conforms), (None, false));
}

/// An outgoing packet may wait on one interface and not on another, so the assumed interface is
/// named. Two hooks of one interface count as one.
#[test]
fn the_interface_that_is_assumed_is_named_where_it_matters() {
    let rules = "descriptors: [{key: remote_address, direction: out, rate_limit: {rate: 10/s, \
                 burst: 1}, action: {delay: {longest: 2s}}}]\n";
    let out = Mode::Tc(Way::Out);
    for (fake, words) in [
        (Fake::default().in_mode(out).beside(out), Some("assumed fake0, of fake0, fake1")),
        (Fake::default().in_mode(out).beside(Mode::Native), None),
    ] {
        let mut daemon = Daemon::start_on(fake, &[]);
        daemon.write(rules);
        daemon.service.reload().unwrap();
        daemon.fake.state().now = Ticks::from_nanos(5_000_000_000);
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([198, 51, 100, 1, 192, 0, 2, 1]);
        frame.resize(60, 0);
        let now = daemon.fake.state().now;
        let asked = AskExplain {
            from: "192.0.2.1".into(),
            to: Some("9/udp".into()),
            direction: Some("out".into()),
            ..AskExplain::default()
        };
        // It does not wait yet, so the interface does not matter.
        assert!(daemon.service.explain(&asked).unwrap().exact);
        let packet = Packet::at_tc(Framing::Ethernet, &frame, Way::Out, None, 7);
        daemon.fake.state().model.judge_packet(&packet, now);
        let reported = daemon.service.explain(&asked).unwrap();
        assert!(reported.waits_ns.is_some() && reported.packet.ends_with("by fake0"));
        let assumed = words.map(|words| format!("interface not given; {words}"));
        assert_eq!(reported.assumed, assumed.into_iter().collect::<Vec<_>>());
        let named = AskExplain { interface: Some("fake0".into()), ..asked };
        assert!(daemon.service.explain(&named).unwrap().exact);
    }
}
