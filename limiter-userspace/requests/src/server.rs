//! The process: threads that answer, and signals.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use limiter_cluster::node::StartError;
use limiter_cluster::{Cluster, Config, ConfigError};
use limiter_rules::RuleFileError;
use limiter_sharing::socket_file::SocketFile;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at};

use crate::buckets::state::{StateDirectory, StateError, StateOptions};
use crate::clock::Moment;
use crate::daemon::Daemon;
use crate::daemon::report::Reporter;
use crate::doors::connections::{Answers, serve};
use crate::doors::grpc::Grpc;
use crate::doors::listen::{self, Listen, Listener, Speaks};
use crate::doors::open_files;
use crate::limiter::Limiter;
use crate::service::{Service, WaitingRoom};
use crate::shared::contact;
use crate::shared::leases::{HeldLeases, LeaseTable};

/// What to serve, and within which bounds.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rule files, and directories of them.
    pub rules: Vec<PathBuf>,
    /// Addresses to listen at. If there is none: the sockets that the service manager passes, or
    /// [`DEFAULT_LISTEN`].
    pub listen: Vec<Listen>,
    /// Addresses at which it speaks the protocol of Redis.
    pub resp: Vec<Listen>,
    /// Keys that there is room for.
    pub max_keys: usize,
    /// Connections at once.
    pub max_connections: usize,
    /// Threads that answer.
    pub threads: usize,
    /// True if answers over gRPC name headers for the proxy to add.
    pub response_headers: bool,
    /// The daemon, which bans the sources that rules name and shows what became of requests; if
    /// there is none, nobody is banned.
    pub daemon: Option<Arc<dyn Daemon>>,
    /// How limits of a cluster are shared; if not at all, this process counts for itself.
    pub cluster: Option<Config>,
    /// The longest time that a request waits for the other nodes.
    pub deadline: Duration,
    /// Requests that wait for them at once.
    pub max_waiting: usize,
    /// Where buckets are kept across restarts; if nowhere, they begin full.
    pub state: Option<StateOptions>,
}

/// The longest time that a request waits for other nodes, if nothing else is said.
pub const DEFAULT_DEADLINE: Duration = Duration::from_millis(100);

/// Address to listen at if nothing else is said.
pub const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8081);

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Mistakes in rule files.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Rules(Vec<RuleFileError>),
    /// The server cannot listen at an address.
    #[error("cannot listen at {at}: {source}: {} with {option}", listen_remedy(.source.kind()))]
    Listen {
        /// The address.
        at: String,
        /// The option that names addresses for this protocol.
        option: &'static str,
        /// Reason.
        source: io::Error,
    },
    /// A socket of the service manager cannot be used.
    #[error("cannot listen at a socket of the service manager: {0}: check the unit of the socket")]
    Inherited(io::Error),
    /// The file of the node is wrong.
    #[error("--cluster: {0}")]
    Config(#[from] ConfigError),
    /// The node cannot start.
    #[error(transparent)]
    Cluster(#[from] StartError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The system refused something.
    #[error("cannot {what}: {source}: check the limits of this process")]
    System {
        /// What failed.
        what: &'static str,
        /// Reason.
        source: io::Error,
    },
}

const fn listen_remedy(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::NotFound => "make the directory, or give another path",
        io::ErrorKind::PermissionDenied => {
            "let this user make the socket there, or give another one"
        }
        _ => "free it, or give another one",
    }
}

impl ServeError {
    /// True if something broke, false if the input was refused.
    pub const fn is_failure(&self) -> bool {
        matches!(
            self,
            Self::System { .. } | Self::Inherited(_) | Self::State(StateError::System { .. })
        )
    }

    /// One line for each mistake.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Rules(errors) => errors.iter().map(ToString::to_string).collect(),
            other => vec![other.to_string()],
        }
    }
}

/// Parts in which drained keys are looked for, one a second.
const SWEEP_PARTS: usize = 16;

