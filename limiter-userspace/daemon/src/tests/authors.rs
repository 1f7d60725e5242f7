//! An entry of a list knows who wrote it: no program undoes what a person said.

use std::fs;

use limiter_api::lists::{ListName, ListsChanged, SetList, Timed, UnsetList};
use limiter_common::time::Ticks;

use super::*;

const SECOND: u64 = 1_000_000_000;

impl Daemon {
    fn lists(&mut self, request: &SetList) -> ListsChanged {
        self.service.list(request).unwrap()
    }

    fn person(&mut self, list: ListName, sources: &[&str], seconds: Option<u64>) -> ListsChanged {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        self.lists(&SetList { list, sources, seconds, ..SetList::default() })
    }

    fn feed(&mut self, by: &str, sources: &[&str]) -> ListsChanged {
        self.lists(&feed(by, sources))
    }

    /// `192.0.2.7 deny never a person`
    fn reported(&self) -> Vec<String> {
        let entries = self.service.lists().unwrap().entries;
        let reported = entries.iter().map(|entry| {
            let ends = entry.expires_in_seconds.map_or("never".to_owned(), |s| s.to_string());
            let by = entry.by.as_deref().unwrap_or("a person");
            format!("{} {} {ends} {by}", entry.source, entry.list.name())
        });
        reported.collect()
    }

    fn take_off(&mut self, source: &str, by: &str) -> ListsChanged {
        let (source, by) = (Some(source.to_owned()), Some(by.to_owned()));
        self.service.unlist(&UnsetList { source, by, ..UnsetList::default() }).unwrap()
    }
}

fn feed(by: &str, sources: &[&str]) -> SetList {
    let sources = sources.iter().map(|source| (*source).to_owned()).collect();
    let by = Some(by.to_owned());
    SetList { list: ListName::Deny, sources, by, replace: true, ..SetList::default() }
}

fn skipped(changed: &ListsChanged) -> Vec<(&str, &str)> {
    changed.skipped.iter().map(|it| (it.source.as_str(), it.why.as_str())).collect()
}

#[test]
fn a_feed_replaces_and_shortens_nothing_of_a_person() {
    let mut daemon = Daemon::start(&["203.0.113.250"]);
    daemon.lists(&SetList {
        sources: vec!["198.51.100.7".into()],
        reason: Some("monitoring".into()),
        ..SetList::default()
    });
    daemon.person(ListName::Allow, &["203.0.113.0/24"], None);
    daemon.person(ListName::Deny, &["192.0.2.66"], None);
    daemon.person(ListName::Deny, &["192.0.2.67"], Some(60));
    let mut tonight = feed("night", &["192.0.2.200", "198.51.100.7", "203.0.113.80", "192.0.2.67"]);
    tonight.sources.push("203.0.113.250".into());
    tonight.timed.push(Timed { source: "192.0.2.66".into(), seconds: 60, ..Timed::default() });
    let changed = daemon.lists(&tonight);
    assert_eq!(
        skipped(&changed),
        [
            ("192.0.2.67", "it is denied by hand"),
            ("198.51.100.7", "it is allowed by hand (monitoring)"),
            ("203.0.113.80", "it is inside 203.0.113.0/24, which is allowed by hand"),
            ("203.0.113.250", "it is inside the management prefix 203.0.113.250"),
        ]
    );
    assert_eq!((changed.new, changed.kept, changed.off), (1, 1, 0));
    let after = [
        "192.0.2.66 deny never a person",
        "192.0.2.67 deny 60 a person",
        "192.0.2.200 deny never night",
        "198.51.100.7 allow never a person",
        "203.0.113.0/24 allow never a person",
    ];
    assert_eq!(daemon.reported(), after);
    // Strict, it is refused whole.
    daemon.service.list(&SetList { strict: true, ..tonight }).unwrap_err();
    assert_eq!(daemon.reported(), after);
    // The next day the feed has none of its sources: entries of a person stay, also over a restart.
    assert_eq!(daemon.feed("night", &["192.0.2.201"]).off, 1);
    let mut daemon = daemon.restart(&["203.0.113.250"]);
    let mut left = after.map(str::to_owned);
    left[2] = "192.0.2.201 deny never night".to_owned();
    assert_eq!(daemon.reported(), left);
    // And over a reboot.
    daemon.service.housekeep().unwrap();
    daemon.fake.state().clear_lists();
    daemon.fake.state().adopted = false;
    let daemon = daemon.restart(&["203.0.113.250"]);
    assert_eq!(daemon.reported()[2], "192.0.2.201 deny never night");
}

