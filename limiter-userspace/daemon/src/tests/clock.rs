//! A wall clock that jumps, over the data path in memory.

use std::num::NonZeroU32;
use std::time::Duration;

use limiter_api::lists::{ListName, SetList};
use limiter_api::rules::{ApplyRules, Document};
use limiter_common::time::Ticks;

use super::*;

const NOW: Duration = Duration::from_secs(1_784_726_055);
const YEAR: Duration = Duration::from_hours(365 * 24);

impl Daemon {
    fn set_wall(&self, wall: Duration) {
        self.fake.state().wall = Some(wall);
    }

    fn deny(&mut self, source: &str, seconds: u64) {
        let sources = vec![source.to_owned()];
        let request =
            SetList { list: ListName::Deny, sources, seconds: Some(seconds), ..SetList::default() };
        self.service.list(&request).unwrap();
    }

    fn listed_for(&self) -> Option<u64> {
        let entries = self.service.lists().unwrap().entries;
        entries.first().and_then(|entry| entry.expires_in_seconds)
    }
}

/// List entries and trials are measured by the monotonic clock.
#[test]
fn nothing_in_force_moves_with_the_wall_clock() {
    let mut daemon = Daemon::start(&[]);
    daemon.set_wall(NOW);
    daemon.deny("192.0.2.1", 100);
    let text =
        "descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 5}}]";
    let documents = vec![Document { name: "tried.yaml".to_owned(), text: text.to_owned() }];
    let confirm_seconds = NonZeroU32::new(60);
    let rules = ApplyRules { documents, confirm_seconds, force: false, session: None };
    daemon.service.apply_rules(&rules).unwrap();
    for wall in [NOW + YEAR, Duration::ZERO, NOW, NOW + 80 * YEAR, Duration::MAX] {
        daemon.set_wall(wall);
        daemon.service.housekeep().unwrap();
        assert_eq!(daemon.listed_for(), Some(100), "{wall:?}");
        let trial = daemon.service.status().unwrap().trial.map(|trial| trial.seconds_left);
        assert_eq!(trial, Some(60), "{wall:?}");
    }
    daemon.fake.state().now = Ticks::from_nanos(60_000_000_000);
    daemon.service.housekeep().unwrap();
    assert!(daemon.service.status().unwrap().trial.is_none());
    assert_eq!(daemon.listed_for(), Some(40));
}

/// Only the wall clock survives a reboot. If it was set back or is not set yet, no entry becomes
/// longer.
#[test]
fn over_a_reboot_no_entry_gets_longer() {
    for (wall, left) in [
        (NOW + Duration::from_secs(30), Some(70)),
        (NOW.saturating_sub(YEAR), Some(100)),
        (Duration::ZERO, Some(100)),
        (NOW + YEAR, None),
    ] {
        let mut daemon = Daemon::start(&[]);
        daemon.set_wall(NOW);
        daemon.deny("192.0.2.1", 100);
        daemon.service.housekeep().unwrap();
        daemon.fake.state().clear_lists();
        daemon.fake.state().now = Ticks::from_nanos(5_000_000_000);
        daemon.set_wall(wall);
        assert_eq!(daemon.restart(&[]).listed_for(), left, "{wall:?}");
    }
}
