//! Reads the keys for looks at sources, slice by slice.

use std::collections::{HashMap, HashSet};

use limiter_common::source::Source;
use limiter_common::wire::TableKey;
use limiter_datapath::Datapath;

use super::account::Account;
use super::keys::{KeyLine, KeyPass, Whose, again};
use super::wanted::Wanted;
use crate::error::ServiceError;

/// Approximate number of keys in a slice.
const KEYS: usize = 32_768;

/// Keys that are read with one call.
const BATCH: usize = 4_096;

/// Keys of a source that are read again, so that its rates are of one time. A source that scans
/// ports has thousands.
const AGAIN: usize = 64;

/// Keys that a look has read, by source.
#[derive(Debug, Default)]
pub(super) struct KeysRead {
    pub(super) of: HashMap<Source, Vec<KeyLine>>,
    /// True if these are all keys that exist.
    pub(super) whole: bool,
    pub(super) generation: u64,
}

/// State of the reading of keys between looks.
#[derive(Debug, Default)]
pub(super) struct KeySlice {
    pass: KeyPass,
    /// Number of rounds over all keys that have begun.
    pub(super) rounds: u64,
    pub(super) now: KeysRead,
    pub(super) before: KeysRead,
}

impl KeySlice {
    pub(super) fn read(
        &mut self,
        datapath: &dyn Datapath,
        wanted: &Wanted,
    ) -> Result<(), ServiceError> {
        if self.pass.is_done() || self.pass.is_new() {
            self.pass = KeyPass::default();
            self.rounds += 1;
        }
        let from_start = self.pass.is_new();
        self.before = std::mem::take(&mut self.now);
        let mut read = 0;
        while read < KEYS && !self.pass.is_done() {
            let lines = self.pass.read(datapath, BATCH)?;
            read += BATCH;
            for line in lines {
                // A prefix is not a single source; events report its drops.
                if let Whose::One(source) = line.whose
                    && wanted.has(&source)
                {
                    self.now.of.entry(source).or_default().push(line);
                }
            }
        }
        self.now.whole = from_start && self.pass.is_done();
        self.now.generation = datapath.generation();
        Ok(())
    }

    /// The keys of a source now.
    pub(super) fn lines(
        &self,
        datapath: &dyn Datapath,
        source: &Source,
        before: &Account,
    ) -> Result<Vec<KeyLine>, ServiceError> {
        let read = self.now.of.get(source).map_or(&[][..], Vec::as_slice);
        let keys: HashSet<&TableKey> = read.iter().map(|line| &line.key).collect();
        let missed = before.keys().filter(|key| !keys.contains(*key));
        let missed: Vec<_> = if self.now.whole { Vec::new() } else { missed.collect() };
        let mut lines = Vec::new();
        // The slice was read some time ago.
        let few = keys.len() <= AGAIN;
        for key in keys.iter().copied().filter(|_| few).chain(missed) {
            lines.extend(again(datapath, *source, key)?);
        }
        if !few {
            lines.extend(read);
        }
        Ok(lines)
    }
}
