//! Limits of `limiter set` on ports, over prefixes, with a name and for a time; and the answers.

use limiter_api::lists::{ListName, SetList};

use super::*;
use crate::rule_sets::limit_ends;

fn limit(fields: SetLimit) -> SetLimit {
    SetLimit { rate: "5/min".into(), ..fields }
}

fn done(daemon: &mut Daemon, limit: &SetLimit) -> String {
    daemon.service.set(limit).unwrap().done.unwrap()
}

#[test]
fn a_limit_on_a_port_has_keys_a_name_and_a_unit() {
    let mut daemon = Daemon::start(&[]);
    let ssh = limit(SetLimit {
        to: Some("22/tcp".into()),
        count: Some("syns".into()),
        name: Some("ssh".into()),
        burst: Some(3),
        ..SetLimit::default()
    });
    assert_eq!(
        done(&mut daemon, &ssh),
        "protocol=tcp destination_port=22 remote_address: 5 syns/min burst 3, was no limit; each \
         address, or IPv6 /64, has it"
    );
    let all = limit(SetLimit {
        source: Some("198.51.100.0/24".into()),
        shared: true,
        ..SetLimit::default()
    });
    assert_eq!(
        done(&mut daemon, &all),
        "masked_remote_address/v4:24=198.51.100.0/24: 5/min burst 5, was no limit; all of \
         198.51.100.0/24 shares it"
    );
    let dns = limit(SetLimit { to: Some("53/udp".into()), shared: true, ..SetLimit::default() });
    assert_eq!(
        done(&mut daemon, &dns),
        "protocol=udp destination_port=53: 5/min burst 5, was no limit; all of them share it"
    );
    let daemon = daemon.restart(&[]);
    let limits = daemon.service.limits().unwrap().limits;
    let named = limits.iter().find(|entry| entry.name.as_deref() == Some("ssh")).unwrap();
    assert_eq!((named.limit.as_str(), named.origin), ("5 syns/min", Origin::Cli));
    assert_eq!(limits.len(), 5);
}

/// A limit on each and one over all of them together are two: the other one is named.
#[test]
fn a_limit_that_differs_in_shared_is_named() {
    let mut daemon = Daemon::start(&[]);
    let to = || Some("22/tcp".to_owned());
    let count = Some("syns".to_owned());
    let all = SetLimit { to: to(), shared: true, count: count.clone(), ..SetLimit::default() };
    done(&mut daemon, &limit(all));
    let unset = |shared| UnsetLimit { to: to(), shared, ..UnsetLimit::default() };
    let refused = daemon.service.unset(&unset(false)).unwrap_err().to_string();
    assert!(
        refused.ends_with("in --shared: `limiter unset --port 22/tcp --shared` removes it"),
        "{refused}"
    );
    let each = limit(SetLimit { to: to(), count, ..SetLimit::default() });
    let said = done(&mut daemon, &each);
    let end = "; protocol=tcp destination_port=22 has 5 syns/min burst 5 beside it: `limiter unset \
               --port 22/tcp --shared` removes that";
    assert!(said.ends_with(end), "{said}");
    daemon.service.unset(&unset(true)).unwrap();
    let refused = daemon.service.unset(&unset(true)).unwrap_err().to_string();
    assert!(
        refused.ends_with("in --shared: `limiter unset --port 22/tcp` removes it"),
        "{refused}"
    );
    daemon.service.unset(&unset(false)).unwrap();
    let refused = daemon.service.unset(&unset(false)).unwrap_err().to_string();
    assert!(refused.ends_with("`limiter list` shows all"), "{refused}");
}