#[test]
fn replace_takes_off_what_came_by_that_feed_only() {
    let mut daemon = Daemon::start(&[]);
    daemon.person(ListName::Deny, &["192.0.2.1"], None);
    daemon.feed("a", &["192.0.2.2", "192.0.2.3"]);
    daemon.feed("b", &["192.0.2.3", "192.0.2.4"]);
    assert_eq!(daemon.feed("a", &["192.0.2.5"]).off, 2);
    assert_eq!(
        daemon.reported(),
        ["192.0.2.1 deny never a person", "192.0.2.4 deny never b", "192.0.2.5 deny never a"]
    );
}

#[test]
fn an_unban_removes_its_own_ban() {
    let mut daemon = Daemon::start(&[]);
    daemon.person(ListName::Deny, &["192.0.2.1"], None);
    let ban = |source: &str| SetList {
        seconds: Some(600),
        replace: false,
        ..feed("fail2ban", &[source])
    };
    daemon.lists(&ban("192.0.2.1"));
    daemon.lists(&ban("192.0.2.2"));
    assert_eq!(daemon.reported(), ["192.0.2.1 deny never a person", "192.0.2.2 deny 600 fail2ban"]);
    let changed = daemon.take_off("192.0.2.1", "fail2ban");
    assert_eq!(skipped(&changed), [("192.0.2.1", "it is denied by hand")]);
    daemon.take_off("192.0.2.2", "fail2ban");
    // A ban that has ended by itself is no trouble.
    daemon.take_off("192.0.2.2", "fail2ban");
    assert_eq!(daemon.reported(), ["192.0.2.1 deny never a person"]);
    // A person takes off anything, and the last word of a person counts.
    daemon.lists(&ban("192.0.2.2"));
    daemon.person(ListName::Allow, &["192.0.2.2"], None);
    assert_eq!(daemon.reported()[1], "192.0.2.2 allow never a person");
}

/// The case of fail2ban's jails: another jail bans a returning source for long, and the end of the
/// first ban must not end the second.
#[test]
fn of_two_programs_the_longer_denial_holds_until_its_own_end() {
    let mut daemon = Daemon::start(&[]);
    let jail = |by: &str, seconds| SetList {
        seconds: Some(seconds),
        replace: false,
        ..feed(by, &["203.0.113.9"])
    };
    for (by, seconds, holds) in [
        ("fail2ban-sshd", 660, "203.0.113.9 deny 660 fail2ban-sshd"),
        ("fail2ban-recidive", 604_860, "203.0.113.9 deny 604860 fail2ban-recidive"),
        ("fail2ban-sshd", 660, "203.0.113.9 deny 604860 fail2ban-recidive"),
    ] {
        daemon.lists(&jail(by, seconds));
        assert_eq!(daemon.reported(), [holds]);
    }
    let kept = daemon.take_off("203.0.113.9", "fail2ban-sshd");
    assert_eq!(skipped(&kept), [("203.0.113.9", "it is denied by fail2ban-recidive")]);
    daemon.take_off("203.0.113.9", "fail2ban-recidive");
    assert_eq!(daemon.reported(), [""; 0]);
}

#[test]
fn what_a_person_allows_is_not_denied_inside_by_a_feed_of_before() {
    let mut daemon = Daemon::start(&[]);
    daemon.feed("a", &["203.0.113.80", "203.0.113.81", "192.0.2.1"]);
    let changed = daemon.person(ListName::Allow, &["203.0.113.0/24"], None);
    assert_eq!(changed.off, 2);
    assert_eq!(
        daemon.reported(),
        ["192.0.2.1 deny never a", "203.0.113.0/24 allow never a person"]
    );
}

