//! What the daemon does on request. Every change is planned whole, put in force whole, and undone
//! when it cannot be kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::sync::Notify;

use super::alarm::Alarms;
use super::bans;
use super::datapath::Datapath;
use super::error::ServiceError;
use super::events::{EventOptions, Events};
use super::guard::{self, Hand, Scene};
use super::layers::{EffectiveSet, Layers};
use super::lists::{self, Book, Changes};
use super::memory::Leftovers;
use super::not_ip::NotIp;
use super::notify::Notifier;
use super::rule_files::Digest;
use super::sources::Views;
use super::state_dir::{APPLIED, EDITS, StateDir};
use super::views;

mod answers;
mod check;
mod events;
mod handler;
mod housekeeping;
mod in_force;
mod links;
mod metrics;
mod notified;
mod rule_sets;
mod sources;
mod trial;

use housekeeping::Troubles;
use trial::Trying;

use crate::control::api::bans::{Unban, Unbanned};
use crate::control::api::lists::{ListsChanged, SetList, UnsetList};
use crate::control::api::rules::{Session, TrialEnd};
use crate::control::api::{
    Brake, Changed, Detached, Reload, Reloads, SetLimit, UnsetLimit, Watching,
};
use crate::rules::file::render;
use crate::rules::{RateText, Rule, Selector, Subject, rate_text, source_text};

/// Domain of the file of edits.
const EDITS_DOMAIN: &str = "limiter-set";

/// The daemon's state.
pub(super) struct Service {
    /// None once detached.
    datapath: Option<Box<dyn Datapath>>,
    layers: Layers,
    effective: Arc<EffectiveSet>,
    lists: Book,
    alarms: Alarms,
    floods: Alarms,
    /// Whether most packets have no IP header.
    not_ip: NotIp,
    events: Events,
    /// What `limiter top` looks at.
    views: Views,
    began: Instant,
    paths: Vec<PathBuf>,
    /// Where maps and links are pinned, to tell it.
    pin_dir: Option<PathBuf>,
    state: StateDir,
    last_reload: Reload,
    reloaded_at: SystemTime,
    reloads: Reloads,
    watch: Option<Watching>,
    /// What the rule files were when they were read last.
    seen: Digest,
    /// What is on trial.
    trial: Option<Trying>,
    /// How the last trial ended.
    last_trial: Option<TrialEnd>,
    /// How those before ended, with it.
    trials: views::Trials,
    /// Told when the daemon is to end.
    stop: Arc<Notify>,
    notifier: Notifier,
    /// Interfaces that are back and cannot be limited, and why.
    refused_links: BTreeMap<String, String>,
    /// Whether an interface came back, and the rules in force do not know its index yet.
    replan: bool,
    /// What goes wrong again and again, and is told once.
    troubles: Troubles,
    /// What large rule sets leave behind.
    leftovers: Leftovers,
    /// Warnings that the last rule set brought, for whoever asked for it: a warning is told once.
    news: Vec<String>,
}

/// A data path as it was before, and why the daemon did not start on it.
pub(super) struct NotStarted {
    pub(super) datapath: Box<dyn Datapath>,
    pub(super) error: ServiceError,
}

