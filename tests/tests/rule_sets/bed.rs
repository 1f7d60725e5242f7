//! A namespace with rules of another program, packets for it, and the same packets before the
//! translation of the rules.

use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use fastrand::Rng;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_model::{Framing, Model, Packet};
use limiter_rules::{Environment, Installed, RuleSet};
use limiter_tests::netns::Netns;
use limiter_tests::packet::{Frame, MAX_FRAME, Transport};
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::veth::{self, RECEIVER, SENDER};
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

use super::conditions::{Family, Language, PORTS};

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
    /// A kind of packets of a source of a family; those of a small set are such as its rules are
    /// for.
    pub(super) fn random(
        random: &mut Rng,
        (family, source): (Family, &'static str),
        small: bool,
    ) -> Self {
        let ports = if small { &PORTS[..3] } else { &PORTS[..] };
        let protocols: &[_] = if small { &["tcp", "tcp", "udp"] } else { &["tcp", "udp", "icmp"] };
        Self {
            source,
            destination: if random.u8(..100) < if small { 8 } else { 25 } {
                family.behind()
            } else {
                family.here()
            },
            protocol: protocols[random.usize(..protocols.len())],
            port: ports[random.usize(..ports.len())],
            payload: [18, 18, 200][random.usize(..3)],
        }
    }

    pub(super) fn source(random: &mut Rng, family: Family) -> &'static str {
        let sources = family.sources();
        sources[random.usize(..sources.len())]
    }

    /// A frame with a port, or an id, and an identification, or a flow label, of its own.
    fn frame(&self, own: u16) -> Result<Vec<u8>> {
        let (from, to): (IpAddr, IpAddr) = (self.source.parse()?, self.destination.parse()?);
        let transport = match self.protocol {
            "tcp" => Transport::Tcp { source: own, destination: self.port, flags: 2 },
            "udp" => Transport::Udp { source: own, destination: self.port },
            _ => Transport::Echo { id: own, sequence: 1 },
        };
        let frame = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Frame::ipv4(from.octets(), to.octets()),
            (IpAddr::V6(from), IpAddr::V6(to)) => Frame::ipv6(from.octets(), to.octets()),
            _ => bail!("{self:?} is of two families"),
        };
        let mut frame = frame.transport(transport).payload(&vec![0; self.payload]).build();
        if from.is_ipv6() {
            frame.get_mut(16..18).context("a frame without a header")?[..]
                .copy_from_slice(&own.to_be_bytes());
            return Ok(frame);
        }
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

const fn iptables(family: Family) -> &'static str {
    match family {
        Family::V4 => "iptables",
        Family::V6 => "ip6tables",
    }
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
        receiver.sysctl("ipv6/conf/all/forwarding", "1")?;
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
    pub(super) fn load(&self, language: Language, family: Family, text: &str) -> Result<()> {
        self.receiver.run("nft", ["flush", "ruleset"])?;
        match language {
            Language::Iptables => {
                let restore = format!("{}-restore", iptables(family));
                self.feed(&restore, &[], "*filter\nCOMMIT\n*nat\nCOMMIT\n")?;
                self.feed(&restore, &[], text)
            }
            Language::Nft => self.feed("nft", &["-f", "-"], text),
        }
    }

    /// The rules as the program prints them.
    pub(super) fn saved(&self, language: Language, family: Family) -> Result<String> {
        match language {
            Language::Iptables => self.receiver.run(&format!("{}-save", iptables(family)), [""; 0]),
            Language::Nft => self.receiver.run("nft", ["-j", "list", "ruleset"]),
        }
    }

    /// Sends packets of some kinds by turns, which come to rules that were loaded just before.
    pub(super) fn judge(&mut self, set: &RuleSet, kinds: &[Kind]) -> Result<Vec<Judged>> {
        let chain = |hook: &str| {
            format!(
                "set {hook}4 {{ typeof ip id; size 65535; flags dynamic; }}\nset {hook}6 {{ typeof \
                 ip6 flowlabel; size 65535; flags dynamic; }}\nchain {hook}c {{\ntype filter hook \
                 {hook} priority 5000;\nadd @{hook}4 {{ ip id }}\nadd @{hook}6 {{ ip6 flowlabel \
                 }}\n}}\n"
            )
        };
        let seen = format!("table inet last {{\n{}{}}}\n", chain("input"), chain("forward"));
        self.feed("nft", &["-f", "-"], &seen)?;
        let environment = Environment {
            max_frame: MAX_FRAME,
            interface_index: &|name| Some(INTERFACE + u32::from(name != RECEIVER.interface)),
            cpus: 1,
            cluster: None,
            in_at_tc: Some(false),
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
            let outcome = model
                .judge_packet(&Packet::received(Framing::Ethernet, &frame, length, INTERFACE), now);
            judged.push((own, kind, outcome.reason.verdict() == Verdict::Pass));
        }
        let [input, forward] = [self.seen("input")?, self.seen("forward")?];
        let with_end = |(own, kind, here)| {
            let through = forward.contains(&own);
            Judged { kind, there: through || input.contains(&own), through, here }
        };
        Ok(judged.into_iter().map(with_end).collect())
    }

    /// Numbers of the packets that passed, of both families, once no more come.
    fn seen(&self, hook: &str) -> Result<BTreeSet<u16>> {
        let mut before = None;
        loop {
            let said = ["4", "6"].map(|family| -> Result<Value> {
                let set = format!("{hook}{family}");
                let said = self.receiver.run("nft", ["-j", "list", "set", "inet", "last", &set])?;
                Ok(serde_json::from_str(&said)?)
            });
            let [v4, v6] = said;
            let said = [v4?, v6?];
            let objects = said.iter().filter_map(|said| said["nftables"].as_array()).flatten();
            let elements = objects.filter_map(|object| object["set"]["elem"].as_array());
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
