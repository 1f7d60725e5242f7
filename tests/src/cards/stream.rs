//! A TCP stream between two namespaces, of which a limit in bytes lets the first part pass.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use socket2::{Domain, Socket, Type};

use crate::netns::Netns;

/// Bytes that are sent.
pub const STREAM: u64 = 2_000_000;

/// Port at the end that receives.
const PORT: u16 = 9_001;

/// How long after the last byte another one may come: some of the repetitions that TCP makes.
const QUIET: Duration = Duration::from_secs(4);

/// The longest until the stream is there.
const CONNECTED_WITHIN: Duration = Duration::from_secs(30);

/// Sends [`STREAM`] bytes from one address to another; returns how many arrived.
///
/// # Errors
///
/// When there is no connection.
pub fn streamed(from: (&Netns, Ipv4Addr), to: (&Netns, Ipv4Addr)) -> Result<u64> {
    let target = SocketAddr::from((to.1, PORT));
    let listener = to.0.enter(|| TcpListener::bind(target))??;
    listener.set_nonblocking(true)?;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(from, target));
        let received = accepted(&listener).and_then(|stream| count(&stream));
        // Both have their ends closed by now.
        let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let received = received?;
        sent?;
        Ok(received)
    })
}

fn accepted(listener: &TcpListener) -> Result<TcpStream> {
    let deadline = Instant::now() + CONNECTED_WITHIN;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(QUIET))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        ensure!(Instant::now() < deadline, "no connection within {CONNECTED_WITHIN:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn count(mut stream: &TcpStream) -> Result<u64> {
    let mut buffer = vec![0; 1 << 16];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(received),
            Ok(bytes) => received += u64::try_from(bytes)?,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionReset) =>
            {
                return Ok(received);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error).context("receiving the stream"),
        }
    }
}

/// Sends until all is sent, or none of it goes any more.
fn send((netns, from): (&Netns, Ipv4Addr), target: SocketAddr) -> Result<()> {
    netns.enter(|| -> Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&target.into(), CONNECTED_WITHIN).context("connecting")?;
        // What is left when it is closed is not sent.
        socket.set_linger(Some(Duration::ZERO))?;
        socket.set_write_timeout(Some(QUIET))?;
        let mut stream = TcpStream::from(socket);
        let part = vec![0; 10_000];
        for _ in 0..STREAM / 10_000 {
            if let Err(error) = stream.write_all(&part) {
                let is_held = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                let is_closed =
                    matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset);
                ensure!(is_held || is_closed, "sending the stream: {error}");
                return Ok(());
            }
        }
        // It is in the kernel, and goes for as long as the socket is open.
        thread::sleep(QUIET * 3);
        Ok(())
    })?
}
