//! From the fields to rules.

mod actions;
mod keys;
mod limits;
mod rules;
mod scalar;
pub(super) mod words;

use std::collections::btree_map::Entry;

use limiter_common::wire::Count;

pub(super) use self::rules::MAX_RULES;
use self::scalar::{at, one_of, text};
use super::RuleFile;
use super::error::{Place, Problem};
use super::placed::Placed;
use super::raw::{self, File};
use crate::rules::model::RESERVED;
use crate::rules::model::{Budget, Limits, Martians, Subject};

pub(super) type Failure = (Option<Place>, Problem);

/// What was read so far of a file, and what is wrong with the rest.
pub(super) struct Checked {
    /// All that is right.
    pub(super) file: RuleFile,
    /// One failure for each field, budget and descriptor that is not.
    pub(super) failures: Vec<Failure>,
    /// The largest frame of the interfaces in bytes.
    max_frame: u64,
}

/// Checks everything that needs no other file and no arithmetic of limits.
pub(super) fn check(file: &File, max_frame: u64) -> Checked {
    let mut checked = Checked { file: RuleFile::default(), failures: Vec::new(), max_frame };
    let martians = checked.martians(file);
    checked.note(martians);
    let domain = checked.domain(file);
    checked.note(domain);
    for (raw, subject) in [(&file.replies, Subject::Replies), (&file.bans, Subject::Bans)] {
        let own = raw.as_ref().map_or(Ok(()), |raw| checked.own_budget(raw, subject));
        checked.note(own);
    }
    for raw in file.budgets.iter().flatten() {
        let added = checked.budget(raw);
        checked.note(added);
    }
    let descriptors = file.descriptors.as_ref().and_then(|rules| rules.value.0.as_deref());
    checked.file.no_rules_meant = descriptors.is_some_and(<[_]>::is_empty);
    for descriptor in descriptors.into_iter().flatten() {
        let added = rules::add(descriptor, &rules::Paths::default(), &mut checked);
        checked.note(added);
    }
    checked
}

impl Checked {
    /// Keeps a failure; the rest is read on.
    pub(super) fn note(&mut self, done: Result<(), Failure>) {
        self.failures.extend(done.err());
    }

    fn martians(&mut self, file: &File) -> Result<(), Failure> {
        if let Some(martians) = &file.martians {
            self.file.rules.martians = Some(one_of(martians, "martians", &Martians::NAMED)?);
            stand(&mut self.file, Subject::Martians, Place::of(martians.referenced))?;
        }
        Ok(())
    }

    fn domain(&mut self, file: &File) -> Result<(), Failure> {
        if let Some(domain) = &file.domain {
            let name = text(domain, "domain", "name it, or remove the line")?.to_owned();
            self.file.domain = Some((name, place_or_begin(Place::of(domain.referenced))));
        }
        Ok(())
    }

    /// The budget of replies or of new bans.
    fn own_budget(&mut self, raw: &Placed<raw::Rate>, subject: Subject) -> Result<(), Failure> {
        let rate = Some(limits::rate(raw, Count::Packets, self.max_frame)?);
        if subject == Subject::Replies {
            self.file.rules.replies = rate;
        } else {
            self.file.rules.bans = rate;
        }
        stand(&mut self.file, subject, Place::of(raw.referenced))
    }

    fn budget(&mut self, raw: &Placed<raw::Budget>) -> Result<(), Failure> {
        let budget = budget(raw, self.max_frame)?;
        let subject = Subject::Budget(budget.name.clone());
        stand(&mut self.file, subject, Place::of(raw.referenced))?;
        self.file.rules.budgets.push(budget);
        Ok(())
    }
}

/// Refuses a file that says nothing: it is one that was emptied, or cut off, as long as it does not
/// say that no rules are meant. A part of a file may be as empty as that.
pub(super) fn says_something(file: &File) -> Result<(), Failure> {
    let File { domain: _, replies, bans, martians, budgets, descriptors } = file;
    if let Some(Placed { value: raw::Rules(None), referenced }) = descriptors {
        let remedy = "write the rules, or `descriptors: []` if none are meant";
        return Err(at(*referenced, Problem::Empty { field: "descriptors", remedy }));
    }
    let has_budgets = budgets.as_ref().is_some_and(|budgets| !budgets.is_empty());
    if descriptors.is_some()
        || has_budgets
        || replies.is_some()
        || bans.is_some()
        || martians.is_some()
    {
        return Ok(());
    }
    Err((Some(Place::BEGIN), Problem::NoRules))
}

fn place_or_begin(place: Option<Place>) -> Place {
    place.unwrap_or(Place::BEGIN)
}

/// Notes where something stands; a second time is an error.
fn stand(checked: &mut RuleFile, subject: Subject, place: Option<Place>) -> Result<(), Failure> {
    let place = place_or_begin(place);
    match checked.places.entry(subject) {
        Entry::Vacant(entry) => {
            entry.insert(place);
            Ok(())
        }
        Entry::Occupied(entry) => {
            let (subject, first) = (entry.key().to_string(), entry.get().line);
            Err((Some(place), Problem::Duplicate { subject, first }))
        }
    }
}

fn budget(raw: &Placed<raw::Budget>, max_frame: u64) -> Result<Budget, Failure> {
    let missing = |field, remedy| at(raw.referenced, Problem::Missing { field, remedy });
    let budget = &raw.value;
    let name = budget.name.as_ref().ok_or_else(|| missing("name", "name the budget"))?;
    let text = text(name, "name", "name the budget")?;
    if text.starts_with(RESERVED) {
        return Err(at(name.referenced, Problem::ReservedName(text.to_owned())));
    }
    let read = limits::either(budget.rate_limit.as_ref(), budget.rate_limits.as_ref(), max_frame)?
        .ok_or_else(|| {
            missing("rate_limit", "write `rate_limit: {unit: second, requests_per_unit: 100}`")
        })?;
    let refused = |what: &str, reason| {
        at(raw.referenced, Problem::NotSupported { what: what.to_owned(), reason })
    };
    if read.name.is_some() {
        return Err(refused("name", "the budget has a name: remove the one of its limit"));
    }
    let limits = read.limits.ok_or_else(|| {
        refused("unlimited", "a budget is there to limit: give it a rate, or remove it")
    })?;
    let over = actions::over(budget.action.as_deref())?;
    let shadow = budget.shadow_mode.as_ref().is_some_and(|shadow| shadow.value);
    let on_loss = actions::on_loss(budget.on_daemon_loss.as_ref())?;
    Ok(Budget {
        name: text.to_owned(),
        limits: Limits { over, shadow, on_loss, ..Limits::new(limits) },
    })
}
