//! The daemon from its start to its end. Everything that can be checked is checked before the
//! kernel is touched, so that bad input changes nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use limiter_cluster::{Config, Notices};
use limiter_common::header::Direction;
use limiter_datapath::machine::is_mounted_here_alone;
use limiter_datapath::{Backend, Datapath};
use limiter_datapath::{Hook, ModeChoice, Options, SourceTable, TcOrder, Wanted};
use limiter_rules::{Environment, Installed, Selector, source_text};
use limiter_sharing::clock;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::time::Interval;

use super::cluster::heard;
use super::cluster::store_guard::{self, STORE};
use super::disk::state_dir::{APPLIED, Applied, Damage, NOT_APPLIED, StateDir, StateError};
use super::error::{ServiceError, StartError};
use super::events::EventOptions;
use super::machine::links::LinkEvents;
use super::machine::notify::Notifier;
use super::machine::ssh;
use super::routes;
use super::rule_sets::layers::Layers;
use super::rule_sets::limit_ends;
use super::rule_sets::rule_files::{self, Digest, RuleSource};
use super::rule_sets::watch::{self, Watch};
use super::service::events::listen;
use super::service::listeners::Listeners;
use super::service::{self, Service, lock};
#[cfg(feature = "page")]
use crate::control::Loopback;
use crate::control::Server;
use crate::control::server::Bounds;

/// Time between two rounds of housekeeping, which removes expired list entries, saves changed lists
/// and compares clocks.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Notices of the node that are handled before requests have their turn, because a writer to the
/// store can write very many changes.
pub(super) const SLICE: usize = 64;

/// Options of `limiter run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Interfaces to limit: names, and shell patterns of names.
    pub interfaces: Vec<String>,
    /// Hooks of each interface that programs are attached to.
    pub hooks: Vec<Hook>,
    /// Mode that the program for XDP is attached in.
    pub mode: ModeChoice,
    /// The rules.
    pub rules: RuleSource,
    /// The control socket.
    pub socket: PathBuf,
    /// Directory of the lock, the edits and the lists.
    pub state_dir: PathBuf,
    /// Options that the program is loaded with.
    pub datapath: Options,
    /// Table in which sources have their buckets; `None` if the rules at the start decide.
    pub source_table: Option<SourceTable>,
    /// Prefixes that are never limited.
    pub management: Vec<String>,
    /// How the rule files are watched for changes, if they are.
    pub watch: Option<Watch>,
    /// Options of the events of drops.
    pub events: EventOptions,
    /// Time without a sign of life after which rules that depend on the daemon only count.
    pub daemon_lost_after: Duration,
    /// True if limits end when the daemon ends.
    pub detach_on_exit: bool,
    /// TCP address at which metrics are served, if any.
    pub metrics_listen: Option<SocketAddr>,
    /// Address of this machine at which the page is served, if any.
    #[cfg(feature = "page")]
    pub page_listen: Option<Loopback>,
    /// File with the settings for sharing limits with other nodes; `None` for a single node.
    pub cluster: Option<PathBuf>,
}

/// Runs the daemon until it is told to stop.
pub fn run(options: &RunOptions, backend: &dyn Backend) -> Result<(), StartError> {
    let prepared = prepare(options, backend)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| StartError::System { what: "start the runtime", source })?;
    runtime.block_on(serve(options, backend, prepared))
}

/// The part of a start that needs no kernel.
struct Prepared {
    layers: Layers,
    /// Digest of the rule files.
    read: Digest,
    state: StateDir,
    /// Files of the state directory that cannot be used.
    damages: Vec<Damage>,
    /// Table in which sources will have their buckets.
    source_table: SourceTable,
    /// Configuration of the node, with a cluster.
    cluster: Option<Config>,
}

