//! Applications that ask a server over RESP: as fast as it answers, or at a rate. What passes is
//! counted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cpu;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{MissedTickBehavior, interval};

pub(super) const CONNECTIONS: usize = 16;

/// Time between two groups of commands that are sent at a rate.
const TICK: Duration = Duration::from_millis(1);

/// Hits of a key that may pass. Within a run, none comes back.
pub(super) const BURST: usize = 8;
const PERIOD: &str = "864000";

/// Which keys are asked about: so many in turn, each so often; then others.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) many: usize,
    pub(super) hits: usize,
}

impl Keys {
    fn key(self, number: usize) -> String {
        // A prime step, so that keys come in no order.
        let user = number.wrapping_mul(7_919) % self.many;
        format!("user-{:05}-{user:08}", number / (self.many * self.hits))
    }

    /// How many of the first commands pass.
    fn pass(self, commands: usize) -> usize {
        let round = self.many * self.hits;
        let (hits, more) = (commands % round / self.many, commands % self.many);
        let whole = commands / round * self.many * self.hits.min(BURST);
        whole + more * (hits + 1).min(BURST) + (self.many - more) * hits.min(BURST)
    }
}

/// What is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Nothing: the least that an answer costs.
    Ping,
    /// The command of throttlecrab, which limiter has, too.
    Throttle,
    /// The script with a hash, which answers as that command.
    Script(String),
}

impl Ask {
    fn write(&self, key: &str, to: &mut Vec<u8>) -> Result<()> {
        let burst = BURST.to_string();
        let limit = [key, &burst, &burst, PERIOD];
        let before: &[&str] = match self {
            Self::Ping => {
                to.extend_from_slice(b"*1\r\n$4\r\nPING\r\n");
                return Ok(());
            }
            Self::Throttle => &["THROTTLE"],
            Self::Script(hash) => &["EVALSHA", hash, "1"],
        };
        write!(to, "*{}\r\n", before.len() + limit.len())?;
        for part in before.iter().chain(&limit) {
            write!(to, "${}\r\n{part}\r\n", part.len())?;
        }
        Ok(())
    }
}

/// Answers of a connection.
#[derive(Debug, Default)]
struct Answers {
    bytes: Vec<u8>,
    /// Those that passed.
    passed: usize,
}

impl Answers {
    /// Reads what has come, and returns how many answers that were.
    async fn read(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Result<usize> {
        ensure!(from.read_buf(&mut self.bytes).await? > 0, "the server ended the connection");
        let (mut rest, mut answers) = (&self.bytes[..], 0);
        while let Some((passes, after)) = answer(rest)? {
            (rest, answers) = (after, answers + 1);
            self.passed += usize::from(passes);
        }
        let used = self.bytes.len() - rest.len();
        self.bytes.drain(..used);
        Ok(answers)
    }
}

fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes[..end].strip_suffix(b"\r")?, &bytes[end + 1..]))
}

/// The answer at the beginning, if all of it is there: true if the first of its five numbers is 1.
fn answer(bytes: &[u8]) -> Result<Option<(bool, &[u8])>> {
    let Some((first, mut rest)) = line(bytes) else { return Ok(None) };
    if first == b"+PONG" {
        return Ok(Some((true, rest)));
    }
    ensure!(first == b"*5", "an answer that is none: {}", first.escape_ascii());
    let mut passes = None;
    for _number in 0..5 {
        let Some((number, after)) = line(rest) else { return Ok(None) };
        passes.get_or_insert(number == b":1");
        rest = after;
    }
    Ok(passes.map(|passes| (passes, rest)))
}

/// When the last command is sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    /// For so long.
    Time(Duration),
    /// So many.
    Commands(usize),
}

/// Runs on a thread of its own, kept on a CPU.
fn on<T: Send + 'static>(
    cpu: usize,
    address: SocketAddr,
    work: impl AsyncFnOnce(Vec<TcpStream>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let thread = std::thread::spawn(move || {
        cpu::pin(None, cpu)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let mut streams = Vec::new();
            for _ in 0..CONNECTIONS {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                streams.push(stream);
            }
            work(streams).await
        })
    });
    thread.join().map_err(|_panic| anyhow::anyhow!("a thread panicked"))?
}

