//! The daemon's state as metrics: `GET /metrics`. The counters are the kernel's.
//!
//! Labels are bounded: tables, lists, verdicts and reasons are few, interfaces are the limited
//! ones, and only a bounded number of rules and budgets have names of their own.

mod cluster;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use limiter_api::Counts;
use limiter_api::limits::{LimitEntry, LimitView};
use limiter_api::lists::ListsChanged;
use limiter_api::stats::{InterfaceCounts, Outcomes, verdict};
use limiter_api::status::Reloads;
use limiter_api::utilization::{Fit, RuleUtilization, Utilization};
use limiter_cluster::Status;
use limiter_common::verdict::Reason;
use limiter_common::wire::{EntryKind, RULE_RETIRED};
use limiter_datapath::{Attachment, Datapath, DatapathError, Refused};
use limiter_text::exposition::{Exposition, Kind};

use super::attachments::mode;
use super::census::Census;
use super::events::EventLog;
use super::limits;
use super::reported::Result;
use super::tables::kind_name;
use crate::rule_sets::effective::EffectiveSet;

/// Most rules with a name of their own. The others are summed up.
const MAX_RULES: usize = 400;

/// Most budgets with a name of their own. The others are summed up.
const MAX_BUDGETS: usize = 100;

/// Name for the sum of the others. No rule has this name.
const OTHER: &str = "other";

/// Facts that only the service knows.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) reloads: Reloads,
    pub(crate) last_ok: bool,
    /// Seconds since 1970.
    pub(crate) last_at: f64,
    pub(crate) lists: ListsChanged,
    /// Sources whose ban has not ended.
    pub(crate) bans: usize,
    pub(crate) edits: usize,
    /// Whether changed rule files on disk could be put in force; `None` if they did not change.
    pub(crate) changed_on_disk: Option<bool>,
    /// Seconds left of the trial, if rules are on trial.
    pub(crate) trial_seconds_left: Option<u64>,
    pub(crate) trials: Trials,
    /// Tables in which packets find no room now.
    pub(crate) no_room_for: Vec<String>,
    /// Closeness of sources to the limits.
    pub(crate) utilization: Utilization,
    /// Warnings that `limiter status` shows.
    pub(crate) warnings: usize,
    /// State of the log of events: bytes on disk, lines not written, and whether it is being
    /// written; `None` without a log.
    pub(crate) event_log: Option<EventLog>,
    /// State of the node; `None` without a cluster.
    pub(crate) cluster: Option<Arc<Status>>,
    /// Changes of other nodes that were not taken over.
    pub(crate) refused_changes: u64,
}

/// Numbers of ended trials, by outcome, since the daemon's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Trials {
    pub(crate) confirmed: u64,
    pub(crate) reverted: u64,
    /// Trials that were not confirmed in time.
    pub(crate) expired: u64,
}

/// The page of metrics, with the counters read by `census`.
pub(crate) fn metrics(datapath: &dyn Datapath, census: &Census, facts: &Facts) -> Result<String> {
    let effective = census.effective();
    let mut page = Exposition::default();
    daemon(&mut page, datapath, effective, facts)?;
    packets(&mut page, datapath)?;
    interfaces(&mut page, datapath)?;
    tables(&mut page, datapath, &facts.no_room_for)?;
    super::events::metrics(&mut page, datapath, facts.event_log)?;
    if let Some(status) = &facts.cluster {
        cluster::metrics(&mut page, status, facts.refused_changes);
    }
    let budgets = limits::budgets(datapath, effective)?;
    let subjects = subjects(census, datapath.max_frame(), &budgets);
    rules(&mut page, datapath, &subjects)?;
    utilization(&mut page, &subjects, &facts.utilization);
    Ok(page.into_text())
}

