//! From the fields to rules.

pub(super) mod actions;
pub(super) mod checked;
pub(super) mod keys;
pub(super) mod limits;
mod lists;
pub(super) mod rules;
pub(super) mod scalar;
pub(super) mod sharing;
pub(super) mod words;

use limiter_common::wire::Count;

pub(super) use self::checked::{Checked, Failure};
use self::checked::{place_or_begin, stand};
pub(super) use self::rules::MAX_RULES;
use self::scalar::{at, one_of, text};
use super::error::Problem;
use super::place::Place;
use super::placed::{Item, Placed};
use super::shape::{self, File};
use crate::dialect::Units;
use crate::model::{Budget, Limits, Martians, RESERVED, Subject};

/// Checks everything that needs no other file and no arithmetic of limits.
pub(super) fn check(file: &File, max_frame: u64) -> Checked {
    let mut checked = Checked::new(max_frame);
    checked.add(file);
    checked
}

impl Checked {
    /// Reads all of a file, or the next part of one.
    pub(super) fn add(&mut self, file: &File) {
        let martians = self.martians(file);
        self.note(martians);
        let domain = self.domain(file);
        self.note(domain);
        for (raw, subject) in [(&file.replies, Subject::Replies), (&file.bans, Subject::Bans)] {
            let own = raw.as_ref().map_or(Ok(()), |raw| self.own_budget(raw, subject));
            self.note(own);
        }
        for raw in file.budgets.iter().flat_map(|list| &list.value) {
            let added = self.budget(raw);
            self.note(added);
        }
        self.lists(file);
        self.file.has_requests |= file.requests.is_some();
        let descriptors = descriptors(file).unwrap_or_default();
        self.file.no_rules_meant = descriptors.is_some_and(<[_]>::is_empty);
        let top = rules::Paths::default();
        for descriptor in descriptors.into_iter().flatten() {
            let added = rules::add(descriptor, &top, self);
            self.note(added);
        }
    }

    fn martians(&mut self, file: &File) -> Result<(), Failure> {
        if let Some(martians) = &file.martians {
            self.file.rules.martians = Some(one_of(martians, "martians", &Martians::NAMED)?);
            stand(&mut self.file, Subject::Martians, martians.referenced.place())?;
        }
        Ok(())
    }

    fn domain(&mut self, file: &File) -> Result<(), Failure> {
        if let Some(domain) = &file.domain {
            let name = text(domain, "domain", "name it, or remove the line")?.to_owned();
            self.file.domain = Some((name, place_or_begin(domain.referenced.place())));
        }
        Ok(())
    }

    /// The budget of replies or of new bans.
    fn own_budget(&mut self, raw: &Placed<shape::Rate>, subject: Subject) -> Result<(), Failure> {
        let rate = Some(limits::rate(raw, Count::Packets, self.units)?);
        if subject == Subject::Replies {
            self.file.rules.replies = rate;
        } else {
            self.file.rules.bans = rate;
        }
        stand(&mut self.file, subject, raw.referenced.place())
    }

    fn budget(&mut self, raw: &Placed<shape::Budget>) -> Result<(), Failure> {
        let budget = budget(raw, self.units)?;
        let subject = Subject::Budget(budget.name.clone());
        stand(&mut self.file, subject, raw.referenced.place())?;
        self.file.rules.budgets.push(budget);
        Ok(())
    }
}

/// The rules of a file, if it says any.
pub(super) fn descriptors(file: &File) -> Result<Option<&[Item<shape::Descriptor>]>, Failure> {
    let Some(rules) = &file.descriptors else { return Ok(None) };
    let remedy = "write the rules, or `descriptors: []` if none are meant";
    let empty = || at(rules.referenced, Problem::Empty { field: "descriptors", remedy });
    rules.value.0.as_deref().map(Some).ok_or_else(empty)
}

/// Refuses a file that says nothing: it is one that was emptied, or cut off, as long as it does not
/// say that no rules are meant. A part of a file may be as empty as that.
pub(super) fn says_something(file: &File) -> Result<(), Failure> {
    let File { replies, bans, martians, allow, deny, budgets, requests, .. } = file;
    let descriptors = descriptors(file)?;
    let has_budgets = budgets.as_ref().is_some_and(|budgets| !budgets.value.is_empty());
    let lists = [allow, deny].into_iter().flatten();
    if descriptors.is_some()
        || has_budgets
        || lists.into_iter().any(|list| !list.value.is_empty())
        || replies.is_some()
        || bans.is_some()
        || martians.is_some()
    {
        return Ok(());
    }
    if requests.is_some() {
        let reason = "`limiter serve` answers by it; write rules for packets beside it, or \
                      `descriptors: []` if none are meant";
        let what = "requests alone".to_owned();
        return Err((Some(Place::BEGIN), Problem::NotSupported { what, reason }));
    }
    Err((Some(Place::BEGIN), Problem::NoRules))
}

fn budget(raw: &Placed<shape::Budget>, units: Units) -> Result<Budget, Failure> {
    let missing = |field, remedy| at(raw.referenced, Problem::Missing { field, remedy });
    let budget = &raw.value;
    let name = budget.name.as_ref().ok_or_else(|| missing("name", "name the budget"))?;
    let text = text(name, "name", "name the budget")?;
    if text.starts_with(RESERVED) {
        return Err(at(name.referenced, Problem::ReservedName(text.to_owned())));
    }
    let read = limits::limits(budget.rate_limit.as_deref(), budget.rate_limits.as_deref(), units)?
        .ok_or_else(|| missing("rate_limit", "write `rate_limit: {rate: 100/s}`"))?;
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
    let shadow = budget.shadow_mode.is_some();
    let on_loss = actions::on_loss(budget.on_daemon_loss.as_ref())?;
    let sharing = sharing::sharing(budget.scope.as_ref(), budget.cluster.as_deref())?;
    Ok(Budget {
        name: text.to_owned(),
        limits: Limits { over, shadow, on_loss, sharing, ..Limits::new(limits) },
    })
}