/// Limits of `limiter set` outlive the daemon: its next start reports them.
#[test]
fn a_start_reports_the_limits_that_were_set_before() {
    let mut daemon = Daemon::start(&[]);
    assert_eq!(daemon.service.rule_sets.kept(), None);
    daemon.set("192.0.2.7", "5/min", None).unwrap();
    let mut daemon = daemon.restart(&[]);
    let one = "1 limit of `limiter set` is in force again: remove it by `limiter unset 192.0.2.7`";
    assert_eq!(daemon.service.rule_sets.kept().as_deref(), Some(one));
    let to = Some("53/udp".to_owned());
    done(&mut daemon, &limit(SetLimit { to, shared: true, ..SetLimit::default() }));
    let mut daemon = daemon.restart(&[]);
    let two = "2 limits of `limiter set` are in force again: remove them by `limiter unset \
               192.0.2.7`, `limiter unset --port 53/udp --shared`";
    assert_eq!(daemon.service.rule_sets.kept().as_deref(), Some(two));
    for last in 8..10 {
        daemon.set(&format!("192.0.2.{last}"), "5/min", None).unwrap();
    }
    let many = "4 limits of `limiter set` are in force again: remove them by `limiter unset`: \
                `limiter list` has them";
    assert_eq!(daemon.restart(&[]).service.rule_sets.kept().as_deref(), Some(many));
    // None is in force inside a management prefix.
    let mut daemon = Daemon::start(&[]);
    daemon.set("192.0.2.7", "5/min", None).unwrap();
    assert_eq!(daemon.restart(&["192.0.2.0/24"]).service.rule_sets.kept(), None);
}

/// A source exempt from one rule may still be limited by rules for ports.
#[test]
fn what_limits_an_exempt_source_all_the_same_is_said() {
    let mut daemon = Daemon::start(&[]);
    let exempt = |source: &str| SetLimit {
        source: Some(source.into()),
        rate: "unlimited".into(),
        ..SetLimit::default()
    };
    let was = "203.0.113.53: unlimited, was 100/s burst 20 (every source)";
    assert_eq!(done(&mut daemon, &exempt("203.0.113.53")), was);
    let dns = SetLimit { to: Some("53/udp".into()), ..limit(SetLimit::default()) };
    done(&mut daemon, &dns);
    assert_eq!(
        done(&mut daemon, &exempt("203.0.113.54")),
        "203.0.113.54: unlimited, was 100/s burst 20 (every source); limited by others all the \
         same, the rule for protocol=udp destination_port=53 remote_address: `limiter allow \
         203.0.113.54` lifts all"
    );
    let sources = vec!["203.0.113.55".into()];
    let allow = SetList { list: ListName::Allow, sources, ..SetList::default() };
    daemon.service.list(&allow).unwrap();
    assert!(!done(&mut daemon, &exempt("203.0.113.55")).contains("others"));
}

/// A slow rate on a TCP port needs a confirmation, because it stops packets of open sessions. An
/// explicit request is accepted, with a warning.
#[test]
fn a_slow_rate_on_a_port_of_tcp_is_asked_about() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let to = |to: &str, count: Option<&str>, rate: &str| SetLimit {
        to: Some(to.into()),
        count: count.map(str::to_owned),
        rate: rate.into(),
        ..SetLimit::default()
    };
    let before = daemon.rules();
    for (port, rate) in [("22/tcp", "5/min"), ("443", "100/hour"), ("tcp", "1000/week")] {
        let error = daemon.service.set(&to(port, None, rate)).unwrap_err().to_string();
        for words in ["packets or connections?", "--count syns", "--count packets", rate] {
            assert!(error.contains(words), "{error}");
        }
    }
    assert_eq!(daemon.rules(), before, "what is asked about changes nothing");
    let mut warnings = |limit: SetLimit| daemon.service.set(&limit).unwrap().warnings;
    let output = warnings(to("22/tcp", Some("packets"), "5/min"));
    assert!(output.len() == 1 && output[0].contains("write `rate: 5 syns/min`"), "{output:?}");
    let output = warnings(to("443/tcp", None, "5/s"));
    assert!(
        output.len() == 1
            && output[0].starts_with("the rule for protocol=tcp destination_port=443 ")
    );
    assert!(output[0].contains("carries no TCP session"), "{output:?}");
    for limit in [
        to("25/tcp", Some("syns"), "5/min"),
        to("80/tcp", None, "5 syns/min"),
        to("53/udp", None, "5/min"),
        to("icmp", None, "5/min"),
        to("8080/tcp", None, "1000/min"),
    ] {
        assert_eq!(warnings(limit), [""; 0]);
    }
}

