//! Connections of one thread: their number is bounded, and so is the memory of their requests.
//! Beyond that, the connection that costs most for longest is ended, so that clients that hold back
//! connections or bodies do not keep others out.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet, LocalSet};
use tokio::time::{sleep, timeout};

use crate::doors::grpc::{self, Grpc};
use crate::doors::listen::{Listener, Speaks};
use crate::doors::under_way::{Activity, MEMORY, Memory, UnderWay};
use crate::doors::{http, resp};
use crate::reports::unsaid::Unsaid;
use crate::service::Service;

/// Time for the head of a request, and between two requests.
const HEAD: Duration = Duration::from_mins(1);

const MAX_HEAD: usize = 16 << 10;

/// Headers of a request, over HTTP/1.
const MAX_HEADERS: usize = 100;

/// Requests of one connection at once, over HTTP/2.
const MAX_STREAMS: u32 = 256;

/// Bytes of one request that are kept before they are read, over HTTP/2.
const STREAM_WINDOW: u32 = 64 << 10;

/// The same for all requests of a connection.
const WINDOW: u32 = 256 << 10;

/// Bytes of one answer that are kept for a client that does not read, over HTTP/2.
const SEND: usize = 64 << 10;

/// Time after which a quiet HTTP/2 connection, or one of Redis' protocol, is asked whether its
/// client is still there, and time for the answer.
const PING: Duration = Duration::from_secs(30);

/// Times that a client of Redis' protocol is asked.
const ASKED: u32 = 3;

/// Time for requests under way after the process was asked to stop: as long as an answer may be
/// held back, and a bit.
const FAREWELL: Duration = Duration::from_secs(65);

/// Time for an answer to be sent after the process was asked to stop.
const QUIET: Duration = Duration::from_millis(500);

/// Time for a request that is on its way when the process is asked to stop: a first one, and a
/// further one. Over HTTP/1 a connection that is closed then would lose it; over HTTP/2 the server
/// names the last request that it took (GOAWAY, RFC 9113, 6.8).
const FIRST: Duration = Duration::from_millis(500);
const NEXT: Duration = Duration::from_millis(100);

/// Time before the next try where a connection cannot be accepted.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) service: Arc<Service>,
    pub(crate) grpc: Arc<Grpc>,
}

