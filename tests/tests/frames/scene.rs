//! A limiter on a cable that carries nothing but the test's frames, and what it has counted.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_common::source::Source;
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Mac;
use limiter_tests::packet_socket::PacketSocket;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use serde_json::Value;

pub(crate) const MODES: [&str; 2] = ["native", "generic"];

/// For what happens at once on an idle machine.
const WITHIN: Duration = Duration::from_secs(30);

/// Nobody's address: the program and packet sockets see such a frame, and the stack behind discards
/// it, so that it gives no answer that would be counted in its turn.
const NOBODY: Mac = [2, 0, 0, 0, 0, 0x99];

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) seen: u64,
    pub(crate) reasons: BTreeMap<String, Count>,
    /// By the only rule.
    pub(crate) passed: Count,
    /// By the only rule.
    pub(crate) dropped: Count,
}

impl Counters {
    pub(crate) fn since(&self, before: &Self) -> Self {
        let less =
            |a: Count, b: Count| Count { packets: a.packets - b.packets, bytes: a.bytes - b.bytes };
        let of = |reason| before.reasons.get(reason).copied().unwrap_or_default();
        let moved =
            self.reasons.iter().map(|(reason, now)| (reason.clone(), less(*now, of(reason))));
        Self {
            seen: self.seen - before.seen,
            reasons: moved.filter(|(_, count)| count.packets > 0).collect(),
            passed: less(self.passed, before.passed),
            dropped: less(self.dropped, before.dropped),
        }
    }
}

pub(crate) struct Scene {
    pub(crate) limiter: Limiter,
    pub(crate) bed: Testbed,
    pub(crate) mode: &'static str,
}

impl Scene {
    /// A cable of this MTU with a limiter under one rule: in a mode of XDP, or at `tc`.
    pub(crate) fn start(tag: &str, mode: &'static str, mtu: u32, rule: &str) -> Result<Self> {
        require_root();
        let bed = Testbed::create(&format!("{tag}-{mode}"))?;
        for (netns, end) in [(&bed.sender, &SENDER), (&bed.receiver, &RECEIVER)] {
            netns.ip(["link", "set", end.interface, "mtu", &mtu.to_string()])?;
        }
        let mut limiter = bed.limiter(&rules(rule))?;
        let (options, shown) =
            if mode == "tc" { (["--hook", "tc"], "tc in") } else { (["--mode", mode], mode) };
        limiter.options(options);
        let ready = limiter.start()?;
        ensure!(ready.contains(&format!("{} {shown}", RECEIVER.interface)), "{ready}");
        Ok(Self { limiter, bed, mode })
    }

    /// A socket at an interface of the sending side.
    pub(crate) fn socket(&self, interface: &str) -> Result<PacketSocket> {
        self.bed.sender.enter(|| PacketSocket::sender(interface))?
    }

    pub(crate) fn change(&self, rule: &str) -> Result<()> {
        std::fs::write(self.limiter.rules(), rules(rule))?;
        self.limiter.ok(["reload"]).map(|_| ())
    }

    /// Counts of the program until now.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let stats = self.limiter.json(&["stats"])?;
        let reasons = stats["reasons"].as_array().context("no reasons")?;
        let reasons = reasons.iter().map(|entry| {
            let reason = entry["reason"].as_str().context("a reason without a name")?;
            Ok((reason.to_owned(), count(entry)?))
        });
        let [rule] = stats["rules"].as_array().context("no rules")?.as_slice() else {
            anyhow::bail!("not one rule: {stats}");
        };
        Ok(Counters {
            seen: count(&stats["seen"])?.packets,
            reasons: reasons.collect::<Result<_>>()?,
            passed: count(&rule["passed"])?,
            dropped: count(&rule["dropped"])?,
        })
    }

    /// Waits until the program has counted as many more, and says what.
    pub(crate) fn counted(&self, before: &Counters, packets: u64) -> Result<Counters> {
        let deadline = Instant::now() + WITHIN;
        loop {
            let now = self.counters()?;
            if now.seen >= before.seen + packets {
                return Ok(now);
            }
            let moved = now.since(before);
            ensure!(
                Instant::now() < deadline,
                "not {packets} packets within {WITHIN:?}: {moved:?}"
            );
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends a frame several times, to nobody in particular; says what the program counted.
    pub(crate) fn send(&self, socket: &PacketSocket, frame: &[u8], times: u64) -> Result<Counters> {
        let before = self.counters()?;
        let frame = to_nobody(frame);
        for _ in 0..times {
            socket.send(&frame).with_context(|| format!("a frame of {} bytes", frame.len()))?;
        }
        Ok(self.counted(&before, times)?.since(&before))
    }

    /// Packets of a source that passed and that were dropped.
    pub(crate) fn of_source(&self, source: Source) -> Result<[u64; 2]> {
        let address = match source {
            Source::V4(address) => IpAddr::from(address),
            Source::V6(net) => {
                let mut address = [0; 16];
                address[..8].copy_from_slice(&net);
                IpAddr::from(address)
            }
        };
        let shown = self.limiter.json(&["show", &address.to_string()])?;
        let number = |name| shown[name].as_u64().with_context(|| format!("no {name}: {shown}"));
        Ok([number("passed")?, number("dropped")?])
    }

    pub(crate) fn close(self) -> Result<()> {
        self.limiter.close()?;
        self.bed.close()
    }
}

pub(crate) fn to_nobody(frame: &[u8]) -> Vec<u8> {
    [&NOBODY[..], &frame[6..]].concat()
}

fn rules(rule: &str) -> String {
    format!("domain: test\ndescriptors:\n  - {{{rule}}}\n")
}

fn count(value: &Value) -> Result<Count> {
    let number = |name| value[name].as_u64().with_context(|| format!("no {name} in {value}"));
    Ok(Count { packets: number("packets")?, bytes: number("bytes")? })
}
