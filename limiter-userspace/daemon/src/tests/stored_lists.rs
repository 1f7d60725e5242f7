//! The lists on disk: a reboot is a start with empty maps.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use limiter_api::lists::{ListName, SetList, UnsetList};
use limiter_common::time::Ticks;

use super::*;
use crate::lists::ListStore;

/// Listed sources: on which list, and for how many seconds.
type Listed = BTreeMap<String, (ListName, Option<u64>)>;

const SECOND: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(1_784_726_055);

impl Daemon {
    /// A daemon with a wall clock that goes as the other does.
    fn stored() -> Self {
        let daemon = Self::start(&[]);
        daemon.fake.state().wall = Some(NOW);
        daemon.restart(&[])
    }

    fn deny_for(&mut self, sources: &[&str], seconds: Option<u64>) {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        self.service
            .list(&SetList { list: ListName::Deny, sources, seconds, ..SetList::default() })
            .unwrap();
    }

    fn unlist(&mut self, source: &str) {
        self.service
            .unlist(&UnsetList { source: Some(source.to_owned()), ..UnsetList::default() })
            .unwrap();
    }

    fn both_clocks(&self, time: Duration) {
        let mut state = self.fake.state();
        state.now = state.now.plus(Ticks::from_nanos(u64::try_from(time.as_nanos()).unwrap()));
        state.wall = state.wall.map(|wall| wall + time);
    }

    /// Empties the maps and restarts their clock.
    fn reboot(self) -> Self {
        self.fake.state().clear_lists();
        self.fake.state().now = Ticks::from_nanos(5_000_000_000);
        self.restart(&[])
    }

    fn listed(&self) -> Listed {
        let entries = self.service.lists().unwrap().entries;
        let each = entries.into_iter();
        each.map(|entry| (entry.source, (entry.list, entry.expires_in_seconds))).collect()
    }

    fn sources(&self) -> Vec<String> {
        self.listed().into_keys().collect()
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join("state").join(name)
    }

    fn length(&self, name: &str) -> u64 {
        fs::metadata(self.at(name)).map_or(0, |metadata| metadata.len())
    }

    /// Warnings and number of entries that a start would have, without one.
    fn opened(&self) -> (Vec<String>, usize) {
        let fake = Fake::default();
        let wall = self.fake.state().wall;
        fake.state().wall = wall;
        // The lock is held, as the daemon lives.
        let other = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(self.directory.path().join("state")).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "lock" {
                fs::copy(entry.path(), other.path().join(entry.file_name())).unwrap();
            }
        }
        let state = StateDir::open(other.path()).unwrap();
        let (_, mut warnings, damage) =
            ListStore::open(&mut *fake.open_now(), &state, &[]).unwrap();
        warnings.extend(damage.map(|damage| damage.warning));
        let here = other.path().display().to_string();
        let warnings = warnings.iter().map(|text| text.replace(&here, "DIR")).collect();
        let listed = fake.state().lists.len();
        (warnings, listed)
    }
}

/// End of a warning about files of which copies were kept.
fn kept(names: &[&str]) -> String {
    let remedy = |name: &&str| {
        format!(
            "; what was saved is kept as DIR/{name}.broken: `limiter lists` shows what is in \
             force; list what is missing with `limiter deny` and `limiter allow`, and remove that \
             copy"
        )
    };
    names.iter().map(remedy).collect()
}

/// Addresses of a network of 65,536.
fn many(count: u32) -> Vec<String> {
    (0..count).map(|host| std::net::Ipv4Addr::from(0x0a00_0000 + host).to_string()).collect()
}

#[test]
fn a_change_is_on_disk_before_it_is_answered() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1", "192.0.2.2", "2001:db8::/48"], None);
    daemon.deny_for(&["192.0.2.3"], Some(100));
    daemon.unlist("192.0.2.1");
    // No housekeeping has run.
    let expected: Listed = [
        ("192.0.2.2".to_owned(), (ListName::Deny, None)),
        ("192.0.2.3".to_owned(), (ListName::Deny, Some(100))),
        ("2001:db8::/48".to_owned(), (ListName::Deny, None)),
    ]
    .into();
    assert_eq!(daemon.listed(), expected);
    let mut daemon = daemon.reboot();
    assert_eq!(daemon.listed(), expected);
    // A change after a start with entries is on disk, too.
    daemon.unlist("192.0.2.2");
    assert_eq!(daemon.reboot().sources(), ["192.0.2.3", "2001:db8::/48"]);
}