/// Accepts connections and answers their requests, until `stop` says so; then those under way end.
/// `thread` is the number of the calling thread.
pub(crate) async fn serve(
    answers: Answers,
    listeners: Vec<(Speaks, Listener)>,
    most: usize,
    stop: watch::Receiver<bool>,
    thread: usize,
) -> io::Result<()> {
    let local = LocalSet::new();
    let grpc = Arc::clone(&answers.grpc);
    let service = Arc::clone(&answers.service);
    let memory = service.memory.get(thread).cloned().unwrap_or_else(|| Memory::new(MEMORY));
    local.spawn_local(async move { service.lateness.watch(thread).await });
    let connections = Rc::new(Connections {
        answers,
        open: RefCell::default(),
        memory,
        failures: RefCell::default(),
        most,
        stop: stop.clone(),
    });
    local.spawn_local(Rc::clone(&connections).relieve());
    local
        .run_until(async {
            grpc.report(true).await;
            let mut accepting = JoinSet::new();
            for (speaks, listener) in listeners {
                let connections = Rc::clone(&connections);
                match listener {
                    Listener::Tcp(listener) => {
                        let listener = TcpListener::from_std(listener)?;
                        accepting.spawn_local(connections.accept_tcp(speaks, listener));
                    }
                    Listener::Unix(listener) => {
                        let listener = UnixListener::from_std(listener)?;
                        accepting.spawn_local(connections.accept_unix(speaks, listener));
                    }
                }
            }
            let mut stop = stop;
            stopped(&mut stop).await;
            grpc.report(false).await;
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

struct Connection {
    task: AbortHandle,
    activity: Arc<Activity>,
}

struct Connections {
    answers: Answers,
    open: RefCell<Vec<Connection>>,
    memory: Arc<Memory>,
    /// Connections that could not be taken.
    failures: RefCell<Unsaid>,
    most: usize,
    stop: watch::Receiver<bool>,
}

impl Connections {
    async fn accept_tcp(self: Rc<Self>, speaks: Speaks, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Err(error) = set_options(speaks, &stream) {
                        tracing::debug!(%error, "an option of a connection");
                    }
                    self.add(speaks, stream);
                }
                Err(error) => self.failed(&error).await,
            }
        }
    }

    async fn accept_unix(self: Rc<Self>, speaks: Speaks, listener: UnixListener) {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => self.add(speaks, stream),
                Err(error) => self.failed(&error).await,
            }
        }
    }

    /// Handles an error of accepting, such as too few file descriptors: one connection less makes
    /// room.
    async fn failed(&self, error: &io::Error) {
        let due = {
            let mut failures = self.failures.borrow_mut();
            failures.note(error.to_string());
            failures.due()
        };
        if let Some((count, error)) = due {
            tracing::warn!(
                "{count} connections could not be taken: {error}: raise the limit on open files \
                 (LimitNOFILE of the unit, ulimit -n), or lower --max-connections"
            );
        }
        self.evict();
        sleep(PAUSE).await;
    }

    fn add(&self, speaks: Speaks, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) {
        self.forget_ended();
        if self.open.borrow().len() >= self.most && !self.evict() {
            // All connections have a request that is being answered.
            self.answers.service.stats.evicted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let activity = Activity::new(&self.memory);
        let (answers, stop) = (self.answers.clone(), self.stop.clone());
        let task = match speaks {
            Speaks::Http => {
                tokio::task::spawn_local(connection(stream, answers, Arc::clone(&activity), stop))
            }
            Speaks::Resp => {
                tokio::task::spawn_local(of_redis(stream, answers, Arc::clone(&activity), stop))
            }
        };
        let task = task.abort_handle();
        self.open.borrow_mut().push(Connection { task, activity });
    }

    fn forget_ended(&self) {
        self.open.borrow_mut().retain(|connection| !connection.task.is_finished());
    }

    /// Ends the connection that seems to have been quiet for longest; false if all of them wait for
    /// answers.
    fn evict(&self) -> bool {
        self.end_first(Activity::quiet, &self.answers.service.stats.evicted)
    }

    /// Ends connections, those that hold most for longest first, whenever the requests under way
    /// hold too much.
    async fn relieve(self: Rc<Self>) {
        loop {
            self.memory.crowded.notified().await;
            let crowded = &self.answers.service.stats.crowded;
            while self.memory.is_crowded() && self.end_first(Activity::held, crowded) {}
        }
    }

    /// Ends the connection with the greatest rank, and counts it; false if none has one.
    fn end_first<R: Ord>(&self, rank: impl Fn(&Activity) -> Option<R>, ended: &AtomicU64) -> bool {
        let mut open = self.open.borrow_mut();
        let ranks = open.iter().enumerate();
        let ranks = ranks.filter_map(|(index, of)| Some((rank(&of.activity)?, index)));
        let Some((_, index)) = ranks.max_by(|(a, _), (b, _)| a.cmp(b)) else {
            return false;
        };
        let connection = open.swap_remove(index);
        connection.activity.cut();
        connection.task.abort();
        ended.fetch_add(1, Ordering::Relaxed);
        true
    }
}

fn set_options(speaks: Speaks, stream: &TcpStream) -> io::Result<()> {
    // Answers are small and are to go at once.
    stream.set_nodelay(true)?;
    if speaks == Speaks::Resp {
        sockopt::set_socket_keepalive(stream, true)?;
        sockopt::set_tcp_keepidle(stream, PING)?;
        sockopt::set_tcp_keepintvl(stream, PING / ASKED)?;
        sockopt::set_tcp_keepcnt(stream, ASKED)?;
    }
    Ok(())
}

/// Waits until the process is to end, or until nobody can ask for that any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    drop(stop.wait_for(|stopped| *stopped).await);
}

/// Waits until a connection had no request under way for so long that its last answer is gone.
async fn quiet(activity: &Activity) {
    while activity.is_busy(QUIET) {
        sleep(QUIET).await;
    }
}