/// Threads that answer.
#[derive(Debug)]
pub struct Server {
    service: Arc<Service>,
    rules: Vec<PathBuf>,
    /// Sockets that are removed at the end.
    own: Vec<(PathBuf, SocketFile)>,
    addresses: Vec<Listen>,
    resp: Vec<Listen>,
    state: Option<StateDirectory>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// The thread that asks for bans.
    bans: Option<JoinHandle<()>>,
    /// The thread that reports to the daemon.
    reporter: Option<Reporter>,
    /// The thread that does what the node reports.
    node: Option<JoinHandle<io::Result<()>>>,
    /// The thread of queues.
    queues: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Reads the rule files, listens and answers.
    ///
    /// # Errors
    ///
    /// Why nothing is served.
    pub fn start(options: &Options) -> Result<Self, ServeError> {
        let system = |what| move |source| ServeError::System { what, source };
        let state = options.state.as_ref().map(|state| StateDirectory::open(&state.directory));
        let state = state.transpose()?;
        let snapshot = state.as_ref().and_then(StateDirectory::read);
        let mut limiter = match &snapshot {
            Some(snapshot) => Limiter::of(options.max_keys, snapshot),
            None => Limiter::new(options.max_keys).map_err(system("read randomness"))?,
        };
        let cluster = options.cluster.clone();
        let cluster = cluster
            .map(|config| (limiter.share(config.node.nodes.into(), options.deadline), config));
        let waiting = WaitingRoom::new(options.deadline, options.max_waiting);
        // Half of what one thread has, whichever that is.
        let threads = options.threads.max(1);
        let held_back = options.max_connections / threads / 2;
        let held_back = WaitingRoom::new(Duration::ZERO, held_back.max(1));
        let service = Arc::new(Service::new(limiter, waiting, held_back, threads));
        service.load(&options.rules).map_err(ServeError::Rules)?;
        if let (Some(state), Some(snapshot)) = (&state, snapshot) {
            service.go_on(state, snapshot);
        }
        let grpc = Grpc::new(&service, options.response_headers)
            .map_err(|error| system("describe the gRPC services")(io::Error::other(error)))?;
        let answers = Answers { service: Arc::clone(&service), grpc: Arc::new(grpc) };
        let (mut listeners, mut addresses, mut resp) = (Vec::new(), Vec::new(), Vec::new());
        for (speaks, listener, address) in listen::inherited().map_err(ServeError::Inherited)? {
            let to = if speaks == Speaks::Http { &mut addresses } else { &mut resp };
            to.push(address);
            listeners.push((speaks, listener));
        }
        let mut asked = options.listen.clone();
        if asked.is_empty() && addresses.is_empty() {
            asked.push(Listen::Tcp(DEFAULT_LISTEN));
        }
        let mut own = Vec::new();
        let asked = asked.iter().map(|listen| (Speaks::Http, listen));
        for (speaks, listen) in asked.chain(options.resp.iter().map(|of| (Speaks::Resp, of))) {
            let (listener, file) = Listener::bind(listen).map_err(|source| ServeError::Listen {
                at: speaks.at(listen),
                option: speaks.option(),
                source,
            })?;
            if let (Listen::Unix(path), Some(file)) = (listen, file) {
                own.push((path.clone(), file));
            }
            let to = if speaks == Speaks::Http { &mut addresses } else { &mut resp };
            to.push(listener.address(listen));
            listeners.push((speaks, listener));
        }
        let (mut node, mut queues) = (None, None);
        if let Some((leases, config)) = cluster {
            let config = Config { redis: config.redis.of_requests(), ..config };
            queues = Some(service.queues.start(config.redis.clone())?);
            node = Some(start_node(&answers, leases, config)?);
        }
        let (stop, stopped) = watch::channel(false);
        let bans = options.daemon.clone().map(|daemon| service.limiter.bans.start(daemon));
        let bans = bans.transpose().map_err(system("start a thread"))?;
        let mut server = Self {
            service,
            rules: options.rules.clone(),
            own,
            addresses,
            resp,
            state,
            stop,
            threads: Vec::new(),
            bans,
            reporter: None,
            node,
            queues,
        };
        let most = options.max_connections.div_ceil(threads).max(1);
        open_files::make_room(most.saturating_mul(threads));
        for number in 0..threads {
            let cloned = |(speaks, of): &(Speaks, Listener)| Ok((*speaks, of.try_clone()?));
            let listeners = listeners.iter().map(cloned).collect::<io::Result<Vec<_>>>();
            let listeners = listeners.map_err(system("share the sockets"))?;
            let (answers, stopped) = (answers.clone(), stopped.clone());
            let answer = move || -> io::Result<()> {
                runtime()?.block_on(serve(answers, listeners, most, stopped, number))
            };
            let thread = thread::Builder::new().name(format!("requests-{number}")).spawn(answer);
            server.threads.push(thread.map_err(system("start a thread"))?);
        }
        if let Some(daemon) = options.daemon.clone() {
            let reporter = Reporter::start(&server.service, daemon, &server.shown());
            server.reporter = Some(reporter.map_err(system("start a thread"))?);
        }
        Ok(server)
    }

    /// Addresses that it listens at for HTTP and gRPC, with the ports that the system chose.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The same for the protocol of Redis.
    pub fn resp_addresses(&self) -> &[Listen] {
        &self.resp
    }

    /// All addresses, as clients name them.
    fn shown(&self) -> Vec<String> {
        let http = self.addresses.iter().map(|listen| Speaks::Http.at(listen));
        http.chain(self.resp.iter().map(|listen| Speaks::Resp.at(listen))).collect()
    }

