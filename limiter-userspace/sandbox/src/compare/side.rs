//! The two sides of a comparison, each with a namespace that sends and one that receives.

use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, path};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_import::Format;
use serde_json::Value;

use super::load::Traffic;
use crate::bpffs::Bpffs;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::packet_socket::PacketSocket;
use crate::sweep;
use crate::testbed::sweep_once;
use crate::veth::{self, End, RECEIVER, SENDER};
use crate::work_dir::WorkDir;

/// Packets are counted once their number has not changed for the first time, or after the second.
const STEADY: Duration = Duration::from_millis(40);
const AT_LAST: Duration = Duration::from_secs(5);

/// Table that counts the packets that passed.
const COUNTS: &str = "limiter_compare";

/// The rules of the other program, in the form in which they are loaded.
pub(super) struct Ruleset {
    program: &'static str,
    arguments: &'static [&'static str],
    /// Text that removes all rules.
    empty: &'static str,
    text: Vec<u8>,
}

impl Ruleset {
    /// Prepares the rules of a format.
    ///
    /// # Errors
    ///
    /// Says why they cannot be loaded.
    pub(super) fn new(format: Format, text: Vec<u8>) -> Result<Self> {
        const TABLES: &str = "*filter\nCOMMIT\n*mangle\nCOMMIT\n*raw\nCOMMIT\n*nat\nCOMMIT\n";
        let (program, arguments, empty): (_, &[&str], _) = match format {
            Format::Nft => ("nft", &["-j", "-f", "-"], ""),
            Format::Iptables => ("iptables-restore", &[], TABLES),
            Format::Ip6tables => ("ip6tables-restore", &[], TABLES),
            Format::Ufw => {
                bail!("ufw's file is a part of its rules: compare `iptables-save` of all of them")
            }
            Format::Tc => bail!("tc prints its filters, and cannot load what it prints"),
            Format::Ipset | Format::Fail2ban | Format::Crowdsec => {
                bail!("a list has no limit to compare")
            }
        };
        Ok(Self { program, arguments, empty, text })
    }

    fn load(&self, netns: &Netns, dir: &WorkDir) -> Result<()> {
        netns.run("nft", ["flush", "ruleset"])?;
        if !self.empty.is_empty() {
            feed(netns, self.program, &[], self.empty.as_bytes(), dir)?;
        }
        feed(netns, self.program, self.arguments, &self.text, dir)
            .context("the rules cannot be loaded here as they are")
    }
}

/// Runs a program in a namespace with a text on its standard input.
fn feed(netns: &Netns, program: &str, args: &[&str], text: &[u8], dir: &WorkDir) -> Result<()> {
    let file = fs::File::open(dir.write("fed", text)?)?;
    let output = netns.output(Command::new(program).args(args).stdin(Stdio::from(file)))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}", said.trim());
    Ok(())
}

/// Two namespaces with a cable from one to the other.
struct Bed {
    sender: Arc<Netns>,
    receiver: Arc<Netns>,
    dir: WorkDir,
}

impl Bed {
    fn create(tag: &str, interface: &str) -> Result<Self> {
        sweep_once();
        let dir = WorkDir::create(tag)?;
        let sender = Arc::new(Netns::create(&format!("{tag}-send"))?);
        let receiver = Arc::new(Netns::create(&format!("{tag}-recv"))?);
        // The number of names is bounded by the number of rules.
        let interface: &'static str = Box::leak(interface.to_owned().into_boxed_str());
        veth::connect_as(&sender, &receiver, &End { interface, ..RECEIVER })?;
        Ok(Self { sender, receiver, dir })
    }

    fn wire(&self) -> Result<PacketSocket> {
        self.sender.enter(|| PacketSocket::sender(SENDER.interface))?
    }

    /// Counts the packets of a source at a hook, beside whatever else is loaded there.
    fn count(&self, source: IpAddr, hooks: &[&str]) -> Result<()> {
        let family = if source.is_ipv6() { "ip6" } else { "ip" };
        let chains: Vec<String> = hooks
            .iter()
            .map(|hook| {
                let name = hook.split(' ').next().unwrap_or(hook);
                format!(
                    "chain {name} {{\ntype filter hook {hook};\n{family} saddr {source} counter \
                     name passed\n}}\n"
                )
            })
            .collect();
        let chains = chains.concat();
        let text = format!("table inet {COUNTS} {{\ncounter passed {{ }}\n{chains}}}\n");
        feed(&self.receiver, "nft", &["-f", "-"], text.as_bytes(), &self.dir)
    }

