//! Bans, the clock and full tables over the data path in memory.

use limiter_common::time::Ticks;
use limiter_common::wire::{Admission, Ban, Lane};

use super::*;
use crate::daemon::api::bans::Unban;

impl Daemon {
    fn ban(&self, address: &str, seconds: u64) {
        let mut state = self.fake.state();
        let until = state.now.plus(Ticks::from_nanos(seconds * 1_000_000_000)).get();
        let rule = u64::from(state.installed().rules[&Selector::Every].limit.rule);
        let [prefix] = select(address).trie_prefixes()[..] else {
            panic!("{address} is one source");
        };
        state.bans.insert(prefix.address, Ban { until, history: 2 << 56, rule });
    }

    fn unban(&mut self, source: &str) -> Result<usize, Refusal> {
        let request = Unban { source: source.to_owned() };
        Ok(self.service.unban(&request)?.forgotten)
    }
}

#[test]
fn bans_are_shown_and_forgotten() {
    let mut daemon = Daemon::start(&[]);
    daemon.ban("192.0.2.1", 10);
    daemon.ban("2001:db8::/64", 30);
    daemon.ban("192.0.2.9", 0);
    let bans = daemon.service.bans().unwrap();
    assert_eq!(bans.watched, 1);
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

#[test]
fn the_wall_clock_is_refreshed_at_the_start_and_from_time_to_time() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.fake.state().clock_refreshed;
    assert!(before > 0);
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.fake.state().clock_refreshed, before + 1);
}

/// Promise P8: a table without room is told, and so is the end of it.
#[test]
fn packets_without_room_are_told() {
    let mut daemon = Daemon::start(&[]);
    let look = |daemon: &mut Daemon, over_budget, full| {
        let counts = Admission { over_budget, full, ..Admission::default() };
        daemon.fake.state().admission.insert(Lane::V6, counts);
        daemon.service.housekeep().unwrap();
        daemon.service.status().unwrap().no_room_for
    };
    // What was before the daemon is nobody's news.
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
    // Who follows is told as well, and so are hooks.
    let told: Vec<_> = std::iter::from_fn(|| lines.try_recv().ok())
        .map(|line| String::from_utf8(line.to_vec()).unwrap())
        .collect();
    let line = |phase: &str, packets| {
        format!(
            "{{\"event\":\"table-full\",\"phase\":\"{phase}\",\"table\":\"IPv6 sources\",\"packets\":{packets}}}\n"
        )
    };
    assert_eq!(told, [line("start", 1), line("end", 3)]);
}