/// Asks as fast as answers come, in pipelines of so many commands; returns how many came.
///
/// # Errors
///
/// When more or fewer pass than the limits say, too.
pub(super) fn fast(
    cpu: usize,
    address: SocketAddr,
    ask: Ask,
    (keys, pipeline, until): (Keys, usize, Until),
) -> Result<usize> {
    let is_ping = matches!(ask, Ask::Ping);
    let (asked, passed) = on(cpu, address, async move |streams| {
        let begin = Instant::now();
        let asked = Rc::new(Cell::new(0));
        let goes_on = move |asked: usize| match until {
            Until::Time(time) => begin.elapsed() < time,
            Until::Commands(most) => asked < most,
        };
        let mut askers = JoinSet::new();
        for mut stream in streams {
            let (ask, asked) = (ask.clone(), Rc::clone(&asked));
            askers.spawn_local(async move {
                let (mut answers, mut commands) = (Answers::default(), Vec::new());
                while goes_on(asked.get()) {
                    commands.clear();
                    for number in asked.get()..asked.get() + pipeline {
                        ask.write(&keys.key(number), &mut commands)?;
                    }
                    asked.set(asked.get() + pipeline);
                    stream.write_all(&commands).await?;
                    let mut answered = 0;
                    while answered < pipeline {
                        answered += answers.read(&mut stream).await?;
                    }
                }
                Ok::<_, anyhow::Error>(answers.passed)
            });
        }
        let mut passed = 0;
        while let Some(asker) = askers.join_next().await {
            passed += asker??;
        }
        Ok((asked.get(), passed))
    })?;
    check(is_ping, keys, asked, passed)?;
    Ok(asked)
}

fn check(is_ping: bool, keys: Keys, asked: usize, passed: usize) -> Result<()> {
    let wanted = if is_ping { asked } else { keys.pass(asked) };
    ensure!(passed == wanted, "of {asked} commands {passed} passed, and not {wanted}");
    Ok(())
}

/// Asks at a rate in commands a second, whether answers come or not; returns the time to each
/// answer in microseconds, sorted.
///
/// # Errors
///
/// As [`fast`].
pub(super) fn paced(
    cpu: usize,
    address: SocketAddr,
    ask: Ask,
    keys: Keys,
    (rate, time): (f64, Duration),
) -> Result<Vec<f64>> {
    let is_ping = matches!(ask, Ask::Ping);
    let commands = rate * time.as_secs_f64();
    let total = (0..u32::MAX).take_while(|sent| f64::from(*sent) < commands).count();
    let (mut times, passed) = on(cpu, address, async move |streams| {
        let (mut readers, mut connections) = (JoinSet::new(), Vec::new());
        for (number, stream) in streams.into_iter().enumerate() {
            let (mut reader, writer) = stream.into_split();
            let waiting = Rc::new(RefCell::new(VecDeque::new()));
            connections.push((writer, Rc::clone(&waiting), Vec::new()));
            let own = total.saturating_sub(number).div_ceil(CONNECTIONS);
            readers.spawn_local(async move {
                let (mut answers, mut times) = (Answers::default(), Vec::with_capacity(own));
                while times.len() < own {
                    for _answer in 0..answers.read(&mut reader).await? {
                        let sent: Option<Instant> = waiting.borrow_mut().pop_front();
                        let sent = sent.context("an answer to no command")?;
                        times.push(sent.elapsed().as_secs_f64() * 1e6);
                    }
                }
                Ok::<_, anyhow::Error>((times, answers.passed))
            });
        }
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let (begin, mut sent) = (Instant::now(), 0);
        while sent < total {
            ticks.tick().await;
            let now = Instant::now();
            // Those that are due since the beginning.
            let due = rate * (now - begin).as_secs_f64();
            while sent < total && f64::from(u32::try_from(sent)?) < due {
                let (_, waiting, commands) = &mut connections[sent % CONNECTIONS];
                waiting.borrow_mut().push_back(now);
                ask.write(&keys.key(sent), commands)?;
                sent += 1;
            }
            for (writer, _, commands) in &mut connections {
                writer.write_all(commands).await?;
                commands.clear();
            }
        }
        let (mut times, mut passed) = (Vec::with_capacity(total), 0);
        while let Some(reader) = readers.join_next().await {
            let (own, of_it) = reader??;
            times.extend(own);
            passed += of_it;
        }
        Ok((times, passed))
    })?;
    times.sort_by(f64::total_cmp);
    check(is_ping, keys, times.len(), passed)?;
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_what_a_count_of_each_key_says() {
        let keys = Keys { many: 10, hits: 12 };
        let (mut counts, mut passed) = (std::collections::HashMap::new(), 0);
        for commands in 0..500 {
            assert_eq!(keys.pass(commands), passed, "{commands}");
            let count = counts.entry(keys.key(commands)).or_insert(0);
            *count += 1;
            passed += usize::from(*count <= BURST);
        }
    }

    #[test]
    fn an_answer_is_read_once_all_of_it_is_there() {
        let whole = b"*5\r\n:1\r\n:8\r\n:7\r\n:10\r\n:0\r\n+PONG\r\n";
        let (passes, rest) = answer(whole).unwrap().unwrap();
        assert!(passes && rest == b"+PONG\r\n");
        assert!(answer(&whole[..whole.len() - 8]).unwrap().is_none());
        assert!(answer(b"-ERR no\r\n").is_err());
    }
}
