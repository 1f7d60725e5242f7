//! The client side: one request, one answer, or one clear error.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::ErrorBody;

/// Error of a request without an answer, or without a good one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// There is nothing at the path.
    #[error("no daemon at {}: start one with `limiter run --limit 1000/s` or `limiter run --rules FILE`, or name its socket with --socket", .0.display())]
    Missing(PathBuf),
    /// Nobody listens at the socket.
    #[error(
        "the daemon at {} is gone: start it again, with `systemctl restart limiter` or the same \
         `limiter run`",
        .0.display()
    )]
    Gone(PathBuf),
    /// This user may not connect.
    #[error("no permission to use {}: run the command as root or as a member of the socket's group", .0.display())]
    Permission(PathBuf),
    /// The path is not a socket.
    #[error("{} is not a socket: name the daemon's with --socket", .0.display())]
    NotASocket(PathBuf),
    /// The daemon hangs.
    #[error("the daemon at {} did not answer within {seconds} s: look at its log", socket.display())]
    Timeout {
        /// Path of the socket.
        socket: PathBuf,
        /// Time that the client waited.
        seconds: u64,
    },
    /// The system refused.
    #[error("cannot talk to {}: {source}: check --socket", socket.display())]
    System {
        /// Path of the socket.
        socket: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The program that listens there is not this version's daemon.
    #[error("{} does not answer like a limiter daemon ({detail}): check --socket and the daemon's version", socket.display())]
    Protocol {
        /// Path of the socket.
        socket: PathBuf,
        /// The unexpected part of the answer.
        detail: String,
    },
    /// The answer had begun, and its end did not come.
    #[error("the daemon at {} ended, or cut its answer off: see its log", .0.display())]
    CutOff(PathBuf),
    /// An error after a change was sent: it is unknown whether the change was made.
    #[error(
        "{0}; it may still happen, or have happened: see what is in force with `limiter status`"
    )]
    Uncertain(#[source] Box<Self>),
    /// The daemon refused.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The daemon's message.
        message: String,
    },
}

impl ClientError {
    /// Returns true if there is no daemon, so that the pinned maps may be changed without one.
    pub const fn no_daemon(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::Gone(_))
    }

    /// Returns true if the daemon itself failed, rather than refused. No answer counts as a
    /// failure, too.
    pub const fn is_failure(&self) -> bool {
        match self {
            Self::Uncertain(_) | Self::Timeout { .. } | Self::CutOff(_) => true,
            Self::Refused { status, .. } => *status >= 500,
            _ => false,
        }
    }

    /// Returns true if there is, or was, a daemon that did not answer.
    pub const fn no_answer(&self) -> bool {
        matches!(
            self,
            Self::Uncertain(_) | Self::Timeout { .. } | Self::Protocol { .. } | Self::CutOff(_)
        )
    }
}

/// Talks to the daemon at a socket; calls block.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    patience: Duration,
}

impl Client {
    /// Makes a client that waits at most `patience` for each whole answer.
    pub const fn new(socket: PathBuf, patience: Duration) -> Self {
        Self { socket, patience }
    }

    /// Returns this client with a patience of at most `patience`.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Self {
        Self { patience: patience.min(self.patience), ..self.clone() }
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Process that listens, even if it does not answer. Only a process of root or of this user
    /// counts, and only if it can be seen from here.
    pub fn listener(&self) -> Option<u32> {
        let stream = dial(&self.socket, self.patience).ok()?;
        let peer = rustix::net::sockopt::socket_peercred(&stream).ok()?;
        let trusted = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
        u32::try_from(peer.pid.as_raw_nonzero().get()).ok().filter(|_| trusted)
    }

