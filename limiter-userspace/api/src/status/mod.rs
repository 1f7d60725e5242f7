//! State of the daemon, its interfaces and its rules.

pub mod history;
pub mod neighbours;

use std::collections::BTreeSet;

use limiter_text::pattern::Pattern;
use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::render::{Render, bits, number, push, seconds, table, warnings as push_warnings};
use crate::requests::ReportedRequests;
use crate::rules::{Trial, TrialEnd};
use crate::sources::per_second;
use crate::status::history::Rates;
use crate::status::neighbours::{OtherProgram, ThenProgram};
use crate::words;

/// `GET /v1/status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// The rule set in force.
    pub generation: u64,
    /// Rules in force.
    pub rules: usize,
    /// True if limiter lets every packet pass: `limiter off`.
    pub bypass: bool,
    /// Interfaces under limits, and those that are to be.
    pub interfaces: Vec<Interface>,
    /// Shell patterns of the names of interfaces that are limited as they appear.
    #[serde(default)]
    pub patterns: Vec<String>,
    /// The XDP program of somebody else that goes on with the packets that pass, if there is one.
    #[serde(default)]
    pub then: Option<ThenProgram>,
    /// Numbers of sources that can be tracked.
    pub sources: Sources,
    /// The rule files and directories, as the daemon was given them.
    pub rules_files: Vec<String>,
    /// The directory of its pinned maps and links; none of a daemon that does not say it.
    #[serde(default)]
    pub pin_dir: Option<String>,
    /// Rules that came from the command line.
    pub edits: usize,
    /// Prefixes that are never limited.
    pub management: Vec<String>,
    /// Warnings: rules that are not in force, and why; and a line while most packets have no IP
    /// header.
    pub warnings: Vec<String>,
    /// Rules that limit and have met no packet, if there are any, of up to 512 rules.
    #[serde(default)]
    pub unmet: Option<Unmet>,
    /// Rules that let packets wait on their way out, if there are any.
    #[serde(default)]
    pub delays: Option<Delays>,
    /// Rules and budgets that let packets pass over their soft limits now.
    pub over_soft_limit: Vec<String>,
    /// Tables in which packets find no room now: `IPv4 sources`, `IPv6 sources`, `narrow keys`,
    /// `keys of tables`.
    pub no_room_for: Vec<String>,
    /// Rules whose limits are too tight for their sources, and the evidence of it.
    #[serde(default)]
    pub too_tight: Vec<String>,
    /// The last reload; the start counts as one.
    pub last_reload: Reload,
    /// True if the rules of `limiter apply` take the place of the rule files.
    #[serde(default)]
    pub applied: bool,
    /// Numbers of reloads since the start.
    #[serde(default)]
    pub reloads: Reloads,
    /// The rule files on disk, while they are others than those in force, or than those that
    /// `limiter apply` replaced.
    #[serde(default)]
    pub changed_on_disk: Option<ChangedOnDisk>,
    /// The rule files that this start took although they were not those that were last in force, in
    /// words; none where they were, and once somebody has put rules in force.
    #[serde(default)]
    pub changed_before_start: Option<String>,
    /// Watch over the rule files; none without one.
    #[serde(default)]
    pub watch: Option<Watching>,
    /// Rules for requests that processes of `limiter serve` report.
    #[serde(default)]
    pub requests: ReportedRequests,
    /// What these processes report that is right if it is meant: rules that no request has met.
    #[serde(default)]
    pub request_notes: Vec<String>,
    /// The rule set on trial, if one is.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// The end of the last trial, if there was one.
    #[serde(default)]
    pub last_trial: Option<TrialEnd>,
}

/// Rules that are in force, and that no packet has met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unmet {
    /// The first of them.
    pub rules: Vec<String>,
    /// Number of all of them.
    pub in_all: usize,
    /// Number of rules that limit.
    pub of: usize,
    /// Packets that were seen since the rules came into force.
    pub packets: u64,
}

