//! Bans that rules for requests ask for: the guards of other bans hold, and each names its rule.

use limiter_api::bans::{RequestBanBecame, RequestRule, SetRequestBan, SetRequestBans, Unban};
use limiter_api::explain::AskExplain;
use limiter_api::lists::SetList;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Ban, Event, RULE_NONE};

use super::*;

const SHOWN: &str = "requests of auth: auth_type=login remote_address";

fn asked(source: &str) -> SetRequestBan {
    SetRequestBan {
        source: source.to_owned(),
        domain: "auth".to_owned(),
        rule: "auth_type=login remote_address".to_owned(),
        first_ms: 60_000,
        longest_ms: 150_000,
        memory_ms: 3_600_000,
    }
}

impl Daemon {
    fn ban_requests(&mut self, bans: Vec<SetRequestBan>) -> Vec<(RequestBanBecame, String)> {
        let done = self.service.ban_requests(&SetRequestBans { bans }).unwrap();
        let answers = done.answers.into_iter();
        answers.map(|answer| (answer.became, answer.why.unwrap_or_default())).collect()
    }

    fn request_ban(&mut self, source: &str) -> RequestBanBecame {
        let answers = self.ban_requests(vec![asked(source)]);
        let [(became, _)] = answers[..] else { panic!("{answers:?}") };
        became
    }

    fn after(&self, seconds: u64) {
        let mut state = self.fake.state();
        state.now = state.now.plus(Ticks::from_nanos(seconds * 1_000_000_000));
    }

    /// `192.0.2.1 60 s 1`: the source, the rest of its ban, and the number of its bans.
    fn banned(&self) -> Vec<String> {
        let bans = self.service.bans().unwrap().entries;
        let shown = |ban: limiter_api::bans::BannedSource| {
            format!("{} {} s {} {}", ban.source, ban.ends_in_seconds, ban.bans, ban.author())
        };
        bans.into_iter().map(shown).collect()
    }
}

#[test]
fn a_ban_by_requests_grows_as_one_by_packets_and_names_its_rule() {
    use RequestBanBecame::{InForce, Made};
    let mut daemon = Daemon::start(&[]);
    daemon.after(100);
    assert_eq!(daemon.request_ban("192.0.2.1"), Made);
    assert_eq!(daemon.request_ban("2001:db8::7"), Made);
    assert_eq!(
        daemon.banned(),
        [format!("192.0.2.1 60 s 1 {SHOWN}"), format!("2001:db8::/64 60 s 1 {SHOWN}")]
    );
    let ban = &daemon.service.bans().unwrap().entries[0];
    let rule = "auth_type=login remote_address".to_owned();
    assert_eq!(ban.request_rule, Some(RequestRule { domain: "auth".to_owned(), rule }));
    assert!(ban.by_requests && !ban.by_hand && !ban.by_node && ban.rule.is_none());
    // A banned source stays banned until then.
    daemon.after(10);
    assert_eq!(daemon.request_ban("192.0.2.1"), InForce);
    // Twice as long, and then the longest.
    for expected in [120, 150, 150] {
        daemon.after(150);
        assert_eq!(daemon.request_ban("192.0.2.1"), Made);
        assert!(daemon.banned()[0].starts_with(&format!("192.0.2.1 {expected} s ")), "{expected}");
    }
    // These bans are forgotten.
    daemon.after(150 + 3601);
    assert_eq!(daemon.request_ban("192.0.2.1"), Made);
    assert_eq!(daemon.banned(), [format!("192.0.2.1 60 s 1 {SHOWN}")]);

    let view = daemon.service.source("192.0.2.1").unwrap();
    assert_eq!(view.banned_by.as_deref(), Some(SHOWN));
    let explain = AskExplain { from: "192.0.2.1".to_owned(), ..AskExplain::default() };
    let explained = daemon.service.explain(&explain).unwrap();
    let says = &explained.steps.iter().find(|step| step.step == "bans").unwrap().says;
    assert!(says.ends_with(&format!(" by {SHOWN}")), "{says}");
    let unban = Unban { source: "192.0.2.1".to_owned() };
    assert_eq!(daemon.service.unban(&unban).unwrap().forgotten, 1);
    assert_eq!(daemon.banned(), [""; 0]);
}

#[test]
fn the_guards_of_other_bans_hold() {
    use RequestBanBecame::{Made, Refused};
    let mut daemon = Daemon::start(&["198.51.100.0/24"]);
    daemon.fake.state().own_addresses = vec![("eth0".into(), "192.0.2.254/24".parse().unwrap())];
    let sources = vec!["203.0.113.0/24".to_owned()];
    daemon.service.list(&SetList { sources, ..SetList::default() }).unwrap();
    let short = SetRequestBan { first_ms: 999, ..asked("192.0.2.5") };
    let turned = SetRequestBan { longest_ms: 59_999, ..asked("192.0.2.5") };
    let sources = ["198.51.100.7", "203.0.113.7", "192.0.2.254", "192.0.2.0/24", "nobody"];
    let mut bans: Vec<SetRequestBan> = sources.map(asked).into();
    bans.extend([short, turned, asked("192.0.2.9")]);
    let answers = daemon.ban_requests(bans);
    let whys = [
        "inside the management prefix",
        "203.0.113.7 is on the allow list",
        "the own address of eth0",
        "more than one source",
        "\"nobody\"",
        "192.0.2.5: 999 ms to 150000 ms with a memory of 3600000 ms is no ban",
        "192.0.2.5: 60000 ms to 59999 ms",
    ];
    for ((became, why), part) in answers.iter().zip(whys) {
        assert_eq!(*became, Refused, "{why}");
        assert!(why.contains(part), "{why}: {part}");
    }
    // The others of one request do not stand in the way of one.
    assert_eq!(answers[whys.len()], (Made, String::new()));
    assert_eq!(daemon.banned().len(), 1);
    let many = SetRequestBans { bans: vec![asked("192.0.2.9"); 33] };
    let refusal = daemon.service.ban_requests(&many).unwrap_err().to_string();
    assert!(refusal.contains("33 bans are too many for one request"), "{refusal}");
}

