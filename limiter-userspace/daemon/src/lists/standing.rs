//! The entry that decides on a source, of all that there are for it.
//!
//! The longest prefix decides, as in the program. Of entries for one prefix that of a person
//! decides, then that of the rule file, then that of a program. Inside a prefix of the rule file,
//! an entry of a program does not stand against that: the maps have the one of the rule file twice
//! then.

use std::collections::BTreeMap;

use limiter_common::time::Ticks;
use limiter_rules::Selector;

use super::entries::{Entries, Entry};

/// Entries that are to be otherwise; `None` for one that is to go.
pub(crate) type Changes = BTreeMap<Selector, Option<Entry>>;

/// No changes.
pub(crate) static UNCHANGED: Changes = Changes::new();

/// All entries, as they are or would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct All<'a> {
    /// Entries of people, programs and other nodes.
    pub(super) entries: &'a Entries,
    /// Changes of these that are assumed.
    pub(super) changes: &'a Changes,
    /// Entries of the rule files.
    pub(super) file: &'a Entries,
}

impl<'a> All<'a> {
    /// The entry for exactly these sources, but for that of the rule file.
    fn own(self, at: &Selector) -> Option<&'a Entry> {
        match self.changes.get(at) {
            Some(entry) => entry.as_ref(),
            None => self.entries.get(at),
        }
    }

    /// The entry that the maps have for exactly these sources; none if there is none, or it has
    /// expired.
    pub(super) fn deciding(self, at: &Selector, now: Ticks) -> Option<&'a Entry> {
        let in_force = |entry: &&Entry| entry.listed.at(now).is_some();
        let own = self.own(at).filter(in_force);
        let file = self.file.get(at).filter(in_force);
        match (own, file) {
            (Some(own), _) if own.is_of_people() => Some(own),
            (_, Some(file)) => Some(file),
            (Some(own), None) => Some(self.around(at, own, now).unwrap_or(own)),
            (None, None) => None,
        }
    }

    /// The entry of the rule file around these sources that an entry of a program stands against.
    fn around(self, at: &Selector, own: &Entry, now: Ticks) -> Option<&'a Entry> {
        if self.file.is_empty() {
            return None;
        }
        let in_force = |entry: &&Entry| entry.listed.at(now).is_some();
        // Rule files have few entries, and programs many.
        let (prefix, of_file) =
            at.wider().find_map(|at| Some((at, self.file.get(&at).filter(in_force)?)))?;
        if of_file.listed.verdict() == own.listed.verdict() {
            return None;
        }
        let mut nearer = at.wider().take_while(|at| *at != prefix).chain([prefix]);
        let typed =
            nearer.any(|at| self.own(&at).filter(in_force).is_some_and(Entry::is_of_people));
        (!typed).then_some(of_file)
    }
}

/// Effect of the lists on a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The source is allowed, for good.
    Safe,
    /// The source is denied, or will be once an entry that allows it has ended: by this entry.
    Denied(Selector),
    /// The source is left to the rules, or will be.
    Open,
}
