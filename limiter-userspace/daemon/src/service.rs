//! The daemon: combines its parts, and does the work that needs several of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use limiter_common::time::Ticks;
use limiter_datapath::Datapath;
use limiter_rules::Selector;
use tokio::sync::Notify;

use self::repeated_errors::RepeatedErrors;
use super::capture::Captures;
use super::cluster::Membership;
use super::disk::state_dir::{APPLIED, Damage, StateDir};
use super::error::ServiceError;
use super::events::{EventOptions, Events};
use super::gauges::Gauges;
use super::gauges::recent;
use super::gauges::request_reports::RequestReports;
use super::lists::request_bans::{BanBudget, RequestRules};
use super::lists::{Changes, ListStore};
use super::machine::attached::Attached;
use super::machine::memory::HeapTrim;
use super::machine::notify::Notifier;
use super::rule_sets::guard::{Bans, Scene};
use super::rule_sets::layers::Layers;
use super::rule_sets::rule_files::{Digest, RuleSource};
use super::rule_sets::taken;
use super::rule_sets::{Ground, RuleSets};
use super::sources::Known;
use super::why::InForce;

pub(super) mod capture;
pub(super) mod cluster;
pub(super) mod events;
pub(super) mod housekeeping;
pub(super) mod links;
pub(super) mod listeners;
pub(super) mod lists;
pub(super) mod notified;
mod reload;
mod repeated_errors;
mod status;

/// State of the daemon: its parts, and the data that they share.
pub(super) struct Service {
    pub(super) datapath: Attached,
    /// Store of edits, lists and applied rules.
    pub(super) state: StateDir,
    pub(super) rule_sets: RuleSets,
    pub(super) lists: ListStore,
    pub(super) events: Events,
    /// Captures of whole packets.
    pub(super) captures: Captures,
    pub(super) gauges: Gauges,
    pub(super) cluster: Membership,
    /// Rules for requests that made bans.
    pub(super) request_rules: RequestRules,
    /// Budget for new bans by these rules.
    pub(super) ban_budget: BanBudget,
    /// Results of requests, as `limiter serve` reports them.
    pub(super) request_reports: RequestReports,
    /// True if the last look at the interfaces did not reach all of them.
    pub(super) has_more_links: bool,
    /// Repeated failures, which are reported once.
    pub(super) repeated_errors: RepeatedErrors,
    /// Notes that large rule sets leave memory behind.
    pub(super) heap_trim: HeapTrim,
    pub(super) began: Instant,
    /// Start of the daemon by the program's clock.
    pub(super) began_at: Ticks,
    /// Directory of the pinned maps and links, for `limiter status`.
    pin_dir: Option<PathBuf>,
    /// Notified when the daemon must end.
    pub(super) stop: Arc<Notify>,
    pub(super) notifier: Notifier,
    /// Files of the state directory that could not be used at the start.
    pub(super) damages: Vec<Damage>,
}

/// The service, as all connections share it.
pub(super) type Shared = crate::control::Shared<Service>;
pub(super) type Call = crate::control::Call<Service>;

/// The unchanged data path, and the reason why the daemon did not start on it.
pub(super) struct NotStarted {
    pub(super) datapath: Box<dyn Datapath>,
    pub(super) error: ServiceError,
}

impl Service {
    /// Puts the rules in force; `read` is the digest of the files that they come from. On an error
    /// the data path is returned unchanged.
    pub(super) fn start(
        datapath: Box<dyn Datapath>,
        layers: Layers,
        rules: RuleSource,
        read: Digest,
        (state, mut damages): (StateDir, Vec<Damage>),
        stop: Arc<Notify>,
    ) -> Result<Self, Box<NotStarted>> {
        let request_rules = RequestRules::load(&state, &mut damages);
        let mut service = Self {
            began_at: datapath.now(),
            datapath: Attached::new(datapath),
            state,
            rule_sets: RuleSets::new(rules, read),
            lists: ListStore::default(),
            events: Events::new(&EventOptions::default()),
            captures: Captures::default(),
            gauges: Gauges::default(),
            cluster: Membership::default(),
            request_rules,
            ban_budget: BanBudget::default(),
            request_reports: RequestReports::default(),
            has_more_links: false,
            repeated_errors: RepeatedErrors::default(),
            heap_trim: HeapTrim::default(),
            began: Instant::now(),
            pin_dir: None,
            stop,
            notifier: Notifier::default(),
            damages,
        };
        // Reading the program with its types, and the rules twice, leaves memory behind.
        service.heap_trim.note();
        let forget = !layers.applied;
        let started = service.open_lists(&layers).and_then(|()| {
            // Applied rules that replaced other files than these must not come back with those.
            // They are forgotten before the new rules are in force: a start that fails leaves
            // everything unchanged.
            if forget {
                service.state.removal(APPLIED).publish()?;
            }
            let (rule_sets, mut ground) = service.at_rules();
            rule_sets.apply(&mut ground, layers)?;
            Ok(service.datapath.get_mut()?.take_over()?)
        });
        if started.is_ok() {
            compare_with_before(&mut service, read);
            let noted = service.note_recent();
            service.repeated_errors.note(recent::NOTE_RECENT, &noted);
        }
        let Err(error) = started else {
            // They are in the log.
            service.rule_sets.news.clear();
            return Ok(service);
        };
        match service.datapath.take() {
            Some(datapath) => Err(Box::new(NotStarted { datapath, error })),
            // `apply` never takes the data path; without one there is nothing to return.
            None => Ok(service),
        }
    }