impl Unmet {
    /// Packets after which it is worth a word that a rule met none.
    const MANY: u64 = 1_000;

    /// The line about it; none before there were many packets.
    fn text(&self) -> Option<String> {
        let Self { rules, in_all, of, packets } = self;
        let more = match in_all.saturating_sub(rules.len()) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (*packets >= Self::MANY).then(|| {
            let packets = number(*packets);
            format!(
                "{in_all} of {of} rules by none of {packets} packets: {}{more}",
                rules.join(", ")
            )
        })
    }
}

/// Rules that let packets wait on their way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delays {
    /// The rules and budgets, in words.
    pub who: String,
    /// Packets of one flow that wait at most.
    pub packets: u64,
}

/// Numbers of reloads, by request, signal or because a file changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reloads {
    /// Reloads that put a rule set in force.
    pub ok: u64,
    /// Reloads that were refused.
    pub failed: u64,
}

/// Watch over the rule files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Watching {
    /// Seconds between two readings, whether the kernel reports a change or not.
    pub every_seconds: u64,
    /// Seconds that changed files are on trial; none if they are checked and reported only.
    #[serde(default)]
    pub trial_seconds: Option<u64>,
}

/// Rule files that changed on disk, and are not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangedOnDisk {
    /// The reason why they cannot be in force; none if `limiter reload` would take them.
    pub error: Option<String>,
}

/// An interface under limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Interface {
    /// Name of the interface now.
    pub name: String,
    /// Name of what is behind it, as a container: the alias of the interface, or the name of the
    /// network namespace of its other end.
    #[serde(default)]
    pub label: Option<String>,
    /// `native` or `generic`, `tc in` or `tc out`.
    #[schema(value_type = words::Mode)]
    pub mode: String,
    /// Index of the interface, in its network namespace; 0 while there is no such interface.
    pub ifindex: u32,
    /// The kernel's id of the program.
    pub program_id: u32,
    /// True if the daemon found its link in place and kept it.
    pub adopted: bool,
    /// True if the program is on it now: not while the interface is gone.
    #[serde(default = "attached")]
    pub attached: bool,
    /// State of the interface.
    #[serde(default)]
    pub state: InterfaceState,
    /// The name that `--iface` has for it, if it was renamed since.
    #[serde(default)]
    pub was: Option<String>,
    /// Rates of what comes in by it, as the mean of the last ten seconds; none while the program is
    /// not on it here, and where another interface is counted with it.
    #[serde(default)]
    pub rates: Option<Rates>,
    /// The reason why the program is not on it, if the daemon has tried.
    #[serde(default)]
    pub error: Option<String>,
    /// Programs of others on it for the same direction, each hook's in the order in which they run.
    #[serde(default)]
    pub others: Vec<OtherProgram>,
}

/// State of an interface under limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum InterfaceState {
    /// The program is on it. Also of a daemon that does not say it.
    #[default]
    Attached,
    /// The program is on it, in another network namespace.
    Elsewhere,
    /// The interface is not in this network namespace, and whether it is limited in another one
    /// cannot be seen.
    Unseen,
    /// The program is not on it.
    Detached,
    /// There is no such interface.
    Gone,
    /// The interface is to be limited, and cannot be; the daemon tries again.
    Refused,
}

/// Attached interfaces that `limiter status` shows as text.
const SHOWN: usize = 20;

/// The value of a daemon that does not say it.
const fn attached() -> bool {
    true
}

/// Capacity for sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Sources {
    /// IPv4 addresses.
    pub max_v4: u32,
    /// IPv6 /64s.
    pub max_v6: u32,
}

/// The outcome of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Reload {
    /// True if the rule file is in force.
    pub ok: bool,
    /// Error, if it is not; the previous rules are still in force.
    pub error: Option<String>,
}

impl Interface {
    /// Its name, and that of what is behind it.
    pub fn labelled(&self) -> String {
        labelled(&self.name, self.label.as_deref())
    }

