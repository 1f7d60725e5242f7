//! The accounts of some sources, read in one pass over the keys of all tables.

use std::collections::HashMap;

use ipnet::IpNet;
use limiter_common::source::Source;
use limiter_datapath::Observed;

use super::account::Account;
use super::keys::{KeyLine, KeyPass, SLICE, Whose, forms};
use super::known::address;
use super::ledger::Ledger;
use crate::error::ServiceError;

/// A pass over all keys for the accounts of some sources.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pass: KeyPass,
    of: HashMap<Source, Vec<KeyLine>>,
    /// The sources by the prefixes that tables count together.
    within: HashMap<IpNet, Vec<Source>>,
}

impl Accounts {
    /// Makes a pass for these sources.
    pub(crate) fn of(sources: impl IntoIterator<Item = Source>) -> Self {
        let of = sources.into_iter().map(|source| (source, Vec::new())).collect();
        Self { of, ..Self::default() }
    }

    /// Reads the next slice; returns whether all was read.
    pub(crate) fn step(&mut self, datapath: &dyn Observed) -> Result<bool, ServiceError> {
        if self.of.is_empty() {
            return Ok(true);
        }
        if self.pass.is_new() {
            self.sort_by_prefix(datapath);
        }
        for line in self.pass.read(datapath, SLICE)? {
            match &line.whose {
                Whose::One(source) => {
                    if let Some(lines) = self.of.get_mut(source) {
                        lines.push(line);
                    }
                }
                Whose::Prefix(net) => {
                    for source in self.within.get(net).into_iter().flatten() {
                        if let Some(lines) = self.of.get_mut(source) {
                            lines.push(line);
                        }
                    }
                }
            }
        }
        Ok(self.pass.is_done())
    }

    fn sort_by_prefix(&mut self, datapath: &dyn Observed) {
        for form in forms(datapath).into_values() {
            for source in self.of.keys() {
                let net = IpNet::from(address(source));
                let length = form.source.and_then(|masks| masks.of(&net));
                let Some(length) = length.filter(|_| !form.distinguishes_sources(&net)) else {
                    continue;
                };
                if let Ok(prefix) = IpNet::new(net.addr(), length) {
                    let sources = self.within.entry(prefix.trunc()).or_default();
                    if !sources.contains(source) {
                        sources.push(*source);
                    }
                }
            }
        }
    }

    /// Takes the accounts, once all was read.
    pub(crate) fn take(
        self,
        ledger: &Ledger<'_>,
    ) -> Result<HashMap<Source, Account>, ServiceError> {
        let whole = self.pass.is_done();
        let account = |(source, lines): (Source, Vec<KeyLine>)| {
            Ok((source, ledger.account(&source, &lines, whole)?))
        };
        // In the order of the other reading: as much time lies between two readings of each.
        let mut of: Vec<_> = self.of.into_iter().collect();
        of.sort_by_key(|(source, _)| *source);
        of.into_iter().map(account).collect()
    }
}
