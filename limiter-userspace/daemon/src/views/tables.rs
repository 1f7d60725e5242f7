//! Tables of entries, and packets that found no room there.

use limiter_common::wire::EntryKind;
use limiter_datapath::Observed;

use super::reported::Result;

/// Packets that got no entry, by table of entries.
pub(crate) fn refused(datapath: &dyn Observed) -> Result<Vec<(String, u64)>> {
    EntryKind::ALL
        .into_iter()
        .map(|kind| {
            let (_, counts) = datapath.entries(kind)?;
            let refused = [counts.first_seen, counts.over_budget, counts.full];
            Ok((kind_name(kind).to_owned(), refused.into_iter().fold(0, u64::wrapping_add)))
        })
        .collect()
}

pub(super) const fn kind_name(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::V4 => "IPv4 sources",
        EntryKind::V6 => "IPv6 sources",
        EntryKind::Keyed => "keys of tables",
        EntryKind::Compact => "compact keys",
    }
}
