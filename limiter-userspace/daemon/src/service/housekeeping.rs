//! The daemon's work of every second. A step that fails does not hold up the others: a full disk
//! stops neither the clock nor the events.

use std::time::Duration;

use super::Service;
use super::events::KEEP_EVENTS;
use super::lists::SAVE_LISTS;
use crate::error::ServiceError;
use crate::gauges::recent::{NOTE_RECENT, Scene};

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
        let kept = self.keep_events();
        self.repeated_errors.note(KEEP_EVENTS, &kept);
        all = all.and(kept);
        self.heap_trim.give_back();
        all
    }

    /// Gives the program a sign of life.
    pub(crate) fn live(&mut self, lost_after: Duration) {
        let Ok(datapath) = self.datapath.get_mut() else { return };
        let done = datapath.sign_of_life(lost_after).map_err(ServiceError::Datapath);
        self.repeated_errors.note("tell the program that the daemon lives", &done);
    }

    fn follow_wall_clock(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.get_mut()?;
        Ok(datapath.refresh_wall_clock()?)
    }

    fn expire_lists(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.get_mut()?;
        let layers = &self.rule_sets.layers;
        self.lists.expire(datapath, |selector| layers.managed(selector))
    }

    fn keep_lists(&mut self) -> Result<(), ServiceError> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.keep_lists(&mut ground)
    }

    fn save_lists(&mut self) -> Result<(), ServiceError> {
        if self.lists.many_went() {
            self.heap_trim.note();
        }
        let datapath = self.datapath.get()?;
        Ok(self.lists.keep_stored(&self.state, datapath)?)
    }

    fn report_bans(&mut self) -> Result<(), ServiceError> {
        self.cluster.report_bans(&self.datapath)
    }

    fn keep_heard(&mut self) -> Result<(), ServiceError> {
        self.cluster.log_refusals();
        Ok(self.cluster.keep_heard(&self.state)?)
    }

    fn look_at_utilization(&mut self) -> Result<(), ServiceError> {
        self.gauges.look_at_utilization(self.datapath.get()?)
    }

    fn look_for_alarms(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.get()?;
        for notice in self.gauges.look_for_alarms(datapath, &self.rule_sets.effective)? {
            self.events.table_full(&notice);
        }
        Ok(())
    }

    fn look_at_machine(&mut self) -> Result<(), ServiceError> {
        let rules = &mut self.rule_sets;
        rules.machine.look(&rules.effective, self.datapath.get_mut()?);
        Ok(())
    }

    /// Reads the counters of all packets and interfaces.
    pub(super) fn note_recent(&mut self) -> Result<(), ServiceError> {
        let on_trial = self.rule_sets.trial(&self.datapath).is_some();
        let last_trial = self.rule_sets.last_trial.as_ref();
        let datapath = self.datapath.get()?;
        let scene = Scene {
            generation: datapath.generation(),
            bypass: datapath.bypass()?,
            on_trial,
            confirmed: last_trial.is_some_and(|end| end.confirmed),
        };
        self.gauges.recent.look(datapath, scene)
    }

    /// Notices that a trial has ended.
    pub(crate) fn settle(&mut self) -> Result<(), ServiceError> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.settle(&mut ground)
    }

    fn end_limits(&mut self) -> Result<(), ServiceError> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.end_limits(&mut ground)
    }
}

type Step = fn(&mut Service) -> Result<(), ServiceError>;

const STEPS: [(&str, Step); 12] = [
    ("end a trial", Service::settle),
    ("tell the program of the wall clock", Service::follow_wall_clock),
    ("end limits whose time is over", Service::end_limits),
    ("take expired entries off the lists", Service::expire_lists),
    ("put what rule files list in force", Service::keep_lists),
    (SAVE_LISTS, Service::save_lists),
    ("tell the other nodes of bans", Service::report_bans),
    ("note which change of other nodes is the newest", Service::keep_heard),
    ("look at the machine", Service::look_at_machine),
    ("look at soft limits, full tables and packets without IP", Service::look_for_alarms),
    ("read how near sources come to their limits", Service::look_at_utilization),
    (NOTE_RECENT, Service::note_recent),
];
