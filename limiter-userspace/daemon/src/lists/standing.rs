//! Chooses the entry that decides on a source, among all entries for it.
//!
//! The longest prefix decides, as in the program. Among entries for one prefix, that of a person
//! comes first, then that of the rule file, then that of a program. Inside a prefix of the rule
//! file, an entry of a program cannot contradict it: the maps then hold the rule file's entry in
//! both places.

use std::collections::BTreeMap;

use limiter_common::time::Ticks;
use limiter_rules::Selector;

use super::entries::{Entries, Entry};

/// Assumed changes of entries; `None` for a removed entry.
pub(crate) type Changes = BTreeMap<Selector, Option<Entry>>;

pub(crate) static UNCHANGED: Changes = Changes::new();

/// All entries, as they are or as they would be.
#[derive(Clone, Copy, Debug)]
pub(super) struct All<'a> {
    /// Entries of people, programs and other nodes.
    pub(super) entries: &'a Entries,
    /// Assumed changes of these entries.
    pub(super) changes: &'a Changes,
    /// Entries of the rule files.
    pub(super) file: &'a Entries,
}

impl<'a> All<'a> {
    /// The entry for exactly these sources, apart from that of the rule file.
    fn own(self, at: &Selector) -> Option<&'a Entry> {
        match self.changes.get(at) {
            Some(entry) => entry.as_ref(),
            None => self.entries.get(at),
        }
    }

    /// The entry that the maps hold for exactly these sources; `None` if there is none or it has
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

    /// The entry of the rule file around these sources that an entry of a program would contradict.
    fn around(self, at: &Selector, own: &Entry, now: Ticks) -> Option<&'a Entry> {
        if self.file.is_empty() {
            return None;
        }
        let in_force = |entry: &&Entry| entry.listed.at(now).is_some();
        // Rule files have few entries and programs have many, so the search walks the former.
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
    /// The source is allowed permanently.
    Safe,
    /// The source is denied by this entry, now or once an entry that allows it has ended.
    Denied(Selector),
    /// The rules decide on the source, now or later.
    Open,
}