#[test]
fn a_change_of_a_long_list_writes_little() {
    let mut daemon = Daemon::stored();
    let sources = many(20_000);
    let mut written = 0;
    for batch in sources.chunks(500) {
        let batch: Vec<_> = batch.iter().map(String::as_str).collect();
        daemon.deny_for(&batch, None);
        daemon.service.housekeep().unwrap();
        written = daemon.length("lists.json") + daemon.length("lists.journal");
    }
    // Each entry was written once.
    assert!(written < 60 * 20_000, "{written} bytes");
    let mut daemon = daemon.reboot();
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.sources().len(), 20_000);
    let whole = fs::read(daemon.at("lists.json")).unwrap();
    for host in 0..20 {
        daemon.deny_for(&[&format!("198.51.100.{host}")], Some(600));
        daemon.service.housekeep().unwrap();
    }
    assert!(whole == fs::read(daemon.at("lists.json")).unwrap(), "all was written again");
    let written = daemon.length("lists.journal");
    assert!((20..4000).contains(&written), "{written} bytes");
    assert_eq!(daemon.reboot().sources().len(), 20_020);
}

/// A power cut may leave any part of the last line, or zeros in its place.
#[test]
fn a_journal_that_is_cut_anywhere_has_whole_changes() {
    let mut daemon = Daemon::stored();
    let mut states = vec![daemon.listed()];
    let (a, b, c) =
        (&["192.0.2.1", "192.0.2.2"], &["192.0.2.3", "192.0.2.1"], &["198.51.100.0/24"]);
    let changes: [&dyn Fn(&mut Daemon); 4] = [
        &|daemon| daemon.deny_for(a, None),
        &|daemon| daemon.deny_for(b, Some(50)),
        &|daemon| daemon.unlist("192.0.2.2"),
        &|daemon| daemon.deny_for(c, None),
    ];
    for change in changes {
        change(&mut daemon);
        states.push(daemon.listed());
    }
    let journal = fs::read(daemon.at("lists.journal")).unwrap();
    assert!(!daemon.at("lists.json").exists());
    for (cut, zeros) in (0..=journal.len()).flat_map(|cut| [(cut, 0), (cut, 300)]) {
        let mut text = journal[..cut].to_vec();
        // The header is no change.
        let lines = text.split(|byte| *byte == b'\n').count() - 1;
        let whole = lines.saturating_sub(1);
        text.resize(cut + zeros, 0);
        daemon.fake.state().clear_lists();
        // The state at a start: the running daemon has other files open.
        let Daemon { directory, fake, service, stop } = daemon;
        drop(service);
        let state = directory.path().join("state");
        for entry in fs::read_dir(&state).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::write(state.join("lists.journal"), text).unwrap();
        let service = Daemon::service(&directory, &fake, &[], &stop);
        daemon = Daemon { directory, fake, service, stop };
        assert_eq!(daemon.listed(), states[whole], "{cut} bytes and {zeros} zeros");
        // The daemon goes on from there.
        daemon.deny_for(&["203.0.113.1"], None);
        let sources = daemon.sources();
        daemon = daemon.reboot();
        assert_eq!(daemon.sources(), sources, "{cut} bytes and {zeros} zeros, and a change");
        assert!(!daemon.at("lists.json.broken").exists());
    }
}

/// The daemon was killed after all was written, and before the journal was removed; or an older
/// version wrote in between.
#[test]
fn a_journal_of_another_file_is_not_taken() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1"], None);
    let before = fs::read(daemon.at("lists.journal")).unwrap();
    let mut daemon = daemon.reboot();
    daemon.service.housekeep().unwrap();
    assert!(!daemon.at("lists.journal").exists());
    daemon.unlist("192.0.2.1");
    daemon.deny_for(&["192.0.2.2"], None);
    let mut daemon = daemon.reboot();
    daemon.service.housekeep().unwrap();
    fs::write(daemon.at("lists.journal"), before).unwrap();
    let (warnings, _) = daemon.opened();
    assert_eq!(
        warnings[0],
        "not all saved lists are in force: DIR/lists.journal: it continues another lists.json \
         than the one beside it, so its changes were left out"
            .to_owned()
            + &kept(&["lists.json", "lists.journal"])
    );
    assert_eq!(daemon.reboot().sources(), ["192.0.2.2"]);
}

