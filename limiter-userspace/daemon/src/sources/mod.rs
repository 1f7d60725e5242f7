//! Sources that stand out among all tracked ones: in one pass over them ([`reading`]), or from look
//! to look while a client watches ([`rolling`]).

mod account;
mod accounts;
mod candidate;
mod counters;
mod headline;
mod key_slice;
mod keys;
mod known;
mod ledger;
mod merit;
mod reading;
mod rolling;
mod rules;
mod sums;
mod wanted;

pub(crate) use account::Account;
pub(crate) use accounts::Accounts;
pub(crate) use known::Known;
pub(crate) use ledger::Ledger;
pub(crate) use reading::{Next, Reading};
pub(crate) use rolling::{Views, tracked};
pub(crate) use rules::Rules;
pub(crate) use wanted::Wanted;
