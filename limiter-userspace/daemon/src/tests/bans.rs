//! Bans, the clock and full tables over the data path in memory.

use limiter_api::bans::{SetBan, Unban};
use limiter_api::explain::AskExplain;
use limiter_api::lists::SetList;
use limiter_api::rules::Session;
use limiter_common::time::Ticks;
use limiter_common::wire::{Admission, Ban, EntryKind};

use super::*;
use crate::views;

impl Daemon {
    fn record(&self, address: &str, seconds: u64) {
        let mut state = self.fake.state();
        let until = state.now.plus(Ticks::from_nanos(seconds * 1_000_000_000)).get();
        let rule = u64::from(state.installed().rules[&Selector::Every].limit.rule);
        let [prefix] = select(address).trie_prefixes()[..] else {
            panic!("{address} is one source");
        };
        let ban = Ban { until, history: 2 << 56, rule };
        state.model.put_ban(&views::of_key(prefix.address), &ban);
    }

    fn unban(&mut self, source: &str) -> Result<usize, Refusal> {
        let request = Unban { source: source.to_owned() };
        Ok(self.service.unban(&request)?.forgotten)
    }
}

#[test]
fn bans_are_shown_and_forgotten() {
    let mut daemon = Daemon::start(&[]);
    daemon.record("192.0.2.1", 10);
    daemon.record("2001:db8::/64", 30);
    daemon.record("192.0.2.9", 0);
    let bans = daemon.service.bans().unwrap();
    assert_eq!(bans.watched, 1);
    let metrics = daemon.service.metrics().unwrap();
    assert!(metrics.contains("\nlimiter_bans 2\n"), "{metrics}");
    let shown: Vec<_> = bans
        .entries
        .iter()
        .map(|ban| (ban.source.as_str(), ban.ends_in_seconds, ban.bans, ban.rule.as_deref()))
        .collect();
    let every = Some("every source");
    assert_eq!(shown, [("2001:db8::/64", 30, 2, every), ("192.0.2.1", 10, 2, every)]);
    assert_eq!(daemon.unban("2001:db8::7"), Ok(1));
    assert_eq!(daemon.unban("192.0.2.0/24"), Ok(2));
    let error = daemon.unban("192.0.2.1").unwrap_err();
    let text = "192.0.2.1 is neither banned nor on record: `limiter bans` shows the bans";
    assert_eq!(error.to_string(), text);
    assert!(daemon.unban("nonsense").is_err());
}

/// A ban by hand is an ordinary ban: it is listed, counted among the bans of the source, and
/// forgotten. A ban that ends later stays, with its rule.
#[test]
fn a_ban_by_hand_lengthens_and_never_shortens() {
    let mut daemon = Daemon::start(&[]);
    // Longer after the records below began than their ends may take to be stored.
    daemon.fake.state().now = Ticks::from_nanos(1_000_000_000);
    let by_hand = |daemon: &mut Daemon, source: &str, seconds| {
        let request = SetBan { source: source.to_owned(), seconds, ..SetBan::default() };
        let ban = daemon.service.ban(&request)?;
        Ok::<_, Refusal>((ban.source, ban.ends_in_seconds, ban.bans, ban.by_hand))
    };
    let banned = |source: &str, seconds, bans, hand| Ok((source.to_owned(), seconds, bans, hand));
    assert_eq!(by_hand(&mut daemon, "192.0.2.1", 10), banned("192.0.2.1", 10, 1, true));
    assert_eq!(by_hand(&mut daemon, "192.0.2.1", 5), banned("192.0.2.1", 10, 1, true));
    assert_eq!(by_hand(&mut daemon, "192.0.2.1", 20), banned("192.0.2.1", 20, 1, true));
    assert_eq!(by_hand(&mut daemon, "2001:db8::7", 9), banned("2001:db8::/64", 9, 1, true));
    assert_eq!(by_hand(&mut daemon, "::ffff:192.0.2.3", 9), banned("192.0.2.3", 9, 1, true));
    // Two bans by a rule before, of which the last is under way, and over.
    daemon.record("192.0.2.2", 30);
    assert_eq!(by_hand(&mut daemon, "192.0.2.2", 29), banned("192.0.2.2", 30, 2, false));
    assert_eq!(by_hand(&mut daemon, "192.0.2.2", 31), banned("192.0.2.2", 31, 2, true));
    daemon.record("192.0.2.2", 0);
    assert_eq!(by_hand(&mut daemon, "192.0.2.2", 60), banned("192.0.2.2", 60, 3, true));
    let shown = daemon.service.bans().unwrap();
    assert!(shown.entries.iter().all(|ban| ban.by_hand && ban.rule.is_none()));
    assert_eq!(shown.entries.len(), 4);
    assert_eq!(daemon.unban("192.0.2.0/24"), Ok(3));
    // The clock ends earlier: no ban exceeds the rest of its range.
    assert!(by_hand(&mut daemon, "192.0.2.1", u64::MAX).is_ok());
}

