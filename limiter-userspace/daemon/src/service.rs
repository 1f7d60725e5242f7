//! The daemon's work on request. Every change is planned whole, put in force whole, and undone when
//! it cannot be kept.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use limiter_datapath::Datapath;
use tokio::sync::Notify;

use super::alarm::Alarms;
use super::capture::Captures;
use super::error::ServiceError;
use super::events::{EventOptions, Events};
use super::guard::{self, Hand, Scene};
use super::layers::{EffectiveSet, Layers};
use super::limit_ends;
use super::lists::{Book, Changes};
use super::memory::Leftovers;
use super::nearness;
use super::not_ip::NotIp;
use super::notify::Notifier;
use super::rule_files::Digest;
use super::sources::Views;
use super::state_dir::{APPLIED, EDITS, StateDir};
use super::views;

mod capture;
mod cluster;
mod events;
mod housekeeping;
mod in_force;
mod limits;
mod links;
mod notified;
mod rule_sets;
mod trial;

pub(super) use capture::read_on;
use cluster::Node;
pub(super) use cluster::told_prefix;
pub(super) use events::listen;
use limiter_rules::Selector;
use limiter_rules::file::render;

use crate::api::rules::{Changed, TrialEnd};
use crate::api::status::{Reload, Reloads, Watching};
use housekeeping::Troubles;
use trial::Trying;

/// Domain of the file of edits.
const EDITS_DOMAIN: &str = "limiter-set";

/// The daemon's state.
pub(super) struct Service {
    /// The data path; none once detached.
    pub(super) datapath: Option<Box<dyn Datapath>>,
    pub(super) layers: Layers,
    pub(super) effective: Arc<EffectiveSet>,
    pub(super) lists: Book,
    pub(super) alarms: Alarms,
    pub(super) floods: Alarms,
    /// State of the alarm that most packets have no IP header.
    pub(super) not_ip: NotIp,
    pub(super) events: Events,
    /// The packets that the program tells whole.
    pub(super) captures: Captures,
    /// Sources that `limiter top` watches.
    pub(super) views: Views,
    /// How near sources come to their limits. Behind a cell: an answer reads on while it is told.
    pub(super) nearness: RefCell<nearness::Watch>,
    pub(super) began: Instant,
    pub(super) paths: Vec<PathBuf>,
    /// Directory of the pinned maps and links, for `limiter status`.
    pub(super) pin_dir: Option<PathBuf>,
    pub(super) state: StateDir,
    pub(super) last_reload: Reload,
    pub(super) reloaded_at: SystemTime,
    pub(super) reloads: Reloads,
    pub(super) watch: Option<Watching>,
    /// Digest of the rule files when they were read last.
    pub(super) seen: Digest,
    /// The rule set on trial.
    trial: Option<Trying>,
    /// End of the last trial.
    pub(super) last_trial: Option<TrialEnd>,
    /// Numbers of ended trials, by how they ended.
    pub(super) trials: views::Trials,
    /// Notified when the daemon is to end.
    pub(super) stop: Arc<Notify>,
    pub(super) notifier: Notifier,
    /// Interfaces that are back and cannot be limited, and why.
    pub(super) refused_links: BTreeMap<String, String>,
    /// True if an interface came back, or the number of nodes is another one, and the rules in
    /// force do not know it yet.
    pub(super) replan: bool,
    /// This node among others, with a cluster.
    node: Option<Node>,
    /// Failures that come again and again, and are told once.
    troubles: Troubles,
    /// Memory that large rule sets leave behind.
    pub(super) leftovers: Leftovers,
    /// Warnings that the last rule set brought, for whoever asked for it: a warning is told once.
    pub(super) news: Vec<String>,
}

/// The service, as all connections share it.
pub(super) type Shared = crate::control::Shared<Service>;

/// A data path as it was before, and why the daemon did not start on it.
pub(super) struct NotStarted {
    pub(super) datapath: Box<dyn Datapath>,
    pub(super) error: ServiceError,
}

