//! Allow and deny lists over the data path in memory.

use std::fs;
use std::time::Duration;

use limiter_api::bans::SetBan;
use limiter_api::lists::{ListName, SetList, UnsetList};
use limiter_common::time::Ticks;
use limiter_common::wire::{ListEntry, Listed};

use super::*;

impl Daemon {
    fn list(
        &mut self,
        list: ListName,
        sources: &[&str],
        seconds: Option<u64>,
    ) -> Result<(usize, usize), Refusal> {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        let changed =
            self.service.list(&SetList { list, sources, seconds, ..SetList::default() })?;
        Ok((changed.allowed, changed.denied))
    }

    /// The entry in the maps, management entries included.
    fn in_maps(&self, selector: &str) -> Option<Listed> {
        self.fake.state().lists.get(&select(selector)).and_then(ListEntry::verdict)
    }

    fn pass_time(&self, time: Duration) {
        let mut state = self.fake.state();
        state.now = state.now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap()));
    }
}

/// A time beyond the program's clock is not cut without a word.
#[test]
fn a_time_that_is_cut_is_reported() {
    let mut daemon = Daemon::start(&[]);
    let year = 365 * 86_400;
    let mut warnings = |seconds| {
        let (list, sources) = (ListName::Deny, vec!["192.0.2.1".to_owned()]);
        let asked = SetList { list, sources, seconds, ..SetList::default() };
        let listed = daemon.service.list(&asked).unwrap().warnings;
        let source = "192.0.2.2".to_owned();
        let asked = SetBan { source, seconds: seconds.unwrap_or(1), ..SetBan::default() };
        let banned = daemon.service.ban(&asked).unwrap().warning;
        assert_eq!(listed.first(), banned.as_ref());
        listed
    };
    assert_eq!(warnings(Some(9 * year)), [""; 0]);
    assert_eq!(warnings(None), [""; 0]);
    let cut = warnings(Some(10 * year));
    assert!(cut[0].starts_with("3,650 d are cut to 3,335 d 23 h"), "{cut:?}");
}

#[test]
fn entries_come_expire_and_go() {
    let mut daemon = Daemon::start(&[]);
    assert_eq!(daemon.list(ListName::Allow, &["192.0.2.1", "2001:db8::1"], None), Ok((2, 0)));
    assert_eq!(daemon.list(ListName::Deny, &["198.51.100.0/24"], Some(10)), Ok((2, 1)));
    // The last word counts.
    assert_eq!(daemon.list(ListName::Deny, &["192.0.2.1"], None), Ok((1, 2)));
    assert_eq!(daemon.in_maps("192.0.2.1"), Some(Listed::Deny));
    assert_eq!(daemon.service.source("198.51.100.7").unwrap().listed, Some(ListName::Deny));
    assert_eq!(daemon.service.source("203.0.113.7").unwrap().listed, None);
    daemon.pass_time(Duration::from_millis(9_500));
    daemon.service.housekeep().unwrap();
    let entries = daemon.service.lists().unwrap().entries;
    let left: Vec<_> =
        entries.iter().map(|entry| (entry.source.as_str(), entry.expires_in_seconds)).collect();
    assert_eq!(left, [("192.0.2.1", None), ("198.51.100.0/24", Some(1)), ("2001:db8::/64", None)]);
    daemon.pass_time(Duration::from_millis(500));
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.in_maps("198.51.100.0/24"), None);
    let unlist =
        |source: &str| UnsetList { source: Some(source.to_owned()), ..UnsetList::default() };
    assert!(daemon.service.unlist(&unlist("192.0.2.1")).is_ok());
    let error = daemon.service.unlist(&unlist("192.0.2.1")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "192.0.2.1 has no entry of its own, it is on no list: `limiter lists` shows all"
    );
}

