//! Documents that are sent in parts.

use std::sync::Arc;

use limiter_datapath::Observed;

use crate::control::Step;
use crate::error::ServiceError;
use crate::rule_sets::effective::EffectiveSet;

pub(super) type Result<T> = std::result::Result<T, ServiceError>;

/// Documents that are sent in parts by any holder of the data path: the daemon, or a command
/// without a daemon.
pub(crate) trait Reported: Sized {
    fn over(datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Self;
    fn step_of(&mut self, datapath: &dyn Observed, effective: &Arc<EffectiveSet>) -> Result<Step>;
}
