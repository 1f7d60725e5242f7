//! A cable with a tool at its end, and what is counted there without asking the tool.

use std::fs;
use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::live_frames::cable::{self, Link, SENDING};
use limiter_tests::live_frames::{self, Family, Load, Place, Sent, Sources, napi};
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

use super::contender::{Contender, Limit, PORT, Tool};

/// CPU of the generator, while everything is on one.
pub(super) const ONLY_CPU: usize = 1;

/// CPU of the generator, and that of the receiving end's NAPI thread, while they are apart.
pub(super) const SENDING_CPU: usize = 0;
pub(super) const RECEIVING_CPU: usize = 1;

/// The longest that sending each source's first packet may take.
const FIRST_WITHIN: Duration = Duration::from_mins(1);

/// A tool at the end of a cable of its own.
pub struct Stand {
    /// Tool under test.
    pub tool: Tool,
    bed: Testbed,
    contender: Contender,
    /// Receiver of everything that a filter lets through.
    socket: UdpSocket,
    /// CPU that the generator runs on.
    sender: usize,
}

/// Packets that were sent, and what became of them.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Packets sent, by the generator.
    pub sent: Sent,
    /// Frames on the cable, by both of its ends.
    pub link: Link,
    /// Packets that the filter let pass: those that reached the transport layer (`InDelivers` of
    /// the namespace), or that the interface sent.
    pub passed: u64,
}

impl Stand {
    /// Builds one.
    ///
    /// # Errors
    ///
    /// When the tool cannot be installed.
    pub fn build(tool: Tool, limit: Limit, entries: u32) -> Result<Self> {
        let bed = Testbed::create("path")?;
        live_frames::accept(&bed.receiver, RECEIVER.interface)?;
        let socket = bed.receiver.enter(|| UdpSocket::bind((RECEIVER.ipv4, PORT)))??;
        let contender = Contender::install(tool, &bed, limit, entries)
            .with_context(|| format!("installing {}", tool.name()))?;
        // An XDP program makes a new NAPI, and the carrier is away for a moment.
        thread::sleep(Duration::from_millis(500));
        Ok(Self { tool, bed, contender, socket, sender: ONLY_CPU })
    }

    /// Gives the receiving end a CPU of its own, and the generator the other one.
    ///
    /// # Errors
    ///
    /// When the kernel has no NAPI threads.
    pub fn part(&mut self) -> Result<()> {
        napi::on_cpu(&self.bed.receiver, RECEIVER.interface, RECEIVING_CPU)?;
        self.sender = SENDING_CPU;
        Ok(())
    }

    /// Socket that everything is sent to.
    pub(super) const fn socket(&self) -> &UdpSocket {
        &self.socket
    }

    /// The rule as it is listed.
    pub fn listed(&self) -> &str {
        &self.contender.listed
    }

    /// IPv4 frames of 60 bytes, for so long.
    pub(super) fn load(
        &self,
        sources: Sources,
        per_second: Option<u32>,
        duration: Duration,
    ) -> Load {
        Load {
            sources,
            family: Family::V4,
            length: 60,
            per_second,
            frames: u64::from(u32::MAX),
            duration,
            regular: Vec::new(),
            place: Some(Place { cpu: self.sender, priority: SENDING }),
        }
    }

    /// Each of so many sources sends one packet, as many a second. Exactly these pass, where a
    /// source has one.
    ///
    /// # Errors
    ///
    /// When another number passed.
    pub fn meet(&self, sources: u32, per_second: u32) -> Result<()> {
        let frames = u64::from(sources);
        let load = Load { frames, ..self.load(Sources::New(0), Some(per_second), FIRST_WITHIN) };
        let run = self.run(&load)?;
        ensure!(run.sent.frames == frames, "{} of {frames} sent in time", run.sent.frames);
        let expected = if self.tool.is_bare() { 0 } else { frames };
        let Run { passed, .. } = run;
        // A few sources find their line full, and share a bucket.
        let share = if self.tool.is_in_lines() { expected / 1_000 } else { 0 };
        let least = expected - share;
        ensure!(
            (least..=expected).contains(&passed) && run.link.lost == 0,
            "{}: {frames} sources sent their first packet: {passed} passed, {} lost",
            self.tool.name(),
            run.link.lost
        );
        Ok(())
    }

    /// So many sources send so many packets, 100,000 a second.
    ///
    /// # Errors
    ///
    /// When the cable has not seen what was sent.
    pub fn send(&self, sources: u32, frames: u64) -> Result<Run> {
        let load = self.load(Sources::Uniform(sources), Some(100_000), FIRST_WITHIN);
        self.run(&Load { frames, ..load })
    }

    /// Sends a load; counts at both ends and behind the tool.
    ///
    /// # Errors
    ///
    /// When the cable has not seen what was sent.
    pub(super) fn run(&self, load: &Load) -> Result<Run> {
        let before = self.delivered()?;
        let (sent, link) = cable::measured(&self.bed, || cable::send(&self.bed, load))?;
        let passed = self.delivered()? - before;
        Ok(Run { sent, link, passed })
    }

    /// Packets behind the filter: IPv4 packets of the namespace that went to a transport protocol,
    /// or those that the interface has sent.
    fn delivered(&self) -> Result<u64> {
        if self.tool.is_out() {
            let [sent, _] = self.bed.receiver.carried(RECEIVER.interface)?;
            return Ok(sent);
        }
        // Of the namespace that the thread is in.
        let path = "/proc/thread-self/net/snmp";
        let text = self.bed.receiver.enter(|| fs::read_to_string(path))??;
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Ip: "));
        let (names, values) = (lines.next().context("no Ip:")?, lines.next().context("no Ip:")?);
        let mut both = names.split(' ').zip(values.split(' '));
        let found = both.find(|(name, _)| *name == "InDelivers").context("no InDelivers")?;
        Ok(found.1.parse()?)
    }

    /// Takes everything down.
    ///
    /// # Errors
    ///
    /// When something is left.
    pub fn close(self) -> Result<()> {
        self.contender.close()?;
        self.bed.close()
    }
}

/// Does something again, once, and says so, when it did not come to what it must.
pub(super) fn twice<T>(
    what: impl Fn() -> String,
    mut work: impl FnMut() -> Result<T>,
) -> Result<T> {
    work().or_else(|error| {
        eprintln!("path: {}: void, and done again: {error:#}", what());
        work().with_context(what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_void_is_done_once_more() {
        let run = |good: usize| {
            let mut runs = 0;
            let result = twice(
                || "a run".to_owned(),
                || {
                    runs += 1;
                    ensure!(runs == good, "void");
                    Ok(())
                },
            );
            (result.is_ok(), runs)
        };
        assert_eq!([run(1), run(2), run(3)], [(true, 1), (true, 2), (false, 2)]);
    }
}
