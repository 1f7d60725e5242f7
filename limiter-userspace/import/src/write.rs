//! Writes the rule file: the rules, each with its origin and differences, and everything else as
//! comments.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use limiter_rules::compile::CompileErrors;
use limiter_rules::file::blocks;
use limiter_rules::model::{Listing, Part, Path, ROOM};
use limiter_rules::rate_text::MIN_FULL_FRAME;
use limiter_rules::{Environment, RuleFile, RuleSet, Selector, Subject, compile_set};
use limiter_text::plain::clean;

use super::detect::Format;
use super::difference::Difference;
use super::error::{ImportError, MAX_BYTES};
use super::firewall::{Firewall, Verdict};
use super::imported::{Entry, Imported, Outcome};
use super::judge::{Fate, Judge};
use super::lists::{Denied, commands, for_ever};
use super::walk::Walk;

/// Maximum number of characters shown of a rule.
const LONGEST: usize = 4000;

const WIDTH: usize = 98;

/// Translates a rule set and writes it down.
pub(super) fn write(
    format: Format,
    firewall: &Firewall,
    shadow: bool,
) -> Result<Imported, ImportError> {
    let mut judge = Judge::new(firewall);
    Walk::all(firewall, &mut judge);
    let (mut set, origins) = held(&mut judge, shadow)?;
    let hooked = firewall.chains.values().any(|chain| chain.hook.is_some());
    let whole = match format {
        _ if hooked || !firewall.remarks.is_empty() => None,
        Format::Nft => Some("`nft -j list ruleset`"),
        Format::Ip6tables => Some("ip6tables-save"),
        _ => Some("iptables-save"),
    };
    let mut entries = entries(firewall, &judge, whole);
    place(&mut entries, &set, &origins);
    let count = |outcome| entries.iter().filter(|entry| entry.1.outcome == outcome).count();
    let translated = count(Outcome::Translated);
    let mut text = format!(
        "# Made by `limiter import` from {}. Nothing was applied: read it, then `limiter check` \
         and\n# `limiter apply --confirm 5m`. docs/import.md has the letters of the \
         differences.\n# {translated} translated, {} not, {} left to the firewall.\n# Of all \
         rules: limiter comes before the firewall, conntrack and the translation of addresses,\n# \
         sees fragments as they come, and a packet must be within the limits of every table.\n",
        format.name(),
        count(Outcome::NotTranslated),
        count(Outcome::Left),
    );
    for remark in &firewall.remarks {
        comment(&mut text, "", &clean(remark));
    }
    let mut reported = BTreeSet::new();
    set.lists = lists(&mut text, &judge, &entries, &mut reported);
    rules(&mut text, &set, &origins, &entries, &mut reported)?;
    dropping(&mut text, &entries, &reported);
    rest(&mut text, &entries, Outcome::NotTranslated, "Not translated");
    rest(&mut text, &entries, Outcome::Left, "Left to the firewall");
    if text.len() > MAX_BYTES {
        return Err(ImportError::TooMuch);
    }
    reread(&text, &set)?;
    Ok(Imported {
        text,
        format: format.name().to_owned(),
        is_list: false,
        translated,
        remarks: firewall.remarks.iter().map(|remark| clean(remark)).collect(),
        rules: entries.into_iter().map(|(_, entry)| entry).collect(),
    })
}

/// Maximum number of rounds that remove single rules and check the rest again.
const MOST_ROUNDS: usize = 16;

/// The rule set without the rules that the program cannot hold, which get the reason.
fn held(judge: &mut Judge<'_>, shadow: bool) -> Result<(RuleSet, Vec<Vec<usize>>), ImportError> {
    // Each round removes at least one rule.
    for _ in 0..=judge.fates.len() {
        let (set, origins) = judge.tables.set(shadow);
        let Some(errors) = unheld(&set) else { return Ok((set, origins)) };
        // Earlier rules may fit without them.
        let mut last: BTreeMap<usize, String> = BTreeMap::new();
        for error in errors.into_all() {
            let rules = match &error.subject {
                Subject::Rule(path) => judge.tables.rules_of(Some(path), None),
                Subject::Budget(name) => judge.tables.rules_of(None, Some(name)),
                Subject::Replies | Subject::Bans | Subject::Martians | Subject::Listed(_) => {
                    Vec::new()
                }
            };
            if let Some(rule) = rules.into_iter().max() {
                last.entry(rule).or_insert_with(|| error.to_string());
            }
        }
        if last.is_empty() {
            break;
        }
        let some = if last.len() > MOST_ROUNDS { last.len() } else { 1 };
        for (rule, error) in last.into_iter().rev().take(some) {
            judge.tables.remove(rule);
            judge.fate(rule, Fate::Not(error));
        }
    }
    Err(ImportError::Own("its rules cannot be held".to_owned()))
}