fn prepare(options: &RunOptions, backend: &dyn Backend) -> Result<Prepared, StartError> {
    let management =
        management(&options.management, ssh::own_session().map(|session| session.peer))?;
    for (index, name) in options.interfaces.iter().enumerate() {
        if options.interfaces.iter().take(index).any(|other| other == name) {
            return Err(StartError::InterfaceTwice(name.clone()));
        }
    }
    let is_at_tc = options.hooks.iter().any(|hook| matches!(hook, Hook::Tc(_)));
    if options.datapath.tc_order != TcOrder::First && !is_at_tc {
        return Err(StartError::OrderWithoutTc(options.datapath.tc_order));
    }
    if let Some(pin) = &options.datapath.then
        && !options.hooks.contains(&Hook::Xdp)
    {
        return Err(StartError::ThenWithoutXdp(pin.clone()));
    }
    // The files come first, because any user can check them.
    let read = options.rules.read();
    let digest = Digest::of(&read);
    let documents = read?;
    rule_files::parse(&documents, 0)?;
    let pin_dir = &options.datapath.pin_dir;
    let wanted = Wanted::of(&options.interfaces);
    let max_frame = backend.check(&wanted, pin_dir).map_err(StartError::Datapath)?;
    let (file, texts) = rule_files::taken(documents, max_frame)?;
    let cluster = options.cluster.as_deref().map(Config::load).transpose()?;
    let nodes = cluster.as_ref().map(|config| u64::from(config.node.nodes));
    let mut management = management;
    for server in cluster.iter().flat_map(store_guard::sources) {
        management.entry(server).or_insert(STORE);
    }
    let mut layers = Layers { file, texts, management, cluster: nodes, ..Layers::default() };
    check(options, &layers, max_frame, backend)?;
    let state = StateDir::open(&options.state_dir)?;
    let mut damages = Vec::new();
    let edits = state.read_edits(max_frame, &mut damages)?.rules.rules;
    layers.edits = edits.into_iter().map(|rule| (rule.path.clone(), rule)).collect();
    layers.ends = limit_ends::load(&state, &layers.edits, &mut damages)?;
    for path in layers.over(limit_ends::now()).cloned().collect::<Vec<_>>() {
        layers.edits.remove(&path);
        layers.ends.remove(&path);
    }
    check(options, &layers, max_frame, backend)?;
    let files = layers.clone();
    let mut layers = with_applied(layers, &state, digest, max_frame, &mut damages)?;
    if layers.applied
        && let Err(error) = check(options, &layers, max_frame, backend)
    {
        damages.push(state.damaged(APPLIED, &error.to_string(), NOT_APPLIED));
        layers = files;
    }
    let mut cluster = cluster;
    if let Some(config) = &mut cluster {
        config.node.newest = heard::load(&state, &mut damages)?;
    }
    let source_table = options.source_table.unwrap_or_else(SourceTable::auto);
    Ok(Prepared { layers, read: digest, state, damages, source_table, cluster })
}

/// Replaces the rule files by the rules of `limiter apply`, if these are the files that those rules
/// replaced.
pub(super) fn with_applied(
    layers: Layers,
    state: &StateDir,
    read: Digest,
    max_frame: u64,
    damages: &mut Vec<Damage>,
) -> Result<Layers, StateError> {
    let Some(Applied { replaces, documents }) = state.read_applied(damages)? else {
        return Ok(layers);
    };
    if replaces != read.to_string() {
        tracing::info!(
            "the rule files are not those any more that `limiter apply` replaced: they are in \
             force, and the applied rules are forgotten"
        );
        return Ok(layers);
    }
    let (file, texts) = match rule_files::taken(documents, max_frame) {
        Ok(file) => file,
        Err(error) => {
            damages.push(state.damaged(APPLIED, &error.to_string(), NOT_APPLIED));
            return Ok(layers);
        }
    };
    tracing::info!("the rules of `limiter apply` take the place of the rule files");
    Ok(Layers { file, texts, applied: true, ..layers })
}

/// Plans the rules for empty maps: a plan that fails here would fail in the kernel as well.
fn check(
    options: &RunOptions,
    layers: &Layers,
    max_frame: u64,
    backend: &dyn Backend,
) -> Result<(), StartError> {
    let effective = layers.effective();
    let environment = Environment {
        max_frame,
        interface_index: &|name| layers.index_of(name, backend.interface_index(name)),
        cpus: backend.cpus(),
        cluster: layers.cluster,
        in_at_tc: Some(options.hooks.contains(&Hook::Tc(Direction::In))),
    };
    Installed::default()
        .plan(&effective.rule_set(), 1, options.datapath.max_rules, &environment)
        .map(drop)
        .map_err(|source| match layers.refused(&source) {
            Some(located) => StartError::File(located),
            None => StartError::Plan { files: options.rules.names(), source },
        })
}

fn management(
    prefixes: &[String],
    ssh: Option<std::net::IpAddr>,
) -> Result<BTreeMap<Selector, &'static str>, StartError> {
    let mut management = BTreeMap::new();
    if let Some(address) = ssh {
        management.insert(Selector::address(address), "this SSH session");
    }
    for prefix in prefixes {
        let selector = source_text::parse(prefix).map_err(StartError::Management)?;
        management.insert(selector, "management");
    }
    Ok(management)
}

/// The requested servers over TCP, inside a tokio runtime.
fn listeners(options: &RunOptions) -> Result<Listeners, StartError> {
    let listeners = Listeners::open(options.metrics_listen)?;
    #[cfg(feature = "page")]
    let listeners = listeners.with_page(options.page_listen)?;
    Ok(listeners)
}

