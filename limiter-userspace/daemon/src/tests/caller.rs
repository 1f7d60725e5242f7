//! An author of a change is not locked out by it: limits and lists that would meet their own SSH
//! session.

use std::net::IpAddr;
use std::num::NonZeroU32;

use limiter_api::bans::SetBan;
use limiter_api::lists::{ListName, SetList, UnsetList};
use limiter_api::rules::{ApplyRules, Document, Session};

use super::*;

const PEER: &str = "203.0.113.7";

fn session() -> Session {
    Session { peer: peer(), port: Some(22) }
}

fn peer() -> IpAddr {
    PEER.parse().unwrap()
}

/// A change by somebody who came from [`PEER`].
#[derive(Clone, Copy, Debug)]
enum Change<'a> {
    Set(&'a str, &'a str),
    Shadow(&'a str, &'a str),
    Unset(&'a str),
    List(ListName, &'a [&'a str], Option<u64>),
    Unlist(&'a str),
}

use Change::{List, Set, Shadow, Unlist, Unset};
use ListName::{Allow, Deny};

impl Daemon {
    fn make(&mut self, change: Change<'_>, force: bool) -> Result<(), Refusal> {
        let (from, port) = (Some(peer()), Some(22));
        match change {
            Set(source, rate) | Shadow(source, rate) => {
                let shadow = matches!(change, Shadow(..));
                let (source, rate, session) = (source.into(), rate.into(), Some(session()));
                let burst = None;
                let limit = SetLimit {
                    source: Some(source),
                    rate,
                    burst,
                    shadow,
                    force,
                    session,
                    ..SetLimit::default()
                };
                self.service.set(&limit).map(drop)
            }
            Unset(source) => {
                let source = source.to_string();
                self.service
                    .unset(&UnsetLimit {
                        source: Some(source),
                        force,
                        peer: from,
                        port,
                        ..UnsetLimit::default()
                    })
                    .map(drop)
            }
            List(list, sources, seconds) => {
                let sources = sources.iter().map(|source| (*source).to_owned()).collect();
                let session = Some(session());
                self.service
                    .list(&SetList { list, sources, seconds, force, session, ..SetList::default() })
                    .map(drop)
            }
            Unlist(source) => {
                let source = Some(source.to_owned());
                self.service
                    .unlist(&UnsetList { source, force, peer: from, port, ..UnsetList::default() })
                    .map(drop)
            }
        }
    }

    /// All state that a change could affect.
    fn all(&self) -> (u64, Vec<String>, String) {
        let lists = self.service.lists().unwrap();
        (self.service.status().unwrap().generation, self.rules(), format!("{lists:?}"))
    }
}