fn unheld(set: &RuleSet) -> Option<CompileErrors> {
    // Any numbers, as long as each name has a different one.
    let names: BTreeSet<&str> = set.rules.iter().flat_map(|rule| interfaces(&rule.path)).collect();
    let index =
        |name: &str| names.iter().zip(1..).find_map(|(known, at)| (*known == name).then_some(at));
    let environment = Environment {
        max_frame: MIN_FULL_FRAME,
        interface_index: &index,
        cpus: 1,
        cluster: None,
        in_at_tc: None,
    };
    compile_set(set, &environment).err()
}

fn interfaces(path: &Path) -> impl Iterator<Item = &str> {
    path.parts.iter().filter_map(|part| match part {
        Part::Interface(name) => name.as_deref(),
        _ => None,
    })
}

/// Rules with their fates, each with its index. `whole` prints what a partial rule set lacks.
fn entries(firewall: &Firewall, judge: &Judge<'_>, whole: Option<&str>) -> Vec<(usize, Entry)> {
    let beside = judge.beside();
    let mut entries = Vec::new();
    for (index, (rule, fate)) in firewall.rules.iter().zip(&judge.fates).enumerate() {
        // Rules of a program that are not in the text.
        if rule.text.is_empty() {
            continue;
        }
        let (outcome, reason) = match fate {
            Fate::Translated => (Outcome::Translated, None),
            Fate::Left(reason) => (Outcome::Left, Some(reason.clone())),
            Fate::Not(reason) => (Outcome::NotTranslated, Some(reason.clone())),
            Fate::Unseen => {
                let limits = rule.cases.iter().any(|case| {
                    let limit =
                        case.limit.is_some() || case.packets.unknown.iter().any(|one| one.limits);
                    limit && case.verdict != Verdict::Continue
                });
                let why = match whole {
                    Some(command) => format!(
                        "no chain with a hook leads to it: this text has none, and {command} has"
                    ),
                    None => "no chain with a hook leads to it".to_owned(),
                };
                (if limits { Outcome::NotTranslated } else { Outcome::Left }, Some(why))
            }
        };
        let mut differences: BTreeSet<_> =
            judge.differences.get(&index).cloned().unwrap_or_default();
        if outcome != Outcome::Translated {
            differences.clear();
        } else if beside.contains(&index) {
            differences.insert(Difference::Several);
        }
        let shown: String = rule.text.chars().take(LONGEST).collect();
        let more = if shown.len() < rule.text.len() { " ..." } else { "" };
        entries.push((
            index,
            Entry {
                place: clean(&rule.place),
                rule: clean(&shown) + more,
                outcome,
                differences: differences.iter().map(|one| clean(&one.to_string())).collect(),
                reason: reason.map(|reason| clean(&reason)),
                paths: Vec::new(),
                effects: differences.iter().filter_map(Difference::effect).collect(),
                forwarded: judge.forwarded.contains(&index),
            },
        ));
    }
    entries
}

/// Notes for each rule of the other program the rules of the set that contain it.
fn place(entries: &mut [(usize, Entry)], set: &RuleSet, origins: &[Vec<usize>]) {
    for (rule, origins) in set.rules.iter().zip(origins) {
        for origin in origins {
            if let Ok(at) = entries.binary_search_by_key(origin, |(index, _)| *index)
                && let Some((_, entry)) = entries.get_mut(at)
            {
                entry.paths.push(rule.path.clone());
            }
        }
    }
}

/// The rule with an index. The entries are sorted by it.
fn entry_of(entries: &[(usize, Entry)], index: usize) -> Option<&Entry> {
    let at = entries.binary_search_by_key(&index, |(index, _)| *index).ok()?;
    entries.get(at).map(|(_, entry)| entry)
}

