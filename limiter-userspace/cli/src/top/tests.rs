//! The view without a terminal and without a daemon.

mod drawing;
mod pressing;

use std::cell::RefCell;

use limiter_api::Counts;
use limiter_api::client::ClientError;
use limiter_api::events::{Episode, Events, Sample};
use limiter_api::limits::LimitView;
use limiter_api::lists::ListName;
use limiter_api::requests::Requests;
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::Top;
use limiter_api::sources::{DroppedBy, RuleDrops, SourceRow};
use limiter_api::stats::{Outcomes, RuleCounts, Stats};
use limiter_api::status::history::{History, Mark, Point, Rates};
use limiter_api::status::{Interface, InterfaceState, Reload, Reloads, Sources, Status};

use super::link::{Action, Asking, Link};

/// A daemon that answers what it was given, notes what it was asked, and refuses if it is to.
#[derive(Default)]
struct Fake {
    top: RefCell<Top>,
    asked: RefCell<Vec<Asking>>,
    done: RefCell<Vec<Action>>,
    refuses: bool,
    gone: bool,
    /// Packets that each rule passed and dropped.
    counted: RefCell<u64>,
    marks: RefCell<Vec<Mark>>,
    episodes: RefCell<Vec<Episode>>,
    requests: RefCell<Requests>,
}

fn refused(message: &str) -> ClientError {
    ClientError::Refused { status: 409, message: message.to_owned() }
}

impl Fake {
    fn answer<T>(&self, answer: T) -> Result<T, ClientError> {
        if self.gone { Err(ClientError::Gone("/run/x.sock".into())) } else { Ok(answer) }
    }
}

impl Link for Fake {
    fn top(&self, asking: &Asking) -> Result<Top, ClientError> {
        self.asked.borrow_mut().push(asking.clone());
        let mut top = self.top.borrow().clone();
        let watched = |row: &&SourceRow| Some(&row.source) == asking.watch.as_ref();
        top.watched = top.sources.iter().filter(watched).cloned().collect();
        self.answer(top)
    }

    fn status(&self) -> Result<Status, ClientError> {
        let interface = |name: &str, attached| Interface {
            name: name.to_owned(),
            label: None,
            mode: "native".to_owned(),
            ifindex: 3,
            program_id: 77,
            adopted: false,
            attached,
            state: InterfaceState::default(),
            was: None,
            rates: attached.then_some(Rates {
                passed_packets: 1000.0,
                passed_bits: 1e6,
                dropped_packets: 50.0,
                dropped_bits: 5e4,
            }),
            error: None,
            others: Vec::new(),
        };
        self.answer(Status {
            unmet: None,
            delays: None,
            version: "1.2.3".to_owned(),
            pid: 1,
            generation: 4,
            rules: 2,
            bypass: false,
            interfaces: vec![interface("eth0", true), interface("tun\u{1b}9", false)],
            patterns: Vec::new(),
            then: None,
            sources: Sources { max_v4: 9, max_v6: 9 },
            rules_files: Vec::new(),
            pin_dir: None,
            edits: 0,
            management: Vec::new(),
            warnings: Vec::new(),
            over_soft_limit: Vec::new(),
            no_room_for: Vec::new(),
            too_tight: Vec::new(),
            last_reload: Reload { ok: true, error: None },
            applied: false,
            reloads: Reloads::default(),
            watch: None,
            changed_on_disk: None,
            changed_before_start: None,
            requests: self.requests.borrow().sum(),
            request_notes: Vec::new(),
            trial: None,
            last_trial: None,
        })
    }

    fn history(&self, after: Option<u64>) -> Result<History, ClientError> {
        let top = self.top.borrow();
        let counts = |packets| Counts { packets, bytes: 125 * packets };
        let point = Point {
            clock_ns: top.clock_ns,
            passed: counts(top.passed),
            dropped: counts(top.dropped),
        };
        let is_newer = after.is_none_or(|after| top.clock_ns > after);
        self.answer(History {
            clock_ns: top.clock_ns,
            began_ns: top.began_ns,
            points: if is_newer { vec![point] } else { Vec::new() },
            marks: std::mem::take(&mut *self.marks.borrow_mut()),
        })
    }

    fn events(&self) -> Result<Events, ClientError> {
        self.answer(Events { episodes: self.episodes.borrow().clone(), ..Events::default() })
    }

    fn requests(&self) -> Result<Requests, ClientError> {
        self.answer(self.requests.borrow().clone())
    }

    fn stats(&self) -> Result<Stats, ClientError> {
        let packets = *self.counted.borrow();
        let counts = Counts { packets, bytes: 60 * packets };
        let none = Counts::default();
        let rule = |name: &str| RuleCounts {
            rule: name.to_owned(),
            rule_name: None,
            passed: none,
            dropped: counts,
            shadowed: none,
            marked: none,
        };
        self.answer(Stats {
            generation: self.top.borrow().generation,
            seen: counts,
            passed: none,
            dropped: counts,
            reasons: Vec::new(),
            interfaces: Vec::new(),
            rules: vec![rule("every source"), rule("generic_key=\u{1b}]0;x\u{7} remote_address")],
            budgets: Vec::new(),
            removed: Outcomes::default(),
        })
    }

