//! The daemon's state as the documents of the control interface.

mod census;
mod cluster;
mod counted;
mod described;
mod exported;
mod interfaces;
mod limits;
mod metrics;
mod others;
mod source;
mod stats;

pub(super) use counted::{Shadows, Title, names as rule_names, numbered};

use std::net::IpAddr;
use std::sync::Arc;

use limiter_common::source::Source;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{EntryKind, ListEntry, Tally};
use limiter_datapath::Observed;

use super::api::lists::ListName;
use super::error::ServiceError;
use super::layers::EffectiveSet;
use super::lists;
use crate::control::Step;

pub(super) use census::Census;
pub(super) use counted::{dropped_by, marked};
pub(super) use described::describe;
pub(super) use exported::RulesText;
pub(super) use limits::LimitsText;
pub(super) use metrics::{Facts, Trials, metrics};
pub(super) use others::with_others;
pub(super) use source::{of_rules, view as source, whole};
pub(super) use stats::StatsText;

type Result<T> = std::result::Result<T, ServiceError>;

/// Documents that are told in parts, of whatever has the data path: the daemon, or a command
/// without one.
pub(super) trait Told: Sized {
    /// Begins.
    fn over(datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Self;
    /// Tells on.
    fn step_of(&mut self, datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Result<Step>;
}

/// The list that a source is on, before any rule: as the program asks for it.
pub(super) fn listed(datapath: &dyn Observed, source: &Source) -> Result<Option<ListName>> {
    let now = datapath.now();
    let in_force = |entry: &ListEntry| entry.at(now).is_some();
    let entry = match datapath.listed(source)?.filter(in_force) {
        Some(own) => Some(own),
        None => datapath.listed_around(source)?.filter(in_force),
    };
    Ok(entry.and_then(|entry| entry.at(now)).map(lists::name))
}

/// Packets that got no entry, by table of entries.
pub(super) fn refused(datapath: &dyn Observed) -> Result<Vec<(String, u64)>> {
    EntryKind::ALL
        .into_iter()
        .map(|kind| {
            let (_, counts) = datapath.entries(kind)?;
            let refused = [counts.first_seen, counts.over_budget, counts.full];
            Ok((kind_name(kind).to_owned(), refused.into_iter().fold(0, u64::wrapping_add)))
        })
        .collect()
}

/// Name of a table of entries.
const fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::V4 => "IPv4 sources",
        EntryKind::V6 => "IPv6 sources",
        EntryKind::Keyed => "keys of tables",
        EntryKind::Narrow => "narrow keys",
    }
}

/// All packets that passed, and all that were dropped.
pub(super) fn verdicts(datapath: &dyn Observed) -> Result<(Tally, Tally)> {
    let (mut passed, mut dropped) = (Tally::default(), Tally::default());
    let tallies = datapath.reasons()?;
    for (reason, tally) in Reason::ALL.into_iter().zip(tallies) {
        match reason.verdict() {
            Verdict::Pass => passed.merge(tally),
            Verdict::Drop => dropped.merge(tally),
        }
    }
    Ok((passed, dropped))
}

/// The source that packets from an address are charged to.
pub fn key(address: IpAddr) -> Source {
    match address.to_canonical() {
        IpAddr::V4(v4) => Source::V4(v4.octets()),
        IpAddr::V6(v6) => {
            let [prefix, _host]: [[u8; 8]; 2] = bytemuck::cast(v6.octets());
            Source::V6(prefix)
        }
    }
}

/// The source with a key of the trie.
#[expect(clippy::many_single_char_names, reason = "the bytes of an address have no better names")]
pub(super) const fn of_key(key: [u8; 16]) -> Source {
    match key {
        [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => Source::V4([a, b, c, d]),
        [a, b, c, d, e, f, g, h, ..] => Source::V6([a, b, c, d, e, f, g, h]),
    }
}