#[test]
fn nearly_everybody_and_the_own_network_are_guarded_at_each_door() {
    // A machine whose managers are known has no fewer sources to lose.
    for management in [&[][..], &["198.51.100.9"]] {
        nearly_everybody_is_guarded(Daemon::start(management));
    }
}

fn nearly_everybody_is_guarded(mut daemon: Daemon) {
    daemon.fake.state().own_addresses = vec![
        ("eth0".into(), "192.0.2.254/24".parse().unwrap()),
        ("eth0".into(), "2001:db8::fe/64".parse().unwrap()),
    ];
    let all = ["0.0.0.0/0", "128.0.0.0/1", "::/0", "2000::/3"];
    let own = ["192.0.2.0/24", "192.0.2.254", "192.0.0.0/8", "2001:db8::/32"];
    for source in all.into_iter().chain(own) {
        let sources = [source, "203.0.113.7"];
        let changed = daemon.feed("a", &sources);
        assert_eq!(changed.skipped.len(), 1, "{source}: {changed:?}");
        assert_eq!(daemon.reported(), ["203.0.113.7 deny never a"], "{source}");
        let deny = |force| SetList {
            list: ListName::Deny,
            sources: vec![source.to_owned()],
            force,
            ..SetList::default()
        };
        let refusal = daemon.service.list(&deny(false)).unwrap_err().to_string();
        assert!(refusal.contains("use --force"), "{source}: {refusal}");
    }
    // This would lift all limits.
    let allow = SetList { sources: vec!["0.0.0.0/0".into()], ..SetList::default() };
    daemon.service.list(&allow).unwrap_err();
    // A neighbour, and ranges that nobody sends from, are no hazard; with force, the rest is
    // possible as well.
    assert!(daemon.feed("a", &["192.0.2.9", "10.0.0.0/8", "224.0.0.0/3"]).skipped.is_empty());
    let forced = SetList { force: true, ..feed("a", &["192.0.2.0/24"]) };
    assert!(daemon.lists(&forced).skipped.is_empty());
}

#[test]
fn a_list_that_does_not_fit_is_refused_before_anything_is_in_force() {
    let mut daemon = Daemon::start(&[]);
    daemon.person(ListName::Deny, &["10.0.0.0/8"], None);
    let many = |from: u32, count: u32| {
        let net = |i: u32| {
            let i = from + i;
            format!("{}.{}.{}.0/24", 20 + (i >> 16), (i >> 8) & 255, i & 255)
        };
        SetList { sources: (0..count).map(net).collect(), ..feed("a", &[]) }
    };
    let refusal = daemon.service.list(&many(0, 65_536)).unwrap_err();
    assert!(refusal.to_string().contains("room for 65536 prefixes"), "{refusal}");
    assert_eq!(daemon.reported(), ["10.0.0.0/8 deny never a person"]);
    // Removals make room for additions.
    assert_eq!(daemon.lists(&many(0, 65_535)).new, 65_535);
    let changed = daemon.lists(&many(65_535, 65_535));
    assert_eq!((changed.new, changed.off, changed.denied), (65_535, 65_535, 65_536));
}

/// Entries that are not saved are reported as not saved.
#[test]
fn nothing_is_for_ever_that_is_not_saved() {
    let mut daemon = Daemon::start(&[]);
    // Nobody can write there, not even root.
    for name in ["lists.json.new", "lists.journal"] {
        fs::create_dir(daemon.directory.path().join("state").join(name)).unwrap();
    }
    let changed = daemon.person(ListName::Deny, &["198.51.100.7"], None);
    assert!(changed.not_saved.is_some(), "{changed:?}");
    let done = "198.51.100.7: denied until a reboot (not saved), was on no list";
    assert_eq!(changed.done, [done]);
    let lists = daemon.service.lists().unwrap();
    assert!(lists.not_saved.is_some() && lists.entries[0].not_saved, "{lists:?}");
    let table = limiter_api::render::text(&lists);
    assert!(table.contains("at a reboot") && !table.contains("never"), "{table}");
    let warnings = daemon.service.status().unwrap().warnings;
    assert!(
        warnings.iter().any(|it| it.contains("not possible to save the lists")),
        "{warnings:?}"
    );
    assert!(daemon.service.metrics().unwrap().contains("limiter_lists_not_saved 1\n"));
    for name in ["lists.json.new", "lists.journal"] {
        fs::remove_dir(daemon.directory.path().join("state").join(name)).unwrap();
    }
    let now = daemon.fake.state().now;
    daemon.fake.state().now = now.plus(Ticks::from_nanos(SECOND));
    daemon.service.housekeep().unwrap();
    assert!(daemon.service.metrics().unwrap().contains("limiter_lists_not_saved 0\n"));
    assert!(!daemon.service.lists().unwrap().entries[0].not_saved);
}

