//! `limiter import --compare`: runs the rules of another program and their translation by
//! `limiter import` in network namespaces side by side, under the same packets.
//!
//! Each rule gets loads around its limit. Both sides start afresh before each load. The model
//! computes the expected answer from the times at which the packets were sent.

mod effect;
mod load;
mod report;
mod sent;
mod side;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use effect::{Offered, Range};
use ipnet::IpNet;
use limiter_import::{Effect, Entry, Format, Imported, Outcome as Fate};
use limiter_rules::model::Limits;
use limiter_rules::{Path, RuleFile, RuleSet, Terms};

use crate::interrupt::Interrupt;
use crate::packet::MAX_FRAME;
use crate::root;
use crate::sandbox::{Failure, Outcome};
use load::{Load, Traffic};
use report::{EXEMPT, Report, Row};
use side::{New, Old, Ruleset};

/// Most rules that are compared: each takes some fifteen seconds.
const MOST: usize = 24;

/// Most reasons that are reported when no rule is compared.
const SHOWN: usize = 5;

/// Options of a comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `limiter` binary.
    pub limiter: PathBuf,
    /// File with the rules of the other program.
    pub file: PathBuf,
    /// Format of the file, as `limiter import` names it; detected if `None`.
    pub format: Option<String>,
    /// One JSON document on standard output instead of the table.
    pub json: bool,
}

/// A rule of the other program, and the translated rule that is compared with it.
struct Pair<'a> {
    entry: &'a Entry,
    /// Effects of all differences that were reported for the translated rule.
    effects: Vec<Effect>,
    /// Limits that the traffic meets; `None` if it is exempt.
    limits: Option<Limits>,
    traffic: Traffic,
}

impl Pair<'_> {
    fn name(&self) -> String {
        let exempt = if self.limits.is_none() { EXEMPT } else { "" };
        format!("{}{exempt}", self.entry.place)
    }

    /// Loads that tell something about the pair.
    const fn loads(&self) -> &'static [Load] {
        if self.limits.is_none() { &[Load::Twice] } else { &Load::ALL }
    }

    fn range(&self, offered: Offered<'_>) -> Range {
        if let Some(limits) = &self.limits {
            return effect::range(limits, &self.effects, offered);
        }
        let all = offered.times.len() as u64;
        Range { least: all, most: all, fewer: BTreeSet::new(), more: BTreeSet::new() }
    }
}

/// Compares the rules and prints what passed.
///
/// # Errors
///
/// Says why there is no result. Nothing is left on the machine.
pub fn run(options: &Options) -> std::result::Result<Outcome, Failure> {
    let prepared = prepare(options).map_err(Failure::CouldNotRun)?;
    compare(options, &prepared).map_err(Failure::BrokeOff)
}

/// Everything known before anything is made.
struct Prepared {
    ruleset: Ruleset,
    imported: Imported,
    set: RuleSet,
    interrupt: Interrupt,
}

fn prepare(options: &Options) -> Result<Prepared> {
    ensure!(root::is_root(), "it makes network namespaces: run it as root");
    let text = fs::read(&options.file)
        .with_context(|| format!("{}: cannot be read", options.file.display()))?;
    let format = options.format.as_deref().map(named).transpose()?;
    let asked = limiter_import::Options { format, ..limiter_import::Options::default() };
    let imported = limiter_import::import(&text, &asked)
        .map_err(|error| anyhow!("{}: {error}", options.file.display()))?;
    let ruleset = Ruleset::new(named(&imported.format)?, text)?;
    let file = RuleFile::parse("imported.yaml", imported.text.as_bytes(), MAX_FRAME)?;
    Ok(Prepared { ruleset, imported, set: file.rules, interrupt: Interrupt::watch()? })
}

fn named(name: &str) -> Result<Format> {
    let known = Format::NAMED.into_iter().find(|(known, _)| *known == name);
    known.map(|(_, format)| format).with_context(|| format!("{name} is no format"))
}

