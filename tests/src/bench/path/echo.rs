//! A server that answers, and a client that asks it at regular times, whether or not it was answered.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::testbed::Testbed;
use crate::veth::RECEIVER;
use crate::{clock, cpu};

const PORT: u16 = 7;

/// Real-time priorities: both come before the generator and the receiving end's NAPI thread, on whose CPUs they are.
/// What is measured is the way of a packet, and not the queue for a CPU.
const PRIORITY: i32 = 3;

/// How long an answer is waited for after the last question.
const GRACE: Duration = Duration::from_millis(200);

/// How often a socket looks whether it is over.
const LOOK: Duration = Duration::from_millis(20);

/// What became of the questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    /// How many were asked.
    pub(super) questions: u64,
    /// Of each that was answered, nanoseconds from when it was due.
    pub(super) answers: Vec<u64>,
}

/// Asks `per_second` questions a second from `client`, which `server` answers, each on its CPU.
pub(super) fn ask(
    bed: &Testbed,
    [client, server]: [usize; 2],
    per_second: u32,
    duration: Duration,
) -> Result<Asked> {
    let over = AtomicBool::new(false);
    let answering = bed.receiver.enter(|| UdpSocket::bind((RECEIVER.ipv4, PORT)))??;
    let asking = bed.sender.enter(|| UdpSocket::bind("0.0.0.0:0"))??;
    asking.connect((RECEIVER.ipv4, PORT)).context("no way to the server")?;
    for socket in [&answering, &asking] {
        socket.set_read_timeout(Some(LOOK))?;
    }
    let urgent = |cpu: usize| {
        cpu::pin(None, cpu)?;
        cpu::real_time(None, PRIORITY)
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            urgent(server)?;
            answer(&answering, &over)
        });
        let reader = scope.spawn(|| {
            urgent(client)?;
            collect(&asking, &over)
        });
        let writer = scope.spawn(|| {
            urgent(client)?;
            write(&asking, per_second, duration)
        });
        let questions = join(writer);
        thread::sleep(GRACE);
        over.store(true, Ordering::Relaxed);
        let (answered, answers) = (join(server), join(reader));
        answered?;
        Ok(Asked { questions: questions?, answers: answers? })
    })
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Sends each question when it is due, with the time at which it was.
fn write(socket: &UdpSocket, per_second: u32, duration: Duration) -> Result<u64> {
    let period = 1_000_000_000u64.checked_div(per_second.into()).context("no questions")?;
    let mut due = clock::now() + period;
    let end = due + u64::try_from(duration.as_nanos())?;
    let mut questions = 0;
    while due < end {
        clock::sleep_until(due);
        match socket.send(&due.to_ne_bytes()) {
            Ok(_) => {}
            // The cable's queue is full: it is lost, as any frame.
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
            Err(error) => return Err(error).context("cannot ask"),
        }
        questions += 1;
        due += period;
    }
    Ok(questions)
}

fn answer(socket: &UdpSocket, over: &AtomicBool) -> Result<()> {
    let mut buffer = [0; 64];
    while !over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut buffer) {
            Ok((read, from)) => {
                let sent = socket.send_to(buffer.get(..read).unwrap_or_default(), from);
                sent.context("cannot answer")?;
            }
            Err(error) if is_timeout(error.kind()) => {}
            Err(error) => return Err(error).context("cannot hear the question"),
        }
    }
    Ok(())
}

fn collect(socket: &UdpSocket, over: &AtomicBool) -> Result<Vec<u64>> {
    let mut answers = Vec::new();
    let mut buffer = [0; 8];
    while !over.load(Ordering::Relaxed) {
        match socket.recv(&mut buffer) {
            Ok(_) => answers.push(clock::now().saturating_sub(u64::from_ne_bytes(buffer))),
            Err(error) if is_timeout(error.kind()) => {}
            Err(error) => return Err(error).context("cannot hear the answer"),
        }
    }
    Ok(answers)
}

const fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