fn daemon(
    page: &mut Exposition,
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
    facts: &Facts,
) -> std::result::Result<(), DatapathError> {
    use Kind::{Counter, Gauge};
    page.metric("limiter_build_info", Gauge, "The daemon's version; always 1.")
        .add(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.metric("limiter_generation", Gauge, "The number of the rule set in force.")
        .add(&[], datapath.generation());
    page.metric("limiter_rules", Gauge, "Rules in force.").add(&[], effective.rules.len());
    page.metric("limiter_edits", Gauge, "Rules in force that `limiter set` made.")
        .add(&[], facts.edits);
    page.metric("limiter_warnings", Gauge, "Warnings that `limiter status` shows.")
        .add(&[], facts.warnings);
    page.metric("limiter_bypass", Gauge, "1 while every packet passes: `limiter off`.")
        .add(&[], u8::from(datapath.bypass()?));
    let mut interfaces = page.metric(
        "limiter_interface_info",
        Gauge,
        "An interface that the program is on; always 1.",
    );
    for at in datapath.attachments().iter().filter(|at| at.state.is_attached()) {
        interfaces.add(&[("interface", &at.interface), ("mode", mode(at.mode))], 1);
    }
    let help = "1 while the program is on an interface that it was asked for; 0 while packets of \
                it are not limited, and where that cannot be seen.";
    let mut attached = page.metric("limiter_interface_attached", Gauge, help);
    for at in datapath.attachments() {
        let is_attached = u8::from(at.state.is_attached());
        let direction = at.mode.hook().direction().name();
        attached.add(&[("interface", &at.interface), ("direction", direction)], is_attached);
    }
    for Refused { interface, mode, .. } in datapath.refused() {
        let is_it = |at: &Attachment| at.interface == interface && at.mode.hook() == mode.hook();
        // An interface that is back already has its line.
        if !datapath.attachments().iter().any(is_it) {
            let direction = mode.hook().direction().name();
            attached.add(&[("interface", &interface), ("direction", direction)], 0);
        }
    }
    page.metric("limiter_reloads_total", Counter, "Reloads since the daemon's start.")
        .add(&[("result", "ok")], facts.reloads.ok)
        .add(&[("result", "failed")], facts.reloads.failed);
    page.metric(
        "limiter_last_reload_success",
        Gauge,
        "Whether the last reload is in force; the start counts as one.",
    )
    .add(&[], u8::from(facts.last_ok));
    page.metric(
        "limiter_last_reload_timestamp_seconds",
        Gauge,
        "When it was, in seconds since 1970.",
    )
    .add(&[], facts.last_at);
    page.metric(
        "limiter_rule_files_changed",
        Gauge,
        "1 while the rule files on disk are not in force; by whether a reload would take them.",
    )
    .add(&[("check", "ok")], u8::from(facts.changed_on_disk == Some(true)))
    .add(&[("check", "refused")], u8::from(facts.changed_on_disk == Some(false)));
    page.metric(
        "limiter_trial_seconds_left",
        Gauge,
        "Until the rules on trial are taken back; 0 without a trial.",
    )
    .add(&[], facts.trial_seconds_left.unwrap_or(0));
    page.metric("limiter_trials_total", Counter, "Trials that ended since the daemon's start.")
        .add(&[("outcome", "confirmed")], facts.trials.confirmed)
        .add(&[("outcome", "reverted")], facts.trials.reverted)
        .add(&[("outcome", "expired")], facts.trials.expired);
    page.metric("limiter_list_entries", Gauge, "Addresses and prefixes on the lists.")
        .add(&[("list", "allow")], facts.lists.allowed)
        .add(&[("list", "deny")], facts.lists.denied);
    page.metric("limiter_bans", Gauge, "Sources that are banned now.").add(&[], facts.bans);
    let help = "1 while changes of the lists are not on disk: a reboot takes them back.";
    page.metric("limiter_lists_not_saved", Gauge, help)
        .add(&[], u8::from(facts.lists.not_saved.is_some()));
    Ok(())
}

fn packets(
    page: &mut Exposition,
    datapath: &dyn Datapath,
) -> std::result::Result<(), DatapathError> {
    let tallies = datapath.reasons()?;
    let by_reason: Vec<_> = Reason::ALL.into_iter().zip(tallies).collect();
    let mut packets =
        page.metric("limiter_packets_total", Kind::Counter, "Packets that the program saw.");
    for (reason, tally) in &by_reason {
        let labels = [("verdict", verdict(*reason)), ("reason", reason.name())];
        packets.add(&labels, tally.packets);
    }
    let mut bytes = page.metric("limiter_bytes_total", Kind::Counter, "Bytes of their frames.");
    for (reason, tally) in &by_reason {
        let labels = [("verdict", verdict(*reason)), ("reason", reason.name())];
        bytes.add(&labels, tally.bytes);
    }
    Ok(())
}

fn interfaces(page: &mut Exposition, datapath: &dyn Datapath) -> Result<()> {
    let all = super::interfaces::interfaces(datapath, &BTreeMap::new())?;
    let of: [(_, _, Count); 2] = [
        (
            "limiter_interface_packets_total",
            "Packets by the interface that they came in by or went out by, since the program is \
             on it.",
            |counts| counts.packets,
        ),
        ("limiter_interface_bytes_total", "Bytes of their frames.", |counts| counts.bytes),
    ];
    for (name, help, value) in of {
        let mut samples = page.metric(name, Kind::Counter, help);
        for InterfaceCounts { interface, direction, passed, dropped, .. } in &all {
            for (verdict, counts) in [("pass", passed), ("drop", dropped)] {
                let labels = [
                    ("interface", interface.as_str()),
                    ("direction", direction.as_str()),
                    ("verdict", verdict),
                ];
                samples.add(&labels, value(counts));
            }
        }
    }
    Ok(())
}

fn tables(
    page: &mut Exposition,
    datapath: &dyn Datapath,
    no_room_for: &[String],
) -> std::result::Result<(), DatapathError> {
    let kinds = [
        ("ipv4_sources", EntryKind::V4),
        ("ipv6_sources", EntryKind::V6),
        ("narrow_keys", EntryKind::Compact),
        ("keys", EntryKind::Keyed),
    ];
    let help = "1 while packets find no room in it: the alarm that `limiter status` shows.";
    let mut alarms = page.metric("limiter_entries_alarm", Kind::Gauge, help);
    for (table, kind) in kinds {
        let raised = no_room_for.iter().any(|name| *name == kind_name(kind));
        alarms.add(&[("table", table)], u8::from(raised));
    }
    let mut tables = Vec::with_capacity(kinds.len());
    for (table, kind) in kinds {
        let (entry_table, admission) = datapath.entries(kind)?;
        tables.push(([("table", table)], entry_table.entries, admission));
    }
    let mut entries = page.metric("limiter_entries_max", Kind::Gauge, "Entries that fit.");
    for (table, room, _) in &tables {
        entries.add(table, room);
    }
    let help = "Entries there are: made, less those that left for others.";
    let mut entries = page.metric("limiter_entries", Kind::Gauge, help);
    for (table, _, counts) in &tables {
        entries.add(table, counts.made.saturating_sub(counts.evicted));
    }
    let mut made = page.metric("limiter_entries_made_total", Kind::Counter, "Entries made.");
    for (table, _, counts) in &tables {
        made.add(table, counts.made);
    }
    let help = "Entries that left for others.";
    let mut evicted = page.metric("limiter_entries_evicted_total", Kind::Counter, help);
    for (table, _, counts) in &tables {
        evicted.add(table, counts.evicted);
    }
    let help = "Packets that got no entry: more new ones than their budget, and the first of \
                their source or key, or not come back often enough; or no other entry could leave.";
    let mut refused = page.metric("limiter_entries_refused_total", Kind::Counter, help);
    for ([table], _, counts) in &tables {
        refused.add(&[*table, ("why", "first-seen")], counts.first_seen);
        refused.add(&[*table, ("why", "budget")], counts.over_budget);
        refused.add(&[*table, ("why", "full")], counts.full);
    }
    Ok(())
}

/// Selects packets or bytes.
type Count = fn(&Counts) -> u64;

/// A rule or budget with a name, or the sum of those without.
#[derive(Debug)]
struct Subject {
    name: String,
    /// The name that the author of a rule gave it.
    rule_name: Option<String>,
    outcomes: Outcomes,
    limits: Vec<LimitView>,
    shadow: bool,
}

impl Subject {
    /// Labels of its samples: its sources or keys, the name that its author gave it, and `more`.
    fn labels<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let name = self.rule_name.as_deref().unwrap_or_default();
        let mut labels = vec![("rule", self.name.as_str()), ("rule_name", name)];
        labels.extend(more);
        labels
    }
}

