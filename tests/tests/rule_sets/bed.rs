//! A namespace with rules of another program, packets for it, and the same packets before the
//! translation of the rules.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_model::{Framing, Model};
use limiter_rules::{Environment, Installed, RuleSet};
use limiter_tests::netns::Netns;
use limiter_tests::packet::{Frame, MAX_FRAME, Transport};
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

use super::conditions::{BEHIND, HERE, Language, PORTS};

/// Sources of packets.
const SOURCES: [&str; 5] = ["10.1.2.3", "10.1.2.4", "10.1.77.1", "203.0.113.9", "198.51.100.20"];

/// Packets of a kind in a load.
const OF_KIND: usize = 12;

/// Index of the interface, for the model, and of any other.
const INTERFACE: u32 = 7;

/// A kind of packets of one source.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) source: &'static str,
    destination: &'static str,
    protocol: &'static str,
    port: u16,
    payload: usize,
}

impl Kind {
    /// A kind of packets of a source; those of a small set are such as its rules are for.
    pub(super) fn random(random: &mut Rng, source: &'static str, small: bool) -> Self {
        let ports = if small { &PORTS[..3] } else { &PORTS[..] };
        let protocols: &[_] = if small { &["tcp", "tcp", "udp"] } else { &["tcp", "udp", "icmp"] };
        Self {
            source,
            destination: if random.u8(..100) < if small { 8 } else { 25 } { BEHIND } else { HERE },
            protocol: protocols[random.usize(..protocols.len())],
            port: ports[random.usize(..ports.len())],
            payload: [18, 18, 200][random.usize(..3)],
        }
    }

    /// Any source.
    pub(super) fn source(random: &mut Rng) -> &'static str {
        SOURCES[random.usize(..SOURCES.len())]
    }

    /// A frame with a port, or an id, and an identification of its own.
    fn frame(&self, own: u16) -> Result<Vec<u8>> {
        let (from, to): (Ipv4Addr, Ipv4Addr) = (self.source.parse()?, self.destination.parse()?);
        let transport = match self.protocol {
            "tcp" => Transport::Tcp { source: own, destination: self.port, flags: 2 },
            "udp" => Transport::Udp { source: own, destination: self.port },
            _ => Transport::Echo { id: own, sequence: 1 },
        };
        let frame = Frame::ipv4(from.octets(), to.octets())
            .transport(transport)
            .payload(&vec![0; self.payload]);
        let mut frame = frame.build();
        let header = frame.get_mut(14..34).context("a frame without a header")?;
        header[4..6].copy_from_slice(&own.to_be_bytes());
        header[10..12].fill(0);
        let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let mut sum: u32 = words.sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let sum = !u16::try_from(sum)?;
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        Ok(frame)
    }
}

/// Packets, each with its kind and what became of it.
pub(super) struct Judged {
    pub(super) kind: usize,
    pub(super) there: bool,
    /// True if it passed on its way through the machine, and not to it.
    pub(super) through: bool,
    pub(super) here: bool,
}

/// Two namespaces and a cable.
pub(super) struct Bed {
    receiver: Arc<Netns>,
    wire: PacketSocket,
    dir: WorkDir,
    /// Port, id and identification of the next packet.
    next: u16,
}

impl Bed {
    pub(super) fn create(tag: &str) -> Result<Self> {
        let dir = WorkDir::create(tag)?;
        let sender = Netns::create(&format!("{tag}-send"))?;
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        veth::connect(&sender, &receiver)?;
        receiver.sysctl("ipv4/conf/all/forwarding", "1")?;
        let wire = sender.enter(|| PacketSocket::sender(SENDER.interface))??;
        Ok(Self { receiver, wire, dir, next: 1024 })
    }

