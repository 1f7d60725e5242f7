//! The daemon over the data path in memory.

mod answers;
mod asked;
mod authors;
mod bans;
mod caller;
mod capture;
mod check;
mod clock;
mod cluster;
mod damaged;
mod dashboards;
mod described;
mod direction;
mod emptied;
mod event_log;
mod events;
mod explain;
mod explain_unknown;
mod faults;
mod file_lists;
mod files;
mod from_maps;
mod lists;
mod machine;
mod manager;
mod metrics;
mod openapi;
#[cfg(feature = "page")]
mod page;
mod recent;
mod request_bans;
mod request_reports;
mod rows;
mod rule_sets;
mod set;
mod set_on_interface;
mod shared;
mod sources;
mod start;
mod stored_lists;
mod tables;
mod totals;
mod utilization;
mod watch;

use std::fs;
use std::sync::Arc;

use limiter_api::bypass::{Bypass, BypassNow};
use limiter_api::limits::{Origin, SetLimit, UnsetLimit};
use limiter_api::rules::Changed;
use limiter_api::rules::ReloadRules;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_datapath::Then;
use limiter_datapath::fake::Fake;
use limiter_rules::{Selector, source_text};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::disk::state_dir::StateDir;
use super::rule_sets::layers::Layers;
use super::rule_sets::rule_files::{self, Digest, RuleSource};
use super::run::with_applied;
use super::service::Service;
use crate::control::Refusal;

const RULES: &str = "descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 100, burst: 20}
  - key: remote_address
    value: 192.0.2.0/24
    rate_limit: {name: office, unit: second, requests_per_unit: 1000, burst: 100}
";

struct Daemon {
    directory: TempDir,
    fake: Fake,
    service: Service,
    stop: Arc<Notify>,
}

fn select(text: &str) -> Selector {
    source_text::parse(text).unwrap()
}

impl Daemon {
    fn start(management: &[&str]) -> Self {
        Self::start_on(Fake::default(), management)
    }

    fn start_on(fake: Fake, management: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("r.yaml"), RULES).unwrap();
        let stop = Arc::new(Notify::new());
        let service = Self::service(&directory, &fake, management, &stop);
        Self { directory, fake, service, stop }
    }

    fn service(
        directory: &TempDir,
        fake: &Fake,
        management: &[&str],
        stop: &Arc<Notify>,
    ) -> Service {
        let rules = RuleSource::Files(vec![directory.path().join("r.yaml")]);
        Self::service_by(rules, directory, fake, management, stop)
    }

    fn service_by(
        rules: RuleSource,
        directory: &TempDir,
        fake: &Fake,
        management: &[&str],
        stop: &Arc<Notify>,
    ) -> Service {
        let state = StateDir::open(&directory.path().join("state")).unwrap();
        let mut damages = Vec::new();
        let edits = state.read_edits(1522, &mut damages).unwrap().rules.rules;
        let read = rules.read();
        let digest = Digest::of(&read);
        let (file, texts) = rule_files::taken(read.unwrap(), 1522).unwrap();
        let layers = Layers {
            file,
            texts,
            edits: edits.into_iter().map(|rule| (rule.path.clone(), rule)).collect(),
            management: management.iter().map(|text| (select(text), "management")).collect(),
            ..Layers::default()
        };
        let layers = with_applied(layers, &state, digest, 1522, &mut damages).unwrap();
        Service::start(fake.open_now(), layers, rules, digest, (state, damages), Arc::clone(stop))
            .map_err(|not_started| not_started.error)
            .unwrap()
    }

    fn restart(self, management: &[&str]) -> Self {
        let Self { directory, fake, service, stop } = self;
        drop(service);
        let service = Self::service(&directory, &fake, management, &stop);
        Self { directory, fake, service, stop }
    }

    fn set(&mut self, source: &str, rate: &str, burst: Option<u64>) -> Result<Changed, Refusal> {
        let (source, rate) = (source.into(), rate.into());
        self.service.set(&SetLimit { source: Some(source), rate, burst, ..SetLimit::default() })
    }

    fn unset(&mut self, source: &str) -> Result<Changed, Refusal> {
        self.service.unset(&UnsetLimit { source: Some(source.into()), ..UnsetLimit::default() })
    }

    fn rules(&self) -> Vec<String> {
        let limits = self.service.limits().unwrap().limits;
        limits.iter().map(|l| format!("{} {} {}", l.source, l.limit, l.origin.name())).collect()
    }

    fn write(&self, text: &str) {
        fs::write(self.directory.path().join("r.yaml"), text).unwrap();
    }
}

