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

    /// The present keys of a source; keys known from before are read again.
    pub(super) fn lines(
        &self,
        datapath: &dyn Datapath,
        source: &Source,
        before: &Account,
    ) -> Result<Vec<KeyLine>, ServiceError> {
        let mut lines = self.now.of.get(source).cloned().unwrap_or_default();
        if !self.now.whole {
            let read: HashSet<TableKey> = lines.iter().map(|line| line.key).collect();
            for key in before.keys().filter(|key| !read.contains(*key)) {
                lines.extend(again(datapath, *source, key)?);
            }
        }
        Ok(lines)
    }
}
