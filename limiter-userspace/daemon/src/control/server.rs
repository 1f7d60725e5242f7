//! The server: one request a connection, a bounded number of connections, and a bounded time for
//! each. Over the bound, the oldest connection of the client with the most ends, so that no client
//! can hold up another. Connections are accepted while answers are made, and changes do not wait
//! for readers.

use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use limiter_sharing::socket_file::SocketFile;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::SocketAddr;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::connection_limit::ConnectionLimit;
use super::line::{self, Line};
use super::peer::Peer;
use super::room::{self, Spare};
use super::socket::{self, BindError};
use super::turns::{self, Turns};

/// Bounds on the number of connections and on their time.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Most connections at once; one more ends the oldest of the client with the most.
    pub connections: usize,
    /// Time for the request's head.
    pub head: Duration,
    /// Time for a whole connection.
    pub connection: Duration,
    /// Time for connections after the daemon was told to stop.
    pub farewell: Duration,
    /// Pause before the next try when a connection cannot be accepted and none can be evicted for
    /// it.
    pub pause: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 64,
            head: Duration::from_secs(5),
            connection: Duration::from_secs(30),
            farewell: Duration::from_secs(2),
            pause: Duration::from_millis(100),
        }
    }
}

/// Connections accepted before the earlier ones are served: fewer than the bound, so that a request
/// that has arrived is answered before newer ones can take its place.
const AT_ONCE: usize = 32;

/// Shortest time between two log lines about connections that could not be accepted.
const WARN_APART: Duration = Duration::from_secs(10);

/// Most abandoned connections that are closed at once.
const LEFT_AT_ONCE: usize = 512;

/// Bytes of a request's head, and of one read.
const MAX_HEAD: usize = 64 << 10;

/// A listening server. Dropping it removes the socket file.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    path: PathBuf,
    file: SocketFile,
    bounds: Bounds,
    identify: fn(&UnixStream) -> io::Result<u32>,
    /// Opened before the daemon opens anything else.
    spare: Spare,
}

impl Server {
    /// Listens at `path`, inside a tokio runtime. The caller holds the lock of the state directory.
    pub fn bind(path: &Path, bounds: Bounds) -> Result<Self, BindError> {
        let (listener, file) = socket::listen(path)?;
        let listener = UnixListener::from_std(listener).map_err(|source| BindError::System {
            what: "listen",
            path: path.to_owned(),
            source,
        })?;
        let (path, spare) = (path.to_owned(), Spare::take());
        Ok(Self { listener, path, file, bounds, identify: peer_user, spare })
    }

    /// Serves the routes of `router` until `stop` is ready, then lets running requests end.
    pub async fn serve(mut self, router: Router, stop: impl Future<Output = ()>) {
        let owner = rustix::process::geteuid().as_raw();
        let turns = Turns::new(turns::MOST);
        let mut connection_limit =
            ConnectionLimit::new(room::for_connections(self.bounds.connections));
        let mut running = JoinSet::new();
        let mut failing = false;
        let mut warned: Option<Instant> = None;
        let mut stop = pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                Some(_) = running.join_next() => {
                    self.spare.refill();
                    continue;
                }
                accepted = self.listener.accept() => accepted,
            };
            let (mut accepted, mut left) = (Some(accepted), 0);
            let mut served = 0;
            while let Some(next) = accepted.take() {
                let peer = next.and_then(|(stream, _)| {
                    let user = (self.identify)(&stream)?;
                    Ok((stream, user))
                });
                match peer {
                    Ok((stream, _)) if line::is_closed(&stream) => left += 1,
                    Ok((stream, user)) => {
                        failing = false;
                        if let Some(user) = connection_limit.make_room() {
                            tracing::debug!(
                                user,
                                "too many control connections: the oldest was cut off"
                            );
                        }
                        let line = Line::new(stream);
                        let peer = Peer::new(user, owner, Some(line.clone()), &turns);
                        let following = peer.following.clone();
                        let connection = connection(line, peer, router.clone(), self.bounds);
                        connection_limit.add(user, following, running.spawn(connection));
                        served += 1;
                    }
                    Err(error) => {
                        let waited = line::is_waited_at(&self.listener);
                        // A client can cause this as often as it likes, so the log line is
                        // rate-limited.
                        if waited && warned.is_none_or(|at| at.elapsed() >= WARN_APART) {
                            tracing::warn!(%error, "a control connection failed");
                            warned = Some(Instant::now());
                        }
                        failing = true;
                        // For example without free file descriptors: evicting one connection makes
                        // room at once. The spare descriptor comes last. Without either, the next
                        // try would spin.
                        let room =
                            waited && (connection_limit.evict().is_some() || self.spare.give_up());
                        if !room {
                            tokio::time::sleep(self.bounds.pause).await;
                        }
                    }
                }
                if served < AT_ONCE && left < LEFT_AT_ONCE && !failing {
                    accepted = self.accepted().await;
                }
            }
            // Serves the accepted connections before accepting more, so that a request that has
            // arrived is answered.
            tokio::task::yield_now().await;
        }
        let ended = async { while running.join_next().await.is_some() {} };
        if timeout(self.bounds.farewell, ended).await.is_err() {
            tracing::warn!("control connections were cut off at the end");
        }
    }

    /// Accepts the next waiting connection, if there is one.
    async fn accepted(&self) -> Option<io::Result<(UnixStream, SocketAddr)>> {
        poll_fn(|context| match self.listener.poll_accept(context) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending => Poll::Ready(None),
        })
        .await
    }

    /// For tests: sets the function that identifies the peer.
    #[cfg(test)]
    pub(super) fn identify_by(mut self, identify: fn(&UnixStream) -> io::Result<u32>) -> Self {
        self.identify = identify;
        self
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let socket = self.path.display();
        match self.file.remove(&self.path) {
            Ok(true) => {}
            Ok(false) => tracing::warn!(%socket, "another process has the socket now: it stays"),
            Err(error) => tracing::warn!(%error, %socket, "cannot remove the socket"),
        }
    }
}

fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    Ok(stream.peer_cred()?.uid())
}

async fn connection(line: Line, peer: Peer, router: Router, bounds: Bounds) {
    let (user, leave) = (peer.user, Arc::clone(&peer.leave));
    tokio::select! {
        in_time = converse(line, router, peer, bounds) => {
            if !in_time {
                tracing::warn!(user, "a slow control client was cut off");
            }
        }
        () = leave.notified() => {
            tracing::debug!(user, "an answer gave way to another reader's");
        }
    }
}

/// Time between two checks whether the client is still there.
const LOOK: Duration = Duration::from_millis(500);

/// Waits until the client has gone.
async fn left(peer: &Peer) {
    while !peer.is_gone() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Serves one request and its answer; returns true if it was done in time. An endless answer, which
/// the peer's `following` reports, may take for ever; the service bounds the number of these.
pub(super) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    peer: Peer,
    bounds: Bounds,
) -> bool {
    let (following, watched) = (peer.following.clone(), peer.clone());
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        // A client that has finished sending may still read; whether it is there is checked before
        // it is served.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let answered = async {
        match timeout(bounds.connection, connection.as_mut()).await {
            Err(_) if following.is_set() => Ok(connection.await),
            ended => ended,
        }
    };
    let ended = tokio::select! {
        ended = answered => ended,
        // An answer that waits for something to report would never notice by itself.
        () = left(&watched) => return true,
    };
    match ended {
        Ok(Ok(())) => true,
        // A client that breaks off or sends nonsense harms only itself.
        Ok(Err(error)) => {
            tracing::debug!(%error, "a connection ended early");
            true
        }
        Err(_) => false,
    }
}
