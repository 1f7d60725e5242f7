//! Connections of one thread: a bounded number of them. One more ends the one that was quiet for
//! longest, so that clients that hold connections do not keep others out.

use std::cell::Cell;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, LocalSet};
use tokio::time::{Instant, sleep, timeout};

use crate::listen::Listener;
use crate::routes;
use crate::service::Service;

/// Time for the head of a request, and between two requests.
const HEAD: Duration = Duration::from_mins(1);

/// Bytes of a request's head.
const MAX_HEAD: usize = 16 << 10;

/// Headers of a request.
const MAX_HEADERS: usize = 100;

/// Time for requests under way after the process was asked to stop: as long as an answer may be
/// held back, and a bit.
const FAREWELL: Duration = Duration::from_secs(65);

/// Time for an answer to be sent after the process was asked to stop.
const QUIET: Duration = Duration::from_millis(500);

/// Time before the next try where a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections and answers their requests, until `stop` says so; then those under way end.
pub(crate) async fn serve(
    service: &Arc<Service>,
    listeners: Vec<Listener>,
    most: usize,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let local = LocalSet::new();
    let connections = Rc::new(Connections {
        service: Arc::clone(service),
        open: std::cell::RefCell::default(),
        most,
        stop: stop.clone(),
    });
    local
        .run_until(async {
            let mut accepting = JoinSet::new();
            for listener in listeners {
                let connections = Rc::clone(&connections);
                match listener {
                    Listener::Tcp(listener) => {
                        let listener = TcpListener::from_std(listener)?;
                        accepting.spawn_local(connections.accept_tcp(listener));
                    }
                    Listener::Unix(listener) => {
                        let listener = UnixListener::from_std(listener)?;
                        accepting.spawn_local(connections.accept_unix(listener));
                    }
                }
            }
            let mut stop = stop;
            stopped(&mut stop).await;
            accepting.shutdown().await;
            io::Result::Ok(())
        })
        .await?;
    // Connections end by themselves.
    let ended = async {
        while !connections.open.borrow().is_empty() {
            connections.forget_ended();
            local.run_until(sleep(Duration::from_millis(5))).await;
        }
    };
    if timeout(FAREWELL, ended).await.is_err() {
        tracing::warn!("connections were cut off at the end");
    }
    Ok(())
}

/// A connection under way.
struct Connection {
    task: AbortHandle,
    state: Rc<State>,
}

/// What a connection does.
struct State {
    /// Requests under way.
    busy: Cell<usize>,
    /// End of the last one.
    since: Cell<Instant>,
}

struct Connections {
    service: Arc<Service>,
    open: std::cell::RefCell<Vec<Connection>>,
    most: usize,
    stop: watch::Receiver<bool>,
}

impl Connections {
    async fn accept_tcp(self: Rc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Answers are small and are to go at once.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "an option of a connection");
                    }
                    self.add(stream);
                }
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn accept_unix(self: Rc<Self>, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.add(stream),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    /// Out of file descriptors, say: one connection less makes room for one.
    async fn failed(&self, error: &io::Error) {
        tracing::debug!(%error, "a connection failed");
        self.evict();
        sleep(PAUSE).await;
    }

    fn add(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        self.forget_ended();
        if self.open.borrow().len() >= self.most && !self.evict() {
            // All of them have a request under way.
            self.service.stats.evicted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let state = Rc::new(State { busy: Cell::new(0), since: Cell::new(Instant::now()) });
        let work =
            connection(stream, Arc::clone(&self.service), Rc::clone(&state), self.stop.clone());
        let task = tokio::task::spawn_local(work).abort_handle();
        self.open.borrow_mut().push(Connection { task, state });
    }

    fn forget_ended(&self) {
        self.open.borrow_mut().retain(|connection| !connection.task.is_finished());
    }

    /// Ends the connection that was quiet for longest; false if none is.
    fn evict(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let quiet =
            open.iter().enumerate().filter(|(_, connection)| connection.state.busy.get() == 0);
        let Some((index, _)) = quiet.min_by_key(|(_, connection)| connection.state.since.get())
        else {
            return false;
        };
        open.swap_remove(index).task.abort();
        self.service.stats.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }
}

/// Waits until the process is to end, or until nobody can ask for that any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}

/// Waits until a connection had no request under way for so long that its last answer is gone.
async fn quiet(state: &State) {
    while state.busy.get() > 0 || state.since.get().elapsed() < QUIET {
        sleep(QUIET).await;
    }
}

/// Counts a request as under way, as long as it is.
struct Busy(Rc<State>);

impl Busy {
    fn new(state: &Rc<State>) -> Self {
        state.busy.set(state.busy.get() + 1);
        Self(Rc::clone(state))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let Self(state) = self;
        state.busy.set(state.busy.get().saturating_sub(1));
        state.since.set(Instant::now());
    }
}

/// Counts a connection as open, as long as it is.
struct Open(Arc<Service>);

impl Open {
    fn new(service: &Arc<Service>) -> Self {
        service.stats.connections.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(service))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stats.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    service: Arc<Service>,
    state: Rc<State>,
    mut stop: watch::Receiver<bool>,
) {
    let _open = Open::new(&service);
    let of_requests = Rc::clone(&state);
    let answer = service_fn(move |request| {
        let (service, busy) = (Arc::clone(&service), Busy::new(&of_requests));
        async move {
            let answer = routes::answer(&service, request).await;
            drop(busy);
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopped(&mut stop) => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = quiet(&state) => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
