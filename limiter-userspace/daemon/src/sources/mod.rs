//! Sources that stand out among all that are tracked: in one pass over them ([`reading`]), or from
//! look to look while somebody watches ([`rolling`]).

mod by_rule;
mod known;
mod merit;
mod reading;
mod rolling;
mod wanted;

pub(crate) use by_rule::ByRule;
pub(crate) use known::Known;
pub(crate) use reading::{Next, Reading};
pub(crate) use rolling::{Views, tracked};
pub(crate) use wanted::Wanted;
