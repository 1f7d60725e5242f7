//! The rules of a file: which one a descriptor falls under.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ipnet::IpNet;
use limiter_rules::file::requests::{Entry, MAX_DEPTH, Pattern};

use crate::buckets::key::{Key, source};
use crate::reports::unmet::{self, Tally};
use crate::rules::rule::{EntryOf, Rule, Terms};

/// Rules of a file.
#[derive(Debug)]
pub struct Domain {
    /// Descriptors of requests that come as checks of a proxy.
    pub check: Vec<Vec<Entry>>,
    pub(super) top: Keys,
    pub(super) rules: Vec<Arc<Rule>>,
    /// Limits that requests bring for keys without a rule.
    pub(super) brought: Arc<Rule>,
    /// Requests, and those that no rule is for.
    pub(crate) met: Arc<Tally>,
}

/// Compared, not hashed: they are few, and requests cannot add any.
#[derive(Debug, Default)]
pub(super) struct Keys(pub(super) BTreeMap<Box<str>, Values>);

/// The values of a key, and what is behind each.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) exact: HashMap<Box<str>, Found>,
    /// The longest prefix first.
    pub(super) sources: Vec<(IpNet, Found)>,
    /// The one with the most characters first.
    pub(super) patterns: Vec<(Pattern, Found)>,
    pub(super) any: Option<Found>,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) rule: Option<Arc<Rule>>,
    pub(super) nested: Keys,
}

impl Values {
    /// Finds the most specific match. As in envoyproxy/ratelimit no other one is tried, whatever is
    /// behind it.
    fn find(&self, value: &str) -> Option<&Found> {
        if let Some(found) = self.exact.get(value) {
            return Some(found);
        }
        if !self.sources.is_empty()
            && let Some(source) = source(value)
            && let Some((_, found)) = self.sources.iter().find(|(net, _)| net.contains(&source))
        {
            return Some(found);
        }
        let pattern = self.patterns.iter().find(|(pattern, _)| pattern.matches(value));
        pattern.map(|(_, found)| found).or(self.any.as_ref())
    }
}

impl Domain {
    /// All rules, in the order of the file.
    pub fn rules(&self) -> &[Arc<Rule>] {
        &self.rules
    }

    /// Rules that metrics name: all of them, and that of the limits that requests bring for other
    /// keys, if one did.
    pub(crate) fn counted(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().chain(Some(&self.brought).filter(|_| self.is_brought()))
    }

    /// True if requests brought limits for keys without a rule.
    pub(crate) fn is_brought(&self) -> bool {
        self.brought.counters.any()
    }

    /// What a limit that a request brings stands for, and the key of its descriptor: the rule of
    /// these keys without its name, its limits and its modes, or none.
    pub(crate) fn brought<'a>(
        &'a self,
        found: Option<&'a Arc<Rule>>,
        entries: &[EntryOf<'_>],
    ) -> (&'a Arc<Rule>, Key) {
        if let Some(rule) = found {
            let brought = rule.brought.get_or_init(|| Arc::new(rule.without_terms()));
            // Not the key of a budget, which all share.
            return (brought, rule.own_key(entries));
        }
        (&self.brought, self.brought.listed_key(entries))
    }

    /// The rule of a descriptor, which has as many entries as the rule has levels.
    pub(crate) fn find(&self, entries: &[EntryOf<'_>]) -> Option<&Arc<Rule>> {
        self.found(entries)?.rule.as_ref()
    }

    fn found(&self, entries: &[EntryOf<'_>]) -> Option<&Found> {
        if entries.len() > MAX_DEPTH {
            return None;
        }
        let mut keys = &self.top;
        let mut found = None;
        for (key, value) in entries {
            let next = keys.0.get(*key)?.find(value)?;
            (found, keys) = (Some(next), &next.nested);
        }
        found
    }

    /// True if the file says what becomes of a descriptor: by a rule; or by a value with nothing
    /// behind it, or an exemption, which lets all pass that begins with it.
    pub(crate) fn meets(&self, entries: &[EntryOf<'_>]) -> bool {
        // A file without rules means that all pass.
        let (mut keys, mut ends) = (&self.top, self.top.0.is_empty());
        for (key, value) in entries {
            let Some(found) = keys.0.get(*key).and_then(|values| values.find(value)) else {
                return self.top.0.is_empty();
            };
            let limits = |rule: &Arc<Rule>| !matches!(rule.terms, Terms::Unlimited);
            if found.nested.0.is_empty() && !found.rule.as_ref().is_some_and(limits) {
                return true;
            }
            (keys, ends) = (&found.nested, found.rule.is_some());
        }
        ends
    }

    /// Why no rule is for a descriptor.
    pub(crate) fn why_unmet(&self, entries: &[EntryOf<'_>]) -> String {
        let sorted = |keys: &mut dyn Iterator<Item = &str>| {
            let mut keys: Vec<String> = keys.map(str::to_ascii_lowercase).collect();
            keys.sort_unstable();
            keys
        };
        let asked = sorted(&mut entries.iter().map(|(key, _)| *key));
        let alike = self.rules.iter().find(|rule| {
            sorted(&mut rule.levels.iter().map(|level| &*level.key)) == asked
                && rule.levels.iter().zip(entries).any(|(level, (key, _))| &*level.key != *key)
        });
        if let Some(rule) = alike {
            return format!(
                "a rule has these keys in another order or other letters: {}",
                rule.path
            );
        }
        let mut keys = &self.top;
        for (number, (key, value)) in entries.iter().enumerate() {
            let one = &entries[number..=number];
            let Some(values) = keys.0.get(*key) else {
                let place = if number == 0 { "begins" } else { "goes on" };
                return format!("no rule {place} with the key {}", unmet::keys(one));
            };
            let Some(found) = values.find(value) else {
                return format!("no rule is for this value of {}", unmet::keys(one));
            };
            keys = &found.nested;
        }
        let next: Vec<&str> = keys.0.keys().map(|key| &**key).collect();
        format!("the rules there need one more key: {}", next.join(", "))
    }

    /// The rule for a bucket whose entries have no order, and the entries in the rule's order. Of
    /// several rules it is the one whose keys come first in the alphabet.
    pub(crate) fn find_in_any_order<'a>(
        &self,
        entries: &[EntryOf<'a>],
    ) -> Option<(&Arc<Rule>, Vec<EntryOf<'a>>)> {
        if entries.len() > MAX_DEPTH {
            return None;
        }
        let mut rest = entries.to_vec();
        rest.sort_unstable();
        let mut ordered = Vec::with_capacity(rest.len());
        let rule = find_in_any_order(&self.top, &mut rest, &mut ordered)?;
        Some((rule, ordered))
    }
}

/// [`Domain::find`], with the entries in any order.
fn find_in_any_order<'a, 'b>(
    keys: &'a Keys,
    rest: &mut Vec<EntryOf<'b>>,
    ordered: &mut Vec<EntryOf<'b>>,
) -> Option<&'a Arc<Rule>> {
    for index in 0..rest.len() {
        let (key, value) = rest[index];
        let Some(found) = keys.0.get(key).and_then(|values| values.find(value)) else { continue };
        rest.remove(index);
        ordered.push((key, value));
        let rule = if rest.is_empty() {
            found.rule.as_ref()
        } else {
            find_in_any_order(&found.nested, rest, ordered)
        };
        if rule.is_some() {
            return rule;
        }
        ordered.pop();
        rest.insert(index, (key, value));
    }
    None
}
