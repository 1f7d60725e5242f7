//! Rules on a machine that others change.

use limiter_common::header::Direction;
use limiter_common::source::Source;
use limiter_datapath::fake::Fake;
use limiter_datapath::{Fq, Mode, Queueing};

use super::Daemon;

const DELAY: &str = "descriptors:
  - key: remote_address
    direction: out
    rate_limit: {rate: 1000/s, burst: 10}
    action: {delay: {longest: 1s}}
";

impl Daemon {
    /// The warnings of `status`, after the housekeeping of some seconds.
    fn warnings_later(&mut self) -> Vec<String> {
        for _ in 0..5 {
            self.service.housekeep().unwrap();
        }
        self.service.status().unwrap().warnings
    }
}

/// A queueing discipline that somebody takes away, or puts there, is noticed without a reload.
#[test]
fn packets_that_wait_no_longer_are_noticed() {
    let mut daemon =
        Daemon::start_on(Fake::default().in_mode(Mode::Tc(Direction::Out)), &["192.0.2.99"]);
    let fq = |flow_packets| Queueing::Fq(Fq { flow_packets, packets: 10_000 });
    daemon.fake.state().queueing = Some(fq(2_000));
    daemon.write(DELAY);
    daemon.service.reload().unwrap();
    assert_eq!(daemon.service.status().unwrap().warnings, [""; 0]);
    let command = "tc qdisc replace dev fake0 root fq flow_limit 1000 limit 10000";
    for (found, words) in [
        (Queueing::Other("pfifo_fast".to_owned()), "which has pfifo_fast and not fq"),
        (Queueing::Other("tbf".to_owned()), "tbf may be somebody's limit"),
        (Queueing::NoFq("noqueue".to_owned()), "load the module sch_fq"),
        (fq(100), "has room for 100 packets of a flow"),
    ] {
        daemon.fake.state().queueing = Some(found);
        let warnings = daemon.warnings_later();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].contains(words) && warnings[0].contains(command), "{warnings:?}");
        daemon.fake.state().queueing = Some(fq(2_000));
        assert_eq!(daemon.warnings_later(), [""; 0]);
    }
    let delays = daemon.service.status().unwrap().delays.unwrap();
    assert_eq!(delays.packets, 1_000);
}

/// A warning about a rule set is reported once, and disappears with its rule set.
#[test]
fn a_look_at_the_machine_belongs_to_its_rule_set() {
    let mut daemon =
        Daemon::start_on(Fake::default().in_mode(Mode::Tc(Direction::Out)), &["192.0.2.99"]);
    daemon.write(DELAY);
    let told = daemon.service.reload().unwrap().warnings;
    assert!(told.iter().any(|warning| warning.contains("and not fq")), "{told:?}");
    assert_eq!(daemon.service.reload().unwrap().warnings, [""; 0]);
    daemon.write(
        "descriptors:\n  - {key: remote_address, direction: out, rate_limit: {rate: 9/s}}\n",
    );
    daemon.service.reload().unwrap();
    assert_eq!(daemon.warnings_later(), [""; 0]);
}

/// A rule that no packet meets is in force without an effect, which status says with a number.
#[test]
fn rules_that_meet_nothing_are_named() {
    let mut daemon = Daemon::start(&["203.0.113.0/24"]);
    let met = |daemon: &Daemon| {
        let unmet = daemon.service.status().unwrap().unmet;
        unmet.map(|unmet| (unmet.rules, unmet.in_all, unmet.of, unmet.packets))
    };
    let office = || vec!["office".to_owned()];
    let all = vec!["every source".to_owned(), "office".to_owned()];
    assert_eq!(met(&daemon), Some((all.clone(), 2, 2, 0)));
    daemon.fake.send(Source::V4([198, 51, 100, 7]), 1_200, 60);
    assert_eq!(met(&daemon), Some((office(), 1, 2, 1_200)));
    let text = limiter_api::render::text(&daemon.service.status().unwrap());
    assert!(text.contains("1 of 2 rules by none of 1,200 packets: office"), "{text}");
    // Warnings that earlier rules had do not count.
    daemon.service.reload().unwrap();
    assert_eq!(met(&daemon), Some((office(), 1, 2, 0)));
    daemon.fake.send(Source::V4([192, 0, 2, 7]), 1, 60);
    assert_eq!(met(&daemon), None);
}
