//! Rules in force in the words of their author: the text of the rule files, with the rules that
//! others replaced taken out, and these behind.
//!
//! The text is divided by its lines, as an author indents them. Who divides amiss reads other
//! rules: so the result is read again, and is one only if it has the rules that are in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::render::{ITEM, item};
use super::rule_file::RuleFile;
use super::union::{FilePlace, RuleFiles};
use crate::model::{Path, Rule, RuleSet, Subject};

/// Rules that take the place of those of the files, or stand beside them, each with lines of a
/// comment that stand before it.
pub type Others<'a> = BTreeMap<&'a Path, (&'a Arc<Rule>, Vec<String>)>;

/// Keys of a rule file whose values are lists, in their order.
const LISTS: [&str; 4] = ["allow", "deny", "budgets", RULES];

const RULES: &str = "descriptors";

/// Rules for requests, which stay word for word.
const REQUESTS: &str = "requests";

/// The other keys, in their order.
const SCALARS: [&str; 4] = ["domain", "replies", "bans", "martians"];

/// One file of the rules `files`, which were read from `documents`, each with its name, and of
/// `others`; `max_frame` as in [`RuleFile::parse`]. None where the text cannot be divided, or does
/// not have these rules.
pub fn as_written(
    documents: &[(&str, &str)],
    files: &RuleFiles,
    others: &Others<'_>,
    max_frame: u64,
) -> Option<String> {
    let text = match documents {
        [] => return None,
        [(_, text)] if others.is_empty() => (*text).to_owned(),
        _ => together(documents, files, others)?,
    };
    let (domain, rules) = (files.domain.as_ref(), in_force(files, others));
    let read = RuleFile::parse("", text.as_bytes(), max_frame).ok()?;
    let same = read.rules == rules
        && read.domain.as_ref().map(|(name, _)| name) == domain
        && read.has_requests != files.with_requests.is_empty();
    same.then(|| if text.ends_with('\n') { text } else { text + "\n" })
}

/// The rules of the files that nobody replaced, followed by the others.
fn in_force(files: &RuleFiles, others: &Others<'_>) -> RuleSet {
    let of_files = files.rules.rules.iter().filter(|rule| !others.contains_key(&rule.path));
    let rules = of_files.chain(others.values().map(|(rule, _)| *rule)).map(Arc::clone).collect();
    RuleSet { rules, ..files.rules.clone() }
}

/// A part of a file: a key, and all up to the next one.
#[derive(Debug)]
struct Section {
    key: &'static str,
    /// Lines of comments before the key.
    lead: Vec<String>,
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// A list in block style.
    List(List),
    /// Lines of anything else, with that of the key.
    Lines(Vec<String>),
}

#[derive(Debug, Default)]
struct List {
    /// A comment behind the key.
    comment: String,
    /// Spaces before the dashes.
    indent: usize,
    items: Vec<Entry>,
    /// Lines behind the last item.
    tail: Vec<String>,
}

/// An item of a list.
#[derive(Debug)]
struct Entry {
    /// Comments and empty lines before it.
    lead: Vec<String>,
    lines: Vec<String>,
    /// Numbers of its first line, and of the first behind it.
    places: (u64, u64),
}

#[derive(Debug)]
struct Divided(Vec<Section>);

impl Divided {
    /// Divides a file; `None` if its lines do not show how.
    fn of(text: &str) -> Option<Self> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
        // It ends a line as well, and counts as none here.
        if text.contains('\r') {
            return None;
        }
        let mut lead: Vec<String> = Vec::new();
        let mut parts: Vec<(&'static str, u64, Vec<String>)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.to_owned();
            match (key(&line), parts.last_mut()) {
                (Some(key), _) => parts.push((key, number, vec![line])),
                (None, None) if line.trim_end() == "---" => {}
                // The end of the document, or a line that no author of rules writes.
                (None, _) if !is_inside(&line) => return None,
                (None, Some((.., lines))) => lines.push(line),
                (None, None) => lead.push(line),
            }
        }
        let mut sections = Vec::with_capacity(parts.len());
        for (key, number, mut lines) in parts {
            let next = split_comments(&mut lines, 0);
            let is_list = LISTS.contains(&key);
            let list = if is_list { List::of(&lines, number)? } else { None };
            let value = list.map_or(Value::Lines(lines), Value::List);
            sections.push(Section { key, lead: std::mem::replace(&mut lead, next), value });
        }
        // Comments at the end of the file.
        match &mut sections.last_mut()?.value {
            Value::List(list) => list.tail.append(&mut lead),
            Value::Lines(lines) => lines.append(&mut lead),
        }
        Some(Self(sections))
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|section| section.key == key)
    }

    /// The rules; `None` if they are no list in block style.
    fn rules(&mut self) -> Option<&mut List> {
        if !self.has(RULES) {
            let value = Value::List(List { indent: ITEM.len(), ..List::default() });
            self.0.push(Section { key: RULES, lead: Vec::new(), value });
        }
        let section = self.0.iter_mut().find(|section| section.key == RULES)?;
        match &mut section.value {
            Value::List(list) => Some(list),
            Value::Lines(_) => None,
        }
    }

    /// Rewrites items of which others replaced a rule, or removes them.
    fn replace(&mut self, name: &str, files: &RuleFiles, others: &Others<'_>) -> Option<()> {
        let place = |path: &Path| {
            let FilePlace { file, place } = files.places.get(&Subject::Rule(path.clone()))?;
            (**file == *name).then_some(place.line)
        };
        let replaced: BTreeSet<u64> = others.keys().filter_map(|path| place(path)).collect();
        if replaced.is_empty() {
            return Some(());
        }
        let placed = files.rules.rules.iter();
        let placed = placed.filter_map(|rule| Some((place(&rule.path)?, rule)));
        let mut rules: BTreeMap<u64, Vec<&Arc<Rule>>> = BTreeMap::new();
        placed.for_each(|(line, rule)| rules.entry(line).or_default().push(rule));
        let list = self.rules()?;
        let mut items = Vec::with_capacity(list.items.len());
        for item in std::mem::take(&mut list.items) {
            let (begin, end) = item.places;
            if replaced.range(begin..end).next().is_none() {
                items.push(item);
                continue;
            }
            // The comments were about all of it.
            let mut lead = item.lead;
            lead.truncate(lead.iter().take_while(|line| line.is_empty()).count());
            let inside = rules.range(begin..end).flat_map(|(_, rules)| rules);
            for rule in inside.filter(|rule| !others.contains_key(&rule.path)) {
                let entry = Entry::of(rule, &[], list.indent)?;
                items.push(Entry { lead: std::mem::take(&mut lead), ..entry });
            }
        }
        list.items = items;
        Some(())
    }

    fn write(&self) -> String {
        let mut lines = Vec::new();
        for Section { key, lead, value } in &self.0 {
            lines.extend_from_slice(lead);
            match value {
                Value::Lines(own) => lines.extend_from_slice(own),
                Value::List(list) => list.write(key, &mut lines),
            }
        }
        lines.join("\n") + "\n"
    }
}