/// A burst that starves TCP is reported at the limit that has it, with the burst to write.
#[test]
fn a_short_burst_is_reported_when_it_is_set() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let output = daemon.set("192.0.2.7", "20mbit/s", Some(60_000)).unwrap().warnings;
    assert!(output.len() == 1 && output[0].contains("write `burst: 625kB`"), "{output:?}");
    let output = daemon.set("192.0.2.8", "100mbit/s", Some(60_000)).unwrap().warnings;
    assert!(output.len() == 1 && output[0].starts_with("the rule for 192.0.2.8 has"), "{output:?}");
    assert_eq!(daemon.set("192.0.2.9", "20mbit/s", None).unwrap().warnings, [""; 0]);
}

/// A limit replaces a rule with everything that it had, and the answer says so.
#[test]
fn what_a_limit_does_not_take_over_is_said() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    daemon.write(
        "descriptors: [{key: destination_port, value: 22, descriptors: [{key: remote_address, \
         rate_limit: {rate: 10 syns/min}, action: {ban: {first: 10min, evidence: none}}}]}]\n",
    );
    daemon.service.reload().unwrap();
    let port =
        |rate: &str| SetLimit { to: Some("22".into()), rate: rate.into(), ..SetLimit::default() };
    let done = done(&mut daemon, &port("5 syns/min"));
    assert!(
        done.contains("5 syns/min burst 5, was 10 syns/min burst 10; ban 10 min to 1 d"),
        "{done}"
    );
    assert!(
        done.ends_with(
            "`ban 10 min to 1 d` is not in it: bans in force go on, and no new ones come"
        )
    );
    let limits = daemon.service.limits().unwrap().limits;
    let rule = limits.iter().find(|rule| rule.source.contains("destination_port=22")).unwrap();
    assert_eq!(rule.action.as_deref(), Some("drop"));
}

#[test]
fn the_answer_says_what_holds_and_what_held() {
    let mut daemon = Daemon::start(&[]);
    let mut set =
        |source: &str, rate: &str| daemon.set(source, rate, Some(10)).unwrap().done.unwrap();
    assert_eq!(
        set("203.0.113.7", "5/min"),
        "203.0.113.7: 5/min burst 10, was 100/s burst 20 (every source)"
    );
    assert_eq!(set("203.0.113.7", "6/min"), "203.0.113.7: 6/min burst 10, was 5/min burst 10");
    assert_eq!(
        set("203.0.113.0/24", "7/min"),
        "203.0.113.0/24: 7/min burst 10, was 100/s burst 20 (every source); each address of \
         203.0.113.0/24 has it"
    );
    let gone = daemon.unset("203.0.113.7").unwrap().done.unwrap();
    assert_eq!(gone, "203.0.113.7: 7/min burst 10 (203.0.113.0/24), was 6/min burst 10");
}

