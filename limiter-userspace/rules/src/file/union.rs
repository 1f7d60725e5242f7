//! Several rule files that count as one.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use super::error::{Problem, RuleFileError};
use super::place::Place;
use super::rule_file::RuleFile;
use crate::model::RuleSet;
use crate::model::Subject;

/// A place in one of several files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePlace {
    /// The file, as the user named it.
    pub file: Arc<str>,
    /// Place in the file.
    pub place: Place,
}

impl fmt::Display for FilePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.place)
    }
}

/// The rules of several files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFiles {
    /// The domain, if one of the files has one.
    pub domain: Option<String>,
    /// All rules, in the order of the files.
    pub rules: RuleSet,
    /// Places where each rule and each budget begins.
    pub places: BTreeMap<Subject, FilePlace>,
    /// Files that have rules for requests, too.
    pub with_requests: Vec<Arc<str>>,
}

impl RuleFiles {
    /// Unites files, each with its name. What belongs to a whole file (`domain`, `replies`,
    /// `bans`), budgets and entries of the lists may stand in several of them if they say the same;
    /// a rule stands in one. Files without a rule in any of them are refused, unless one says that
    /// this is meant.
    pub fn unite(
        files: impl IntoIterator<Item = (String, RuleFile)>,
    ) -> Result<Self, RuleFileError> {
        let mut united = Self::default();
        let mut domain_at: Option<FilePlace> = None;
        let mut first: Option<FilePlace> = None;
        let mut no_rules_meant = false;
        for (file, one) in files {
            let file: Arc<str> = file.into();
            first.get_or_insert_with(|| FilePlace { file: Arc::clone(&file), place: Place::BEGIN });
            let RuleFile { domain, rules, places, no_rules_meant: meant, has_requests } = one;
            if has_requests {
                united.with_requests.push(Arc::clone(&file));
            }
            no_rules_meant |= meant;
            if let Some((domain, place)) = domain {
                let at = FilePlace { file: Arc::clone(&file), place };
                match (&united.domain, domain_at.as_ref()) {
                    (Some(first), Some(first_at)) if *first != domain => {
                        let subject = format!("domain {domain:?}");
                        return Err(differs(subject, &at, first_at));
                    }
                    _ => {
                        domain_at.get_or_insert(at);
                        united.domain = Some(domain);
                    }
                }
            }
            let RuleSet { rules, budgets, replies, bans, martians, lists } = rules;
            // Words that an earlier file has, too, need not stand again.
            let mut again = Vec::new();
            for (subject, stands) in [
                (Subject::Replies, again_as(replies, united.rules.replies)),
                (Subject::Bans, again_as(bans, united.rules.bans)),
                (Subject::Martians, again_as(martians, united.rules.martians)),
            ] {
                match stands {
                    Some(true) => again.push(subject),
                    Some(false) => return Err(united.twice(&subject, &file, &places, differs)),
                    None => {}
                }
            }
            united.rules.replies = united.rules.replies.or(replies);
            united.rules.bans = united.rules.bans.or(bans);
            united.rules.martians = united.rules.martians.or(martians);
            for (selector, entry) in lists {
                let subject = Subject::Listed(selector);
                match united.rules.lists.get(&selector) {
                    None => drop(united.rules.lists.insert(selector, entry)),
                    Some(known) if *known == entry => again.push(subject),
                    Some(_) => return Err(united.twice(&subject, &file, &places, differs)),
                }
            }
            for budget in budgets {
                let subject = Subject::Budget(budget.name.clone());
                match united.rules.budgets.iter().find(|known| known.name == budget.name) {
                    None => united.rules.budgets.push(budget),
                    Some(known) if *known == budget => again.push(subject),
                    Some(_) => return Err(united.twice(&subject, &file, &places, differs)),
                }
            }
            if united.places.is_empty() {
                // The first of them, often the only one: nothing is there twice.
                let at = |place| FilePlace { file: Arc::clone(&file), place };
                let placed = places.into_iter().map(|(subject, place)| (subject, at(place)));
                united.places = placed.collect();
                united.rules.rules.extend(rules);
                continue;
            }
            for (subject, place) in &places {
                if again.contains(subject) {
                    continue;
                }
                match united.places.entry(subject.clone()) {
                    Entry::Vacant(entry) => {
                        entry.insert(FilePlace { file: Arc::clone(&file), place: *place });
                    }
                    Entry::Occupied(_) => {
                        return Err(united.twice(subject, &file, &places, |what, at, first| {
                            error(
                                at,
                                Problem::Elsewhere { subject: what, first: first.to_string() },
                            )
                        }));
                    }
                }
            }
            united.rules.rules.extend(rules);
        }
        match first {
            Some(first) if !united.rules.does_something() && !no_rules_meant => {
                Err(error(&first, Problem::NoRules))
            }
            _ => Ok(united),
        }
    }

    /// The error for what stands in `file` and in a file before it.
    fn twice(
        &self,
        subject: &Subject,
        file: &Arc<str>,
        places: &BTreeMap<Subject, Place>,
        error: impl Fn(String, &FilePlace, &FilePlace) -> RuleFileError,
    ) -> RuleFileError {
        let place = places.get(subject).copied().unwrap_or(Place::BEGIN);
        let at = FilePlace { file: Arc::clone(file), place };
        let first = self.places.get(subject).unwrap_or(&at);
        error(subject.to_string(), &at, first)
    }
}

/// Whether a value that is known already is repeated unchanged; `None` if one of the two is
/// missing.
fn again_as<T: PartialEq>(value: Option<T>, known: Option<T>) -> Option<bool> {
    value.zip(known).map(|(value, known)| value == known)
}

fn differs(subject: String, at: &FilePlace, first: &FilePlace) -> RuleFileError {
    error(at, Problem::Differs { subject, first: first.to_string() })
}

fn error(at: &FilePlace, problem: Problem) -> RuleFileError {
    RuleFileError { file: at.file.to_string(), place: Some(at.place), problem }
}