fn report_time_namespace() {
    match clock::ahead() {
        Ok(0) => {}
        Ok(ahead) => tracing::info!(
            "this is a time namespace, whose clock is {} s from the kernel's: times are the \
             kernel's",
            ahead / 1_000_000_000
        ),
        Err(error) => tracing::warn!(
            %error,
            "/proc/self/timens_offsets cannot be read: in a time namespace trials, bans and entries \
             for a time end at other times than they should"
        ),
    }
}

fn give_up_privileges(backend: &dyn Backend) {
    if let Err(error) = backend.give_up_privileges() {
        tracing::warn!(
            "the daemon keeps all its privileges, because the system does not let it give up those \
             that it does not need: {error}: check its sandbox"
        );
    }
}

async fn serve(
    options: &RunOptions,
    backend: &dyn Backend,
    Prepared { layers, read, state, damages, source_table, cluster }: Prepared,
) -> Result<(), StartError> {
    let listen_to = |kind| {
        signal(kind).map_err(|source| StartError::System { what: "listen to signals", source })
    };
    let mut reload = listen_to(SignalKind::hangup())?;
    let mut terminate = listen_to(SignalKind::terminate())?;
    let mut interrupt = listen_to(SignalKind::interrupt())?;
    let server = Server::bind(&options.socket, Bounds::default())?;
    let listeners = listeners(options)?;
    layers.management.keys().for_each(|prefix| tracing::info!(%prefix, "never limited"));
    report_time_namespace();
    warn_if_nobody_is_safe(&layers);

    let stop = Arc::new(Notify::new());
    let datapath = open(options, source_table, backend)?;
    let (rules, stopped) = (options.rules.clone(), Arc::clone(&stop));
    let mut service = Service::start(datapath, layers, rules, read, (state, damages), stopped)
        .map_err(|not_started| {
            give_back(not_started.datapath);
            refused(options, not_started.error)
        })?;
    // Includes the names of their programs, which only root may read.
    service::links::report_neighbours(&service.datapath, options.datapath.tc_order);
    give_up_privileges(backend);
    // It starts a thread, so this comes after the privileges are given up.
    let notices = cluster.and_then(|config| service::cluster::start(&mut service, config));
    service.rule_sets.watched(options.watch.filter(|_| !options.rules.paths().is_empty()));
    service.pinned_at(&options.datapath.pin_dir);
    let reported = service::events::report(&mut service, &options.events).unwrap_or_else(|error| {
        tracing::error!(%error, "drops are not reported");
        None
    });
    warn_of_own_mount(options);
    // Scripts wait for this line, so it is also printed when the log is off.
    limiter_text::stderr::say(format_args!("limiter: ready: {}", service.summary()));
    if let Some(kept) = service.rule_sets.kept() {
        limiter_text::stderr::say(format_args!("limiter: {kept}"));
    }
    let notifier = Notifier::from_environment();
    let mut watchdog = notifier.watchdog_period().map(tokio::time::interval);
    service.notifier = notifier;
    service.notify_ready();
    let service = Arc::new(Mutex::new(service));
    let links = LinkEvents::listen();
    let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
    let until_stopped = async {
        let watching = async {
            match (options.watch, options.rules.paths()) {
                (Some(how), paths @ [_, ..]) => watch::watch(&service, paths, how).await,
                _ => std::future::pending().await,
            }
        };
        let mut watching = pin!(watching);
        let mut listening = pin!(listen(&service, reported));
        let mut handling = pin!(handle_notices(&service, notices));
        loop {
            tokio::select! {
                () = stop.notified() => break,
                Some(()) = terminate.recv() => break,
                Some(()) = interrupt.recv() => break,
                () = &mut watching => {}
                () = &mut listening => {}
                _ = housekeeping.tick() => {
                    service::housekeeping::live(&mut lock(&service), options.daemon_lost_after);
                    housekeep(&service);
                }
                () = links.next() => look_after_links(&service, &links),
                () = &mut handling => {}
                // Only this loop sends the sign of life: the task that accepts connections, on the
                // only thread.
                () = next(&mut watchdog) => service::notified::alive(&lock(&service)),
                Some(()) = reload.recv() => {
                    if let Err(error) = lock(&service).reload() {
                        // The service has already logged the error and kept it for
                        // `limiter status`.
                        tracing::debug!(%error, "SIGHUP");
                    }
                }
            }
        }
        lock(&service).notifier.stopping();
    };
    let until_stopped = async {
        until_stopped.await;
        let mut service = lock(&service);
        service.events.end();
        service::capture::end(&mut service);
    };
    let router = routes::router(Arc::clone(&service));
    tokio::select! {
        () = server.serve(router, until_stopped) => {}
        () = listeners.serve(&service) => {}
    }
    housekeep(&service);
    service::events::end_log(&mut lock(&service));
    lock(&service).cluster.leave();
    let datapath = lock(&service).take_datapath();
    end(datapath, options.detach_on_exit, &options.datapath.pin_dir)
}