    /// The row of `limiter status`, also for the same interface in other modes of which the same is
    /// to be said.
    fn text(&self, mode: &str) -> String {
        let (name, id) = (self.labelled(), self.program_id);
        let adopted = if self.adopted { ", adopted" } else { "" };
        let was = self.was.as_ref().map_or_else(String::new, |was| format!(", was {was}"));
        let limited = format!("{name} {mode}, program {id}{adopted}{was}");
        match (self.state, self.attached) {
            (InterfaceState::Elsewhere, _) => {
                format!("{limited}, limited in another network namespace")
            }
            (InterfaceState::Unseen, _) => format!(
                "{name} {mode}{was}, not here: whether it is limited in another network namespace cannot \
                 be seen"
            ),
            (_, true) => limited,
            (_, false) => {
                let why = self.error.as_ref().map(|error| format!(" ({})", clean(error)));
                format!("{name} {mode}, not attached: packets pass{}", why.unwrap_or_default())
            }
        }
    }

    /// True if nothing but the mode distinguishes the rows of two: hooks of one interface where the
    /// program is not, or cannot be seen.
    fn is_said_with(&self, other: &Self) -> bool {
        let is_row_of_itself = |at: &Self| at.attached && at.state != InterfaceState::Unseen;
        !is_row_of_itself(self)
            && !is_row_of_itself(other)
            && (&self.name, self.state, &self.was, &self.error)
                == (&other.name, other.state, &other.was, &other.error)
    }
}

/// Hooks of one interface of which the program is not on it, for the same reason: the interface,
/// the modes, and the reason.
pub type NotAttached<'a> = (&'a str, Vec<&'a str>, Option<&'a str>);

impl Status {
    /// Interfaces that the program is not on, each once with the same reason.
    pub fn not_attached(&self) -> Vec<NotAttached<'_>> {
        let mut all: Vec<NotAttached<'_>> = Vec::new();
        for at in self.interfaces.iter().filter(|at| !at.attached) {
            let error = at.error.as_deref();
            match all.iter_mut().find(|(name, _, why)| *name == at.name && *why == error) {
                Some((_, modes, _)) => modes.push(&at.mode),
                None => all.push((&at.name, vec![&at.mode], error)),
            }
        }
        all
    }
}

impl Status {
    fn interface_rows(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        let mut row = |name: &'static str, value: String| rows.push((name, value));
        // All that are not limited, and so many of the others.
        let mut left = SHOWN;
        let (mut more, mut names) = (0, BTreeSet::new());
        for (at, interface) in self.interfaces.iter().enumerate() {
            names.insert(interface.name.as_str());
            let (before, from) = self.interfaces.split_at(at);
            let is_said = |other: &&Interface| interface.is_said_with(other);
            if before.iter().any(|other| is_said(&other)) {
                continue;
            }
            if interface.attached {
                if left == 0 {
                    more += 1;
                    continue;
                }
                left -= 1;
            }
            let with: Vec<&str> =
                from.iter().skip(1).filter(is_said).map(|other| other.mode.as_str()).collect();
            let modes = [&[interface.mode.as_str()], with.as_slice()].concat().join(" and ");
            row("interface", interface.text(&modes));
            if let Some(rates) = interface.rates {
                row("", rates_text(&rates));
            }
            for text in interface.others.iter().filter_map(OtherProgram::text) {
                row("", text);
            }
        }
        if more > 0 {
            let more = number(more);
            row("", format!("and {more} more that are attached: `--output json` has all"));
        }
        for pattern in &self.patterns {
            let matches = Pattern::of(pattern)
                .map_or(0, |pattern| names.iter().filter(|name| pattern.matches(name)).count());
            let matches = match matches {
                0 => {
                    "no interface is here that matches; limited as soon as there is one".to_owned()
                }
                1 => "1 interface".to_owned(),
                several => format!("{several} interfaces"),
            };
            row("pattern", format!("{pattern}: {matches}"));
        }
        rows
    }
}

