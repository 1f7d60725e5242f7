//! `GET /v1/explain` of which not all is said: what was not looked at is not denied.

use limiter_api::explain::{AskExplain, ExplainedNow};
use limiter_common::verdict::Reason;
use limiter_common::wire::{Event, RULE_NONE};
use limiter_datapath::fake::Fake;
use limiter_datapath::{Framing, Mode};
use limiter_model::Packet;

use super::*;

const BY_INTERFACE: &str = "descriptors:
  - {key: interface, rate_limit: {name: cable, unit: hour, requests_per_unit: 2, burst: 2}}
";

impl Daemon {
    fn with_rules(fake: Fake, rules: &str) -> Self {
        let mut daemon = Self::start_on(fake, &[]);
        daemon.write(rules);
        daemon.service.reload().unwrap();
        daemon
    }

    /// Packets of 192.0.2.7 that come by an interface.
    fn come_by(&self, interface: u32, packets: u32) {
        let mut state = self.fake.state();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([192, 0, 2, 7, 198, 51, 100, 1]);
        frame.resize(60, 0);
        let now = state.now;
        for _ in 0..packets {
            let packet = Packet::received(Framing::Ethernet, &frame, 60, interface);
            state.model.judge_packet(&packet, now);
        }
    }

    fn explained(&mut self, interface: Option<&str>) -> ExplainedNow {
        let interface = interface.map(str::to_owned);
        let from = "192.0.2.7".to_owned();
        self.service.explain(&AskExplain { from, interface, ..AskExplain::default() }).unwrap()
    }
}

/// A rule by interface is checked for each, and a source that one of them drops does not pass.
#[test]
fn an_interface_that_is_not_given_may_be_any() {
    let mut daemon = Daemon::with_rules(Fake::default().beside(Mode::Native), BY_INTERFACE);
    assert_eq!(daemon.explained(None).verdict, "pass");
    daemon.come_by(8, 3);
    let of = |daemon: &mut Daemon, interface: Option<&str>| {
        let explained = daemon.explained(interface);
        (explained.verdict, explained.happens)
    };
    let happens = "it is dropped by fake1, and passes by fake0".to_owned();
    assert_eq!(of(&mut daemon, None), ("unknown".to_owned(), happens));
    assert!(!daemon.explained(None).exact);
    let dropped = ("drop".to_owned(), "it is dropped".to_owned());
    assert_eq!(of(&mut daemon, Some("fake1")), dropped);
    assert_eq!(of(&mut daemon, Some("fake0")).0, "pass");
    daemon.come_by(7, 3);
    assert_eq!(of(&mut daemon, None), dropped);
}

/// A single interface needs no assumption.
#[test]
fn the_only_interface_is_known() {
    let mut daemon = Daemon::with_rules(Fake::default(), BY_INTERFACE);
    daemon.come_by(7, 3);
    let explained = daemon.explained(None);
    assert_eq!((explained.verdict.as_str(), explained.exact), ("drop", true));
}

/// Reported drops of the source that go on, by rules in force and in the direction of the packet,
/// stand beside an uncertain verdict.
#[test]
fn drops_that_were_reported_are_named() {
    let rules = "descriptors:
  - {key: destination_port, value: 22, rate_limit: {name: ssh, rate: 2/hour, burst: 2}}
";
    let mut daemon = Daemon::with_rules(Fake::default(), rules);
    let explained = daemon.explained(None);
    assert_eq!((explained.verdict.as_str(), explained.dropped_lately), ("unknown", vec![]));
    let service = &daemon.service;
    let names = crate::views::rule_names(service.datapath().unwrap(), &service.rule_sets.effective);
    let ssh = *names.iter().find(|(_, title)| title.name.as_deref() == Some("ssh")).unwrap().0;
    let event = |last, (rule, reason): (u32, Reason), known| Event {
        source: Source::V4([192, 0, 2, last]).trie_key(),
        time: 1,
        interface: 7,
        length: 60,
        reason: reason as u8,
        version: 4,
        packets: 1,
        rule,
        known,
        ..Event::default()
    };
    let by_ssh = (ssh, Reason::OverLimit);
    // The ban is over, and what goes out is another question.
    let others = [event(7, (RULE_NONE, Reason::Banned), 0), event(7, by_ssh, Event::OUT)];
    let events = [event(7, by_ssh, 0), event(7, by_ssh, 0), event(8, by_ssh, 0)];
    daemon.fake.state().events.extend(events.into_iter().chain(others));
    daemon.service.take_events();
    let explained = daemon.explained(None);
    assert_eq!(explained.verdict, "unknown");
    let [drops] = explained.dropped_lately.as_slice() else { panic!("{explained:?}") };
    assert!(drops.starts_with("2 reported since "), "{drops}");
    assert!(drops.ends_with(" by ssh: over-limit, the last by fake0"), "{drops}");
    let text = limiter_api::render::text(&explained);
    assert!(text.contains("\ndropped    2 reported since "), "{text}");
    // Of a rule that is gone nothing drops it any more.
    daemon.write(&rules.replace("22", "23").replace("ssh", "telnet"));
    daemon.service.reload().unwrap();
    assert_eq!(daemon.explained(None).dropped_lately, Vec::<String>::new());
}