#[test]
fn what_version_0_1_wrote_is_read() {
    let daemon = Daemon::stored();
    let until = NOW.as_secs() + 600;
    let text = format!(
        r#"{{"entries":[{{"source":"192.0.2.1","list":"deny","until":null}},{{"source":"192.0.2.0/24","list":"allow","until":{until},"left":500}},{{"source":"2001:db8::/64","list":"deny","until":{},"left":9}}]}}"#,
        NOW.as_secs() - 1,
    );
    fs::write(daemon.at("lists.json"), text).unwrap();
    let daemon = daemon.reboot();
    let expected: Listed = [
        ("192.0.2.0/24".to_owned(), (ListName::Allow, Some(500))),
        ("192.0.2.1".to_owned(), (ListName::Deny, None)),
    ]
    .into();
    assert_eq!(daemon.listed(), expected);
}

#[test]
fn what_cannot_be_read_is_reported_and_kept() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1"], None);
    let mut daemon = daemon.reboot();
    daemon.service.housekeep().unwrap();
    daemon.deny_for(&["192.0.2.2"], None);
    daemon.deny_for(&["192.0.2.3"], None);
    let journal = fs::read_to_string(daemon.at("lists.journal")).unwrap();
    // A line in the middle.
    fs::write(daemon.at("lists.journal"), journal.replacen("192.0.2.2", "192.0.\0.2", 1)).unwrap();
    let (warnings, listed) = daemon.opened();
    assert_eq!(listed, 1);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let output = "not all saved lists are in force: DIR/lists.journal: line 2: ";
    assert!(warnings[0].starts_with(output), "{warnings:?}");
    let end = ": this change and those after it were left out".to_owned()
        + &kept(&["lists.json", "lists.journal"]);
    assert!(warnings[0].ends_with(&end), "{warnings:?}");
    // Invalid sources, which version 0.1 only reported.
    fs::remove_file(daemon.at("lists.journal")).unwrap();
    let text = r#"{"entries":[{"source":"192.0.2.300","list":"deny"},{"source":"192.0.2.3","list":"deny"}]}"#;
    fs::write(daemon.at("lists.json"), text).unwrap();
    let (warnings, listed) = daemon.opened();
    assert_eq!(listed, 1);
    assert!(warnings[0].contains("lists.json: 1 of its entries cannot be: "), "{warnings:?}");
    assert!(warnings[0].ends_with(&kept(&["lists.json"])), "{warnings:?}");
    // The whole file is damaged, and is not even text.
    fs::write(daemon.at("lists.json"), [0xff, 0, 7]).unwrap();
    let daemon = daemon.reboot();
    assert!(daemon.sources().is_empty());
    assert_eq!(fs::read(daemon.at("lists.json.broken")).unwrap(), [0xff, 0, 7]);
}

/// The entry is over, and nothing was written since but that something was over.
#[test]
fn what_has_expired_does_not_come_back_with_a_clock_that_is_not_set() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1"], Some(10));
    daemon.deny_for(&["192.0.2.2"], Some(1000));
    daemon.both_clocks(20 * SECOND);
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.sources(), ["192.0.2.2"]);
    daemon.fake.state().wall = Some(Duration::ZERO);
    let daemon = daemon.reboot();
    let expected: Listed = [("192.0.2.2".to_owned(), (ListName::Deny, Some(980)))].into();
    assert_eq!(daemon.listed(), expected);
}

/// Times on disk are of one clock.
#[test]
fn a_clock_that_was_set_has_all_written_anew() {
    let mut daemon = Daemon::stored();
    daemon.fake.state().wall = Some(Duration::ZERO);
    let mut daemon = {
        daemon.deny_for(&["192.0.2.1"], Some(1000));
        daemon.reboot()
    };
    daemon.service.housekeep().unwrap();
    daemon.fake.state().wall = Some(NOW);
    daemon.deny_for(&["192.0.2.2"], Some(1000));
    assert!(!daemon.at("lists.journal").exists());
    daemon.both_clocks(100 * SECOND);
    let daemon = daemon.reboot();
    let left = (ListName::Deny, Some(900));
    let expected: Listed = [("192.0.2.1".to_owned(), left), ("192.0.2.2".to_owned(), left)].into();
    assert_eq!(daemon.listed(), expected);
}

#[test]
fn the_journal_does_not_grow_for_ever() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.9"], None);
    let mut most = 0;
    for round in 0..300 {
        daemon.deny_for(&["192.0.2.1"], Some(60));
        daemon.unlist("192.0.2.1");
        daemon.service.housekeep().unwrap();
        let length = daemon.length("lists.journal");
        if length < most {
            assert!(round > 200, "all was written after {round} rounds");
            break;
        }
        most = length;
    }
    assert!(daemon.length("lists.journal") < most, "{most} bytes");
    assert_eq!(daemon.reboot().sources(), ["192.0.2.9"]);
}

