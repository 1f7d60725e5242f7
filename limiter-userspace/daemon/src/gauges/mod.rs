//! Views of the traffic that continue from one look to the next: alarms, and sources that stand
//! out.

pub(crate) mod alarm;
pub(crate) mod not_ip;
pub(crate) mod recent;
pub(crate) mod request_reports;

use std::cell::RefCell;

use limiter_datapath::Datapath;

use self::alarm::{Alarms, Notice};
use self::not_ip::NotIp;
use self::recent::Recent;
use crate::error::ServiceError;
use crate::rule_sets::effective::EffectiveSet;
use crate::sources::Views;
use crate::utilization;
use crate::views;

/// State of the gauges between looks.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Generation of the rule set at the last look.
    generation: u64,
    /// Alarms about soft limits that are exceeded.
    pub(crate) alarms: Alarms,
    /// Alarms about tables without room for packets.
    pub(crate) floods: Alarms,
    /// Alarm about a majority of packets without an IP header.
    pub(crate) not_ip: NotIp,
    /// Sources that `limiter top` watches.
    pub(crate) views: Views,
    /// Closeness of sources to their limits. In a `RefCell`, because an answer reads on while it is
    /// reported.
    pub(crate) utilization: RefCell<utilization::Watch>,
    /// Counters of the last minutes.
    pub(crate) recent: Recent,
}

impl Gauges {
    /// Reads the next few buckets.
    pub(crate) fn look_at_utilization(
        &mut self,
        datapath: &dyn Datapath,
    ) -> Result<(), ServiceError> {
        self.utilization.get_mut().look(datapath)
    }

    /// Looks at soft limits, full tables and packets without IP. Full tables are returned for the
    /// events to report.
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
