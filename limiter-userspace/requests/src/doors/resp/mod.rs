//! The protocol of Redis: its commands are read, decided and answered in their order, any number of
//! them at once.

mod commands;
mod wire;

use std::cell::Cell;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout, timeout_at};

use crate::doors::under_way::{Activity, Doing};
use crate::reports::stats::Why;
use crate::service::Service;
use commands::Session;
use wire::{Lost, Out};

/// Bytes that are read at once, and that a quiet connection keeps room for.
const READ: usize = 8 << 10;

/// Bytes of answers after which they are sent before more commands are answered.
const MOST_OUT: usize = 64 << 10;

/// Time for a command that has begun, as for the body of a request.
const COMMAND: Duration = Duration::from_secs(5);

/// Time for a client to read its answers. Until then nothing more of it is read.
const SEND: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_mins(1) };

/// What a connection holds, which ends with it.
struct Held<'a>(&'a Activity);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.does(Doing::Waiting, 0);
    }
}

/// Answers the commands of a connection, until its client ends it, or `closes` says so.
pub(crate) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    service: &Service,
    activity: &Activity,
    closes: &Cell<bool>,
) -> io::Result<()> {
    let _held = Held(activity);
    let mut answering = Answering { service, activity, session: Session::default() };
    let (mut input, mut out) = (Vec::new(), Out::default());
    // When the command began that has not arrived yet.
    let mut begun: Option<Instant> = None;
    loop {
        input.reserve(READ);
        let read = stream.read_buf(&mut input);
        let read = match begun {
            None => Ok(read.await?),
            Some(begun) => match timeout_at(begun + COMMAND, read).await {
                Ok(read) => Ok(read?),
                Err(_) => Err(Lost::Late),
            },
        };
        let mut used = 0;
        let ended = loop {
            let rest = input.get(used..).unwrap_or_default();
            let answered = match read {
                Ok(0) => return Ok(()),
                Ok(_) => answering.answer(rest, &mut out).await,
                Err(lost) => Answered { used: 0, next: Err(lost) },
            };
            used += answered.used;
            if let Err(lost) = answered.next {
                service.stats.refuse(match lost {
                    Lost::Late => Why::TooSlow,
                    Lost::Bytes => Why::TooLong,
                    _ => Why::Request,
                });
                out.error(&format!("ERR Protocol error: {lost}"));
            }
            if out.bytes.is_empty() {
                break false;
            }
            activity.does(Doing::Waiting, input.len() + out.bytes.len());
            let sent = timeout(SEND, stream.write_all(&out.bytes)).await;
            let Ok(()) = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) else {
                return Ok(());
            };
            out.bytes.clear();
            out.bytes.shrink_to(READ);
            match answered.next {
                Ok(Next::More) => {}
                Ok(Next::Command) => break false,
                Ok(Next::End) | Err(_) => break true,
            }
        };
        input.drain(..used);
        if ended || closes.get() && input.is_empty() {
            return stream.shutdown().await;
        }
        if used > 0 {
            begun = None;
        }
        if input.is_empty() {
            input.shrink_to(READ);
            activity.does(Doing::Waiting, 0);
        } else {
            begun.get_or_insert_with(Instant::now);
            activity.does(Doing::Receiving, input.len());
        }
    }
}

/// What comes behind commands that were answered.
enum Next {
    /// The rest of a command, or a new one.
    Command,
    /// More commands that have arrived: these answers are to be sent first.
    More,
    /// Nothing.
    End,
}

struct Answered {
    /// Bytes of the commands.
    used: usize,
    next: Result<Next, Lost>,
}

struct Answering<'a> {
    service: &'a Service,
    activity: &'a Activity,
    session: Session,
}

impl Answering<'_> {
    /// Answers the commands that have arrived.
    async fn answer(&mut self, input: &[u8], out: &mut Out) -> Answered {
        let Self { service, activity, session } = self;
        let (mut used, mut parts) = (0, Vec::new());
        // Those that came together are decided at one moment.
        let mut moment = None;
        let next = loop {
            let rest = input.get(used..).unwrap_or_default();
            match wire::command(rest, &mut parts) {
                Ok(Some((command, length))) => {
                    if used == 0 {
                        activity.does(Doing::Answering, input.len());
                    }
                    session.answer(service, &command, &mut moment, out).await;
                    used += length;
                }
                Ok(None) => break Ok(Next::Command),
                Err(lost) => break Err(lost),
            }
            if session.ends {
                break Ok(Next::End);
            }
            if out.bytes.len() >= MOST_OUT {
                break Ok(Next::More);
            }
        };
        Answered { used, next }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::runtime::Builder;

    use super::*;
    use crate::doors::under_way::{MEMORY, Memory};
    use crate::limiter::Limiter;
    use crate::service::WaitingRoom;

    #[test]
    fn a_client_that_reads_no_answers_is_cut_off() {
        let waiting = || WaitingRoom::new(Duration::ZERO, 1);
        let service = Service::new(Limiter::new(1).unwrap(), waiting(), waiting(), 1);
        let memory = Memory::new(MEMORY);
        let (mut client, server) = duplex(64);
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let (activity, closes) = (Activity::new(&memory), Cell::new(false));
            let begin = Instant::now();
            let commands = b"*1\r\n$4\r\nPING\r\n".repeat(100);
            let serving = serve(server, &service, &activity, &closes);
            let (answered, sent) = tokio::join!(serving, client.write_all(&commands));
            assert!(answered.is_ok() && sent.is_err() && begin.elapsed() >= SEND);
        });
    }
}