impl Service {
    /// Puts the rules in force; `read` is of the files that they are from. On an error the data
    /// path is given back as it was.
    pub(super) fn start(
        datapath: Box<dyn Datapath>,
        layers: Layers,
        paths: Vec<PathBuf>,
        read: Digest,
        state: StateDir,
        stop: Arc<Notify>,
    ) -> Result<Self, Box<NotStarted>> {
        let mut service = Self {
            datapath: Some(datapath),
            layers: Layers::default(),
            effective: Arc::default(),
            lists: Book::default(),
            alarms: Alarms::default(),
            floods: Alarms::default(),
            not_ip: NotIp::default(),
            events: Events::new(&EventOptions::default()),
            captures: Captures::default(),
            views: Views::default(),
            nearness: RefCell::default(),
            began: Instant::now(),
            paths,
            pin_dir: None,
            state,
            last_reload: Reload { ok: true, error: None },
            reloaded_at: SystemTime::now(),
            reloads: Reloads::default(),
            watch: None,
            seen: read,
            trial: None,
            last_trial: None,
            trials: views::Trials::default(),
            stop,
            notifier: Notifier::default(),
            refused_links: BTreeMap::new(),
            replan: false,
            node: None,
            troubles: Troubles::default(),
            leftovers: Leftovers::default(),
            news: Vec::new(),
        };
        // The program was read, and its types, and the rules twice.
        service.leftovers.note();
        let forget = !layers.applied;
        let started = service.open_lists(&layers).and_then(|()| {
            // Rules that replaced other files than these must not come back with those. Before the
            // new ones are in force: a start that fails leaves what was.
            if forget {
                service.state.removal(APPLIED).publish()?;
            }
            service.apply(layers)?;
            Ok(service.datapath_mut()?.take_over()?)
        });
        match (started, service.datapath.take()) {
            (Ok(()), datapath) => {
                service.datapath = datapath;
                // The log has them.
                service.news.clear();
                Ok(service)
            }
            (Err(error), Some(datapath)) => Err(Box::new(NotStarted { datapath, error })),
            // `apply` never takes it; without a data path there is nothing to give back.
            (Err(_), None) => Ok(service),
        }
    }

    /// The data path at the end of the daemon, unless it was detached.
    pub(super) fn take_datapath(&mut self) -> Option<Box<dyn Datapath>> {
        self.datapath.take()
    }

    pub(super) fn datapath(&self) -> Result<&dyn Datapath, ServiceError> {
        self.datapath.as_deref().ok_or(ServiceError::Detached)
    }

    pub(super) fn datapath_mut(&mut self) -> Result<&mut dyn Datapath, ServiceError> {
        match self.datapath.as_deref_mut() {
            Some(datapath) => Ok(datapath),
            None => Err(ServiceError::Detached),
        }
    }

    /// Digest of the rule files when they were read last.
    pub(super) const fn seen(&self) -> Digest {
        self.seen
    }

    /// Notes how the rule files are watched, to tell it.
    pub(super) fn watched(&mut self, every: Option<Duration>) {
        self.watch = every.map(|every| Watching { every_seconds: every.as_secs() });
    }

    /// Notes where maps and links are pinned, to tell it.
    pub(super) fn pinned_at(&mut self, pin_dir: &Path) {
        // An absolute path: somebody in another directory can use it.
        self.pin_dir = pin_dir.canonicalize().or_else(|_| std::path::absolute(pin_dir)).ok();
    }

    /// Rules in force.
    pub(super) fn rules(&self) -> usize {
        self.effective.rules.len()
    }

    /// The lists come first: they make the management prefixes safe before any rule is in force.
    fn open_lists(&mut self, layers: &Layers) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        // Before any rule with a window of the wall clock is in force.
        datapath.refresh_wall_clock()?;
        let management: Vec<Selector> = layers.management.keys().copied().collect();
        let (lists, warnings) = Book::open(datapath, &self.state, &management)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.lists = lists;
        Ok(())
    }

    /// Rules as they would be, with the lists as they would be.
    pub(super) fn scene<'a>(
        &'a self,
        layers: &'a Layers,
        effective: &'a EffectiveSet,
        changes: &'a Changes,
    ) -> Result<Scene<'a>, ServiceError> {
        Ok(Scene { layers, effective, lists: &self.lists, changes, now: self.datapath()?.now() })
    }

    /// Puts changed edits in force and on disk, both or neither.
    pub(super) fn edit(&mut self, layers: Layers, hand: Hand) -> Result<Changed, ServiceError> {
        let max_frame = self.datapath()?.max_frame();
        let text = render(EDITS_DOMAIN, &layers.edits(), max_frame)?;
        // Checked before anything is written, so that a bad request leaves no trace.
        let planned = self.planned(layers)?;
        let unchanged = Changes::new();
        let before = self.scene(&self.layers, &self.effective, &unchanged)?;
        let after = Scene { layers: &planned.layers, effective: &planned.effective, ..before };
        hand.heed(guard::objection_to_edit(before, after, hand.session.as_ref()))?;
        let prepared = self.state.prepare(EDITS, &text)?;
        // Before the edits: an end without its edit is none.
        limit_ends::store(&self.state, &planned.layers)?;
        self.apply_and_keep(planned, prepared)?;
        self.changed()
    }

    fn changed(&mut self) -> Result<Changed, ServiceError> {
        Ok(Changed {
            generation: self.datapath()?.generation(),
            rules: self.effective.rules.len(),
            warnings: std::mem::take(&mut self.news),
            done: None,
        })
    }
}

/// The service, for one request or one task.
pub(super) fn lock(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
