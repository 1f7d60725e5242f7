//! Allow and deny lists in the kernel: single sources in a hash map, prefixes in a trie.

use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, MapData, MapError};
use limiter_common::source::{MAPPED_BITS, Source, V6_BITS};
use limiter_common::wire::{LISTS_AUTHORS, LISTS_EXACT, LISTS_PREFIXES, ListEntry, map};
use limiter_model::SOURCE_BITS;
use limiter_rules::model::{Selector, TriePrefix};

use super::MapSource;
use super::found::{found, longest, made, removed};
use super::pod::Wire;
use crate::DatapathError;

/// All of IPv4 in the trie, where it lies inside prefixes of IPv6.
const V4: TriePrefix = TriePrefix { length: MAPPED_BITS, address: Source::V4([0; 4]).trie_key() };

/// Entry at [`V4`] if IPv4 is on no list but an IPv6 prefix contains it. It has no verdict, so the
/// prefix does not apply to IPv4.
const APART: ListEntry = ListEntry { expires: 0, verdict: 0 };

/// Flag of the system call: fail if the entry exists.
const BPF_NOEXIST: u64 = 1;

/// The map, and the result of the insertion.
type Inserted = (&'static str, Result<(), MapError>);

/// Both list maps and their numbers of entries.
pub(crate) struct Lists {
    exact: HashMap<MapData, [u8; 16], Wire<ListEntry>>,
    prefixes: LpmTrie<MapData, [u8; 16], Wire<ListEntry>>,
    counts: [usize; 2],
    /// True if the entries in the maps have authors: [`LISTS_AUTHORS`].
    authors: bool,
}

impl Lists {
    /// Takes the maps by name and counts the entries of adopted ones. `word` is the current word in
    /// `CONTROL`.
    pub(crate) fn take(source: &mut MapSource<'_>, word: u64) -> Result<Self, DatapathError> {
        let exact = source(map::LISTED)?.try_into().map_err(DatapathError::map(map::LISTED))?;
        let prefixes = source(map::LISTED_PREFIXES)?
            .try_into()
            .map_err(DatapathError::map(map::LISTED_PREFIXES))?;
        let authors = word & LISTS_AUTHORS != 0;
        let mut lists = Self { exact, prefixes, counts: [0; 2], authors };
        lists.counts = [lists.exact.keys().count(), lists.prefixes.keys().count()];
        Ok(lists)
    }

    /// Converts an entry of the maps, with its author.
    const fn entry(&self, found: Wire<ListEntry>) -> ListEntry {
        if self.authors { found.0 } else { found.0.before_authors() }
    }

    /// Rewrites entries of an earlier version in this one's format, and separates IPv4. The caller
    /// must then write [`Lists::word`] to `CONTROL`; without that, the next start repeats the
    /// conversion.
    pub(crate) fn settle(&mut self) -> Result<(), DatapathError> {
        if !self.authors {
            for (selector, entry) in self.all()? {
                if entry.expires().is_some() {
                    self.put(&selector, entry)?;
                }
            }
            self.authors = true;
        }
        if self.is_around_v4()? {
            self.add(&V4, APART)?;
        }
        Ok(())
    }

    /// The entry of exactly this source.
    pub(crate) fn of_source(&self, source: &Source) -> Result<Option<ListEntry>, DatapathError> {
        let found = found(map::LISTED, self.exact.get(&source.trie_key(), 0))?;
        Ok(found.map(|entry| self.entry(entry)))
    }

    /// The entry of the longest prefix that contains a source.
    pub(crate) fn around(&self, source: &Source) -> Result<Option<ListEntry>, DatapathError> {
        let entry = longest(map::LISTED_PREFIXES, &self.prefixes, SOURCE_BITS, source.trie_key());
        Ok(entry?.map(|entry| self.entry(entry)))
    }

    /// Puts a prefix on a list, replacing its entry. [`Selector::Every`] changes nothing.
    pub(crate) fn put(
        &mut self,
        selector: &Selector,
        entry: ListEntry,
    ) -> Result<(), DatapathError> {
        let Some(at) = key(selector) else {
            return Ok(());
        };
        if at.contains(&V4) && at != V4 {
            // Comes first, so that the new prefix never applies to an IPv4 packet.
            self.add(&V4, APART)?;
        }
        if !self.add(&at, entry)? {
            self.write(&at, entry)?;
        }
        Ok(())
    }

    /// Removes a prefix from its list. Returns whether it was on one.
    pub(crate) fn remove(&mut self, selector: &Selector) -> Result<bool, DatapathError> {
        let Some(at) = key(selector) else {
            return Ok(false);
        };
        if at == V4 && self.is_around_v4()? {
            let listed = self.v4()? != Some(APART);
            self.write(&V4, APART)?;
            return Ok(listed);
        }
        let removed = self.delete(&at)?;
        if removed && at.contains(&V4) && !self.is_around_v4()? && self.v4()? == Some(APART) {
            self.delete(&V4)?;
        }
        Ok(removed)
    }

    /// Makes an entry unless it exists. Returns whether it did. A look-up in the trie is no check,
    /// because it could find a shorter prefix.
    fn add(&mut self, at: &TriePrefix, entry: ListEntry) -> Result<bool, DatapathError> {
        let (name, inserted) = self.insert(at, entry, BPF_NOEXIST);
        let is_new = made(name, inserted)?;
        if is_new {
            *self.count(at) += 1;
        }
        Ok(is_new)
    }

    /// Writes an entry, replacing an existing one.
    fn write(&mut self, at: &TriePrefix, entry: ListEntry) -> Result<(), DatapathError> {
        let (name, inserted) = self.insert(at, entry, 0);
        inserted.map_err(DatapathError::map(name))
    }

    fn insert(&mut self, at: &TriePrefix, entry: ListEntry, flags: u64) -> Inserted {
        if is_exact(at) {
            return (map::LISTED, self.exact.insert(at.address, Wire(entry), flags));
        }
        let at = Key::new(at.length, at.address);
        (map::LISTED_PREFIXES, self.prefixes.insert(&at, Wire(entry), flags))
    }

    fn delete(&mut self, at: &TriePrefix) -> Result<bool, DatapathError> {
        let removed = if is_exact(at) {
            removed(map::LISTED, self.exact.remove(&at.address))?
        } else {
            let at = Key::new(at.length, at.address);
            removed(map::LISTED_PREFIXES, self.prefixes.remove(&at))?
        };
        if removed {
            let count = self.count(at);
            *count = count.saturating_sub(1);
        }
        Ok(removed)
    }

    fn count(&mut self, at: &TriePrefix) -> &mut usize {
        let [exact, prefixes] = &mut self.counts;
        if is_exact(at) { exact } else { prefixes }
    }

    /// True if an IPv6 prefix that contains IPv4 is listed.
    fn is_around_v4(&self) -> Result<bool, DatapathError> {
        let around = longest(map::LISTED_PREFIXES, &self.prefixes, V6_BITS - 1, V4.address);
        Ok(around?.is_some())
    }

    /// The entry for all of IPv4, or of a prefix that contains it.
    fn v4(&self) -> Result<Option<ListEntry>, DatapathError> {
        let entry = longest(map::LISTED_PREFIXES, &self.prefixes, V4.length, V4.address);
        Ok(entry?.map(|entry| entry.0))
    }

    /// All entries, expired ones included.
    pub(crate) fn all(&self) -> Result<Vec<(Selector, ListEntry)>, DatapathError> {
        let mut all = Vec::new();
        let mut add = |prefix: TriePrefix, entry: ListEntry| {
            let selector = prefix.selector().filter(|_| entry != APART);
            all.extend(selector.map(|selector| (selector, entry)));
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

    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.counts, [0, 0])
    }

    /// The word that tells the program which lists to search: none without entries.
    pub(crate) const fn word(&self) -> u64 {
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

/// True if the prefix is a single source: an IPv4 address, or an IPv6 /64.
fn is_exact(prefix: &TriePrefix) -> bool {
    *prefix == TriePrefix::of_source(prefix.address)
}

/// The trie prefix of a list entry. Lists have no entry for all sources of both families.
fn key(selector: &Selector) -> Option<TriePrefix> {
    match selector.trie_prefixes().as_slice() {
        [prefix] => Some(*prefix),
        _ => None,
    }
}