#[test]
fn several_go_at_once() {
    let mut daemon = Daemon::start(&["10.0.0.0/8"]);
    let denied = ["192.0.2.1", "192.0.2.2", "2001:db8::/64", "198.51.100.0/24"];
    daemon.list(ListName::Deny, &denied, None).unwrap();
    let mut unlist = |sources: &str| {
        let sources = Some(sources.to_owned());
        let changed = daemon.service.unlist(&UnsetList { sources, ..UnsetList::default() })?;
        Ok((changed.denied, changed.not_listed))
    };
    // A wrong one among them: all stay.
    let refused: Result<_, Refusal> = unlist("192.0.2.1,nonsense");
    assert!(refused.unwrap_err().to_string().contains("nonsense"));
    // A source named twice counts once, and a source on no list is counted.
    let sources = "192.0.2.1,2001:db8::9,203.0.113.1,192.0.2.1,10.0.0.0/8";
    assert_eq!(unlist(sources), Ok((2, 2)));
    assert_eq!(unlist("203.0.113.1"), Ok((2, 1)));
    assert_eq!(unlist("192.0.2.2,198.51.100.0/24"), Ok((0, 0)));
    assert_eq!(daemon.in_maps("192.0.2.2"), None);
    assert_eq!(daemon.in_maps("10.0.0.0/8"), Some(Listed::Management));
    let neither = daemon.service.unlist(&UnsetList::default()).unwrap_err();
    assert_eq!(neither.to_string(), "source: name one, or several with sources=A,B");
}

#[test]
fn all_or_none() {
    let mut daemon = Daemon::start(&["10.0.0.0/8"]);
    for bad in ["192.0.2.1/24", "nonsense", "10.1.2.3"] {
        let error = daemon.list(ListName::Deny, &["192.0.2.9", bad], None);
        assert!(error.is_err(), "{bad}");
        assert_eq!(daemon.in_maps("192.0.2.9"), None, "{bad}");
    }
    assert!(daemon.list(ListName::Deny, &["192.0.2.9"], Some(0)).is_err());
    assert_eq!(daemon.in_maps("192.0.2.9"), None);
}

#[test]
fn management_prefixes_are_never_denied() {
    let mut daemon = Daemon::start(&["10.0.0.0/8"]);
    assert_eq!(daemon.in_maps("10.0.0.0/8"), Some(Listed::Management));
    // Around it is allowed: the longer prefix wins in the program.
    assert!(daemon.list(ListName::Deny, &["0.0.0.0/3"], None).is_ok());
    assert_eq!(daemon.list(ListName::Deny, &["172.16.0.1"], None), Ok((0, 2)));
    // A source denied before it became a management prefix is denied no longer.
    let daemon = daemon.restart(&["172.16.0.0/12"]);
    assert_eq!(daemon.in_maps("172.16.0.1"), None);
    assert_eq!(daemon.in_maps("172.16.0.0/12"), Some(Listed::Management));
    assert_eq!(daemon.in_maps("10.0.0.0/8"), None);
    assert_eq!(daemon.in_maps("0.0.0.0/3"), Some(Listed::Deny));
}

#[test]
fn lists_survive_a_reboot() {
    let mut daemon = Daemon::start(&[]);
    daemon.list(ListName::Deny, &["192.0.2.1"], None).unwrap();
    daemon.list(ListName::Allow, &["192.0.2.0/24"], Some(3600)).unwrap();
    daemon.list(ListName::Deny, &["192.0.2.2"], Some(1)).unwrap();
    daemon.service.housekeep().unwrap();
    // New maps, another clock, and a second later.
    daemon.fake.state().clear_lists();
    daemon.fake.state().now = Ticks::from_nanos(77_000_000_000);
    std::thread::sleep(Duration::from_millis(2100));
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.in_maps("192.0.2.1"), Some(Listed::Deny));
    assert_eq!(daemon.in_maps("192.0.2.0/24"), Some(Listed::Allow));
    assert_eq!(daemon.in_maps("192.0.2.2"), None);
    let entries = daemon.service.lists().unwrap().entries;
    let left = entries.iter().find_map(|entry| entry.expires_in_seconds).unwrap();
    assert!((3590..=3600).contains(&left), "{left}");
}

#[test]
fn a_broken_list_file_is_no_lock_out() {
    let mut daemon = Daemon::start(&[]);
    daemon.list(ListName::Deny, &["192.0.2.1"], None).unwrap();
    daemon.service.housekeep().unwrap();
    daemon.fake.state().clear_lists();
    fs::write(daemon.directory.path().join("state/lists.json"), "{\"entries\": [").unwrap();
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.service.lists().unwrap().entries, []);
    assert!(daemon.service.status().unwrap().last_reload.ok);
}