/// The files are short again once the entries of a long list have expired.
#[test]
fn the_file_of_a_list_that_is_over_is_short() {
    let mut daemon = Daemon::stored();
    for batch in many(3000).chunks(500) {
        let batch: Vec<_> = batch.iter().map(String::as_str).collect();
        daemon.deny_for(&batch, Some(30));
    }
    assert!(daemon.length("lists.journal") > 100_000);
    daemon.both_clocks(40 * SECOND);
    daemon.service.housekeep().unwrap();
    assert!(daemon.sources().is_empty());
    let left = daemon.length("lists.json") + daemon.length("lists.journal");
    assert!(left < 1000, "{left} bytes");
}

/// A change is in force even if it cannot be stored, and is stored as soon as possible.
#[test]
fn a_change_that_cannot_be_stored_is_stored_later() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1"], None);
    let mut daemon = daemon.reboot();
    daemon.service.housekeep().unwrap();
    // A directory in its place: the journal cannot be begun, nor can all be written.
    fs::create_dir(daemon.at("lists.journal")).unwrap();
    fs::create_dir(daemon.at("lists.json.new")).unwrap();
    daemon.deny_for(&["192.0.2.2"], None);
    assert!(daemon.service.housekeep().is_err());
    daemon.deny_for(&["192.0.2.3"], None);
    assert_eq!(daemon.sources(), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
    fs::remove_dir(daemon.at("lists.journal")).unwrap();
    fs::remove_dir(daemon.at("lists.json.new")).unwrap();
    daemon.service.housekeep().unwrap();
    assert_eq!(daemon.reboot().sources(), ["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
}

/// The maps hold more than the files, as after a full disk: a start writes it down.
#[test]
fn a_start_that_adopts_lists_stores_them() {
    let mut daemon = Daemon::stored();
    daemon.deny_for(&["192.0.2.1"], None);
    fs::remove_file(daemon.at("lists.journal")).unwrap();
    daemon.fake.state().adopted = true;
    let mut daemon = daemon.restart(&[]);
    daemon.service.housekeep().unwrap();
    daemon.fake.state().adopted = false;
    assert_eq!(daemon.reboot().sources(), ["192.0.2.1"]);
}

/// Reported by all that report the entry, kept over a restart and a reboot, and gone with the next
/// word on the source.
#[test]
fn a_reason_stays_with_its_entry() {
    let mut daemon = Daemon::stored();
    let deny = |daemon: &mut Daemon, source: &str, reason: Option<&str>| {
        let (sources, reason) = (vec![source.to_owned()], reason.map(str::to_owned));
        let list = ListName::Deny;
        daemon.service.list(&SetList { list, sources, reason, ..SetList::default() })
    };
    let reasons = |daemon: &Daemon| -> Vec<(String, Option<String>)> {
        let entries = daemon.service.lists().unwrap().entries;
        entries.into_iter().map(|entry| (entry.source, entry.reason)).collect()
    };
    let done = deny(&mut daemon, "192.0.2.0/24", Some("ticket 4711")).unwrap().done;
    assert_eq!(done, ["192.0.2.0/24: denied for ever (ticket 4711), was on no list"]);
    deny(&mut daemon, "198.51.100.1", None).unwrap();
    deny(&mut daemon, "198.51.100.2", Some("a\u{1b}[2J")).unwrap_err();
    let expected = [
        ("192.0.2.0/24".to_owned(), Some("ticket 4711".to_owned())),
        ("198.51.100.1".to_owned(), None),
    ];
    assert_eq!(reasons(&daemon), expected);
    // The maps are adopted once, and are new once.
    let daemon = daemon.restart(&[]);
    assert_eq!(reasons(&daemon), expected);
    let mut daemon = daemon.reboot();
    assert_eq!(reasons(&daemon), expected);
    let view = daemon.service.source("192.0.2.7").unwrap();
    assert_eq!(view.listed_reason.as_deref(), Some("ticket 4711"));
    assert_eq!(daemon.service.source("198.51.100.1").unwrap().listed_reason, None);
    let asked =
        limiter_api::explain::AskExplain { from: "192.0.2.7".to_owned(), ..Default::default() };
    let steps = daemon.service.explain(&asked).unwrap().steps;
    assert!(steps.iter().any(|step| step.says == "denied for ever (ticket 4711)"), "{steps:?}");
    // A source that is allowed instead does not keep the reason of its denial.
    let (list, sources) = (ListName::Allow, vec!["192.0.2.0/24".to_owned()]);
    daemon.service.list(&SetList { list, sources, ..SetList::default() }).unwrap();
    assert_eq!(reasons(&daemon)[0].1, None);
    assert_eq!(reasons(&daemon.restart(&[]))[0].1, None);
}