#[test]
fn edits_replace_rules_and_survive_a_restart() {
    let mut daemon = Daemon::start(&[]);
    let file = ["every source 100/s file", "192.0.2.0/24 1000/s file"];
    assert_eq!(daemon.rules(), file);
    daemon.set("192.0.2.0/24", "10mbit/s", Some(5000)).unwrap();
    let changed = daemon.set("2001:db8::1", "5/day", None).unwrap();
    assert_eq!((changed.generation, changed.rules), (3, 3));
    let edited =
        ["every source 100/s file", "192.0.2.0/24 10mbit/s cli", "2001:db8::/64 5/day cli"];
    assert_eq!(daemon.rules(), edited);
    let mut daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), edited);
    assert_eq!(daemon.service.status().unwrap().edits, 2);
    daemon.unset("192.0.2.0/24").unwrap();
    daemon.unset("2001:db8::/64").unwrap();
    assert_eq!(daemon.rules(), file);
    assert_eq!(daemon.restart(&[]).rules(), file);
}

#[test]
fn unset_says_why_it_cannot() {
    let mut daemon = Daemon::start(&["203.0.113.0/24"]);
    let path = daemon.directory.path().join("r.yaml").display().to_string();
    assert_eq!(
        daemon.unset("192.0.2.0/24"),
        Err(Refusal::Conflict(format!(
            "the rule for 192.0.2.0/24 comes from the rule file {path}:4:5: remove it there and \
             run `limiter reload`"
        )))
    );
    assert_eq!(
        daemon.unset("198.51.100.1"),
        Err(Refusal::NotFound(
            "there is no rule for 198.51.100.1: `limiter list` shows all".into()
        ))
    );
    assert!(matches!(daemon.unset("203.0.113.0/24"), Err(Refusal::Conflict(_))));
    assert!(matches!(daemon.unset("nonsense"), Err(Refusal::Invalid(_))));
}

#[test]
fn management_wins_over_longer_prefixes() {
    let mut daemon = Daemon::start(&["192.0.0.0/16"]);
    assert_eq!(daemon.rules(), ["every source 100/s file", "192.0.0.0/16 unlimited management"]);
    let status = daemon.service.status().unwrap();
    assert_eq!(
        status.warnings,
        ["the rule for 192.0.2.0/24 (file) is not in force: it is inside the management prefix \
          192.0.0.0/16"]
    );
    assert_eq!(status.management, ["192.0.0.0/16"]);
    assert_eq!(
        daemon.set("192.0.2.7", "1/s", None),
        Err(Refusal::Conflict(
            "192.0.2.7 is inside the management prefix 192.0.0.0/16, which is never limited: \
             start the daemon without that prefix to limit it"
                .into()
        ))
    );
    // A wider rule is fine: the management prefix is the longer one.
    daemon.set("192.0.0.0/8", "1/s", None).unwrap();
    let view = daemon.service.source("192.0.2.7").unwrap();
    assert_eq!(view.limit.as_deref(), Some("unlimited"));
}

#[test]
fn an_edit_of_before_does_not_limit_a_new_management_prefix() {
    let mut daemon = Daemon::start(&[]);
    daemon.set("203.0.113.9", "1/s", None).unwrap();
    let mut daemon = daemon.restart(&["203.0.113.0/24"]);
    assert!(!daemon.rules().iter().any(|rule| rule.starts_with("203.0.113.9")));
    // The edit can still be removed.
    daemon.unset("203.0.113.9").unwrap();
    assert_eq!(daemon.service.status().unwrap().edits, 0);
}

#[test]
fn bad_requests_change_nothing() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.rules();
    for (source, rate, burst, part) in [
        ("192.0.2.7/24", "1/s", None, "write 192.0.2.0/24"),
        ("192.0.2.7", "0/s", None, "a rate of 0"),
        ("192.0.2.7", "10/fortnight", None, "not a unit of time"),
        ("192.0.2.7", "10/s", Some(0), "a burst of 0 packets lets no packet pass: give at least 1"),
        ("192.0.2.7", "10mbit/s", Some(1521), "give at least 1522"),
        ("192.0.2.7", "900M/s", None, "the fastest is 320M/s"),
        ("192.0.2.7", "unlimited", Some(1), "leave --burst out"),
    ] {
        let refusal = daemon.set(source, rate, burst).unwrap_err();
        assert!(matches!(refusal, Refusal::Invalid(_)), "{refusal:?}");
        assert!(refusal.to_string().contains(part), "{refusal}");
    }
    assert_eq!(daemon.rules(), before);
    assert_eq!(daemon.fake.state().commits, 1);
    assert!(!daemon.directory.path().join("state/edits.json").exists());
}