    /// Number of counted packets, once it no longer grows.
    fn passed(&self) -> Result<u64> {
        let (begin, mut steady, mut before) = (Instant::now(), Instant::now(), None);
        loop {
            let counters = ["-j", "list", "counter", "inet", COUNTS, "passed"];
            let said = self.receiver.run("nft", counters)?;
            let said: Value = serde_json::from_str(&said)?;
            let objects = said["nftables"].as_array().context("nft lists nothing")?;
            let packets = objects.iter().find_map(|object| object["counter"]["packets"].as_u64());
            let packets = packets.context("nft lists no counter")?;
            if before != Some(packets) {
                (before, steady) = (Some(packets), Instant::now());
            }
            if steady.elapsed() > STEADY || begin.elapsed() > AT_LAST {
                return Ok(packets);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn close(self) -> Result<()> {
        let names = [self.sender.name().to_owned(), self.receiver.name().to_owned()];
        let dir = self.dir.path().to_owned();
        drop(self);
        sweep::check_gone(&names, &dir)
    }
}

/// The rules of the other program.
pub(super) struct Old {
    bed: Bed,
    source: IpAddr,
    pub(super) wire: PacketSocket,
}

impl Old {
    pub(super) fn create(interface: &str, traffic: &Traffic) -> Result<Self> {
        let bed = Bed::create("cmpold", interface)?;
        for variable in ["ipv4/conf/all/forwarding", "ipv6/conf/all/forwarding"] {
            bed.receiver.sysctl(variable, "1")?;
        }
        if !traffic.forwarded {
            let address = traffic.destination.to_string();
            let nodad: &[&str] = if traffic.destination.is_ipv6() { &["nodad"] } else { &[] };
            let add = ["address", "replace", &address, "dev", interface];
            bed.receiver.ip(add.into_iter().chain(nodad.iter().copied()))?;
        }
        let wire = bed.wire()?;
        Ok(Self { bed, source: traffic.source, wire })
    }

    /// Loads the rules afresh, which clears all their state.
    pub(super) fn begin(&self, ruleset: &Ruleset) -> Result<()> {
        ruleset.load(&self.bed.receiver, &self.bed.dir)?;
        // After every other chain.
        self.bed.count(self.source, &["input priority 2147483647", "forward priority 2147483647"])
    }

    pub(super) fn passed(&self) -> Result<u64> {
        self.bed.passed()
    }

    pub(super) fn close(self) -> Result<()> {
        drop(self.wire);
        self.bed.close()
    }
}

pub(super) struct New {
    // Fields are dropped in this order: the pins before the directory that they are mounted in.
    bpffs: Bpffs,
    bed: Bed,
    binary: path::PathBuf,
    rules: path::PathBuf,
    interface: String,
    source: IpAddr,
    pub(super) wire: PacketSocket,
}

impl New {
    pub(super) fn create(
        interface: &str,
        traffic: &Traffic,
        binary: &path::Path,
        rules: &str,
    ) -> Result<Self> {
        let bed = Bed::create("cmpnew", interface)?;
        let rules = bed.dir.write("rules.yaml", rules)?;
        let bpffs = Bpffs::mount(bed.dir.path().join("bpf"))?;
        let binary = binary
            .canonicalize()
            .with_context(|| format!("no limiter binary at {}", binary.display()))?;
        let wire = bed.wire()?;
        let (interface, source) = (interface.to_owned(), traffic.source);
        Ok(Self { bpffs, bed, binary, rules, interface, source, wire })
    }

    /// Starts limiter afresh; packets are counted before the stack looks at them.
    pub(super) fn begin(&self) -> Result<Limiter> {
        let (receiver, dir) = (&self.bed.receiver, self.bed.dir.path());
        let mut limiter = Limiter::within(
            receiver,
            self.binary.clone(),
            &self.rules,
            &self.interface,
            dir,
            self.bpffs.path(),
        );
        limiter.start()?;
        receiver.run("nft", ["flush", "ruleset"])?;
        self.bed.count(self.source, &["prerouting priority -2147483648"])?;
        Ok(limiter)
    }

    pub(super) fn passed(&self) -> Result<u64> {
        self.bed.passed()
    }

    pub(super) fn close(self) -> Result<()> {
        drop(self.wire);
        drop(self.bpffs);
        self.bed.close()
    }
}