    fn source(&self, source: &str) -> Result<SourceView, ClientError> {
        self.answer(SourceView {
            source: source.to_owned(),
            tracked: true,
            rule: Some("every source".to_owned()),
            rule_name: None,
            limit: Some("100/s".to_owned()),
            burst: Some(20),
            count: Some("packets".to_owned()),
            effective_per_second: Some(100.0),
            shadow: false,
            listed: None,
            listed_reason: None,
            listed_by: None,
            listed_beside: Vec::new(),
            passed: 5,
            dropped: 9,
            passed_at_least: true,
            dropped_at_least: false,
            remaining: Some(5),
            of: Some(20),
            left: Vec::new(),
            full_in_ns: 150_000_000,
            here: None,
            remaining_here: None,
            limits: vec![LimitView {
                text: "100/s burst 20".to_owned(),
                algorithm: "token_bucket".to_owned(),
                rate: "100/s".to_owned(),
                count: "packets".to_owned(),
                burst: Some(20),
                effective_per_second: Some(100.0),
                upper: None,
            }],
            action: Some("drop".to_owned()),
            budget: None,
            banned_seconds: None,
            banned_by: (source == "198.51.100.3")
                .then(|| "requests of auth: auth_type=login remote_address".to_owned()),
            martian: false,
            other_rules: Vec::new(),
            other_rules_in_all: 0,
            by_rule: vec![
                RuleDrops {
                    rule: Some("every source".to_owned()),
                    rule_name: None,
                    of: None,
                    reason: "over-limit".to_owned(),
                    passed: Some(5),
                    dropped: 7,
                    dropped_per_second: Some(7.0),
                    since: None,
                    keys: Some(1),
                    exact: true,
                    with_before: false,
                },
                RuleDrops {
                    rule: None,
                    rule_name: None,
                    of: None,
                    reason: "denied".to_owned(),
                    passed: None,
                    dropped: 2,
                    dropped_per_second: Some(2.0),
                    since: None,
                    keys: None,
                    exact: false,
                    with_before: false,
                },
            ],
            rows: Vec::new(),
        })
    }

    fn act(&self, action: &Action) -> Result<String, ClientError> {
        if self.refuses {
            return Err(refused("it is inside the management prefix 192.0.2.0/24"));
        }
        self.done.borrow_mut().push(action.clone());
        self.answer("done".to_owned())
    }
}

fn by(rule: &str, name: Option<&str>, dropped: u64) -> RuleDrops {
    RuleDrops {
        rule: Some(rule.to_owned()),
        rule_name: name.map(str::to_owned),
        of: None,
        reason: "over-limit".to_owned(),
        passed: Some(7),
        dropped,
        dropped_per_second: Some(3456.7),
        since: Some("2026-11-27T03:40:51Z".to_owned()),
        keys: Some(1),
        exact: true,
        with_before: false,
    }
}

fn row(source: &str, dropped: u64) -> SourceRow {
    SourceRow {
        source: source.to_owned(),
        direction: "in".to_owned(),
        by: vec![by("protocol=udp destination_port=27015 remote_address", Some("game"), dropped)],
        passed: 1_234_567,
        dropped,
        passed_at_least: false,
        dropped_at_least: false,
        passed_per_second: Some(12.0),
        dropped_per_second: Some(3456.7),
        utilization: Some(0.75),
        rule: Some("every source".to_owned()),
        rule_name: None,
        limit: Some("100/s".to_owned()),
        listed: None,
        banned_seconds: None,
    }
}

const HEADLINE: &str = "356 of 1,823 packets/s are dropped, 222 of them from 192.0.2.1 by game";

/// The sources and counts at a time, in seconds.
fn seen(seconds: u64) -> Top {
    let mut listed = row("2001:db8:1234:5678::/64", 20);
    listed.listed = Some(ListName::Deny);
    let mut banned = row("198.51.100.3", 3);
    banned.banned_seconds = Some(59);
    Top {
        clock_ns: seconds * 1_000_000_000,
        began_ns: 7,
        uptime_seconds: 3_725,
        generation: 4,
        bypass: false,
        passed: 1000 * seconds,
        dropped: 50 * seconds,
        dropped_by: DroppedBy {
            sources: Some(50 * seconds),
            others: Some(0),
            ..DroppedBy::default()
        },
        tracked_v4: 1_000_000,
        tracked_v6: 7,
        rounds: 1.5,
        sources: vec![row("192.0.2.1", 100), listed, banned],
        lose_nothing: 34_745,
        headline: Some(HEADLINE.to_owned()),
        watched: Vec::new(),
    }
}

fn episode(source: &str, rule: &str, seconds: u64) -> Episode {
    Episode {
        source: source.to_owned(),
        rule: Some(rule.to_owned()),
        rule_name: None,
        reason: "over-limit".to_owned(),
        would_drop: false,
        began: format!("2026-11-27T03:4{seconds}:51Z"),
        seconds,
        sampled: 7,
        ended: seconds > 5,
        last: Sample {
            direction: None,
            interface: Some("eth0".to_owned()),
            bytes: 60,
            protocol: Some(17),
            source_port: Some(40000),
            destination_port: Some(53),
        },
    }
}

fn fake() -> Fake {
    Fake { top: RefCell::new(seen(1)), ..Fake::default() }
}