/// New bans are made at the rate of the rule file, and only bans that were made count.
#[test]
fn new_bans_have_the_rate_of_those_by_packets() {
    use RequestBanBecame::{InForce, Made, OverBudget};
    let mut daemon = Daemon::start(&[]);
    daemon.after(100);
    let each = |daemon: &mut Daemon, hosts: std::ops::Range<u8>| -> Vec<RequestBanBecame> {
        let bans = hosts.map(|host| asked(&format!("192.0.2.{host}"))).collect();
        daemon.ban_requests(bans).into_iter().map(|(became, _)| became).collect()
    };
    assert_eq!(each(&mut daemon, 0..10), [Made; 10]);
    assert_eq!(each(&mut daemon, 0..10), [InForce; 10]);
    assert_eq!(each(&mut daemon, 10..12), [OverBudget; 2]);
    daemon.after(1);
    assert_eq!(each(&mut daemon, 10..20), [Made; 10]);
    assert_eq!(each(&mut daemon, 20..21), [OverBudget]);
    daemon.write(&format!("bans: {{rate: 3/min}}\n{RULES}"));
    daemon.service.reload().unwrap();
    assert_eq!(each(&mut daemon, 20..24), [Made, Made, Made, OverBudget]);
    daemon.after(19);
    assert_eq!(each(&mut daemon, 23..24), [OverBudget]);
    daemon.after(2);
    assert_eq!(each(&mut daemon, 23..24), [Made]);
}

#[test]
fn the_rule_is_known_after_a_restart_and_no_other_gets_its_name() {
    let mut daemon = Daemon::start(&[]);
    daemon.after(100);
    daemon.request_ban("192.0.2.1");
    let long =
        SetRequestBan { domain: "d".repeat(9999), rule: "a\nb".into(), ..asked("192.0.2.2") };
    daemon.ban_requests(vec![long]);
    let mut daemon = daemon.restart(&[]);
    let shown = daemon.banned();
    assert_eq!(shown[0], format!("192.0.2.1 60 s 1 {SHOWN}"));
    let text = &shown[1];
    assert!(text.len() < 600 && !text.contains('\n'), "{text:?}");
    // The file was damaged: the ban reports only what is known, and does not get another rule's
    // name.
    let path = daemon.directory.path().join("state/request-rules.json");
    fs::write(&path, "{").unwrap();
    daemon = daemon.restart(&[]);
    assert!(
        daemon.service.status().unwrap().warnings.iter().any(|it| it.contains("request-rules")),
        "{:?}",
        daemon.service.status().unwrap().warnings
    );
    let other = SetRequestBan { domain: "shop".into(), ..asked("192.0.2.3") };
    daemon.ban_requests(vec![other]);
    let shown = daemon.banned();
    assert_eq!(shown[0], "192.0.2.1 60 s 1 (a rule for requests)");
    assert!(shown[2].contains("requests of shop: "), "{shown:?}");
}

/// A source banned by a rule for requests is dropped by no other rule: events name that rule.
#[test]
fn events_of_a_banned_source_name_the_rule_for_requests() {
    let mut daemon = Daemon::start(&[]);
    daemon.after(100);
    daemon.service.report_events(&crate::EventOptions::default()).unwrap();
    daemon.request_ban("192.0.2.7");
    {
        let mut state = daemon.fake.state();
        let until = state.now.plus(Ticks::from_nanos(60_000_000_000)).get();
        let rule = state.installed().rules[&select("192.0.2.0/24")].limit.rule;
        let other = Ban { until, history: 1 << 56, rule: rule.into() };
        let sources = [7, 8].map(|host| Source::V4([192, 0, 2, host]));
        state.model.put_ban(&sources[1], &other);
        for source in sources {
            let event = Event {
                source: source.trie_key(),
                time: state.now.get(),
                rule: RULE_NONE,
                interface: 7,
                length: 60,
                source_port: 40_000,
                destination_port: 443,
                reason: Reason::Banned as u8,
                version: 4,
                protocol: 6,
                known: Event::PROTOCOL | Event::PORTS,
                packets: 1,
            };
            state.events.push_back(event);
        }
    }
    daemon.service.housekeep().unwrap();
    let reported = daemon.service.events().unwrap().episodes;
    let by = |source: &str| {
        let episode = reported.iter().find(|episode| episode.source == source).unwrap();
        assert_eq!(episode.reason, "banned");
        episode.rule.clone()
    };
    assert_eq!((by("192.0.2.7").as_deref(), by("192.0.2.8")), (Some(SHOWN), None));
    let view = daemon.service.source("192.0.2.7").unwrap();
    let rows: Vec<_> = view.by_rule.iter().filter_map(|row| row.rule.as_deref()).collect();
    assert_eq!(rows, [SHOWN]);
}