impl Render for Status {
    fn render(&self, text: &mut String) {
        let mut table = table(&["", ""]);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_owned(), value]);
        };
        row("version", self.version.clone());
        row("pid", self.pid.to_string());
        for (name, value) in self.interface_rows() {
            row(name, value);
        }
        if let Some(then) = &self.then {
            row("then", then.text());
        }
        let limits = match (self.bypass, &self.then) {
            (false, _) => "on",
            (true, None) => "off: every packet passes",
            (true, Some(_)) => "off: limiter lets every packet pass; the program of `then` may not",
        };
        row("limits", limits.to_owned());
        let edits = self.edits;
        row("rules", format!("{} in force, {edits} of them by `limiter set`", self.rules));
        if let Some(unmet) = self.unmet.as_ref().and_then(Unmet::text) {
            row("not met", clean(&unmet));
        }
        if !self.requests.is_empty() {
            row("requests", self.requests.words());
        }
        for note in &self.request_notes {
            row("note", clean(note));
        }
        row("generation", self.generation.to_string());
        for file in &self.rules_files {
            row("rule file", file.clone());
        }
        if let Some(trial) = self.trial {
            let left = seconds(trial.seconds_left);
            row(
                "on trial",
                format!(
                    "for {left} more; `limiter confirm` keeps the rules, else the previous ones return"
                ),
            );
        }
        if let Some(end) = &self.last_trial {
            let how = end.reason.as_deref().unwrap_or("confirmed");
            row(
                "last trial",
                if end.confirmed { how.to_owned() } else { format!("taken back: {how}") },
            );
        }
        if self.applied {
            row("applied", "other rules, by `limiter apply`, until a reload".to_owned());
        }
        if let Some(changed) = &self.changed_before_start {
            row("at the start", clean(changed));
        }
        let refused = self.last_reload.error.as_ref().map(|error| format!("refused: {error}"));
        row("last reload", refused.unwrap_or_else(|| "ok".to_owned()));
        let Reloads { ok, failed } = self.reloads;
        row("reloads", format!("{} ok, {} refused", number(ok), number(failed)));
        let watching = self.watch.map_or_else(
            || "not watched".to_owned(),
            |Watching { every_seconds: every, trial_seconds }| match trial_seconds {
                None => {
                    format!("reported, not applied; checked every {}", seconds(every))
                }
                Some(trial) => {
                    format!(
                        "applied on trial for {}; checked every {}",
                        seconds(trial),
                        seconds(every)
                    )
                }
            },
        );
        row("file changes", watching);
        for prefix in &self.management {
            row("never limited", prefix.clone());
        }
        for rule in &self.over_soft_limit {
            row("over soft limit", rule.clone());
        }
        for table in &self.no_room_for {
            row("no room for", format!("new {table}: a flood, or too small a table"));
        }
        for rule in &self.too_tight {
            row("too tight", rule.clone());
        }
        let (v4, v6) = (u64::from(self.sources.max_v4), u64::from(self.sources.max_v6));
        row("room for", format!("{} IPv4 and {} IPv6 sources", number(v4), number(v6)));
        push(text, &table);
        // The header has no names.
        *text = text.trim_start().to_owned();
        push_warnings(text, &self.warnings);
    }
}

/// The name of an interface, and of what is behind it.
pub fn labelled(name: &str, label: Option<&str>) -> String {
    match label {
        Some(label) => format!("{} ({})", clean(name), clean(label)),
        None => clean(name),
    }
}

/// `passes 1,636/s, 13.1 Mbit/s; drops 0/s, 0 bit/s`.
fn rates_text(rates: &Rates) -> String {
    let packets = |rate| per_second(Some(rate));
    format!(
        "passes {}/s, {}; drops {}/s, {}",
        packets(rates.passed_packets),
        bits(rates.passed_bits),
        packets(rates.dropped_packets),
        bits(rates.dropped_bits),
    )
}