#[test]
fn the_interfaces_frame_bounds_a_byte_burst() {
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().max_frame = 9022;
    let refusal = daemon.set("192.0.2.7", "10mbit/s", Some(1522)).unwrap_err();
    assert!(refusal.to_string().contains("give at least 9022"), "{refusal}");
    daemon.set("192.0.2.7", "8kbit/s", None).unwrap();
    assert_eq!(daemon.service.source("192.0.2.7").unwrap().burst, Some(9022));
}

#[test]
fn a_commit_that_fails_leaves_rules_and_edits() {
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().refuse_commits = true;
    let before = daemon.rules();
    let refusal = daemon.set("192.0.2.7", "1/s", None).unwrap_err();
    assert!(matches!(refusal, Refusal::Failed(_)), "{refusal:?}");
    assert_eq!(daemon.rules(), before);
    daemon.fake.state().refuse_commits = false;
    assert_eq!(daemon.restart(&[]).rules(), before);
}

#[test]
fn edits_that_cannot_be_saved_are_taken_back() {
    let mut daemon = Daemon::start(&[]);
    let before = daemon.rules();
    // The rename onto a directory fails, for root as well.
    fs::create_dir(daemon.directory.path().join("state/edits.json")).unwrap();
    let refusal = daemon.set("192.0.2.7", "1/s", None).unwrap_err();
    assert!(refusal.to_string().contains("cannot save the state"), "{refusal}");
    assert_eq!(daemon.rules(), before);
    assert_eq!(daemon.fake.state().installed().rules.len(), 2);
}

#[test]
fn reload_is_all_or_nothing() {
    let mut daemon = Daemon::start(&[]);
    let path = daemon.directory.path().join("r.yaml").display().to_string();
    daemon.write(&RULES.replace("burst: 100", "burst: 0"));
    assert!(daemon.service.reload().is_err());
    daemon.write(&RULES.replace("requests_per_unit: 1000", "requests_per_unit: 999999999999"));
    let refusal = daemon.service.reload().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        format!(
            "{path}:4:5: rule for 192.0.2.0/24: 999999999999/s is faster than can be held to 1 %: \
             the fastest is 320M/s"
        )
    );
    let status = daemon.service.status().unwrap();
    assert_eq!((status.generation, status.last_reload.ok), (1, false));
    assert_eq!(status.last_reload.error, Some(refusal.to_string()));
    assert_eq!(daemon.rules().len(), 2);

    daemon.write("descriptors: []\n");
    let changed =
        daemon.service.reload_rules(ReloadRules { force: true, ..ReloadRules::default() }).unwrap();
    assert_eq!((changed.generation, changed.rules), (2, 0));
    assert!(daemon.service.status().unwrap().last_reload.ok);
    assert_eq!(daemon.service.source("192.0.2.7").unwrap().rule, None);
}

#[test]
fn a_source_is_shown_with_what_is_left() {
    let daemon = Daemon::start(&[]);
    let source = Source::V4([192, 0, 2, 1]);
    let view = daemon.service.source("192.0.2.1").unwrap();
    assert_eq!((view.tracked, view.remaining, view.full_in_ns), (false, Some(100), 0));

    daemon.fake.state().now = Ticks::from_nanos(1_000_000_000);
    daemon.fake.send(source, 104, 60);
    let view = daemon.service.source("192.0.2.1").unwrap();
    assert_eq!((view.source.as_str(), view.rule.as_deref()), ("192.0.2.1", Some("192.0.2.0/24")));
    assert_eq!((view.limit.as_deref(), view.count.as_deref()), (Some("1000/s"), Some("packets")));
    assert_eq!((view.passed, view.dropped, view.remaining), (100, 4, Some(0)));
    assert_eq!(view.full_in_ns, 100_000_000);
    assert_eq!(view.effective_per_second, Some(1000.0));

    daemon.fake.state().now = Ticks::from_nanos(1_057_000_000);
    let view = daemon.service.source("192.0.2.1").unwrap();
    assert_eq!((view.remaining, view.full_in_ns), (Some(57), 43_000_000));

    let stats = daemon.service.stats().unwrap();
    assert_eq!((stats.seen.packets, stats.passed.packets, stats.dropped.packets), (104, 100, 4));
    assert_eq!(stats.seen.bytes, 104 * 60);
    let rule = stats.rules.iter().find(|rule| rule.rule == "192.0.2.0/24").unwrap();
    assert_eq!((rule.passed.packets, rule.dropped.packets), (100, 4));
    let list = daemon.service.limits().unwrap();
    let entry = list.limits.iter().find(|entry| entry.source == "192.0.2.0/24").unwrap();
    assert_eq!((entry.origin, entry.name.as_deref()), (Origin::File, Some("office")));
    assert_eq!((entry.passed.packets, entry.dropped.packets), (100, 4));
}

