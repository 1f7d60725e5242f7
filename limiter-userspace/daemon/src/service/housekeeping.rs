//! The daemon's work of every second. A step that fails holds up no other: a full disk, say, stops
//! neither the clock nor the events.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Service;
use crate::alarm::Notice;
use crate::error::ServiceError;
use crate::views;

/// Steps that cannot be done at present, by name. Each is told when it begins, when it changes, and
/// when it is over.
#[derive(Debug, Default)]
pub(super) struct Troubles(BTreeMap<&'static str, String>);

impl Troubles {
    /// Notes how a step went.
    pub(super) fn note(&mut self, what: &'static str, done: &Result<(), ServiceError>) {
        match done {
            Ok(()) => {
                if self.0.remove(what).is_some() {
                    tracing::warn!("it is possible again to {what}");
                }
            }
            Err(error) => {
                let error = error.to_string();
                if self.0.get(what) != Some(&error) {
                    tracing::error!(
                        "it is not possible to {what}, and tried again every second: {error}"
                    );
                    self.0.insert(what, error);
                }
            }
        }
    }
}

impl Service {
    /// Does all that is due from time to time: expired list entries leave, changed lists are saved,
    /// the program learns how the wall clock was set, soft limits that packets pass over, full
    /// tables and packets that nobody limits are told, and a few buckets are read.
    ///
    /// # Errors
    ///
    /// The first of what failed, which is logged by then; everything else is done.
    pub(crate) fn housekeep(&mut self) -> Result<(), ServiceError> {
        if self.datapath.is_none() {
            return Ok(());
        }
        let mut all = Ok(());
        for (what, step) in STEPS {
            let done = step(self);
            self.troubles.note(what, &done);
            all = all.and(done);
        }
        self.take_events();
        if let Some(datapath) = self.datapath.as_deref() {
            self.events.look(datapath);
            self.views.forget(datapath.now());
        }
        self.leftovers.give_back();
        all
    }

    /// Tells the program that there is a daemon.
    pub(crate) fn live(&mut self, lost_after: Duration) {
        let Some(datapath) = self.datapath.as_deref_mut() else { return };
        let done = datapath.sign_of_life(lost_after).map_err(ServiceError::Datapath);
        self.troubles.note("tell the program that the daemon lives", &done);
    }

    fn follow_wall_clock(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        Ok(datapath.refresh_wall_clock()?)
    }

    fn expire_lists(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        let layers = &self.layers;
        self.lists.expire(datapath, |selector| layers.managed(selector))
    }

    /// Stores a change of the lists before it is answered. It is in force also where that fails.
    pub(crate) fn store_lists(&mut self) {
        let Some(datapath) = self.datapath.as_deref() else { return };
        if let Some(done) = self.lists.store(&self.state, datapath) {
            self.troubles.note(SAVE_LISTS, &done.map_err(ServiceError::State));
        }
    }

    fn save_lists(&mut self) -> Result<(), ServiceError> {
        if self.lists.many_went() {
            self.leftovers.note();
        }
        let datapath = self.datapath.as_deref().ok_or(ServiceError::Detached)?;
        Ok(self.lists.keep_stored(&self.state, datapath)?)
    }

    fn look_at_nearness(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref().ok_or(ServiceError::Detached)?;
        self.nearness.get_mut().look(datapath)
    }

    fn look_for_alarms(&mut self) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref().ok_or(ServiceError::Detached)?;
        let marked = views::marked(datapath, &self.effective)?;
        let refused = views::refused(datapath)?;
        let reasons = datapath.reasons()?;
        self.not_ip.look(&reasons, datapath);
        self.alarms.look(marked).iter().for_each(Notice::log);
        for notice in self.floods.look(refused) {
            self.events.table_full(&notice);
        }
        Ok(())
    }
}

/// The step that is not possible on a full disk.
const SAVE_LISTS: &str = "save the lists";

type Step = fn(&mut Service) -> Result<(), ServiceError>;

const STEPS: [(&str, Step); 8] = [
    ("end a trial", Service::settle),
    ("tell the program of the wall clock", Service::follow_wall_clock),
    ("end limits whose time is over", Service::end_limits),
    ("take expired entries off the lists", Service::expire_lists),
    (SAVE_LISTS, Service::save_lists),
    ("tell the other nodes of bans", Service::tell_bans),
    ("look at soft limits, full tables and packets without IP", Service::look_for_alarms),
    ("read how near sources come to their limits", Service::look_at_nearness),
];
