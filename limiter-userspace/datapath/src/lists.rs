//! Allow and deny lists in the kernel: single sources in a hash, prefixes in a trie.

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, MapData, MapError};
use limiter_common::source::Source;
use limiter_common::wire::{LISTS_AUTHORS, LISTS_EXACT, LISTS_PREFIXES, ListEntry, map};
use limiter_model::SOURCE_BITS;
use limiter_rules::model::{Selector, TriePrefix};

use super::DatapathError;
use super::found::{found, longest};
use super::maps::MapSource;
use super::pod::Wire;

/// Both list maps, and how many entries they have.
pub(super) struct Lists {
    exact: HashMap<MapData, [u8; 16], Wire<ListEntry>>,
    prefixes: LpmTrie<MapData, [u8; 16], Wire<ListEntry>>,
    counts: [usize; 2],
    /// True if the maps say who wrote an entry: [`LISTS_AUTHORS`].
    authors: bool,
}

impl Lists {
    /// Takes them by name and counts what adopted ones hold, whose word in `CONTROL` is `word`.
    pub(super) fn take(source: &mut MapSource<'_>, word: u64) -> Result<Self, DatapathError> {
        let exact = source(map::LISTED)?.try_into().map_err(DatapathError::map(map::LISTED))?;
        let prefixes = source(map::LISTED_PREFIXES)?
            .try_into()
            .map_err(DatapathError::map(map::LISTED_PREFIXES))?;
        let authors = word & LISTS_AUTHORS != 0;
        let mut lists = Self { exact, prefixes, counts: [0; 2], authors };
        lists.counts = [lists.exact.keys().count(), lists.prefixes.keys().count()];
        Ok(lists)
    }

    fn get(&self, at: &TriePrefix) -> Result<Option<ListEntry>, DatapathError> {
        let (name, found) = if is_exact(at) {
            (map::LISTED, self.exact.get(&at.address, 0))
        } else {
            (map::LISTED_PREFIXES, self.prefixes.get(&Key::new(at.length, at.address), 0))
        };
        match found {
            Ok(entry) => Ok(Some(self.entry(entry))),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(source) => Err(DatapathError::Map { map: name, source }),
        }
    }

    /// An entry of the maps, with its author.
    const fn entry(&self, found: Wire<ListEntry>) -> ListEntry {
        if self.authors { found.0 } else { found.0.before_authors() }
    }

    /// Writes entries of an earlier version as this one reads them. To be followed by
    /// [`Lists::word`] in `CONTROL`; without that the next start does the same again.
    pub(super) fn settle(&mut self) -> Result<(), DatapathError> {
        if !self.authors {
            for (selector, entry) in self.all()? {
                if entry.expires().is_some() {
                    self.put(&selector, entry)?;
                }
            }
            self.authors = true;
        }
        Ok(())
    }

    /// The entry of a source itself.
    pub(super) fn of_source(&self, source: &Source) -> Result<Option<ListEntry>, DatapathError> {
        let found = found(map::LISTED, self.exact.get(&source.trie_key(), 0))?;
        Ok(found.map(|entry| self.entry(entry)))
    }

    /// The entry of the longest prefix around a source.
    pub(super) fn around(&self, source: &Source) -> Result<Option<ListEntry>, DatapathError> {
        let entry = longest(map::LISTED_PREFIXES, &self.prefixes, SOURCE_BITS, source.trie_key());
        Ok(entry?.map(|entry| self.entry(entry)))
    }

    /// Puts a prefix on a list, in place of what was there. [`Selector::Every`] changes nothing.
    pub(super) fn put(
        &mut self,
        selector: &Selector,
        entry: ListEntry,
    ) -> Result<(), DatapathError> {
        let Some(at) = key(selector) else {
            return Ok(());
        };
        let is_new = self.get(&at)?.is_none();
        let index = usize::from(!is_exact(&at));
        if is_exact(&at) {
            let inserted = self.exact.insert(at.address, Wire(entry), 0);
            inserted.map_err(DatapathError::map(map::LISTED))?;
        } else {
            let inserted = self.prefixes.insert(&Key::new(at.length, at.address), Wire(entry), 0);
            inserted.map_err(DatapathError::map(map::LISTED_PREFIXES))?;
        }
        if is_new {
            self.counts[index] += 1;
        }
        Ok(())
    }

    /// Takes a prefix off its list; says whether it was on one.
    pub(super) fn remove(&mut self, selector: &Selector) -> Result<bool, DatapathError> {
        let Some(at) = key(selector) else {
            return Ok(false);
        };
        if self.get(&at)?.is_none() {
            return Ok(false);
        }
        let index = usize::from(!is_exact(&at));
        if is_exact(&at) {
            let removed = self.exact.remove(&at.address);
            removed.map_err(DatapathError::map(map::LISTED))?;
        } else {
            let removed = self.prefixes.remove(&Key::new(at.length, at.address));
            removed.map_err(DatapathError::map(map::LISTED_PREFIXES))?;
        }
        self.counts[index] = self.counts[index].saturating_sub(1);
        Ok(true)
    }

    /// All entries, expired ones included.
    pub(super) fn all(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError> {
        let mut all = Vec::new();
        let mut add = |prefix: TriePrefix, entry| {
            all.extend(prefix.selector().map(|selector| (selector, entry)));
        };
        for entry in &self.exact {
            let (address, entry) = entry.map_err(DatapathError::map(map::LISTED))?;
            add(TriePrefix::of_source(address), self.entry(entry));
        }
        for entry in &self.prefixes {
            let (key, entry) = entry.map_err(DatapathError::map(map::LISTED_PREFIXES))?;
            let prefix = TriePrefix { length: key.prefix_len(), address: key.data() };
            add(prefix, self.entry(entry));
        }
        Ok(all)
    }

    /// True if there are no entries.
    pub(super) const fn is_empty(&self) -> bool {
        matches!(self.counts, [0, 0])
    }

    /// The word that tells the program which lists to ask: none while there are no entries.
    pub(super) const fn word(&self) -> u64 {
        let [exact, prefixes] = self.counts;
        let mut word = 0;
        if exact > 0 {
            word |= LISTS_EXACT;
        }
        if prefixes > 0 {
            word |= LISTS_PREFIXES;
        }
        if word != 0 && self.authors {
            word |= LISTS_AUTHORS;
        }
        word
    }
}

/// True if a prefix is one source: an IPv4 address, or an IPv6 /64.
fn is_exact(prefix: &TriePrefix) -> bool {
    *prefix == TriePrefix::of_source(prefix.address)
}

/// The one trie prefix of a list entry; lists have no entry for every source of both families.
fn key(selector: &Selector) -> Option<TriePrefix> {
    match selector.trie_prefixes().as_slice() {
        [prefix] => Some(*prefix),
        _ => None,
    }
}
