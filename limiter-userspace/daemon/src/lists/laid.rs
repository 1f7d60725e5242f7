//! Entries of rule files: which of them are in force with a rule set, and how they replace the
//! previous ones.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use limiter_api::lists::RULE_FILE;
use limiter_api::moment;
use limiter_common::time::Ticks;
use limiter_common::wire::ListEntry;
use limiter_datapath::Datapath;
use limiter_rules::model::{Listing, until_text};
use limiter_rules::{Selector, Subject};

use super::ListStore;
use super::entries::{Entries, Entry, after, name};
use crate::error::ServiceError;
use crate::rule_sets::layers::Layers;

/// Most warnings of one kind that are listed one by one.
const MOST_REPORTED: usize = 5;

/// The entries of rule files with their state under a rule set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Laid {
    /// Entries that are in force.
    pub(crate) entries: Entries,
    /// Descriptions of entries kept out of force because they would lock somebody out, with the
    /// reason.
    pub(crate) kept_out: Vec<String>,
    /// Warnings about entries whose end has passed.
    pub(crate) over: Vec<String>,
}

impl Laid {
    /// The entries of the rule files of `layers`, at a given time of both clocks. `hazard` says why
    /// a source must not be denied.
    pub(crate) fn of(
        layers: &Layers,
        (now, wall): (Ticks, Duration),
        hazard: impl Fn(&Selector) -> Option<String>,
    ) -> Self {
        let by: Arc<str> = RULE_FILE.into();
        let mut laid = Self::default();
        for (selector, listing) in &layers.file.rules.lists {
            if listing.is_over(wall.as_secs()) {
                laid.over.push(over_text(layers, selector, listing));
                continue;
            }
            let verdict = listing.verdict();
            if let Some(why) = hazard(selector).filter(|_| !listing.allow) {
                let reported = reported(layers, selector, listing.list());
                laid.kept_out.push(format!("{reported}: {why}"));
                continue;
            }
            let left = listing.until.map(|until| Duration::from_secs(until).saturating_sub(wall));
            let listed = ListEntry::of_rule_file(verdict, left.map(|left| after(now, left)));
            let reason = listing.reason.as_deref().map(Arc::from);
            laid.entries.insert(*selector, Entry { listed, reason, by: Some(Arc::clone(&by)) });
        }
        laid
    }

    /// Warnings about entries that are not in force.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let kept_out = self.kept_out.iter().map(|reported| format!("not in force: {reported}"));
        let mut warnings = in_short(kept_out.collect());
        warnings.extend(in_short(self.over.clone()));
        warnings
    }

    pub(crate) fn objection(&self) -> Option<String> {
        let first = self.kept_out.first()?;
        Some(format!("{first}: remove the entry, or leave it out of force with --force"))
    }
}

/// Warnings about entries of rule files whose end has passed, `now` seconds after 1970.
pub(crate) fn over(layers: &Layers, now: u64) -> Vec<String> {
    let over = layers.file.rules.lists.iter().filter(|(_, entry)| entry.is_over(now));
    in_short(over.map(|(at, entry)| over_text(layers, at, entry)).collect())
}

fn over_text(layers: &Layers, selector: &Selector, entry: &Listing) -> String {
    let until = entry.until.map(|until| moment::local(&until_text(until))).unwrap_or_default();
    format!("{} ended at {until}: remove it", reported(layers, selector, entry.list()))
}

/// Warnings of one kind: the first ones, and the number of further ones.
fn in_short(mut all: Vec<String>) -> Vec<String> {
    if all.len() > MOST_REPORTED {
        let more = all.len() - MOST_REPORTED;
        all.truncate(MOST_REPORTED);
        if let Some(last) = all.last_mut() {
            *last = format!("{last}; and {more} more such entries");
        }
    }
    all
}

/// Describes an entry with its place: `rules.yaml:3:5: the entry 192.0.2.7 of the allow list`.
fn reported(layers: &Layers, selector: &Selector, list: &str) -> String {
    let place = layers.file.places.get(&Subject::Listed(*selector));
    let place = place.map_or_else(String::new, |place| format!("{place}: "));
    format!("{place}the entry {selector} of the {list} list")
}