/// Waits until a connection has had the time for a first request, and there was none.
async fn silent(activity: &Activity) {
    sleep(HEAD).await;
    if activity.asked().0 {
        std::future::pending::<()>().await;
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

/// Runs the requests of an HTTP/2 connection on its thread.
#[derive(Clone, Copy)]
struct Here;

impl<F: Future + 'static> Executor<F> for Here {
    fn execute(&self, request: F) {
        tokio::task::spawn_local(async { drop(request.await) });
    }
}

/// HTTP/1 and HTTP/2, whichever a client begins with.
fn protocols() -> auto::Builder<Here> {
    let mut builder = auto::Builder::new(Here);
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(WINDOW)
        .max_send_buf_size(SEND)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PING);
    builder
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    answers: Answers,
    activity: Arc<Activity>,
    stop: watch::Receiver<bool>,
) {
    let _open = Open::new(&answers.service);
    let (of_requests, stopping) = (Arc::clone(&activity), stop.clone());
    let answer = service_fn(move |request: Request<Incoming>| {
        let Answers { service, grpc } = answers.clone();
        let http2 = request.version() == Version::HTTP_2;
        let (under_way, request) = UnderWay::new(&of_requests, request, http2);
        let stopping = stopping.clone();
        async move {
            let is_grpc = grpc::is_meant(&request);
            let mut answer = if is_grpc {
                grpc.answer(&service.stats, request).await.map(Either::Right)
            } else {
                http::answer(&service, request).await.map(Either::Left)
            };
            if *stopping.borrow() && !http2 {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            // A stream of gRPC is served by its messages.
            under_way.answered(!is_grpc && answer.status() != StatusCode::REQUEST_TIMEOUT);
            Ok::<_, Infallible>(answer)
        }
    });
    let protocols = protocols();
    let mut connection = pin!(protocols.serve_connection(TokioIo::new(stream), answer));
    let close = auto::Connection::graceful_shutdown;
    let ended = ended(connection.as_mut(), close, &activity, stop).await;
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// A connection of Redis' protocol.
async fn of_redis(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    answers: Answers,
    activity: Arc<Activity>,
    stop: watch::Receiver<bool>,
) {
    let _open = Open::new(&answers.service);
    let closes = Cell::new(false);
    let connection = pin!(resp::serve(stream, &answers.service, &activity, &closes));
    let ended = ended(connection, |_| closes.set(true), &activity, stop).await;
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Runs a connection to its end, which comes soon if its client says nothing or the process is to
/// end: `close` then has it answer what is under way, and no more. None if it is cut off.
async fn ended<C: Future>(
    mut connection: Pin<&mut C>,
    close: impl FnOnce(Pin<&mut C>),
    activity: &Activity,
    mut stop: watch::Receiver<bool>,
) -> Option<C::Output> {
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = silent(activity) => None,
        () = stopped(&mut stop) => {
            let time = match activity.asked() {
                (false, _) => FIRST,
                (true, false) => NEXT,
                (true, true) => Duration::ZERO,
            };
            timeout(time, connection.as_mut()).await.ok()
        }
    };
    if ended.is_some() {
        return ended;
    }
    close(connection.as_mut());
    tokio::select! {
        ended = connection => Some(ended),
        () = quiet(activity) => None,
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use crate::limiter::Limiter;
    use crate::service::WaitingRoom;

    /// Bodies that come but for their last byte hold no more than there is room for: the connection
    /// that holds most for longest ends, and others are answered.
    #[tokio::test]
    async fn requests_under_way_hold_a_bounded_amount_of_memory() {
        let waiting = || WaitingRoom::new(Duration::ZERO, 1);
        let service = Service::new(Limiter::new(10).unwrap(), waiting(), waiting(), 1);
        let service = Arc::new(service);
        let grpc = Arc::new(Grpc::new(&service, false).unwrap());
        let (most, memory) = (200_000, Memory::new(200_000));
        let (_stop, stopped) = watch::channel(false);
        let connections = Rc::new(Connections {
            answers: Answers { service: Arc::clone(&service), grpc },
            open: RefCell::default(),
            memory: Arc::clone(&memory),
            failures: RefCell::default(),
            most: 100,
            stop: stopped,
        });
        let local = LocalSet::new();
        local.spawn_local(Rc::clone(&connections).relieve());
        local
            .run_until(async {
                let mut clients = Vec::new();
                let head = "POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 50001\r\n\r\n";
                for number in 0..12 {
                    let (mut client, server) = duplex(100_000);
                    connections.add(Speaks::Http, server);
                    client.write_all(head.as_bytes()).await.unwrap();
                    client.write_all(&vec![b' '; 50_000]).await.unwrap();
                    clients.push(client);
                    let (mut other, server) = duplex(1000);
                    connections.add(Speaks::Http, server);
                    let ask = b"GET /healthcheck HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
                    other.write_all(ask).await.unwrap();
                    let mut answer = String::new();
                    other.read_to_string(&mut answer).await.unwrap();
                    assert!(answer.ends_with("OK\n"), "{number}: {answer}");
                    assert!(memory.used() <= most, "{number}: {}", memory.used());
                }
                let [_, ended] = service.stats.evicted();
                assert!((8..=9).contains(&ended), "{ended}");
                // The first of them, whose clients see it.
                let mut first = clients.swap_remove(0);
                assert_eq!(first.read(&mut [0; 9]).await.unwrap(), 0);
                drop(clients);
                while memory.used() > 0 {
                    sleep(Duration::from_millis(1)).await;
                }
            })
            .await;
    }
}