    fn feed(&self, program: &str, arguments: &[&str], text: &str) -> Result<()> {
        let file = File::open(self.dir.write("fed", text)?)?;
        let mut command = Command::new(program);
        let output = self.receiver.output(command.args(arguments).stdin(Stdio::from(file)))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {}\n{text}", said.trim());
        Ok(())
    }

    /// Loads rules anew, with nothing that they remember.
    pub(super) fn load(&self, language: Language, text: &str) -> Result<()> {
        self.receiver.run("nft", ["flush", "ruleset"])?;
        match language {
            Language::Iptables => {
                self.feed("iptables-restore", &[], "*filter\nCOMMIT\n*nat\nCOMMIT\n")?;
                self.feed("iptables-restore", &[], text)
            }
            Language::Nft => self.feed("nft", &["-f", "-"], text),
        }
    }

    /// The rules as the program prints them.
    pub(super) fn saved(&self, language: Language) -> Result<String> {
        match language {
            Language::Iptables => self.receiver.run("iptables-save", [""; 0]),
            Language::Nft => self.receiver.run("nft", ["-j", "list", "ruleset"]),
        }
    }

    /// Sends packets of some kinds by turns, which come to rules that were loaded just before.
    pub(super) fn judge(&mut self, set: &RuleSet, kinds: &[Kind]) -> Result<Vec<Judged>> {
        let chain = |hook: &str| {
            format!(
                "set {hook}s {{ typeof ip id; size 65535; flags dynamic; }}\nchain {hook}c \
                 {{\ntype filter hook {hook} priority 5000;\nadd @{hook}s {{ ip id }}\n}}\n"
            )
        };
        let seen = format!("table inet last {{\n{}{}}}\n", chain("input"), chain("forward"));
        self.feed("nft", &["-f", "-"], &seen)?;
        let environment = Environment {
            max_frame: MAX_FRAME,
            interface_index: &|name| Some(INTERFACE + u32::from(name != RECEIVER.interface)),
            cpus: 1,
            cluster: None,
        };
        let mut model = Model::new();
        model.commit(Installed::default().plan(set, 1, 16_384, &environment)?, Ticks::ZERO);
        let mut judged = Vec::new();
        for number in 0..OF_KIND * kinds.len() {
            let kind = number % kinds.len();
            let own = self.next;
            self.next = self.next.checked_add(1).context("no port is left")?;
            let frame = kinds[kind].frame(own)?;
            self.wire.send(&frame)?;
            let nanos = 3_600_000_000_000 + u64::try_from(number)? * 1000;
            let (length, now) = (u64::try_from(frame.len())?, Ticks::from_nanos(nanos));
            let outcome = model.judge_captured(Framing::Ethernet, &frame, length, INTERFACE, now);
            judged.push((own, kind, outcome.reason.verdict() == Verdict::Pass));
        }
        let [input, forward] = [self.seen("inputs")?, self.seen("forwards")?];
        let with_end = |(own, kind, here)| {
            let through = forward.contains(&own);
            Judged { kind, there: through || input.contains(&own), through, here }
        };
        Ok(judged.into_iter().map(with_end).collect())
    }

    /// Identifications of the packets that passed, once no more come.
    fn seen(&self, set: &str) -> Result<BTreeSet<u16>> {
        let mut before = None;
        loop {
            let said = self.receiver.run("nft", ["-j", "list", "set", "inet", "last", set])?;
            let said: Value = serde_json::from_str(&said)?;
            let objects = said["nftables"].as_array().context("nft lists nothing")?;
            let elements = objects.iter().filter_map(|object| object["set"]["elem"].as_array());
            let number = |element: &Value| {
                let number = element.as_u64().or_else(|| element["elem"]["val"].as_u64());
                number.and_then(|number| u16::try_from(number).ok())
            };
            let found: BTreeSet<u16> = elements.flatten().filter_map(number).collect();
            if before.as_ref() == Some(&found) {
                return Ok(found);
            }
            before = Some(found);
            thread::sleep(Duration::from_millis(20));
        }
    }
}
