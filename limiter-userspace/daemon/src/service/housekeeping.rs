//! The daemon's work of every second. A step that fails does not hold up the others: a full disk
//! stops neither the clock nor the events.

use std::time::Duration;

use super::Service;
use super::events::KEEP_EVENTS;
use super::lists::SAVE_LISTS;
use crate::error::ServiceError;
use crate::gauges::recent::NOTE_RECENT;

impl Service {
    /// Does the periodic work: removes expired list entries, saves changed lists, passes changes of
    /// the wall clock to the program, reports exceeded soft limits, full tables and packets that no
    /// limit covers, and reads a few buckets and the counters.
    ///
    /// # Errors
    ///
    /// The first error, which is logged by then; all other steps are done.
    pub(crate) fn housekeep(&mut self) -> Result<(), ServiceError> {
        if self.datapath.get().is_err() {
            return Ok(());
        }
        let mut all = Ok(());
        for (what, step) in STEPS {
            let done = step(self);
            self.repeated_errors.note(what, &done);
            all = all.and(done);
        }
        self.take_events();
        if let Ok(datapath) = self.datapath.get() {
            self.events.look(datapath);
            self.gauges.views.forget(datapath.now());
        }
        let kept = self.datapath.get().and_then(|datapath| self.events.keep(datapath));
        self.repeated_errors.note(KEEP_EVENTS, &kept);
        all = all.and(kept);
        self.heap_trim.give_back();
        all
    }

    /// Notices that a trial has ended.
    pub(crate) fn settle(&mut self) -> Result<(), ServiceError> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.settle(&mut ground)
    }
}

/// Gives the program a sign of life.
pub(crate) fn live(service: &mut Service, lost_after: Duration) {
    let Ok(datapath) = service.datapath.get_mut() else { return };
    let done = datapath.sign_of_life(lost_after).map_err(ServiceError::Datapath);
    service.repeated_errors.note("tell the program that the daemon lives", &done);
}

fn follow_wall_clock(service: &mut Service) -> Result<(), ServiceError> {
    let datapath = service.datapath.get_mut()?;
    Ok(datapath.refresh_wall_clock()?)
}

fn expire_lists(service: &mut Service) -> Result<(), ServiceError> {
    let datapath = service.datapath.get_mut()?;
    let layers = &service.rule_sets.layers;
    service.lists.expire(datapath, |selector| layers.managed(selector))
}

fn keep_lists(service: &mut Service) -> Result<(), ServiceError> {
    let (rule_sets, mut ground) = service.at_rules();
    rule_sets.keep_lists(&mut ground)
}

fn save_lists(service: &mut Service) -> Result<(), ServiceError> {
    if service.lists.many_went() {
        service.heap_trim.note();
    }
    let datapath = service.datapath.get()?;
    Ok(service.lists.keep_stored(&service.state, datapath)?)
}

fn report_bans(service: &mut Service) -> Result<(), ServiceError> {
    service.cluster.report_bans(&service.datapath)
}

fn keep_heard(service: &mut Service) -> Result<(), ServiceError> {
    service.cluster.log_refusals();
    Ok(service.cluster.keep_heard(&service.state)?)
}

fn look_at_utilization(service: &mut Service) -> Result<(), ServiceError> {
    service.gauges.look_at_utilization(service.datapath.get()?)
}

fn look_for_alarms(service: &mut Service) -> Result<(), ServiceError> {
    let datapath = service.datapath.get()?;
    for notice in service.gauges.look_for_alarms(datapath, &service.rule_sets.effective)? {
        service.events.table_full(&notice);
    }
    Ok(())
}

fn look_at_machine(service: &mut Service) -> Result<(), ServiceError> {
    let rules = &mut service.rule_sets;
    rules.machine.look(&rules.effective, service.datapath.get_mut()?);
    Ok(())
}

fn end_limits(service: &mut Service) -> Result<(), ServiceError> {
    let (rule_sets, mut ground) = service.at_rules();
    rule_sets.end_limits(&mut ground)
}

type Step = fn(&mut Service) -> Result<(), ServiceError>;

const STEPS: [(&str, Step); 12] = [
    ("end a trial", Service::settle),
    ("tell the program of the wall clock", follow_wall_clock),
    ("end limits whose time is over", end_limits),
    ("take expired entries off the lists", expire_lists),
    ("put what rule files list in force", keep_lists),
    (SAVE_LISTS, save_lists),
    ("tell the other nodes of bans", report_bans),
    ("note which change of other nodes is the newest", keep_heard),
    ("look at the machine", look_at_machine),
    ("look at soft limits, full tables and packets without IP", look_for_alarms),
    ("read how near sources come to their limits", look_at_utilization),
    (NOTE_RECENT, Service::note_recent),
];
