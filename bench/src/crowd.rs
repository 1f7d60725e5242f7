//! A daemon whose tables hold a million sources that sent a packet each, over a cable.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::live_frames::{self, Family, LiveFrames, Load, Regular, Sources};
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

/// One packet keeps a source for a minute: anybody who has drained may leave for somebody new.
pub const RULES: &str = "descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 60, burst: 20}}\n";

/// Sources that the budgets are about.
pub const MILLION: u32 = 1_000_000;

const PER_SECOND: u32 = 250_000;

const PATIENCE: Duration = Duration::from_mins(1);

/// The place and the daemon.
#[derive(Debug)]
pub struct Crowd {
    /// To be closed after the limiter.
    pub bed: Testbed,
    /// The daemon.
    pub limiter: Limiter,
}

/// Frames of 60 bytes to the receiving end.
pub fn load(sources: Sources, frames: u64, per_second: Option<u32>) -> Load {
    Load {
        sources,
        family: Family::V4,
        length: 60,
        per_second,
        frames,
        duration: Duration::from_mins(10),
        regular: Vec::new(),
        place: None,
    }
}

impl Crowd {
    /// Starts the daemon and has so many sources send at least.
    ///
    /// # Errors
    ///
    /// When the daemon does not start, or does not track them.
    pub fn gather(sources: u32) -> Result<Self> {
        let bed = Testbed::create("crowd")?;
        let mut limiter = bed.limiter(RULES)?;
        // Half of the room may be taken at once.
        let room = sources.saturating_mul(2).next_power_of_two();
        // Whatever the rules would choose.
        limiter.options(["--source-table", "hash"]);
        limiter.options(["--max-sources".to_owned(), room.to_string()]).start()?;
        live_frames::accept(&bed.receiver, RECEIVER.interface)?;
        let crowd = Self { bed, limiter };
        // Some get no entry: those share a bucket.
        let sent = sources + sources / 16;
        let all = load(Sources::New(0), sent.into(), Some(PER_SECOND));
        LiveFrames::start(&crowd.bed.sender, SENDER.interface, &all)?.finish()?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Not by what `limiter top` asks: the daemon would remember a view for a while.
            let tracked = number(&crowd.limiter.json(&["sources", "--top", "1"])?, "/tracked_v4")?;
            if tracked >= sources.into() {
                return Ok(crowd);
            }
            ensure!(Instant::now() < deadline, "only {tracked} of {sent} sources are tracked");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Some of them go on, far over their limits: so many packets a second.
    ///
    /// # Errors
    ///
    /// When the generator cannot be started.
    pub fn go_on(&self, sources: u32, per_second: u32) -> Result<LiveFrames> {
        let group =
            Regular { first: u32::from_be_bytes([10, 20, 0, 1]), count: sources, per_second };
        let load = Load { regular: vec![group], ..load(Sources::New(0), 0, None) };
        LiveFrames::start(&self.bed.sender, SENDER.interface, &load)
    }

    /// The process id of the daemon.
    ///
    /// # Errors
    ///
    /// When it does not run.
    pub fn pid(&self) -> Result<u32> {
        self.limiter.pid().context("the daemon does not run")
    }

    /// Takes everything down.
    ///
    /// # Errors
    ///
    /// When something is left.
    pub fn close(self) -> Result<()> {
        self.limiter.close()?;
        self.bed.close()
    }
}

/// Answer of the API to a GET request.
///
/// # Errors
///
/// When the daemon does not answer, or not with JSON.
pub fn request(limiter: &Limiter, path: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(limiter.socket())?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: limiter\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").with_context(|| answer.clone())?;
    Ok(serde_json::from_str(body)?)
}

/// A number in a document.
///
/// # Errors
///
/// When it is not there.
pub fn number(document: &Value, path: &str) -> Result<u64> {
    document.pointer(path).and_then(Value::as_u64).with_context(|| format!("{path}: {document}"))
}
