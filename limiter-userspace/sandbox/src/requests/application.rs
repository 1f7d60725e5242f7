//! The small server behind nginx. It counts the requests by address, and knows nothing of limiter.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use socket2::{Domain, Socket, Type};

use crate::netns::Netns;

/// Pause between two looks whether to end.
const LOOK: Duration = Duration::from_millis(50);

/// Most bytes of a request's head.
const MOST: usize = 16 << 10;

/// Requests that came, by the address that nginx names.
pub type Came = HashMap<IpAddr, u64>;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Application {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Came>>>,
}

impl Application {
    /// Listens at a free port of a namespace's loopback.
    ///
    /// # Errors
    ///
    /// When listening fails.
    pub fn start(netns: &Netns) -> Result<Self> {
        let listener = netns.enter(|| -> Result<TcpListener> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
            socket.listen(128)?;
            // The timeout also applies to `accept`.
            socket.set_read_timeout(Some(LOOK))?;
            Ok(socket.into())
        })??;
        let port = listener.local_addr()?.port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::Builder::new().name("application".into()).spawn(move || {
            let mut came = Came::new();
            while !stopped.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => *came.entry(answer(stream)?).or_default() += 1,
                    Err(error)
                        if [ErrorKind::WouldBlock, ErrorKind::Interrupted]
                            .contains(&error.kind()) => {}
                    Err(error) => return Err(error).context("the application"),
                }
            }
            Ok(came)
        })?;
        Ok(Self { port, stop, thread: Some(thread) })
    }

    /// Port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends the server; returns the requests by address.
    ///
    /// # Errors
    ///
    /// Says why the server ended before.
    pub fn finish(mut self) -> Result<Came> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(came)) => came,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(Came::new()),
        }
    }
}

impl Drop for Application {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Its error does not matter: the run has failed already.
            let _ended = thread.join();
        }
    }
}

/// Answers a request; returns the address that it names.
fn answer(mut stream: TcpStream) -> Result<IpAddr> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut head = Vec::new();
    let mut chunk = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST {
        let read = stream.read(&mut chunk).context("nginx sent no request")?;
        head.extend(&chunk[..read]);
        if read == 0 {
            break;
        }
    }
    let head = String::from_utf8_lossy(&head);
    let named = head.lines().find_map(|line| line.strip_prefix("X-Real-IP: "));
    let address = named.with_context(|| format!("nginx named no address: {head}"))?.parse()?;
    stream.write_all(b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\nok\n")?;
    Ok(address)
}