fn subjects(census: &Census, max_frame: u64, budgets: &[LimitEntry]) -> Vec<Subject> {
    let named = |entry: LimitEntry, name| Subject {
        name,
        rule_name: entry.name.clone(),
        outcomes: outcomes(&entry),
        limits: entry.limits,
        shadow: entry.shadow,
    };
    // Only rules with a name of their own are described.
    let rules = census
        .rules(0)
        .take(MAX_RULES)
        .map(|(rule, counters)| limits::of_rule(rule, counters, max_frame, None));
    let mut subjects: Vec<_> = rules
        .map(|entry| {
            let name = entry.source.clone();
            named(entry, name)
        })
        .collect();
    let (first_budgets, more_budgets) = budgets.split_at(budgets.len().min(MAX_BUDGETS));
    let budget = |entry: &LimitEntry| format!("budget {}", entry.source);
    subjects.extend(first_budgets.iter().map(|entry| named(entry.clone(), budget(entry))));
    let mut rest = Outcomes::default();
    for (_, counters) in census.rules(MAX_RULES) {
        merge(&mut rest, counters.into());
    }
    for entry in more_budgets {
        merge(&mut rest, outcomes(entry));
    }
    subjects.push(Subject {
        name: OTHER.to_owned(),
        rule_name: None,
        outcomes: rest,
        limits: Vec::new(),
        shadow: false,
    });
    subjects
}