#[test]
fn a_changed_limit_keeps_what_is_available() {
    let mut daemon = Daemon::start(&[]);
    let source = Source::V4([192, 0, 2, 1]);
    daemon.fake.state().now = Ticks::from_nanos(1_000_000_000);
    daemon.fake.send(source, 50, 60);
    assert_eq!(daemon.service.source("192.0.2.1").unwrap().remaining, Some(50));
    // The old limit is gone from the maps the daemon knows, so at most a burst is owed.
    daemon.set("192.0.2.0/24", "10/s", Some(10)).unwrap();
    let view = daemon.service.source("192.0.2.1").unwrap();
    assert!(view.remaining <= Some(10), "{view:?}");
    // A longer prefix takes over the remainder of a bucket while the old rule still exists.
    daemon.unset("192.0.2.0/24").unwrap();
    daemon.fake.send(Source::V4([192, 0, 2, 5]), 97, 60);
    daemon.set("192.0.2.5", "10/s", Some(10)).unwrap();
    assert_eq!(daemon.service.source("192.0.2.5").unwrap().remaining, Some(3));
    // The new rate counts from then on, not from the next look.
    let now = daemon.fake.state().now;
    daemon.fake.state().now = now.plus(Ticks::from_nanos(200_100_000));
    assert_eq!(daemon.service.source("192.0.2.5").unwrap().remaining, Some(5));
}

#[test]
fn ipv6_sources_are_64s() {
    let daemon = Daemon::start(&[]);
    daemon.fake.send(Source::V6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 9]), 3, 60);
    let view = daemon.service.source("2001:db8:0:9:1::5").unwrap();
    assert_eq!((view.source.as_str(), view.passed), ("2001:db8:0:9::/64", 3));
    assert_eq!(view.rule.as_deref(), Some("every source"));
    assert_eq!(daemon.service.source("2001:db8:0:9::/64"), Ok(view));
    assert!(matches!(daemon.service.source("2001:db8::/48"), Err(Refusal::Invalid(_))));
}

#[test]
fn bypass_and_detach() {
    let mut daemon = Daemon::start(&[]);
    assert_eq!(
        daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }),
        Ok(BypassNow { engaged: true, then: None })
    );
    assert!(daemon.service.status().unwrap().bypass);
    assert_eq!(daemon.service.detach().unwrap().interfaces, ["fake0"]);
    assert!(daemon.fake.state().detached);
    assert!(matches!(daemon.service.status(), Err(Refusal::Conflict(_))));
    assert!(matches!(daemon.service.detach(), Err(Refusal::Conflict(_))));
    // The permit is there already, so this does not wait.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(daemon.stop.notified());
}

/// limiter lets every packet pass, but a program of `--then` may not, so every such report names
/// it.
#[test]
fn the_bypass_names_the_program_that_goes_on() {
    let (pin, name) = ("/sys/fs/bpf/acl".into(), Some("acl".to_owned()));
    let then = Then { pin, program_id: 9, name, fault: None };
    let mut fake = Fake::default();
    fake.then = Some(then);
    let mut daemon = Daemon::start_on(fake, &[]);
    let answer = daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    assert_eq!(
        limiter_api::render::text(&answer),
        "limits are off: limiter lets every packet pass until `limiter on`; what passes at XDP \
         goes on in program 9 (acl), which may drop it\n"
    );
    let status = limiter_api::render::text(&daemon.service.status().unwrap());
    assert!(status.contains("off: limiter lets every packet pass; the program of"), "{status}");
    let answer = daemon.service.bypass(Bypass { engaged: false, ..Bypass::default() }).unwrap();
    assert_eq!(limiter_api::render::text(&answer), "limits are on\n");
    let mut alone = Daemon::start(&[]);
    let answer = alone.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    let text = "limits are off: every packet passes until `limiter on`\n";
    assert_eq!(limiter_api::render::text(&answer), text);
}
