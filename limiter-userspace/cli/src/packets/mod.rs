//! Commands that read packets one by one: live, or from captures.

pub(crate) mod blocks;
pub(crate) mod capture;
#[cfg(feature = "replay")]
pub(crate) mod explain;
#[cfg(feature = "replay")]
pub(crate) mod explain_summary;
#[cfg(feature = "replay")]
pub(crate) mod live;
pub(crate) mod observe;
#[cfg(feature = "replay")]
pub(crate) mod progress;
#[cfg(feature = "replay")]
pub(crate) mod reading;
#[cfg(feature = "replay")]
pub(crate) mod simulate;
pub(crate) mod ticker;
#[cfg(feature = "replay")]
pub(crate) mod tune;