    /// Reads the rule files again; true if they are in force. Otherwise those from before stay.
    pub fn reload(&self) -> bool {
        let loaded = self.service.load(&self.rules);
        let good = loaded.is_ok();
        self.service.stats.reload(good);
        self.service.files.reloaded(loaded.as_ref().err().map(Vec::as_slice));
        if let Err(errors) = loaded {
            for error in errors {
                tracing::error!("{error}");
            }
            tracing::error!("the rules from before stay in force");
        }
        good
    }

    /// Saves the buckets, if there is a place for them; true if that succeeded or was not needed.
    pub fn save(&self) -> bool {
        self.state.as_ref().is_none_or(|state| self.service.save(state))
    }

    /// Listens no more, answers what is under way, keeps the buckets, and ends.
    ///
    /// # Errors
    ///
    /// Why a thread ended before.
    pub fn stop(self) -> Result<(), ServeError> {
        self.stop.send_replace(true);
        for (path, file) in &self.own {
            let socket = path.display();
            match file.remove(path) {
                Ok(true) => {}
                Ok(false) => {
                    tracing::warn!(%socket, "another process has the socket now: it stays");
                }
                Err(error) => tracing::warn!(%error, %socket, "cannot remove the socket"),
            }
        }
        let mut result = Ok(());
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(())) => {}
                Ok(Err(source)) => result = Err(ServeError::System { what: "answer", source }),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if let Some(Err(panic)) = self.reporter.map(Reporter::stop) {
            std::panic::resume_unwind(panic);
        }
        self.service.node.stop();
        self.service.queues.stop();
        for thread in self.node.into_iter().chain(self.queues) {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
        self.service.limiter.bans.close();
        if let Some(Err(panic)) = self.bans.map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        self.service.log();
        if let Some(state) = &self.state {
            self.service.save(state);
        }
        result
    }
}

/// Starts the thread that asks the store, and the one that does what it reports.
fn start_node(
    answers: &Answers,
    leases: Arc<LeaseTable>,
    config: Config,
) -> Result<JoinHandle<io::Result<()>>, ServeError> {
    let (cluster, notices) = Cluster::start(config, HeldLeases(leases))?;
    answers.service.node.join(cluster);
    answers.service.take_over(&answers.service.limiter.rules());
    let Answers { service, grpc } = answers.clone();
    let (known, is_known) = mpsc::channel::<()>();
    let follow = move || {
        let runtime = runtime()?;
        runtime.block_on(grpc.report_contact(true));
        drop(known);
        runtime.block_on(contact::follow(&service, &grpc, notices));
        Ok(())
    };
    let thread = thread::Builder::new().name("requests-node".to_owned()).spawn(follow);
    let thread = thread.map_err(|source| ServeError::System { what: "start a thread", source })?;
    // Clients of the health service may ask as soon as the server answers.
    let _: Result<(), mpsc::RecvError> = is_known.recv();
    Ok(thread)
}

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
///
/// Why nothing is served, or no longer.
pub fn run(options: &Options) -> Result<(), ServeError> {
    let system = |what| move |source| ServeError::System { what, source };
    let main = runtime().map_err(system("start"))?;
    let _in_runtime = main.enter();
    let listen = |kind| signal(kind).map_err(system("listen to signals"));
    // Before anybody can know this process and send it a signal.
    let signals = Signals {
        reload: listen(SignalKind::hangup())?,
        terminate: listen(SignalKind::terminate())?,
        interrupt: listen(SignalKind::interrupt())?,
    };
    let server = Server::start(options)?;
    for address in server.shown() {
        tracing::info!("requests are answered at {address}");
    }
    let every = options.state.as_ref().map(|state| state.every);
    main.block_on(signals.wait(&server, every));
    server.stop()
}

fn runtime() -> io::Result<runtime::Runtime> {
    runtime::Builder::new_current_thread().enable_all().build()
}

/// Waits until it is time; forever, if it never is.
async fn tick(interval: Option<&mut Interval>) {
    match interval {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Does periodic work until the process is to end.
    async fn wait(mut self, server: &Server, save_every: Option<Duration>) {
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0;
        let mut saving = save_every.map(|every| interval_at(Instant::now() + every, every));
        if let Some(saving) = &mut saving {
            saving.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                _ = second.tick() => {
                    server.service.limiter.sweep(round, SWEEP_PARTS, &Moment::now());
                    server.service.log();
                    server.service.files.look(&server.rules);
                    round = (round + 1) % SWEEP_PARTS;
                }
                () = tick(saving.as_mut()) => {
                    server.save();
                }
                Some(()) = self.reload.recv() => {
                    server.reload();
                }
                Some(()) = self.terminate.recv() => break,
                Some(()) = self.interrupt.recv() => break,
            }
        }
        tracing::info!("the process ends; requests under way are answered");
    }
}