/// Pairs each rule of the other program with its first translated rule, and gives the reasons why
/// the other rules are not tried.
fn pairs<'a>(imported: &'a Imported, set: &RuleSet) -> (Vec<Pair<'a>>, Vec<String>) {
    let (mut pairs, mut left_out) = (Vec::new(), Vec::new());
    for entry in &imported.rules {
        let limits = entry.paths.iter().find_map(|path| Some((path, limits(set, path)?)));
        let Some((path, limits)) = limits else { continue };
        if pairs.len() == MOST {
            left_out.push(format!("{}: only {MOST} rules are tried", entry.place));
            continue;
        }
        let spared: Vec<IpNet> = set
            .rules
            .iter()
            .filter(|rule| rule.terms == Terms::Unlimited)
            .filter_map(|rule| rule.path.source()?.1)
            .collect();
        let is_exempt = |path: &&Path| {
            set.rules.iter().any(|rule| rule.path == **path && rule.terms == Terms::Unlimited)
        };
        let exempt = entry.paths.iter().find(is_exempt).map(|path| (path, None));
        for (path, own) in [(path, Some(limits.clone()))].into_iter().chain(exempt) {
            let spared = if own.is_some() { &spared[..] } else { &[] };
            match Traffic::new(path, &limits, entry.forwarded, spared) {
                Ok(traffic) => {
                    let beside = imported.rules.iter().filter(|other| other.paths.contains(path));
                    let mut effects = Vec::new();
                    for effect in beside.flat_map(|other| &other.effects) {
                        if !effects.contains(effect) {
                            effects.push(*effect);
                        }
                    }
                    pairs.push(Pair { entry, effects, limits: own, traffic });
                }
                Err(why) => left_out.push(format!("{}: {why}", entry.place)),
            }
        }
    }
    (pairs, left_out)
}

/// Limits of the rule with a path: its own, or those of its budget.
fn limits(set: &RuleSet, path: &Path) -> Option<Limits> {
    let rule = set.rules.iter().find(|rule| rule.path == *path)?;
    match &rule.terms {
        Terms::Unlimited => None,
        Terms::Limits(limits) => Some(limits.clone()),
        Terms::Budget(name) => {
            set.budgets.iter().find(|budget| budget.name == *name).map(|b| b.limits.clone())
        }
    }
}

/// Text with the reasons why no rule is tried.
fn untried(imported: &Imported, mut reasons: Vec<String>) -> String {
    let refused = imported.rules.iter().filter(|entry| entry.outcome == Fate::NotTranslated);
    reasons.extend(
        refused.filter_map(|entry| Some(format!("{}: {}", entry.place, entry.reason.as_ref()?))),
    );
    if reasons.is_empty() {
        return "the text has no limit".to_owned();
    }
    let more = reasons.len().saturating_sub(SHOWN);
    reasons.truncate(SHOWN);
    if more > 0 {
        reasons.push(format!("and {more} more, as `limiter import` says without --compare"));
    }
    reasons.join("; ")
}

fn compare(options: &Options, prepared: &Prepared) -> Result<Outcome> {
    let Prepared { ruleset, imported, set, interrupt } = prepared;
    let (pairs, left_out) = pairs(imported, set);
    if pairs.is_empty() {
        bail!("no limit was translated that could be tried: {}", untried(imported, left_out));
    }
    let mut report = Report::new(imported, left_out);
    for pair in &pairs {
        let interface = pair.traffic.interface();
        let old = Old::create(&interface, &pair.traffic)?;
        let new = New::create(&interface, &pair.traffic, &options.limiter, &imported.text)?;
        for load in pair.loads().iter().copied() {
            if interrupt.is_set() {
                return Ok(Outcome::Interrupted);
            }
            let frames = match pair.traffic.schedule(load) {
                Ok(frames) => frames,
                Err(why) => {
                    report.left_out.push(format!("{}, {}: {why}", pair.name(), load.name()));
                    continue;
                }
            };
            old.begin(ruleset)?;
            let running = new.begin()?;
            let times = sent::send(&frames, [&old.wire, &new.wire], interrupt)?;
            if times.len() < frames.len() {
                return Ok(Outcome::Interrupted);
            }
            let length = frames.first().map_or(0, |(_, frame)| frame.len() as u64);
            let offered = Offered { times: &times, length };
            let row = Row {
                rule: pair.name(),
                load: load.name(),
                offered: frames.len() as u64,
                old: old.passed()?,
                new: new.passed()?,
                arithmetic: sent::arithmetic(set, &frames, &times)?,
                range: pair.range(offered),
                exact: pair.traffic.brings_nothing(&times),
                dropped: false,
            };
            running.close()?;
            eprintln!("{}", row.line());
            report.rows.push(row);
        }
        old.close()?;
        new.close()?;
    }
    report.note_dropped();
    print!("{}", if options.json { report.json()? } else { report.text() });
    Ok(if report.is_as_named() { Outcome::Pass } else { Outcome::Fail })
}