impl ListStore {
    /// Refuses entries of rule files for which the lists have no room.
    pub(crate) fn check_room_for(&self, laid: &Laid) -> Result<(), ServiceError> {
        let mut sizes = self.sizes;
        let mut count = |selector: &Selector, step: fn(usize, usize) -> usize| {
            if let Some(size) = sizes.get_mut(usize::from(!selector.is_source())) {
                *size = step(*size, 1);
            }
        };
        for selector in laid.entries.keys().filter(|at| !self.is_listed(at)) {
            count(selector, usize::saturating_add);
        }
        let goes =
            |at: &&Selector| !self.entries.contains_key(*at) && !laid.entries.contains_key(*at);
        for selector in self.file.keys().filter(goes) {
            count(selector, usize::saturating_sub);
        }
        super::kept::fits(sizes)
    }

    /// The entries while the new ones are on trial until `end`: new ones end with the trial, by
    /// themselves. Entries that would be removed or changed stay, because nothing in the program
    /// could restore them; they are returned as well.
    pub(crate) fn on_trial(&self, laid: &Laid, end: Ticks) -> (Laid, Vec<String>) {
        let mut entries = self.file.clone();
        for (selector, entry) in &laid.entries {
            let Some(verdict) = entry.listed.verdict() else { continue };
            let until = entry.listed.expires().map_or(end, |expires| expires.min(end));
            let listed = ListEntry::of_rule_file(verdict, Some(until));
            entries.entry(*selector).or_insert_with(|| Entry { listed, ..entry.clone() });
        }
        let waits = |(at, old): &(&Selector, &Entry)| {
            let new = laid.entries.get(*at);
            new.is_none_or(|new| new.listed.verdict() != old.listed.verdict())
        };
        let waiting = self.file.iter().filter(waits).map(|(at, old)| {
            let list = old.listed.verdict().map_or("no", |listed| name(listed).name());
            format!("{at} stays on the {list} list until `limiter confirm`")
        });
        (Laid { entries, ..Laid::default() }, in_short(waiting.collect()))
    }

    /// Replaces the entries of rule files, all or none. Entries of others stay. Returns the
    /// previous ones.
    pub(crate) fn lay(
        &mut self,
        datapath: &mut dyn Datapath,
        laid: &Laid,
        managed: impl Fn(&Selector) -> Option<Selector>,
    ) -> Result<Laid, ServiceError> {
        self.check_room_for(laid)?;
        let before = self.file.clone();
        let changed: Vec<Selector> = {
            let all: BTreeSet<&Selector> = before.keys().chain(laid.entries.keys()).collect();
            let other = |at: &&Selector| before.get(at) != laid.entries.get(at);
            all.into_iter().filter(other).copied().collect()
        };
        // New entries come first, so that a source that moves from one prefix to another is always
        // covered.
        let is_new = |at: &&Selector| laid.entries.contains_key(at);
        let (comes, goes): (Vec<&Selector>, Vec<&Selector>) = changed.iter().partition(is_new);
        let order: Vec<Selector> = comes.into_iter().chain(goes).copied().collect();
        let mut done = Ok(());
        for selector in &order {
            self.keep_file(*selector, laid.entries.get(selector).cloned());
            done = self.lay_at(datapath, selector, &managed);
            if done.is_err() {
                break;
            }
        }
        if let Err(error) = done {
            for selector in order.into_iter().rev() {
                self.keep_file(selector, before.get(&selector).cloned());
                if let Err(error) = self.lay_at(datapath, &selector, &managed) {
                    tracing::error!(%error, "{selector} is not on the lists as before");
                }
            }
            return Err(error);
        }
        self.laid_at = (datapath.now(), datapath.wall());
        Ok(Laid { entries: before, ..Laid::default() })
    }

    /// Replaces the previous entry of a rule file, or removes it.
    pub(super) fn keep_file(&mut self, selector: Selector, entry: Option<Entry>) {
        if let Some(old) = self.file.remove(&selector) {
            *self.total(&old.listed) -= 1;
            *self.size(&selector) -= usize::from(!self.is_listed(&selector));
        }
        let Some(entry) = entry else { return };
        *self.size(&selector) += usize::from(!self.is_listed(&selector));
        *self.total(&entry.listed) += 1;
        self.note_expiry(&entry);
        self.file.insert(selector, entry);
    }

    fn lay_at(
        &self,
        datapath: &mut dyn Datapath,
        selector: &Selector,
        managed: &dyn Fn(&Selector) -> Option<Selector>,
    ) -> Result<(), ServiceError> {
        self.settle(datapath, selector, managed)?;
        self.settle_inside(datapath, selector, managed)
    }

    /// Returns true if the wall clock was set since the entries of rule files came into force.
    pub(crate) fn is_clock_set(&self, datapath: &dyn Datapath) -> bool {
        super::store::was_set(self.laid_at, (datapath.now(), datapath.wall()))
    }
}