    /// Sends a `GET`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, Bytes::new())
    }

    /// Sends a `GET` with a query.
    pub fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.get(&self.with(path, query)?)
    }

    /// Sends a `PUT` with a document.
    pub fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.protocol(&error))?;
        self.change(Method::PUT, path, body.into())
    }

    /// Sends a `POST` with a query and without a document.
    pub fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.change(Method::POST, &self.with(path, query)?, Bytes::new())
    }

    /// Sends a `POST` with a document that changes nothing.
    pub fn post_document<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(|error| self.protocol(&error))?;
        self.call(Method::POST, path, body.into())
    }

    /// Sends a `DELETE` with a query.
    pub fn delete<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &impl Serialize,
    ) -> Result<T, ClientError> {
        self.change(Method::DELETE, &self.with(path, query)?, Bytes::new())
    }

    /// The path with a query.
    fn with(&self, path: &str, query: &impl Serialize) -> Result<String, ClientError> {
        let query = serde_urlencoded::to_string(query).map_err(|error| self.protocol(&error))?;
        Ok(if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") })
    }

    /// Sends a `GET` for an answer that comes line by line: `each` gets a line and returns whether
    /// to go on. Only the beginning of the answer has to come in time.
    pub fn follow(
        &self,
        path: &str,
        query: &impl Serialize,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ClientError> {
        let path = self.with(path, query)?;
        self.runtime()?.block_on(async {
            let opening = self.open(Method::GET, &path, Bytes::new());
            let (response, driver) = self.in_time(opening).await?;
            let status = response.status();
            let mut body = response.into_body();
            if !status.is_success() {
                let body = body.collect().await.map_err(|_cut| self.cut_off())?;
                return Err(self.refused(status, &body.to_bytes()));
            }
            let mut begun = Vec::new();
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|_cut| self.cut_off())?;
                let Ok(data) = frame.into_data() else { continue };
                begun.extend_from_slice(&data);
                while let Some(end) = begun.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = begun.drain(..=end).collect();
                    if !each(&line) {
                        driver.abort();
                        return Ok(());
                    }
                }
            }
            Ok(())
        })
    }

    /// Sends a `POST` with a document for an answer without an end of its own: `each` gets a part
    /// and returns whether to go on. Only the beginning of the answer has to come in time. On a
    /// signal to end, a `DELETE` of the same path makes the daemon end the answer, and the rest of
    /// it is still read. Returns the number in a header of the answer.
    pub fn stream(
        &self,
        path: &str,
        body: &impl Serialize,
        header: &str,
        mut each: impl FnMut(&[u8]) -> bool,
    ) -> Result<Option<u64>, ClientError> {
        let body: Bytes = serde_json::to_vec(body).map_err(|error| self.protocol(&error))?.into();
        let system = |source| self.system(source);
        self.runtime()?.block_on(async {
            // Installed before the request: from then on a signal must end it in order.
            let mut interrupt = signal(SignalKind::interrupt()).map_err(system)?;
            let mut terminate = signal(SignalKind::terminate()).map_err(system)?;
            let (response, driver) = self.in_time(self.open(Method::POST, path, body)).await?;
            let status = response.status();
            let number = response.headers().get(header).and_then(|value| value.to_str().ok());
            let number = number.and_then(|number| number.parse().ok());
            let mut body = response.into_body();
            if !status.is_success() {
                let body = body.collect().await.map_err(|_cut| self.cut_off())?;
                return Err(self.refused(status, &body.to_bytes()));
            }
            let mut stopped = false;
            loop {
                tokio::select! {
                    frame = body.frame() => {
                        let Some(frame) = frame else { return Ok(number) };
                        let frame = frame.map_err(|_cut| self.cut_off())?;
                        if let Ok(data) = frame.into_data()
                            && !each(&data)
                        {
                            driver.abort();
                            return Ok(number);
                        }
                    }
                    () = either(&mut interrupt, &mut terminate) => {
                        if stopped {
                            driver.abort();
                            return Ok(number);
                        }
                        stopped = true;
                        self.in_time(self.exchange(Method::DELETE, path, Bytes::new())).await?;
                    }
                }
            }
        })
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice(body) {
            Ok(ErrorBody { error: message }) => {
                ClientError::Refused { status: status.as_u16(), message }
            }
            Err(_) => self.protocol(&status),
        }
    }

    /// Sends a request that changes something. If it fails after the daemon may have received it,
    /// it is unknown whether the change was made.
    fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        self.call(method, path, body).map_err(|error| {
            if error.no_answer() { ClientError::Uncertain(error.into()) } else { error }
        })
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let exchange = self.in_time(self.exchange(method, path, body));
        let (status, body) = self.runtime()?.block_on(exchange)?;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| self.protocol(&error));
        }
        Err(self.refused(status, &body))
    }

    fn runtime(&self) -> Result<Runtime, ClientError> {
        Builder::new_current_thread().enable_all().build().map_err(|source| self.system(source))
    }

    /// Waits no longer than the patience lasts.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let seconds = self.patience.as_secs();
        let late = || ClientError::Timeout { socket: self.socket.clone(), seconds };
        timeout(self.patience, answer).await.unwrap_or_else(|_elapsed| Err(late()))
    }

    fn system(&self, source: io::Error) -> ClientError {
        ClientError::System { socket: self.socket.clone(), source }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (response, driver) = self.open(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|_cut| self.cut_off())?;
        driver.abort();
        Ok((status, body.to_bytes()))
    }

    /// Sends the request; returns the beginning of the answer and the task that drives the
    /// connection.
    async fn open(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(Response<Incoming>, JoinHandle<hyper::Result<()>>), ClientError> {
        let stream = connect(&self.socket, self.patience)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| self.protocol(&error))?;
        // The task ends by itself when the answer is read.
        let driver = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "limiter")
            .header("content-type", "application/json")
            .body(Full::new(body))
            .map_err(|error| self.protocol(&error))?;
        let response = sender.send_request(request).await.map_err(|error| self.protocol(&error))?;
        Ok((response, driver))
    }

    fn cut_off(&self) -> ClientError {
        ClientError::CutOff(self.socket.clone())
    }

    fn protocol(&self, detail: &dyn std::fmt::Display) -> ClientError {
        ClientError::Protocol { socket: self.socket.clone(), detail: detail.to_string() }
    }
}

/// Waits for the first of two signals.
async fn either(one: &mut Signal, other: &mut Signal) {
    tokio::select! {
        _ = one.recv() => {}
        _ = other.recv() => {}
    }
}

/// Connects, and waits at most `patience` for a place in the listener's queue, which may be full
/// when the daemon hangs. Without waiting, the kernel would refuse the connection at once.
fn dial(path: &Path, patience: Duration) -> io::Result<std::os::unix::net::UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn connect(path: &Path, patience: Duration) -> Result<UnixStream, ClientError> {
    // Connecting to a plain file fails with "connection refused", as with a dead daemon.
    if let Ok(file) = fs::metadata(path)
        && !file.file_type().is_socket()
    {
        return Err(ClientError::NotASocket(path.to_owned()));
    }
    let connected = || -> io::Result<UnixStream> {
        let stream = dial(path, patience)?;
        stream.set_nonblocking(true)?;
        UnixStream::from_std(stream)
    };
    connected().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ClientError::Missing(path.to_owned()),
        io::ErrorKind::ConnectionRefused => ClientError::Gone(path.to_owned()),
        io::ErrorKind::PermissionDenied => ClientError::Permission(path.to_owned()),
        io::ErrorKind::WouldBlock => {
            ClientError::Timeout { socket: path.to_owned(), seconds: patience.as_secs() }
        }
        _ => ClientError::System { socket: path.to_owned(), source },
    })
}
