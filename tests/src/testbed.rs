//! Two namespaces, a cable, a private BPF file system and a directory: what every run needs.

use std::sync::{Arc, Once};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::bpffs::Bpffs;
use crate::generator::{Generator, Recording, Stream};
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::receiver::{Counts, Receiver};
use crate::work_dir::WorkDir;
use crate::{sweep, veth};

/// Frames recorded for one stream at most, in tests.
const BOUND: usize = 1 << 21;

/// A place to measure in. Fields are dropped in this order: the file system with the pins first,
/// its directory last.
#[derive(Debug)]
pub struct Testbed {
    /// A private BPF file system.
    pub bpffs: Bpffs,
    /// Where traffic comes from.
    pub sender: Arc<Netns>,
    /// Where the limiter runs.
    pub receiver: Arc<Netns>,
    /// For everything else that needs a path.
    pub dir: WorkDir,
    /// What the link had dropped when it was ready. A device that comes up has a queue that takes
    /// nothing until its carrier is seen (`noop_qdisc`), and the first multicast report of the sender
    /// may meet it.
    lost_before: u64,
}

impl Testbed {
    /// Builds one.
    ///
    /// # Errors
    ///
    /// Without root or `ip`. What was made until then is removed.
    pub fn create(tag: &str) -> Result<Self> {
        sweep_once();
        let dir = WorkDir::create(tag)?;
        let bpffs = Bpffs::mount(dir.path().join("bpf"))?;
        let sender = Arc::new(Netns::create(&format!("{tag}-send"))?);
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        veth::connect(&sender, &receiver)?;
        let lost_before = dropped(&sender)?;
        Ok(Self { bpffs, sender, receiver, dir, lost_before })
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

    /// Sends the streams for `duration`; returns what was sent, by stream, and what arrived.
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
        let receiver = Receiver::start(&self.receiver, veth::RECEIVER.interface)?;
        let generator =
            Generator::start(&self.sender, veth::SENDER.interface, streams, duration, BOUND)?;
        let recordings = generator.finish()?;
        ensure!(recordings.iter().all(|recording| !recording.truncated), "the recording is full");
        let counts = receiver.finish()?;
        counts.check_clean()?;
        let lost = self.lost_on_link()?;
        ensure!(lost == 0, "the measurement is invalid: {lost} frames were lost on the link");
        Ok((recordings, counts))
    }

    /// Frames that the link dropped since it was ready.
    ///
    /// # Errors
    ///
    /// When `ip` does not tell.
    pub fn lost_on_link(&self) -> Result<u64> {
        Ok(dropped(&self.sender)?.saturating_sub(self.lost_before))
    }

    /// Takes everything down and checks that nothing of it is left.
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

/// Frames that the sending end dropped since it was made because the other end took them not.
fn dropped(sender: &Netns) -> Result<u64> {
    sender
        .link(veth::SENDER.interface)?
        .pointer("/stats64/tx/dropped")
        .and_then(Value::as_u64)
        .context("`ip -statistics link show` has no count of dropped frames")
}

/// Removes what killed runs left, when the first testbed of this process is built.
fn sweep_once() {
    static SWEPT: Once = Once::new();
    SWEPT.call_once(|| match sweep::sweep() {
        Ok(removed) if removed.is_empty() => {}
        Ok(removed) => eprintln!("removed what a killed run left: {}", removed.join(", ")),
        // It does not disturb us: our names are others. Another run may be sweeping, too.
        Err(error) => eprintln!("cannot remove all that a killed run left: {error:#}"),
    });
}
