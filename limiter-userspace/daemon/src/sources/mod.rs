//! Sources that stand out among all that are tracked: in one pass over them ([`reading`]), or from
//! look to look while somebody watches ([`rolling`]).

mod account;
mod accounts;
mod keys;
mod known;
mod merit;
mod reading;
mod rolling;
mod sums;
mod wanted;

use crate::api::sources::OtherDrops;

pub(crate) use account::{Account, Ledger};
pub(crate) use accounts::Accounts;
pub(crate) use known::Known;
pub(crate) use reading::{Next, Reading};
pub(crate) use rolling::{Views, tracked};
pub(crate) use wanted::Wanted;

/// Those by which most was dropped, the most first.
fn sort_others(rows: &mut Vec<OtherDrops>, wanted: &Wanted) {
    rows.sort_by_cached_key(|row| {
        (std::cmp::Reverse(row.drops.dropped), !row.drops.exact, row.source.clone())
    });
    rows.truncate(wanted.count);
}
