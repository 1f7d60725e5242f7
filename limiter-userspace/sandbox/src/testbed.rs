//! Two namespaces, a cable, a private BPF file system and a directory, which every run needs.

use std::sync::{Arc, Once};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::bpffs::Bpffs;
use crate::generator::{Generator, Recording, Stream};
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::receiver::{Counts, Receiver};
use crate::work_dir::WorkDir;
use crate::{sweep, veth};

/// Most frames recorded for one stream in tests.
const BOUND: usize = 1 << 21;

/// Longest time that frames may be under way: much longer than they ever are.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// Pause between two looks whether they have arrived.
const LOOK: Duration = Duration::from_millis(5);

/// A place to measure in. Fields are dropped in this order: the file system with the pins first,
/// its directory last.
#[derive(Debug)]
pub struct Testbed {
    /// A private BPF file system.
    pub bpffs: Bpffs,
    /// Namespace that traffic comes from.
    pub sender: Arc<Netns>,
    /// Namespace that the limiter runs in.
    pub receiver: Arc<Netns>,
    /// Directory for all other files.
    pub dir: WorkDir,
}

impl Testbed {
    /// Builds a testbed.
    ///
    /// # Errors
    ///
    /// Without root or `ip`. What was made before the error is removed.
    pub fn create(tag: &str) -> Result<Self> {
        sweep_once();
        let dir = WorkDir::create(tag)?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let sender = Arc::new(Netns::create(&format!("{tag}-send"))?);
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        veth::connect(&sender, &receiver)?;
        Ok(Self { bpffs, sender, receiver, dir })
    }

    /// A limiter for the receiving end under the rules in `rules` (YAML text); not started yet.
    ///
    /// # Errors
    ///
    /// When there is no `limiter` binary, or the rule file cannot be written.
    pub fn limiter(&self, rules: &str) -> Result<Limiter> {
        let file = self.dir.write("rules.yaml", rules)?;
        let binary = crate::limiter::binary()?;
        Ok(Limiter::new(binary, &file, veth::RECEIVER.interface, self))
    }

    /// Sends the streams for `duration`; returns the recordings, by stream, and the arrivals. All
    /// frames sent have been judged at return.
    ///
    /// # Errors
    ///
    /// When sending or receiving failed, or the measurement is invalid because frames were lost
    /// outside of the limiter or the recording is full.
    pub fn measure(
        &self,
        streams: Vec<Stream>,
        duration: Duration,
    ) -> Result<(Vec<Recording>, Counts)> {
        let before = self.met()?;
        let receiver = Receiver::start(&self.receiver, veth::RECEIVER.interface)?;
        let generator =
            Generator::start(&self.sender, veth::SENDER.interface, streams, duration, BOUND)?;
        let recordings = generator.finish()?;
        ensure!(recordings.iter().all(|recording| !recording.truncated), "the recording is full");
        let sent: usize = recordings.iter().map(|recording| recording.times.len()).sum();
        self.wait_until_met(before + u64::try_from(sent)?)?;
        let counts = receiver.finish()?;
        counts.check_clean()?;
        let lost = self.lost_on_link()?;
        ensure!(lost == 0, "the measurement is invalid: {lost} frames were lost on the link");
        Ok((recordings, counts))
    }

    /// Frames that the link dropped since it was made, because the receiving end had no room.
    ///
    /// # Errors
    ///
    /// When `ip` does not report it.
    pub fn lost_on_link(&self) -> Result<u64> {
        let link = self.sender.link(veth::SENDER.interface)?;
        let dropped = link.pointer("/stats64/tx/dropped").and_then(Value::as_u64);
        dropped.context("`ip -statistics link show` has no count of dropped frames")
    }

    /// Frames that came to an end since the link was made: those that the receiving end took, and
    /// those that it had no room for.
    ///
    /// # Errors
    ///
    /// When `ip` does not report it.
    pub fn met(&self) -> Result<u64> {
        let [_, taken] = self.receiver.carried(veth::RECEIVER.interface)?;
        Ok(taken + self.lost_on_link()?)
    }

    /// Waits until [`Testbed::met`] reaches `frames`: on a busy machine frames are under way for a
    /// while.
    ///
    /// # Errors
    ///
    /// When they are not all there within half a minute.
    pub fn wait_until_met(&self, frames: u64) -> Result<()> {
        let deadline = Instant::now() + UNDER_WAY;
        while self.met()? < frames {
            let met = self.met()?;
            ensure!(Instant::now() < deadline, "{met} of {frames} frames after {UNDER_WAY:?}");
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Takes everything down and checks that nothing is left.
    ///
    /// # Errors
    ///
    /// Names what is left.
    pub fn close(self) -> Result<()> {
        let names = [self.sender.name().to_owned(), self.receiver.name().to_owned()];
        let dir = self.dir.path().to_owned();
        drop(self);
        sweep::check_gone(&names, &dir)
    }
}

/// Removes what killed runs left, when the first testbed of this process is built.
pub(crate) fn sweep_once() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| match sweep::sweep() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => eprintln!("removed what a killed run left: {}", removed.join(", ")),
        // Other leftovers do not disturb this run, because its names differ. Another run may be
        // sweeping, too.
        Err(error) => eprintln!("cannot remove all that a killed run left: {error:#}"),
    });
}