/// Anybody who denies or bans an address that many people are behind is warned, and is not refused.
#[test]
fn a_denial_of_everybody_behind_an_address_is_reported() {
    let mut daemon = Daemon::start(&[]);
    let sources = ["100.64.0.7", "192.0.2.7", "64:ff9b::808:808"];
    let reported = daemon.person(ListName::Deny, &sources, None).warnings;
    assert_eq!(
        reported,
        [
            "100.64.0.7 is denied with everybody behind it: providers share the addresses of \
             100.64.0.0/10 among customers",
            "64:ff9b::/64 is denied with everybody behind it: as 64:ff9b::/64 a NAT64 writes IPv4 \
             addresses",
        ]
    );
    assert_eq!(daemon.person(ListName::Allow, &sources, None).warnings, [""; 0]);
    assert_eq!(daemon.feed("a", &["2002:c000:204::1"]).warnings.len(), 1);
    let mut ban = |source: &str| {
        let source = source.to_owned();
        let ban = limiter_api::bans::SetBan { source, seconds: 60, ..Default::default() };
        daemon.service.ban(&ban).unwrap().warning
    };
    let reported = ban("2001:0:c000:204::1").unwrap();
    assert!(reported.ends_with("all clients of the Teredo server 192.0.2.4 have addresses there"));
    assert_eq!(ban("203.0.113.7"), None);
    daemon.write("deny: [100.64.0.0/10]\ndescriptors: []\n");
    daemon.service.reload().unwrap();
    let warnings = daemon.service.status().unwrap().warnings.join("\n");
    assert!(warnings.contains("list entry 100.64.0.0/10 denies everybody behind it"), "{warnings}");
}

/// Each source of a feed has its own reason, also over a restart; of two addresses of a /64, that
/// of the one that is listed for longer.
#[test]
fn each_source_of_a_feed_has_its_own_reason() {
    let mut daemon = Daemon::start(&[]);
    let timed = |source: &str, seconds, reason: Option<&str>| Timed {
        source: source.to_owned(),
        seconds,
        reason: reason.map(str::to_owned),
    };
    let request = SetList {
        timed: vec![
            timed("192.0.2.7", 60, Some("ssh-bf")),
            timed("192.0.2.8", 60, Some("http-probing")),
            timed("192.0.2.9", 60, None),
            timed("2001:db8::1", 60, Some("short")),
            timed("2001:db8::2", 600, Some("long")),
        ],
        reason: Some("feed".to_owned()),
        ..feed("crowdsec", &[])
    };
    daemon.lists(&request);
    let mut daemon = daemon.restart(&[]);
    let entries = daemon.service.lists().unwrap().entries;
    let reasons: Vec<_> = entries.iter().map(|entry| entry.reason.as_deref()).collect();
    let wanted = ["ssh-bf", "http-probing", "feed", "long"];
    assert_eq!(reasons, wanted.map(Some));
    // A reason that cannot be kept is a refusal of all.
    let steering = vec![timed("192.0.2.10", 60, Some("a\u{1b}[2J"))];
    daemon.service.list(&SetList { timed: steering, ..feed("crowdsec", &[]) }).unwrap_err();
    assert_eq!(daemon.service.lists().unwrap().entries.len(), 4);
}