#[test]
fn a_limit_for_a_time_ends_by_itself_also_after_a_restart() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.rules();
    let hour = limit(SetLimit {
        source: Some("203.0.113.7".into()),
        seconds: Some(3600),
        ..SetLimit::default()
    });
    assert_eq!(
        done(&mut daemon, &hour),
        "203.0.113.7: 5/min burst 5 for 1 h, was 100/s burst 20 (every source)"
    );
    daemon.service.housekeep().unwrap();
    let left = |daemon: &Daemon| {
        let limits = daemon.service.limits().unwrap().limits;
        limits.iter().find_map(|entry| entry.ends_in_seconds)
    };
    assert!(left(&daemon).is_some_and(|left| left <= 3600));
    let state = daemon.directory.path().join("state");
    let mut daemon = daemon.restart(&[]);
    let edits = &daemon.service.rule_sets.layers.edits;
    let ends = limit_ends::load(&daemon.service.state, edits, &mut Vec::new()).unwrap();
    daemon.service.rule_sets.layers.ends = ends;
    assert_eq!(daemon.service.rule_sets.layers.ends.len(), 1);
    // A limit without an end in its place has none.
    daemon.set("203.0.113.7", "5/min", Some(5)).unwrap();
    assert!(fs::read_to_string(state.join("ends.json")).unwrap().starts_with("[]\n"));
    done(&mut daemon, &hour);
    for end in daemon.service.rule_sets.layers.ends.values_mut() {
        *end = 1;
    }
    daemon.service.housekeep().unwrap();
    assert_eq!((daemon.rules(), left(&daemon)), (before, None));
    assert!(!fs::read_to_string(state.join("edits.json")).unwrap().contains("203.0.113.7"));
}

#[test]
fn words_that_mean_nothing_are_refused() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let mut refused = |limit: SetLimit| daemon.service.set(&limit).unwrap_err().to_string();
    let with = |to: &str| SetLimit { to: Some(to.into()), ..limit(SetLimit::default()) };
    for (limit, message) in [
        (limit(SetLimit::default()), "whom to limit is not said"),
        (with("1/icmp"), "icmp has no ports: write icmp alone"),
        (
            SetLimit { rate: "2mbit/s".into(), count: Some("syns".into()), ..with("22") },
            "\"2mbit/s\" counts bytes",
        ),
        (SetLimit { count: Some("bits".into()), ..with("22") }, "count: \"bits\" is no unit"),
        (SetLimit { name: Some("a\u{1b}b".into()), ..with("22/udp") }, "name: it is empty"),
        (SetLimit { seconds: Some(0), ..with("22/udp") }, "0 seconds are over at once"),
        (
            SetLimit { source: Some("192.0.2.99".into()), ..with("22") },
            "192.0.2.99 is inside the management prefix",
        ),
    ] {
        let error = refused(limit);
        assert!(error.starts_with(message), "{error}");
    }
    let none = UnsetLimit { to: Some("23/tcp".into()), ..UnsetLimit::default() };
    assert_eq!(
        daemon.service.unset(&none).unwrap_err().to_string(),
        "there is no rule for protocol=tcp destination_port=23 remote_address: `limiter list` \
         shows all"
    );
}

#[test]
fn all_limits_that_were_set_are_removed_at_once() {
    let mut daemon = Daemon::start(&[]);
    let all = UnsetLimit { all: true, ..UnsetLimit::default() };
    let refused = daemon.service.unset(&all).unwrap_err();
    assert!(matches!(&refused, Refusal::NotFound(text) if text.starts_with("no limit was set")));
    daemon.set("192.0.2.7", "5/s", None).unwrap();
    let port = SetLimit { to: Some("53/udp".into()), shared: true, ..SetLimit::default() };
    done(&mut daemon, &limit(SetLimit { seconds: Some(60), ..port }));
    let one = UnsetLimit { source: Some("192.0.2.7".into()), ..all.clone() };
    let refused = daemon.service.unset(&one).unwrap_err();
    assert!(refused.to_string().contains("name no other packets"), "{refused}");
    assert_eq!(
        daemon.service.unset(&all).unwrap().done.unwrap(),
        "192.0.2.7: 1000/s burst 100 (192.0.2.0/24), was 5/s burst 5; protocol=udp \
         destination_port=53: no limit, was 5/min burst 5"
    );
    let daemon = daemon.restart(&[]);
    assert!(daemon.service.limits().unwrap().limits.iter().all(|rule| rule.origin == Origin::File));
}