#[test]
fn who_types_is_not_locked_out() {
    let refused: &[(&[Change<'_>], Change<'_>, &str)] = &[
        (
            &[],
            Set(PEER, "1/week"),
            "the rule for 203.0.113.7 would limit your own SSH session from 203.0.113.7: run \
             `limiter allow 203.0.113.7` before",
        ),
        (&[], Set("0.0.0.0/0", "5/s"), "the rule for 0.0.0.0/0 would limit"),
        (
            &[],
            List(Deny, &["0.0.0.0/0"], None),
            "the entry 0.0.0.0/0 of the deny list would drop your own SSH session from \
             203.0.113.7: run `limiter allow 203.0.113.7` before, start the daemon with \
             --management 203.0.113.7, or use --force",
        ),
        (
            &[],
            List(Deny, &["198.51.100.1", "203.0.113.0/24"], Some(600)),
            "the entry 203.0.113.0/24 of the deny list would drop",
        ),
        (
            &[],
            List(Deny, &[PEER], None),
            "203.0.113.7 is where your own SSH session comes from, and all of it would be \
             dropped: log in from elsewhere",
        ),
        // The entry that keeps the session free until then ends.
        (
            &[List(Allow, &[PEER], Some(60))],
            List(Deny, &["0.0.0.0/0"], None),
            "the entry 0.0.0.0/0 of the deny list",
        ),
        (&[List(Allow, &[PEER], Some(60))], Set(PEER, "1/week"), "the rule for 203.0.113.7"),
        (
            &[List(Allow, &[PEER], None)],
            List(Deny, &[PEER], None),
            "203.0.113.7 is where your own SSH session comes from",
        ),
        (
            &[List(Allow, &[PEER], None)],
            List(Allow, &[PEER], Some(60)),
            "the rule for every source would limit your own SSH session from 203.0.113.7, which \
             would not be allowed any more: start the daemon",
        ),
        (&[List(Allow, &[PEER], None)], Unlist(PEER), "the rule for every source would limit"),
        (
            &[List(Allow, &[PEER], None), List(Deny, &["0.0.0.0/0"], None)],
            Unlist(PEER),
            "the entry 0.0.0.0/0 of the deny list would drop your own SSH session from \
             203.0.113.7, which would not be allowed any more: run `limiter unlist 0.0.0.0/0` \
             before",
        ),
        (&[Set(PEER, "unlimited")], Unset(PEER), "the rule for every source would limit"),
    ];
    for (before, change, words) in refused {
        let mut daemon = Daemon::start(&[]);
        for change in *before {
            daemon.make(*change, true).unwrap();
        }
        let is = daemon.all();
        let refusal = daemon.make(*change, false).unwrap_err();
        assert!(matches!(refusal, Refusal::Conflict(_)), "{change:?}: {refusal:?}");
        let refusal = refusal.to_string();
        let said = refusal.strip_prefix("not applied: ").unwrap_or_default();
        assert!(said.starts_with(words), "{change:?}: {refusal}\nwant {words}");
        assert!(said.ends_with("use --force"), "{refusal}");
        assert_eq!(daemon.all(), is, "{change:?} was refused, and did something");
        daemon.make(*change, true).unwrap();
        assert_ne!(daemon.all(), is, "{change:?} was forced, and did nothing");
    }
}

#[test]
fn what_does_not_meet_the_session_needs_no_force() {
    let taken: &[(&[Change<'_>], Change<'_>)] = &[
        (&[], Set("198.51.100.1", "1/week")),
        (&[], Set("2001:db8::/48", "1/week")),
        (&[], Set(PEER, "unlimited")),
        (&[], Shadow(PEER, "1/week")),
        (&[], List(Deny, &["198.51.100.0/24", "2001:db8::/32"], None)),
        (&[], List(Allow, &[PEER], None)),
        (&[], List(Allow, &[PEER], Some(60))),
        // A forced change can be undone, and a limit no tighter than the present one can be set.
        (&[Set(PEER, "1/week")], Unset(PEER)),
        (&[Set(PEER, "10/s")], Set(PEER, "20/s")),
        (&[], Set("0.0.0.0/0", "5000/s")),
        // This makes nothing worse.
        (&[Set(PEER, "10/s")], Set(PEER, "10/s")),
        (&[List(Deny, &["198.51.100.1"], None)], Unlist("198.51.100.1")),
        (&[Set("198.51.100.1", "1/s")], Unset("198.51.100.1")),
        // The remedies are some.
        (&[List(Allow, &[PEER], None)], Set(PEER, "1/week")),
        (&[List(Allow, &[PEER], None)], List(Deny, &["203.0.0.0/16"], None)),
        (&[List(Deny, &["0.0.0.0/0"], None)], Unlist("0.0.0.0/0")),
    ];
    for (before, change) in taken {
        let mut daemon = Daemon::start(&[]);
        for change in *before {
            daemon.make(*change, true).unwrap();
        }
        daemon.make(*change, false).unwrap_or_else(|error| panic!("{change:?}: {error}"));
    }
    // A management prefix is safe already.
    for change in [List(Deny, &["203.0.0.0/16"], None), Set("0.0.0.0/0", "1/week")] {
        Daemon::start(&["203.0.113.0/24"]).make(change, false).unwrap();
    }
    let denied = Daemon::start(&["203.0.113.0/24"]).make(List(Deny, &[PEER], None), true);
    assert!(denied.unwrap_err().to_string().contains("inside the management prefix"));
}

#[test]
fn a_start_that_keeps_nobody_safe_says_so() {
    let warnings = |daemon: &Daemon| daemon.service.status().unwrap().warnings;
    let daemon = Daemon::start(&[]);
    assert!(
        matches!(&*warnings(&daemon), [one] if one.starts_with("no address is safe from the limits: ")),
        "{:?}",
        warnings(&daemon)
    );
    assert_eq!(warnings(&daemon.restart(&["192.0.2.9"])), [""; 0]);
}

/// A temporary exemption of the session does not make a rule around it harmless.
#[test]
fn an_exemption_that_ends_hides_no_rule() {
    for (seconds, refused) in [(Some(3), true), (None, false)] {
        let mut daemon = Daemon::start(&["192.0.2.99"]);
        let set = |source: &str, rate: &str, seconds| SetLimit {
            source: Some(source.into()),
            rate: rate.into(),
            seconds,
            session: Some(session()),
            ..SetLimit::default()
        };
        daemon.service.set(&set(PEER, "unlimited", seconds)).unwrap();
        let around = daemon.service.set(&set("203.0.113.0/24", "5/min", None));
        assert_eq!(around.is_err(), refused, "{seconds:?}: {around:?}");
    }
}

/// `limiter on` makes rules and lists effective that may drop packets of the session in which it is
/// typed: it is refused like such a change, unless it is forced.
#[test]
fn nobody_turns_the_limits_on_against_their_own_session() {
    let bypass = |daemon: &mut Daemon, engaged, session, force| {
        daemon.service.bypass(Bypass { engaged, force, session }).map(|now| now.engaged)
    };
    let limited = "not applied: the rule for every source would limit your own SSH session from 203.0.113.7: \
                   run `limiter allow 203.0.113.7` before, start the daemon with --management \
                   203.0.113.7, or use --force";
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    // While the limits are on, nothing changes.
    assert_eq!(bypass(&mut daemon, false, Some(session()), false), Ok(false));
    assert_eq!(bypass(&mut daemon, true, Some(session()), false), Ok(true));
    let refused = bypass(&mut daemon, false, Some(session()), false).unwrap_err();
    assert_eq!(refused.to_string(), limited);
    assert!(daemon.service.status().unwrap().bypass, "refused, and turned on");
    // Typed at the machine itself, or by force.
    for (session, force) in [(None, false), (Some(session()), true)] {
        assert_eq!(bypass(&mut daemon, false, session, force), Ok(false));
        assert_eq!(bypass(&mut daemon, true, session, false), Ok(true));
    }
    daemon.make(List(Deny, &["203.0.113.0/24"], None), true).unwrap();
    let refused = bypass(&mut daemon, false, Some(session()), false).unwrap_err().to_string();
    assert!(
        refused.starts_with("not applied: the entry 203.0.113.0/24 of the deny list would drop"),
        "{refused}"
    );
    daemon.make(List(Allow, &[PEER], None), false).unwrap();
    assert_eq!(bypass(&mut daemon, false, Some(session()), false), Ok(false));
}

/// Rules on trial are in force already, so a confirmation is not refused; it says what may drop
/// packets of the session in which it is typed.
#[test]
fn a_confirmation_names_what_may_drop_packets_of_its_session() {
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    let mut confirmed = |session| {
        let text = "descriptors: [{key: remote_address, rate_limit: {rate: 1000/s, burst: 900}}]\n";
        let documents = vec![Document { name: "new.yaml".into(), text: text.into() }];
        let confirm_seconds = NonZeroU32::new(60);
        let rules = ApplyRules { documents, force: true, confirm_seconds, session };
        daemon.service.apply_rules(&rules).unwrap();
        daemon.service.confirm_by(session).unwrap().warnings
    };
    assert_eq!(
        confirmed(Some(session())),
        ["the rule for every source would limit your own SSH session from 203.0.113.7: \
          `limiter allow 203.0.113.7` spares it"]
    );
    assert_eq!(confirmed(None), [""; 0]);
}

/// A ban is not part of a change; it counts when it becomes effective again: when the limits are
/// turned on, and when its source is no longer allowed.
#[test]
fn a_ban_of_the_own_session_counts_where_it_has_an_effect_again() {
    let bypass = |daemon: &mut Daemon, engaged, force| {
        daemon.service.bypass(Bypass { engaged, force, session: Some(session()) }).map(drop)
    };
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    daemon.write(
        "descriptors: [{key: remote_address, value: 198.51.100.0/24, rate_limit: {rate: 9/s}}]\n",
    );
    daemon.service.reload().unwrap();
    let ban = |daemon: &mut Daemon| {
        let ban = SetBan { source: PEER.into(), seconds: 60, session: None, force: true };
        daemon.service.ban(&ban).unwrap()
    };
    bypass(&mut daemon, true, false).unwrap();
    let banned = ban(&mut daemon);
    assert!(banned.warning.is_some_and(|warning| warning.contains("limits are off")));
    let refused = bypass(&mut daemon, false, false).unwrap_err().to_string();
    let wanted = "not applied: the ban of 203.0.113.7 would drop your own SSH session from \
                  203.0.113.7: run `limiter unban 203.0.113.7` before, start the daemon with \
                  --management 203.0.113.7, or use --force";
    assert_eq!(refused, wanted);
    // An entry before the bans lets the session through; without it, the ban counts again.
    daemon.make(List(Allow, &[PEER], None), false).unwrap();
    bypass(&mut daemon, false, false).unwrap();
    let refused = daemon.make(Unlist(PEER), false).unwrap_err().to_string();
    assert!(
        refused.starts_with(
            "not applied: the ban of 203.0.113.7 would drop your own SSH session from \
             203.0.113.7, which would not be allowed any more: run `limiter unban 203.0.113.7`"
        ),
        "{refused}"
    );
    daemon.make(Unlist(PEER), true).unwrap();
    // It is no objection to rules, and hides none to them.
    daemon.make(Set("198.51.100.1", "1/week"), false).unwrap();
    let refused = daemon.make(Set(PEER, "1/week"), false).unwrap_err().to_string();
    assert!(refused.contains("the rule for 203.0.113.7 would limit"), "{refused}");
    // Nor does a ban that has ended.
    bypass(&mut daemon, true, false).unwrap();
    daemon.fake.state().now = Ticks::from_nanos(61_000_000_000);
    bypass(&mut daemon, false, false).unwrap();
}

/// The answer to any change while limits are off says that it has no effect yet, and for rules on
/// trial that the trial shows nothing.
#[test]
fn what_is_changed_while_limits_are_off_says_so() {
    let off = "limits are off: nothing of this has an effect before `limiter on`";
    let mut daemon = Daemon::start(&["192.0.2.99"]);
    daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    let text = "descriptors: [{key: remote_address, rate_limit: {rate: 1000/s, burst: 900}}]\n";
    let documents = vec![Document { name: "new.yaml".into(), text: text.into() }];
    let confirm_seconds = NonZeroU32::new(60);
    let rules = ApplyRules { documents, force: true, confirm_seconds, session: None };
    let tried = daemon.service.apply_rules(&rules).unwrap().warnings;
    assert_eq!(tried, [format!("{off}, and the trial goes on and shows nothing")]);
    assert_eq!(daemon.service.confirm_by(None).unwrap().warnings, [off]);
    let limit =
        SetLimit { source: Some("198.51.100.1".into()), rate: "5/s".into(), ..SetLimit::default() };
    assert_eq!(daemon.service.set(&limit).unwrap().warnings, [off]);
    assert_eq!(daemon.service.reload().unwrap().warnings, [off]);
    let sources = vec!["198.51.100.1".to_owned()];
    let listed = daemon.service.list(&SetList { list: Deny, sources, ..SetList::default() });
    assert_eq!(listed.unwrap().warnings, [off]);
    daemon.service.bypass(Bypass::default()).unwrap();
    assert_eq!(daemon.service.set(&limit).unwrap().warnings, [""; 0]);
}