#[test]
fn a_ban_that_would_do_nothing_or_lock_out_is_refused() {
    let mut daemon = Daemon::start(&["198.51.100.0/24"]);
    let session = Session { peer: "2001:db8::1".parse().unwrap(), port: Some(22) };
    let mut by_hand = |source: &str, seconds, force| {
        let (source, session) = (source.to_owned(), Some(session));
        let answer = daemon.service.ban(&SetBan { source, seconds, force, session });
        answer.map(|ban| ban.ends_in_seconds).map_err(|refusal| refusal.to_string())
    };
    assert_eq!(
        by_hand("192.0.2.1", 0, true).unwrap_err(),
        "0 seconds are over at once: give at least 1"
    );
    assert!(by_hand("192.0.2.0/24", 1, true).unwrap_err().contains("more than one source"));
    assert!(by_hand("198.51.100.7", 1, true).unwrap_err().contains("management prefix"));
    let own = "not applied: 2001:db8::1 is where your own SSH session comes from, and all of it \
               would be dropped: log in from elsewhere to ban it, or use --force";
    assert_eq!(by_hand("2001:db8::2", 5, false).unwrap_err(), own);
    assert_eq!(by_hand("2001:db8::2", 5, true), Ok(5));
    assert_eq!(by_hand("2001:db8:0:1::2", 5, false), Ok(5));
}

/// The same guard as for the deny list.
#[test]
fn an_address_of_this_machine_is_not_banned_by_mistake() {
    let mut daemon = Daemon::start(&["198.51.100.9"]);
    let own = ["192.0.2.254/24", "2001:db8::fe/64"];
    daemon.fake.state().own_addresses =
        own.map(|net| ("eth0".to_owned(), net.parse().unwrap())).to_vec();
    let mut ban = |source: &str, force| {
        let source = source.to_owned();
        daemon.service.ban(&SetBan { source, seconds: 5, force, ..SetBan::default() })
    };
    for source in ["192.0.2.254", "2001:db8::1"] {
        let error = ban(source, false).unwrap_err().to_string();
        assert!(error.contains("the own address of eth0") && error.contains("--force"), "{error}");
    }
    // A neighbour is none; and who means it, may.
    assert!(ban("192.0.2.9", false).is_ok());
    assert!(ban("192.0.2.254", true).is_ok());
}

#[test]
fn a_ban_names_its_author() {
    let mut daemon = Daemon::start(&[]);
    daemon.record("192.0.2.1", 60);
    let ban = SetBan { source: "192.0.2.2".to_owned(), seconds: 5, ..SetBan::default() };
    daemon.service.ban(&ban).unwrap();
    for (source, by) in [("192.0.2.1", "every source"), ("192.0.2.2", "(by hand)")] {
        let view = daemon.service.source(source).unwrap();
        assert_eq!(view.banned_by.as_deref(), Some(by));
        let asked = AskExplain { from: source.to_owned(), ..AskExplain::default() };
        let explained = daemon.service.explain(&asked).unwrap();
        let says = &explained.steps.iter().find(|step| step.step == "bans").unwrap().says;
        assert!(says.ends_with(&format!(" by {by}")), "{says}");
    }
    assert_eq!(daemon.service.source("192.0.2.3").unwrap().banned_by, None);
}

/// A source that the program would let pass is not said to be banned.
#[test]
fn an_allowed_source_is_not_banned() {
    let mut daemon = Daemon::start(&[]);
    let list = SetList { sources: vec!["192.0.2.0/24".to_owned()], ..SetList::default() };
    daemon.service.list(&list).unwrap();
    let ban = SetBan { source: "192.0.2.1".to_owned(), seconds: 5, ..SetBan::default() };
    assert_eq!(
        daemon.service.ban(&ban).unwrap_err().to_string(),
        "192.0.2.1 is on the allow list, which comes before bans: take the entry that `limiter \
         lists` shows for it off with `limiter unlist` before"
    );
    assert!(daemon.service.bans().unwrap().entries.is_empty());
}

#[test]
fn the_wall_clock_is_refreshed_at_the_start_and_from_time_to_time() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.fake.state().clock_refreshed;
    assert!(before > 0);
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.fake.state().clock_refreshed, before + 1);
}

/// Promise P8: a table without room is reported, and so is the end of that state.
#[test]
fn packets_without_room_are_reported() {
    let mut daemon = Daemon::start(&[]);
    let look = |daemon: &mut Daemon, over_budget, full| {
        let counts = Admission { over_budget, full, ..Admission::default() };
        daemon.fake.state().admission.insert(EntryKind::V6, counts);
        daemon.service.housekeep().unwrap();
        daemon.service.status().unwrap().no_room_for
    };
    // Drops before the daemon's start are not reported.
    assert!(look(&mut daemon, 5, 5).is_empty());
    let mut lines = daemon.service.followed(false).unwrap();
    assert_eq!(look(&mut daemon, 6, 5), ["IPv6 sources"]);
    assert_eq!(look(&mut daemon, 6, 7), ["IPv6 sources"]);
    for _ in 0..9 {
        assert_eq!(look(&mut daemon, 6, 7), ["IPv6 sources"]);
    }
    assert!(
        daemon.service.metrics().unwrap().contains("entries_alarm{table=\"ipv6_sources\"} 1\n")
    );
    assert!(look(&mut daemon, 6, 7).is_empty());
    assert!(
        daemon.service.metrics().unwrap().contains("entries_alarm{table=\"ipv6_sources\"} 0\n")
    );
    // Followers are notified as well, and so are hooks.
    let reported: Vec<_> = std::iter::from_fn(|| lines.try_recv().ok())
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    let line = |phase: &str, packets| {
        format!(
            "{{\"event\":\"table-full\",\"phase\":\"{phase}\",\"table\":\"IPv6 \
             sources\",\"packets\":{packets}}}\n"
        )
    };
    assert_eq!(reported, [line("start", 1), line("end", 3)]);
}