/// Opens the data path with the requested source table, unless existing maps use another, and gives
/// the first sign of life.
fn open(
    options: &RunOptions,
    source_table: SourceTable,
    backend: &dyn Backend,
) -> Result<Box<dyn Datapath>, StartError> {
    let made_for = Options { source_table, ..options.datapath.clone() };
    let mut datapath = backend
        .open(&made_for, &Wanted::of(&options.interfaces), &options.hooks, options.mode)
        .map_err(StartError::Datapath)?;
    let found = datapath.source_table();
    if options.source_table.is_some_and(|wanted| wanted != found) {
        tracing::warn!(
            "--source-table {} has no effect: the maps in force were made for {}; `limiter \
             detach` and a new start make new ones",
            source_table.name(),
            found.name()
        );
    }
    tracing::info!("sources have their buckets in {}", found.describe());
    if let Err(fault) = datapath.sign_of_life(options.daemon_lost_after) {
        give_back(datapath);
        return Err(StartError::Datapath(fault));
    }
    Ok(datapath)
}

fn look_after_links(service: &Mutex<Service>, links: &LinkEvents) {
    let began = Instant::now();
    let mut service = lock(service);
    service.look_after_links();
    links.looked(began.elapsed(), service.has_more_links);
}

fn housekeep(service: &Mutex<Service>) {
    let mut service = lock(service);
    if let Err(error) = service.housekeep() {
        // The service has already reported the error, once.
        tracing::debug!(%error, "housekeeping");
    }
    service.look_after_links();
    service::links::look_after_then(&mut service.datapath);
    service.notify_changes();
}

/// Waits for the next tick; for ever without a watchdog.
async fn next(watchdog: &mut Option<Interval>) {
    match watchdog {
        Some(watchdog) => {
            watchdog.tick().await;
        }
        None => std::future::pending().await,
    }
}

/// Handles the node's notices, if there is a cluster. Never returns.
pub(super) async fn handle_notices(service: &Mutex<Service>, notices: Option<Notices>) {
    if let Some(mut notices) = notices {
        let mut slice = Vec::with_capacity(SLICE);
        while notices.recv_many(&mut slice, SLICE).await > 0 {
            lock(service).handle_notices(slice.drain(..));
            // Requests have their turn.
            tokio::task::yield_now().await;
        }
        lock(service).cluster.ended();
    }
    std::future::pending::<()>().await;
}

/// The warning of a daemon whose pins are on a BPF file system that only it can see.
fn ends_with_the_mount(pin_dir: &Path) -> String {
    format!(
        "the BPF file system of {} is mounted in this mount namespace alone: with its last process \
         the limits end; mount the machine's /sys/fs/bpf there if they are to outlive the daemon",
        pin_dir.display()
    )
}

/// Warns if limits that should outlive the daemon cannot do so.
fn warn_of_own_mount(options: &RunOptions) {
    let pin_dir = &options.datapath.pin_dir;
    if !options.detach_on_exit && is_mounted_here_alone(pin_dir) == Some(true) {
        tracing::warn!("{}", ends_with_the_mount(pin_dir));
    }
}

fn warn_if_nobody_is_safe(layers: &Layers) {
    if let Some(warning) = layers.nobody_is_safe() {
        tracing::warn!("{warning}");
    }
}

/// Undoes the opening of the data path, and logs what remains.
fn give_back(datapath: Box<dyn Datapath>) {
    if let Err(error) = datapath.give_back() {
        tracing::error!(%error, "the program could not be removed again: run `limiter detach`");
    }
}

fn refused(options: &RunOptions, error: ServiceError) -> StartError {
    match error {
        ServiceError::File(error) => StartError::File(error),
        ServiceError::Plan(source) => StartError::Plan { files: options.rules.names(), source },
        ServiceError::Datapath(fault) => StartError::Datapath(fault),
        ServiceError::State(fault) => StartError::State(fault),
        other => StartError::Service(Box::new(other)),
    }
}

fn end(
    datapath: Option<Box<dyn Datapath>>,
    detach: bool,
    pin_dir: &Path,
) -> Result<(), StartError> {
    match datapath {
        Some(datapath) if detach => {
            datapath.detach().map_err(StartError::Detach)?;
            tracing::info!("detached: nothing is limited any more");
        }
        Some(datapath) => {
            drop(datapath);
            let place = pin_dir.display();
            if is_mounted_here_alone(pin_dir) == Some(true) {
                tracing::warn!("{}", ends_with_the_mount(pin_dir));
            } else {
                tracing::info!(
                    "the limits stay in force without the daemon, as long as the BPF file system \
                     of {place} is mounted"
                );
            }
        }
        None => {}
    }
    Ok(())
}
