//! Limits of `limiter set` on an interface, and those that let packets wait.

use limiter_common::header::Direction;
use limiter_datapath::{Fq, Mode, Queueing};
use limiter_rules::{Rule, Target, Terms, Words};

use super::*;

fn on(interface: &str) -> SetLimit {
    SetLimit {
        interface: Some(interface.into()),
        shared: true,
        rate: "8mbit/s".into(),
        burst: Some(20_000),
        ..SetLimit::default()
    }
}

#[test]
fn an_interface_has_a_limit_until_it_is_unset() {
    let mut daemon = Daemon::start(&[]);
    let set = daemon.service.set(&on("fake0")).unwrap();
    assert_eq!(
        set.done.unwrap(),
        "interface=fake0: 8mbit/s burst 20 kB, was no limit; all of them share it"
    );
    let missing = daemon.service.set(&on("fake7")).unwrap_err().to_string();
    assert!(missing.starts_with("there is no interface fake7"), "{missing}");
    let mut daemon = daemon.restart(&[]);
    let unset =
        |shared| UnsetLimit { interface: Some("fake0".into()), shared, ..UnsetLimit::default() };
    let other = daemon.service.unset(&unset(false)).unwrap_err().to_string();
    assert!(other.contains("`limiter unset --interface fake0 --shared` removes it"), "{other}");
    let done = daemon.service.unset(&unset(true)).unwrap().done.unwrap();
    assert_eq!(done, "interface=fake0: no limit, was 8mbit/s burst 20 kB");
}

/// A container that goes must not keep others from getting limits, nor the daemon from starting.
#[test]
fn a_limit_on_an_interface_that_is_gone_keeps_no_other_rule_out() {
    let mut daemon = Daemon::start(&[]);
    for name in ["gone0", "gone1"] {
        let interface = Some(name);
        let path =
            Target::parse(Words { interface, shared: true, ..Words::default() }).unwrap().path;
        let rule = Rule::new(path.clone(), Terms::Unlimited);
        daemon.service.rule_sets.layers.edits.insert(path, Arc::new(rule));
    }
    daemon.set("192.0.2.7", "5/s", None).unwrap();
    daemon.service.reload().unwrap();
    let daemon = daemon.restart(&[]);
    let sources: Vec<String> =
        daemon.service.limits().unwrap().limits.into_iter().map(|of| of.source).collect();
    for name in ["interface=gone0", "interface=gone1", "192.0.2.7"] {
        assert!(sources.iter().any(|source| source == name), "{sources:?}");
    }
}

/// On the way out packets wait in `fq` alone, of the interface that is named.
#[test]
fn a_limit_that_packets_cannot_wait_for_is_refused() {
    let mut daemon =
        Daemon::start_on(Fake::default().in_mode(Mode::Tc(Direction::Out)), &["192.0.2.99"]);
    let waits = SetLimit { delay_ms: Some(100), direction: Some("out".into()), ..on("fake0") };
    let before = daemon.rules();
    daemon.fake.state().queueing = Some(Queueing::NoFq("noqueue".to_owned()));
    let refused = daemon.service.set(&waits).unwrap_err();
    assert!(
        matches!(&refused, Refusal::Conflict(text) if text.starts_with("not set: packets cannot \
            wait on fake0, which has noqueue and not fq: ")),
        "{refused}"
    );
    assert_eq!(daemon.rules(), before);
    let fq = |flow_packets| Queueing::Fq(Fq { flow_packets, packets: 10_000 });
    daemon.fake.state().queueing = Some(fq(100));
    let refused = daemon.service.set(&waits).unwrap_err().to_string();
    assert!(refused.contains("has room for 100 packets of a flow"), "{refused}");
    daemon.fake.state().queueing = Some(fq(1_667));
    let done = daemon.service.set(&waits).unwrap().done.unwrap();
    assert!(done.contains("delay"), "{done}");
    // Another interface's packets need no room here.
    let other = SetLimit { rate: "800mbit/s".into(), ..waits.clone() };
    let set = daemon.service.set(&SetLimit { interface: Some("fake1".into()), ..other }).unwrap();
    assert!(!set.warnings.iter().any(|line| line.contains("fq on fake0")), "{:?}", set.warnings);
    for (limit, words) in [
        (SetLimit { reject: true, ..waits.clone() }, "waits or is rejected"),
        (SetLimit { delay_ms: Some(2_001), ..waits.clone() }, "packets wait 1ms to 2s"),
        (SetLimit { rate: "unlimited".into(), burst: None, ..waits }, "leave --delay out"),
    ] {
        let refused = daemon.service.set(&limit).unwrap_err();
        assert!(matches!(&refused, Refusal::Invalid(text) if text.contains(words)), "{refused}");
    }
}