fn rules(page: &mut Exposition, datapath: &dyn Datapath, subjects: &[Subject]) -> Result<()> {
    let of: [(_, _, Count); 2] = [
        (
            "limiter_rule_packets_total",
            "Packets of each rule and budget: within, over (dropped), near (marked), and shadow: \
             it would drop them, and they passed.",
            |counts| counts.packets,
        ),
        ("limiter_rule_bytes_total", "Bytes of their frames.", |counts| counts.bytes),
    ];
    for (name, help, value) in of {
        let mut samples = page.metric(name, Kind::Counter, help);
        for subject in subjects {
            for (verdict, count) in verdicts(&subject.outcomes, value) {
                samples.add(&subject.labels(&[("verdict", verdict)]), count);
            }
        }
    }
    let removed = datapath.rule_counters(RULE_RETIRED)?;
    let removed = Outcomes::from(removed);
    let of: [(_, _, Count); 2] = [
        ("limiter_removed_packets_total", "Packets of rules that are gone.", |c| c.packets),
        ("limiter_removed_bytes_total", "Bytes of their frames.", |c| c.bytes),
    ];
    for (name, help, value) in of {
        let mut samples = page.metric(name, Kind::Counter, help);
        for (verdict, count) in verdicts(&removed, value) {
            samples.add(&[("verdict", verdict)], count);
        }
    }
    let help = "The rate of each limit that the program holds, in what is counted.";
    let mut rates = page.metric("limiter_rule_rate_per_second", Kind::Gauge, help);
    for subject in subjects {
        for (index, limit) in subject.limits.iter().enumerate() {
            let place = (index + 1).to_string();
            let upper = limit.upper.as_ref();
            let bounds = [
                Some(("limit", limit.effective_per_second)),
                upper.map(|upper| (upper.kind.as_str(), upper.effective_per_second)),
            ];
            for (bound, rate) in bounds.into_iter().flatten() {
                let more = [("limit", place.as_str()), ("bound", bound), ("count", &limit.count)];
                if let Some(rate) = rate {
                    rates.add(&subject.labels(&more), rate);
                }
            }
        }
    }
    let help = "1 for a rule or budget in shadow mode: what it would drop passes, and is counted.";
    let mut shadow = page.metric("limiter_rule_shadow", Kind::Gauge, help);
    for subject in subjects.iter().filter(|subject| subject.name != OTHER) {
        shadow.add(&subject.labels(&[]), u8::from(subject.shadow));
    }
    Ok(())
}

/// Closeness of sources to the limits, for the rules with a name of their own.
fn utilization(page: &mut Exposition, subjects: &[Subject], of: &Utilization) {
    let by_rule: HashMap<&str, &RuleUtilization> =
        of.rules.iter().map(|rule| (rule.rule.as_str(), rule)).collect();
    // The rules with their names and findings.
    let rules: Vec<_> = subjects
        .iter()
        .filter(|subject| !subject.limits.is_empty())
        .map(|subject| (subject, by_rule.get(subject.name.as_str()).copied()))
        .collect();
    let help = "Sources or keys that are followed, sent anything in the last 30 to 60 minutes, and \
         came above this per cent of their limit; 100: lost a packet.";
    let mut near = page.metric("limiter_rule_near", Kind::Gauge, help);
    for (subject, known) in &rules {
        let counts =
            known.map_or([0; 4], |rule| [rule.sent, rule.above_50, rule.above_80, rule.lost]);
        for (above, count) in ["0", "50", "80", "100"].into_iter().zip(counts) {
            near.add(&subject.labels(&[("above", above)]), count);
        }
    }
    let help = "1 while the limit is too tight: many sources lose a small part of their packets.";
    let mut tight = page.metric("limiter_rule_too_tight", Kind::Gauge, help);
    for (subject, known) in &rules {
        let is_tight = known.is_some_and(|rule| rule.answer == Fit::TooTight);
        tight.add(&subject.labels(&[]), u8::from(is_tight));
    }
    page.metric(
        "limiter_utilization_followed_one_of",
        Kind::Gauge,
        "One source or key in so many is followed for limiter_rule_near.",
    )
    .add(&[], of.one_of);
}

/// The counts of a rule, split so that each packet is in exactly one.
fn verdicts(of: &Outcomes, value: Count) -> [(&'static str, u64); 4] {
    let (shadowed, marked) = (value(&of.shadowed), value(&of.marked));
    // The counters of the CPUs are read one after another while packets arrive.
    let within = value(&of.passed).saturating_sub(shadowed).saturating_sub(marked);
    [("within", within), ("over", value(&of.dropped)), ("shadow", shadowed), ("near", marked)]
}

fn outcomes(entry: &LimitEntry) -> Outcomes {
    let LimitEntry { passed, dropped, shadowed, marked, .. } = *entry;
    Outcomes { passed, dropped, shadowed, marked }
}

fn merge(sum: &mut Outcomes, more: Outcomes) {
    let pairs = [
        (&mut sum.passed, more.passed),
        (&mut sum.dropped, more.dropped),
        (&mut sum.shadowed, more.shadowed),
        (&mut sum.marked, more.marked),
    ];
    for (sum, more) in pairs {
        sum.packets = sum.packets.wrapping_add(more.packets);
        sum.bytes = sum.bytes.wrapping_add(more.bytes);
    }
}