    /// Takes the data path at the end of the daemon, unless it was detached.
    pub(super) fn take_datapath(&mut self) -> Option<Box<dyn Datapath>> {
        self.datapath.take()
    }

    pub(super) fn datapath(&self) -> Result<&dyn Datapath, ServiceError> {
        self.datapath.get()
    }

    /// The rule sets, and the parts of the daemon that are needed to put them in force.
    pub(super) fn at_rules(&mut self) -> (&mut RuleSets, Ground<'_>) {
        let Self { rule_sets, datapath, lists, cluster, state, heap_trim, .. } = self;
        (rule_sets, Ground { datapath, lists, cluster, state, heap_trim })
    }

    /// The rules in force and the lists with the given `changes`.
    pub(super) fn scene<'a>(&'a self, changes: &'a Changes) -> Result<Scene<'a>, ServiceError> {
        let RuleSets { layers, effective, .. } = &self.rule_sets;
        let (bans, now) = (Bans(self.datapath()?), self.datapath()?.now());
        Ok(Scene { layers, effective, lists: &self.lists, changes, laid: None, bans, now })
    }

    /// What the views of sources are made from.
    pub(crate) fn known(&self) -> Result<Known<'_>, ServiceError> {
        let (effective, lists, events) = (&self.rule_sets.effective, &self.lists, &self.events);
        Ok(Known { datapath: self.datapath()?, effective, lists, events })
    }

    /// The state in force now. An ended trial is settled first, so that the names belong to the
    /// rules that the program uses.
    pub(crate) fn in_force(&mut self) -> Result<InForce<'_>, ServiceError> {
        // Read before settling: a trial that ends after it has not ended yet.
        let now = self.datapath()?.now();
        self.settle()?;
        let (datapath, layers, effective) =
            (self.datapath()?, &self.rule_sets.layers, &self.rule_sets.effective);
        Ok(InForce { datapath, layers, effective, lists: &self.lists, now })
    }

    /// Notes the directory of the pinned maps and links, for reports.
    pub(super) fn pinned_at(&mut self, pin_dir: &Path) {
        // An absolute path can be used from any directory.
        self.pin_dir = pin_dir.canonicalize().or_else(|_| std::path::absolute(pin_dir)).ok();
    }

    /// Reads the counters of all packets and interfaces.
    fn note_recent(&mut self) -> Result<(), ServiceError> {
        let on_trial = self.rule_sets.trial(&self.datapath).is_some();
        let last_trial = self.rule_sets.last_trial.as_ref();
        let datapath = self.datapath.get()?;
        let scene = recent::Scene {
            generation: datapath.generation(),
            bypass: datapath.bypass()?,
            on_trial,
            confirmed: last_trial.is_some_and(|end| end.confirmed),
        };
        self.gauges.recent.look(datapath, scene)
    }

    /// Opens the lists first: they make the management prefixes safe before any rule is in force.
    fn open_lists(&mut self, layers: &Layers) -> Result<(), ServiceError> {
        let datapath = self.datapath.get_mut()?;
        // Done before any rule with a window by the wall clock is in force.
        datapath.refresh_wall_clock()?;
        let management: Vec<Selector> = layers.management.keys().copied().collect();
        let (lists, warnings, damage) = ListStore::open(datapath, &self.state, &management)?;
        self.damages.extend(damage);
        for warning in warnings.iter().chain(self.damages.iter().map(|damage| &damage.warning)) {
            tracing::warn!("{warning}");
        }
        self.lists = lists;
        Ok(())
    }
}

/// Warns if the rule files now in force, given by their digest, differ from those last in
/// force.
fn compare_with_before(service: &mut Service, read: Digest) {
    let Service { state, rule_sets, damages, .. } = service;
    let known = damages.len();
    let changed = taken::changed(state, &rule_sets.source, read, damages);
    damages.iter().skip(known).for_each(|damage| tracing::warn!("{}", damage.warning));
    match changed {
        Ok(Some(changed)) => {
            tracing::warn!("{changed}");
            rule_sets.at_start = Some(changed);
        }
        // Nothing is noted for unchanged files: the time at which they came in force again does
        // not matter.
        Ok(None) if taken::is_noted(state) => return,
        Ok(None) => {}
        Err(error) => tracing::warn!("{}: {error}", taken::LOST),
    }
    taken::note(state, &rule_sets.source, read);
}

/// Locks the service for one request or one task.
pub(super) fn lock(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