/// A comment below the rule that it belongs to, wrapped into lines.
fn comment(text: &mut String, indent: &str, words: &str) {
    let mut line = String::new();
    let mut gap = "  ";
    let mut push = |line: &mut String| {
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = writeln!(text, "{indent}# {gap}{line}");
        gap = "    ";
        line.clear();
    };
    for word in words.split(' ') {
        if !line.is_empty() && indent.len() + line.len() + word.len() + 7 > WIDTH {
            push(&mut line);
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    push(&mut line);
}

/// A rule as read, in one line of any length.
fn verbatim(text: &mut String, indent: &str, entry: &Entry) {
    let _: std::fmt::Result = writeln!(text, "{indent}# {}: {}", entry.place, entry.rule);
}

fn translated(text: &mut String, indent: &str, entry: &Entry) {
    verbatim(text, indent, entry);
    for difference in &entry.differences {
        comment(text, indent, difference);
    }
}

fn lists(
    text: &mut String,
    judge: &Judge<'_>,
    entries: &[(usize, Entry)],
    reported: &mut BTreeSet<usize>,
) -> BTreeMap<Selector, Listing> {
    let translated_entry = |denied: &Denied| {
        let entry = entry_of(entries, denied.rule);
        entry.filter(|entry| entry.outcome == Outcome::Translated)
    };
    let all = || judge.denied.iter().filter_map(|it| Some((it, translated_entry(it)?)));
    if all().next().is_none() {
        return BTreeMap::new();
    }
    let denied: Vec<&Denied> = all().map(|(denied, _)| denied).collect();
    let listed = in_file(&denied);
    let timed = denied.iter().any(|denied| denied.times.iter().any(Option::is_some));
    text.push_str(match listed {
        Some(_) if timed => {
            "#\n# Sources that are dropped are under `deny`; for those that are for a time, type:\n"
        }
        Some(_) => "#\n# Sources that are dropped are under `deny`:\n",
        None => "#\n# Sources that are dropped, more than the lists have room for. Type:\n",
    });
    for (denied, entry) in all() {
        reported.insert(denied.rule);
        translated(text, "", entry);
        for command in commands(denied, listed.is_some()) {
            let _: std::fmt::Result = writeln!(text, "#   {command}");
        }
    }
    listed.unwrap_or_default()
}

/// Entries of the deny list for sources that are denied for ever; `None` if they do not all fit.
fn in_file(all: &[&Denied]) -> Option<BTreeMap<Selector, Listing>> {
    let mut listed = BTreeMap::new();
    for selector in all.iter().flat_map(|denied| for_ever(denied)) {
        listed.insert(selector, Listing { allow: false, reason: None, until: None });
    }
    let sources = listed.keys().filter(|at| at.is_source()).count();
    let counts = [sources, listed.len() - sources];
    counts.into_iter().zip(ROOM).all(|(count, (_, room))| count <= room).then_some(listed)
}

fn rules(
    text: &mut String,
    set: &RuleSet,
    origins: &[Vec<usize>],
    entries: &[(usize, Entry)],
    reported: &mut BTreeSet<usize>,
) -> Result<(), ImportError> {
    let own = |error: String| ImportError::Own(error);
    let written = blocks(set).map_err(|error| own(error.to_string()))?;
    text.push('\n');
    text.push_str(&written.head);
    if written.rules.is_empty() {
        text.push_str("descriptors: []\n");
    } else {
        text.push_str("descriptors:\n");
    }
    for (block, origins) in written.rules.iter().zip(origins) {
        for origin in origins {
            if reported.insert(*origin)
                && let Some(entry) = entry_of(entries, *origin)
            {
                translated(text, "  ", entry);
            }
        }
        text.push_str(block);
    }
    Ok(())
}

/// Lists the rules that drop what is over an earlier rule's limit.
fn dropping(text: &mut String, entries: &[(usize, Entry)], reported: &BTreeSet<usize>) {
    let mut entries = entries
        .iter()
        .filter(|(index, entry)| entry.outcome == Outcome::Translated && !reported.contains(index))
        .peekable();
    if entries.peek().is_some() {
        text.push_str("\n# Translated with the limits whose rest they drop:\n");
    }
    for (_, entry) in entries {
        verbatim(text, "", entry);
    }
}

fn rest(text: &mut String, entries: &[(usize, Entry)], outcome: Outcome, head: &str) {
    let mut entries = entries.iter().filter(|(_, entry)| entry.outcome == outcome).peekable();
    if entries.peek().is_some() {
        let _: std::fmt::Result = writeln!(text, "\n# {head}:");
    }
    for (_, entry) in entries {
        verbatim(text, "", entry);
        if let Some(reason) = &entry.reason {
            comment(text, "", reason);
        }
    }
}

/// Reads the text back as a daemon would, and checks that it means the same.
fn reread(text: &str, set: &RuleSet) -> Result<(), ImportError> {
    let file = RuleFile::parse("import", text.as_bytes(), MIN_FULL_FRAME)
        .map_err(|error| ImportError::Own(error.to_string()))?;
    let sorted = |set: &RuleSet| {
        let mut rules = set.rules.clone();
        rules.sort_by(|one, other| one.path.cmp(&other.path));
        rules
    };
    let rules = sorted(&file.rules) == sorted(set) && file.rules.budgets == set.budgets;
    let same = rules && file.rules.lists == set.lists;
    if same { Ok(()) } else { Err(ImportError::Own("it says something else".to_owned())) }
}
