//! The views of the traffic that go on from look to look: alarms, and who stands out.

use std::cell::RefCell;

use limiter_datapath::Datapath;

use crate::alarm::{Alarms, Notice};
use crate::effective::EffectiveSet;
use crate::error::ServiceError;
use crate::not_ip::NotIp;
use crate::recent::Recent;
use crate::sources::Views;
use crate::utilization;
use crate::views;

/// Gauges that are read from look to look.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// The rule set of the last look.
    generation: u64,
    /// Soft limits that packets pass over.
    pub(crate) alarms: Alarms,
    /// Tables in which packets find no room.
    pub(crate) floods: Alarms,
    /// State of the alarm that most packets have no IP header.
    pub(crate) not_ip: NotIp,
    /// Sources that `limiter top` watches.
    pub(crate) views: Views,
    /// How near sources come to their limits. Behind a cell: an answer reads on while it is
    /// reported.
    pub(crate) utilization: RefCell<utilization::Watch>,
    /// The counters of the last minutes.
    pub(crate) recent: Recent,
}

impl Gauges {
    /// Reads a few buckets on.
    pub(crate) fn look_at_utilization(
        &mut self,
        datapath: &dyn Datapath,
    ) -> Result<(), ServiceError> {
        self.utilization.get_mut().look(datapath)
    }

    /// Looks at soft limits, full tables and packets without IP. Full tables are for the events to
    /// report.
    pub(crate) fn look_for_alarms(
        &mut self,
        datapath: &dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<Vec<Notice>, ServiceError> {
        let marked = views::marked(datapath, effective)?;
        let refused = views::refused(datapath)?;
        let reasons = datapath.reasons()?;
        self.not_ip.look(&reasons, datapath);
        let generation = datapath.generation();
        if std::mem::replace(&mut self.generation, generation) != generation {
            self.alarms.go_on_from(&marked);
        }
        self.alarms.look(marked).iter().for_each(Notice::log);
        Ok(self.floods.look(refused))
    }
}