impl Service {
    /// Puts the rules in force; `read` is of the files that they are from. On an error the data path is given back as it was.
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
            views: Views::default(),
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
            troubles: Troubles::default(),
            leftovers: Leftovers::default(),
            news: Vec::new(),
        };
        // The program was read, and its types, and the rules twice.
        service.leftovers.note();
        let forget = !layers.applied;
        let started = service.open_lists(&layers).and_then(|()| {
            // Rules that replaced other files than these must not come back with those. Before the new
            // ones are in force: a start that fails leaves what was.
            if forget {
                service.state.removal(APPLIED).publish()?;
            }
            service.apply(layers)
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

    /// What the rule files were when they were read last.
    pub(super) const fn seen(&self) -> Digest {
        self.seen
    }

    /// Notes how the rule files are watched, to tell it.
    pub(super) fn watched(&mut self, every: Option<Duration>) {
        self.watch = every.map(|every| Watching { every_seconds: every.as_secs() });
    }

    /// Notes where maps and links are pinned, to tell it.
    pub(super) fn pinned_at(&mut self, pin_dir: &Path) {
        // As whoever runs elsewhere can find it.
        self.pin_dir = pin_dir.canonicalize().or_else(|_| std::path::absolute(pin_dir)).ok();
    }

    /// Rules in force.
    pub(super) fn rules(&self) -> usize {
        self.effective.len()
    }

    /// The lists come first: they make the management prefixes safe before any rule is in force.
    fn open_lists(&mut self, layers: &Layers) -> Result<(), ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        // Before any rule with a window of the wall clock is in force.
        datapath.refresh_wall_clock().map_err(ServiceError::Datapath)?;
        let management: Vec<Selector> = layers.management.keys().copied().collect();
        let (lists, warnings) = Book::open(datapath, &self.state, &management)?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        self.lists = lists;
        Ok(())
    }

    /// Rules as they would be, with the lists as they would be.
    fn scene<'a>(
        &'a self,
        layers: &'a Layers,
        effective: &'a EffectiveSet,
        changes: &'a Changes,
    ) -> Result<Scene<'a>, ServiceError> {
        Ok(Scene { layers, effective, lists: &self.lists, changes, now: self.datapath()?.now() })
    }

    /// Refuses changes of the lists that would lock out whoever makes them.
    fn heed_lists(&self, changes: &Changes, hand: Hand) -> Result<(), ServiceError> {
        let unchanged = Changes::new();
        let before = self.scene(&self.layers, &self.effective, &unchanged)?;
        let after = Scene { changes, ..before };
        hand.heed(guard::objection_to_lists(before, after, hand.session.as_ref()))
    }

    fn try_list(&mut self, request: &SetList) -> Result<ListsChanged, ServiceError> {
        let hand = Hand { session: request.session, force: request.force };
        self.heed_lists(&lists::changes(request, self.datapath()?.now()), hand)?;
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        let layers = &self.layers;
        self.lists.set(datapath, request, |selector| layers.managed(selector))
    }

    fn try_unban(&mut self, request: &Unban) -> Result<Unbanned, ServiceError> {
        let selector = source_text::parse(&request.source)?;
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        bans::forget(datapath, selector)
    }

    fn try_unlist(&mut self, request: &UnsetList) -> Result<ListsChanged, ServiceError> {
        let selectors = lists::named(request)?;
        let session = Session::named(request.peer, request.port);
        let hand = Hand { session, force: request.force };
        let off: Changes = selectors.iter().map(|selector| (*selector, None)).collect();
        self.heed_lists(&off, hand)?;
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        let layers = &self.layers;
        let changed =
            self.lists.unset(datapath, &selectors, |selector| layers.managed(selector))?;
        match selectors.first() {
            // Nothing has changed then.
            Some(selector) if request.source.is_some() && changed.not_listed > 0 => {
                Err(ServiceError::NotListed(*selector))
            }
            _ => Ok(changed),
        }
    }

    /// Puts changed edits in force and on disk, both or neither.
    fn edit(&mut self, layers: Layers, hand: Hand) -> Result<Changed, ServiceError> {
        let max_frame = self.datapath()?.max_frame();
        let text = render(EDITS_DOMAIN, &layers.edits.values().collect::<Vec<_>>(), max_frame)?;
        // Checked before anything is written, so that a bad request leaves no trace.
        let planned = self.planned(layers)?;
        let unchanged = Changes::new();
        let before = self.scene(&self.layers, &self.effective, &unchanged)?;
        let after = Scene { layers: &planned.layers, effective: &planned.effective, ..before };
        hand.heed(guard::objection_to_edit(before, after, hand.session.as_ref()))?;
        let prepared = self.state.prepare(EDITS, &text)?;
        self.apply_and_keep(planned, prepared)?;
        self.changed()
    }

    fn changed(&mut self) -> Result<Changed, ServiceError> {
        Ok(Changed {
            generation: self.datapath()?.generation(),
            rules: self.effective.len(),
            warnings: std::mem::take(&mut self.news),
        })
    }

    fn try_set(&mut self, limit: &SetLimit) -> Result<Changed, ServiceError> {
        self.not_on_trial()?;
        let selector = source_text::parse(&limit.source)?;
        if let Some(prefix) = self.layers.managed(&selector) {
            return Err(ServiceError::Management { selector, prefix });
        }
        let max_frame = self.datapath()?.max_frame();
        let action = RateText::parse(&limit.rate)?.action(limit.burst, max_frame)?;
        let action = rate_text::shadowed(action, limit.shadow)?;
        let action = rate_text::rejecting(action, limit.reject)?;
        let mut layers = self.layers.clone();
        layers.edits.insert(selector, Rule { name: None, selector, action });
        self.edit(layers, Hand { session: limit.session, force: limit.force })
    }

    fn try_unset(&mut self, limit: &UnsetLimit) -> Result<Changed, ServiceError> {
        self.not_on_trial()?;
        let selector = source_text::parse(&limit.source)?;
        let mut layers = self.layers.clone();
        if layers.edits.remove(&selector).is_some() {
            let session = Session::named(limit.peer, limit.port);
            return self.edit(layers, Hand { session, force: limit.force });
        }
        if let Some(prefix) = self.layers.managed(&selector) {
            return Err(ServiceError::Management { selector, prefix });
        }
        match self.layers.file.places.get(&Subject::Source(selector)) {
            Some(place) => {
                let place = place.to_string();
                Err(if self.layers.applied {
                    ServiceError::FromApplied { selector, place }
                } else {
                    ServiceError::FromFile { selector, place }
                })
            }
            None => Err(ServiceError::NoRule(selector)),
        }
    }

    fn try_brake(&mut self, brake: Brake) -> Result<Brake, ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        datapath.set_brake(brake.engaged).map_err(ServiceError::Datapath)?;
        let engaged = datapath.brake().map_err(ServiceError::Datapath)?;
        tracing::warn!(engaged, "brake");
        Ok(Brake { engaged })
    }

    fn try_detach(&mut self) -> Result<Detached, ServiceError> {
        let datapath = self.datapath.take().ok_or(ServiceError::Detached)?;
        // Without its data path the daemon has nothing more to do, whether this works or not.
        self.stop.notify_one();
        let interfaces = datapath.detach().map_err(ServiceError::Datapath)?;
        tracing::warn!(?interfaces, "detached: nothing is limited any more");
        Ok(Detached { interfaces })
    }
}

/// The service, for one request or one task.
pub(super) fn lock(service: &Mutex<Service>) -> MutexGuard<'_, Service> {
    service.lock().unwrap_or_else(PoisonError::into_inner)
}
