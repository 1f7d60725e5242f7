//! Sends the requests of the senders one after another, and records the result of each.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use socket2::{Domain, Socket, Type};

use super::bounds::Asked;
use super::plan::Sender;
use crate::clock;
use crate::interrupt::Interrupt;
use crate::netns::Netns;
use crate::veth::RECEIVER;

/// Longest wait for an answer. A banned source gets none.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest sleep before the next look whether the run was interrupted.
const LOOK: u64 = 20_000_000;

/// Results of a sender's requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Requests that were answered.
    pub asked: Vec<Asked>,
    /// Requests answered with 200.
    pub allowed: u64,
    /// Requests answered with 429.
    pub refused: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Requests answered after one without an answer.
    pub answered_later: u64,
}

impl Answers {
    /// Number of all requests.
    pub fn sent(&self) -> u64 {
        self.allowed + self.refused + self.unanswered
    }
}

/// Sends for a while and counts in `sent`.
///
/// # Errors
///
/// When an answer is neither the page nor a refusal, or a socket cannot send.
pub fn send(
    netns: &Netns,
    sender: &Sender,
    duration: Duration,
    sent: &AtomicU64,
    interrupt: &Interrupt,
) -> Result<Answers> {
    netns.move_in()?;
    let end = clock::now() + u64::try_from(duration.as_nanos())?;
    let (each, every) = sender.pace();
    let every = u64::try_from(every.as_nanos())?;
    let mut answers = Answers::default();
    let mut turn = clock::now();
    let mut addresses = sender.addresses.iter().cycle();
    while turn < end && !interrupt.is_set() {
        if turn > clock::now() {
            clock::sleep_until(turn.min(clock::now() + LOOK));
            continue;
        }
        for _ in 0..each {
            let from = *addresses.next().context("a sender has an address")?;
            one(from, sender.path.text(), &mut answers)
                .with_context(|| format!("a request of {from} for {}", sender.path.text()))?;
            sent.fetch_add(1, Ordering::Relaxed);
        }
        // A busy machine leaves turns out: no sender exceeds its pace.
        turn = (turn + every).max(clock::now());
    }
    Ok(answers)
}

/// Sends one request and counts its result.
fn one(from: IpAddr, path: &str, answers: &mut Answers) -> Result<()> {
    let sent = clock::now();
    let Some(status) = status(from, path)? else {
        answers.unanswered += 1;
        return Ok(());
    };
    answers.asked.push(Asked { sent, answered: clock::now() });
    answers.answered_later += u64::from(answers.unanswered > 0);
    match status {
        200 => answers.allowed += 1,
        429 => answers.refused += 1,
        other => bail!("status {other}: see nginx.log"),
    }
    Ok(())
}

/// Status of an answer; `None` if no answer comes.
fn status(from: IpAddr, path: &str) -> Result<Option<u16>> {
    let to: IpAddr = match from {
        IpAddr::V4(_) => RECEIVER.ipv4.into(),
        IpAddr::V6(_) => RECEIVER.ipv6.into(),
    };
    let socket = Socket::new(Domain::for_address((from, 0).into()), Type::STREAM, None)?;
    // Data of a connection that a ban cuts off must not be sent again later.
    socket.set_linger(Some(Duration::ZERO))?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    let answer = || -> std::io::Result<String> {
        socket.connect_timeout(&SocketAddr::from((to, 80)).into(), PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut stream = TcpStream::from(socket);
        write!(stream, "GET {path} HTTP/1.0\r\nhost: site\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    match answer() {
        Ok(answer) => {
            let status = answer.split(' ').nth(1).context("no status")?.parse()?;
            Ok(Some(status))
        }
        Err(error) if [ErrorKind::TimedOut, ErrorKind::WouldBlock].contains(&error.kind()) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Sends from all senders at once.
///
/// # Errors
///
/// As [`send`], from any sender.
pub fn send_all(
    netns: &Netns,
    senders: &[Sender],
    duration: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<Answers>> {
    let sent = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = senders
            .iter()
            .map(|sender| scope.spawn(|| send(netns, sender, duration, &sent, interrupt)))
            .collect();
        let started = clock::now();
        let seconds = |from| (clock::now() - from) / 1_000_000_000;
        let mut reported = 0;
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            if seconds(started) > reported {
                reported = seconds(started);
                eprintln!("{reported:3} s   {} requests", sent.load(Ordering::Relaxed));
            }
        }
        let join = |thread: thread::ScopedJoinHandle<'_, Result<Answers>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    })
}