/// The key that a line begins.
fn key(line: &str) -> Option<&'static str> {
    let (word, _) = line.split_once(':')?;
    LISTS.iter().chain(&SCALARS).chain(&[REQUESTS]).copied().find(|key| *key == word)
}

/// True of a line that begins no key: indented, an item, a comment, or the end of brackets.
fn is_inside(line: &str) -> bool {
    line.trim_end().is_empty() || line.starts_with([' ', '#', ']', '}']) || is_dash(line)
}

/// True of the first line of an item.
fn is_dash(line: &str) -> bool {
    line == "-" || line.starts_with("- ")
}

fn depth(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Takes the comments at the end of `lines` that are not indented further, which belong to what
/// follows, with the empty lines between and before them.
fn split_comments(lines: &mut Vec<String>, indent: usize) -> Vec<String> {
    let is_of_next = |line: &String| {
        let text = line.trim();
        text.is_empty() || text.starts_with('#') && depth(line) <= indent
    };
    let kept = lines.iter().rposition(|line| !is_of_next(line)).map_or(0, |at| at + 1);
    lines.split_off(kept)
}

/// Lines with so many spaces before them; an empty one stays empty.
fn shifted(lines: &[String], by: usize) -> impl Iterator<Item = String> {
    let shift = move |line: &String| {
        if line.is_empty() { String::new() } else { " ".repeat(by) + line }
    };
    lines.iter().map(shift)
}

impl Entry {
    /// A rewritten rule, after its comments.
    fn of(rule: &Rule, comments: &[String], indent: usize) -> Option<Self> {
        let before = " ".repeat(indent);
        let lead = comments.iter().map(|comment| format!("{before}# {comment}")).collect();
        let lines = item(rule, &before).ok()?.lines().map(str::to_owned).collect();
        Some(Self { lead, lines, places: (0, 0) })
    }
}

impl List {
    /// Divides a list, whose first line is that of its key; `number` is that line's. The inner
    /// `None` means that it is no list in block style.
    #[expect(clippy::option_option, reason = "one is the answer, and one that there is none")]
    fn of(lines: &[String], number: u64) -> Option<Option<Self>> {
        let (head, rest) = lines.split_first()?;
        let (_, behind) = head.split_once(':')?;
        let behind = behind.trim();
        let comment = behind.strip_prefix("[]").map_or(behind, str::trim);
        if !comment.is_empty() && !comment.starts_with('#') {
            return Some(None);
        }
        let first = rest.iter().find(|line| is_dash(line.trim_start_matches(' ')));
        let indent = first.map_or(ITEM.len(), |line| depth(line));
        let mut list = Self { comment: comment.to_owned(), indent, ..Self::default() };
        let mut current: Option<Entry> = None;
        for (number, line) in (number + 1..).zip(rest) {
            let text = line.trim_start_matches(' ');
            let is_blank = text.trim_end().is_empty() || text.starts_with('#');
            if is_dash(text) && depth(line) == indent {
                let lead = match current.take() {
                    None => std::mem::take(&mut list.tail),
                    Some(entry) => list.end(entry, number),
                };
                let lines = vec![line.clone()];
                current = Some(Entry { lead, lines, places: (number, u64::MAX) });
                continue;
            }
            match &mut current {
                Some(entry) if is_blank || depth(line) > indent => entry.lines.push(line.clone()),
                None if is_blank => list.tail.push(line.clone()),
                // No list, or one that is indented as nobody does.
                _ => return None,
            }
        }
        if let Some(entry) = current {
            list.tail = list.end(entry, u64::MAX);
        }
        Some(Some(list))
    }

    /// Ends an item before the line `number`; gives back the comments behind it.
    fn end(&mut self, mut entry: Entry, number: u64) -> Vec<String> {
        let next = split_comments(&mut entry.lines, self.indent);
        let places = (entry.places.0, number);
        self.items.push(Entry { places, ..entry });
        next
    }

    fn add(&mut self, others: &Others<'_>) -> Option<()> {
        for (rule, comments) in others.values() {
            self.items.push(Entry::of(rule, comments, self.indent)?);
        }
        Some(())
    }

    fn write(&self, key: &str, lines: &mut Vec<String>) {
        let value = if self.items.is_empty() { " []" } else { "" };
        let space = if self.comment.is_empty() { "" } else { "  " };
        lines.push(format!("{key}:{value}{space}{}", self.comment));
        for Entry { lead, lines: own, .. } in &self.items {
            lines.extend_from_slice(lead);
            lines.extend_from_slice(own);
        }
        lines.extend_from_slice(&self.tail);
    }
}

/// All rules in one file.
fn together(documents: &[(&str, &str)], files: &RuleFiles, others: &Others<'_>) -> Option<String> {
    let mut divided = Vec::with_capacity(documents.len());
    for (name, text) in documents {
        let mut document = Divided::of(text)?;
        document.replace(name, files, others)?;
        divided.push((*name, document));
    }
    let mut one = match divided.len() {
        1 => divided.pop()?.1,
        _ => united(&divided)?,
    };
    if !others.is_empty() {
        one.rules()?.add(others)?;
    }
    Some(one.write())
}

/// Several files as one: what belongs to a whole file once, and their lists one after the other,
/// each behind the name of its file.
fn united(files: &[(&str, Divided)]) -> Option<Divided> {
    let mut sections: Vec<Section> = Vec::new();
    for key in SCALARS.into_iter().chain(LISTS).chain([REQUESTS]) {
        let of_key = files.iter().filter_map(|(name, Divided(sections))| {
            Some((*name, sections.iter().find(|section| section.key == key)?))
        });
        let of_key: Vec<_> = of_key.collect();
        let Some((_, first)) = of_key.first() else { continue };
        let lists = of_key.iter().map(|(name, section)| match &section.value {
            Value::List(list) => Some((*name, section, list)),
            Value::Lines(_) => None,
        });
        let section = match lists.collect::<Option<Vec<_>>>() {
            Some(lists) => Section { key, lead: Vec::new(), value: Value::List(joined(&lists)) },
            // The others say the same.
            None if of_key.len() == 1 || SCALARS.contains(&key) => {
                let Value::Lines(lines) = &first.value else { return None };
                let lead = of_key.iter().flat_map(|(_, section)| &section.lead).cloned().collect();
                Section { key, lead, value: Value::Lines(lines.clone()) }
            }
            None => return None,
        };
        sections.push(section);
    }
    Some(Divided(sections))
}

/// Lists of several files as one.
fn joined(lists: &[(&str, &&Section, &List)]) -> List {
    let indent = lists.iter().map(|(.., list)| list.indent).max().unwrap_or_default();
    let mut all = List { indent, ..List::default() };
    let mut known = BTreeSet::new();
    let mut lead = Vec::new();
    for (name, Section { key, lead: before, .. }, list) in lists {
        lead.append(&mut all.tail);
        lead.push(format!("{:indent$}# From {name}", ""));
        let comment = Some(&list.comment).filter(|comment| !comment.is_empty());
        let comments = before.iter().chain(comment);
        lead.extend(shifted(&comments.cloned().collect::<Vec<_>>(), indent));
        let by = indent - list.indent;
        for Entry { lead: own, lines, places } in &list.items {
            lead.extend(shifted(own, by));
            let lines: Vec<_> = shifted(lines, by).collect();
            // Budgets and entries may stand in several files, as long as these say the same.
            if *key == RULES || known.insert(lines.clone()) {
                all.items.push(Entry { lead: std::mem::take(&mut lead), lines, places: *places });
            }
        }
        all.tail = std::mem::take(&mut lead);
        all.tail.extend(shifted(&list.tail, by));
    }
    all
}
