//! limiter on cards, each with a driver of its own and a cable to another card: attached or
//! refused, and what its limit lets through while the card and its link change. `cargo xtask
//! bench cards` runs it where an emulator has the cards, and makes a table of docs/devices.md of
//! what it prints.
//!
//! One limiter is started for each hook and mode, and gets every card by a pattern of names.

// Also on other kernels, by bench cards: 1200 s each.

use std::mem::replace;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cards::{
    self, Card, JOINED, KEPT_TOGETHER, Offload, Pair, is_one, streamed, switched, used,
};
use limiter_tests::devices::{
    Load, NEAR, QUOTA, both_ways, is_limited, wait_until_forgotten, wait_until_it_works, wanted,
};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use serde_json::Value;

/// Bytes of a TCP stream that the quota lets pass, with all headers.
const BYTES: u64 = 500_000;

/// A large frame, and what is in it with the headers of IPv4 and UDP.
const LARGE: (&str, Load) = ("9000", Load { bytes: 8_000, ..Load::ONE_FLOW });

/// The name of the other card in its namespace.
const FAR: &str = "dev0";

/// What cannot be tried on a card that is not limited, or not there.
const NOTHING: &str = "n/a";

/// A hook and a mode.
struct Way {
    name: &'static str,
    options: &'static [&'static str],
    is_out: bool,
}

/// Addresses at the other end: each has quotas of its own, which no time refills. The first is for
/// what is to be over its limit afterwards.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Other {
    First,
    Flows,
    Apart,
    Together,
    Again,
    Grown,
    Large,
    Count,
}

fn quotas(is_out: bool) -> String {
    let direction = if is_out { "out" } else { "in" };
    let rule = |protocol: &str, amount: &str| {
        format!(
            "  - key: protocol\n    value: {protocol}\n    direction: {direction}\n    \
             descriptors:\n      - key: remote_address\n        \
             rate_limit: {{rate: {amount}/week, algorithm: fixed_window}}\n"
        )
    };
    let (packets, bytes) = (QUOTA.to_string(), format!("{BYTES}B"));
    format!("descriptors:\n{}{}", rule("udp", &packets), rule("tcp", &bytes))
}

/// A card that limiter is to be on, in the receiver's namespace, and all that it is tried with.
struct Tried<'a> {
    bed: &'a Testbed,
    limiter: &'a Limiter,
    way: &'a Way,
    card: &'a Card,
    name: String,
    place: u8,
}

/// The rows of a hook and mode, each cell printed as it is known. All are tried before one that is
/// wrong fails.
fn rows(way: &Way) -> Result<()> {
    require_root();
    let Some(pairs) = cards::pairs()? else {
        eprintln!("not tried: this machine has no cards for it, `cargo xtask bench cards` has");
        return Ok(());
    };
    let bed = Testbed::create("cards")?;
    let mut limiter = bed.limiter(&quotas(way.is_out))?;
    limiter.on("dut*").options(way.options.iter().copied());
    limiter.start()?;
    let mut wrong = Vec::new();
    for (place, pair) in (0..).zip(&pairs) {
        if let Err(error) = row(&bed, &limiter, way, pair, place, &mut wrong) {
            println!("limiter-cell failed: {}: {error:#}", pair.driver);
            wrong.push(pair.driver.clone());
        }
    }
    ensure!(wrong.is_empty(), "{}: {}", way.name, wrong.join(", "));
    limiter.close()?;
    bed.close()
}

fn row(
    bed: &Testbed,
    limiter: &Limiter,
    way: &Way,
    pair: &Pair,
    place: u8,
    wrong: &mut Vec<String>,
) -> Result<()> {
    let row = format!("{}, {}", pair.driver, way.name);
    let say = |column: &str, cell: &str| {
        println!("limiter-cell: cards | {row} | {column} | {cell}");
    };
    let all = |first: &str| {
        for (place, (column, _)) in Tried::STEPS.iter().enumerate() {
            say(column, if place == 0 { first } else { NOTHING });
        }
    };
    let Some([card, far]) = pair.found()? else {
        all("not there");
        return Ok(());
    };
    let name = format!("dut{place}");
    let tried = Tried { bed, limiter, way, card: &card, name, place };
    far.give(&bed.sender, FAR)?;
    tried.far_up()?;
    if let Err(refused) = tried.plug("1500")? {
        all(&refused);
    } else {
        for (column, step) in Tried::STEPS {
            let cell = step(&tried).unwrap_or_else(|error| {
                println!("limiter-cell failed: {row}: {column}: {error:#}");
                wrong.push(format!("{row}: {column}"));
                "failed".to_owned()
            });
            say(column, &cell);
        }
    }
    card.take_back(&bed.receiver, &tried.name)?;
    far.take_back(&bed.sender, FAR)
}

/// What is tried, of which the cell follows.
type Step<T> = fn(&T) -> Result<String>;

impl Tried<'_> {
    /// All that is tried, in this order, by the columns of the table.
    const STEPS: [(&'static str, Step<Self>); 6] = [
        ("limit held", Self::holds),
        ("several queues", Self::queues),
        ("offloads on and off", Self::offloads),
        ("link down and up", Self::link),
        ("removed and added", Self::again),
        ("MTU 9000", Self::large),
    ];

    fn far_up(&self) -> Result<()> {
        let netns = &self.bed.sender;
        netns.ip(["link", "set", FAR, "mtu", LARGE.0])?;
        for other in 0..Other::Count as u8 {
            netns.ip(["address", "add", &format!("{}/24", self.address(other)), "dev", FAR])?;
        }
        netns.ip(["link", "set", FAR, "up"])?;
        Ok(())
    }

    /// Puts the card into its namespace, and waits until limiter limits it or says why it does not.
    fn plug(&self, mtu: &str) -> Result<Result<(), String>> {
        let (netns, name) = (&self.bed.receiver, self.name.as_str());
        self.card.give(netns, "card")?;
        netns.ip(["link", "set", "card", "mtu", mtu])?;
        netns.ip(["address", "add", &format!("{}/24", Ipv4Addr::from(NEAR)), "dev", "card"])?;
        netns.ip(["link", "set", "card", "name", name])?;
        netns.ip(["link", "set", name, "up"])?;
        is_limited(self.limiter, name)
    }

    fn unplug(&self) -> Result<()> {
        self.card.unbind()?;
        wait_until_forgotten(self.limiter, &self.name)?;
        self.card.bind()
    }

    fn address(&self, other: u8) -> Ipv4Addr {
        // A bucket belongs to one card.
        Ipv4Addr::new(198, 51, 100, 1 + self.place * Other::Count as u8 + other)
    }

    /// Sends a load each way, of which so much passes in the limited direction.
    fn carries(&self, other: Other, passes: u64, load: &Load) -> Result<()> {
        let far = self.address(other as u8);
        wait_until_it_works(self.bed, far)?;
        let near = (&*self.bed.receiver, Ipv4Addr::from(NEAR));
        let got = both_ways(near, (&self.bed.sender, far), load)?;
        let wanted = wanted(self.way.is_out, passes, load);
        ensure!(got == wanted, "{got:?} and not {wanted:?}: {}", self.limiter.said());
        Ok(())
    }

    fn holds(&self) -> Result<String> {
        self.carries(Other::First, QUOTA, &Load::ONE_FLOW)?;
        Ok("yes".to_owned())
    }

    /// One limit over flows that arrive, or leave, by several queues.
    fn queues(&self) -> Result<String> {
        let netns = &self.bed.receiver;
        if is_one(netns, &self.name, self.way.is_out)? {
            self.carries(Other::Flows, QUOTA, &Load::MANY_FLOWS)?;
            return Ok("one queue".to_owned());
        }
        // Some cards tell flows of UDP apart by their addresses alone until they are told to.
        let hash = ["-N", &self.name, "rx-flow-hash", "udp4", "sdfn"];
        drop(netns.output(Command::new("ethtool").args(hash))?);
        let used = || used(netns, (self.card, &self.name), self.way.is_out);
        // So that nothing but the flows is counted.
        wait_until_it_works(self.bed, self.address(Other::Flows as u8))?;
        let before = used()?;
        self.carries(Other::Flows, QUOTA, &Load::MANY_FLOWS)?;
        let after = used()?;
        let grew = after.iter().filter(|(queue, count)| before.get(queue) < Some(count)).count();
        ensure!(grew > 0, "no queue counts what it carried: {before:?}, {after:?}");
        Ok(match (grew, after.len()) {
            (_, 1) => "one queue".to_owned(),
            (1, all) => format!("all by one of {all}"),
            (grew, _) => format!("yes, by {grew}"),
        })
    }

    /// A limit in bytes, with what joins packets or keeps them together off, and then on.
    fn offloads(&self) -> Result<String> {
        let of_direction: &[Offload] = if self.way.is_out { &KEPT_TOGETHER } else { &JOINED };
        // Those that are on as well when they were to be off are not switched.
        let mut names = Vec::new();
        for (other, is_on) in [(Other::Apart, false), (Other::Together, true)] {
            let on = switched(&self.bed.receiver, &self.name, of_direction, is_on)?;
            let fixed = replace(&mut names, on);
            names.retain(|name| !fixed.contains(name));
            let far = self.address(other as u8);
            wait_until_it_works(self.bed, far)?;
            let near = (&*self.bed.receiver, Ipv4Addr::from(NEAR));
            let far = (&*self.bed.sender, far);
            let got = if self.way.is_out { streamed(near, far)? } else { streamed(far, near)? };
            // The headers are part of it, and the last packets do not fit.
            ensure!(
                (BYTES / 2..=BYTES).contains(&got),
                "{got} bytes of a quota of {BYTES} with the offloads on: {is_on}"
            );
        }
        Ok(format!("yes: {}", names.join(", ")))
    }

    /// What is over its limit stays so.
    fn link(&self) -> Result<String> {
        let said = self.limiter.said().len();
        self.bed.receiver.ip(["link", "set", &self.name, "down"])?;
        self.bed.receiver.ip(["link", "set", &self.name, "up"])?;
        let carried = self.carries(Other::First, 0, &Load::ONE_FLOW);
        let later = self.limiter.said().split_off(said);
        ensure!(!later.contains(&self.name), "it did not stay attached: {later}");
        if carried.is_err() {
            // That it is lost is a fact of the driver's, for the table, if nothing is held at all.
            self.carries(Other::First, Load::ONE_FLOW.datagrams, &Load::ONE_FLOW)?;
            return Ok("**limit lost**".to_owned());
        }
        Ok("yes".to_owned())
    }

    /// By its driver, as one that is pulled and plugged in again. What is over its limit stays so.
    fn again(&self) -> Result<String> {
        let said = self.limiter.said().len();
        self.unplug()?;
        let limited = self.plug("1500")?;
        ensure!(limited.is_ok(), "{limited:?}");
        let said = self.limiter.said().split_off(said);
        for words in ["is not here any more", "matches a pattern, and is limited"] {
            let line = format!("{} {words}", self.name);
            ensure!(said.contains(&line), "no {line:?} in {said}");
        }
        self.carries(Other::First, 0, &Load::ONE_FLOW)?;
        self.carries(Other::Again, QUOTA, &Load::ONE_FLOW)?;
        Ok("yes".to_owned())
    }

    /// False if the card had the large frames and could not give them to the kernel: no program has
    /// seen them then.
    fn carries_large(&self, other: Other) -> Result<bool> {
        let errors = || -> Result<u64> {
            let link = self.bed.receiver.link(&self.name)?;
            let errors = link.pointer("/stats64/rx/errors").and_then(Value::as_u64);
            errors.context("no count of errors")
        };
        let before = errors()?;
        let carried = self.carries(other, QUOTA, &LARGE.1);
        if carried.is_err() && errors()? >= before + LARGE.1.datagrams {
            return Ok(false);
        }
        carried.map(|()| true)
    }

    /// Set while limiter is attached, and before it is.
    fn large(&self) -> Result<String> {
        let set = self.bed.receiver.ip(["link", "set", &self.name, "mtu", LARGE.0]);
        let later = set.ok().map(|_| self.carries_large(Other::Grown)).transpose()?;
        self.unplug()?;
        if let Err(refused) = self.plug(LARGE.0)? {
            return Ok(refused);
        }
        let cell = match (later, self.carries_large(Other::Large)?) {
            (Some(true), true) => "yes",
            (None, true) => "yes, but not while attached",
            (_, false) | (Some(false), _) => "lost by the emulated card",
        };
        Ok(cell.to_owned())
    }
}

/// `--mode auto` is native where the driver has it and keeps the program, and generic elsewhere, so
/// that no link that goes down and up takes the limit away.
#[test]
#[ignore = "of cards: `cargo xtask bench cards`"]
fn auto_keeps_the_limit_on_every_card() -> Result<()> {
    const NATIVE: [&str; 2] = ["virtio_net", "igb"];
    require_root();
    let Some(pairs) = cards::pairs()? else {
        eprintln!("not tried: this machine has no cards for it, `cargo xtask bench cards` has");
        return Ok(());
    };
    let way = Way { name: "XDP auto", options: &["--mode", "auto"], is_out: false };
    let bed = Testbed::create("cards")?;
    let mut limiter = bed.limiter(&quotas(way.is_out))?;
    limiter.on("dut*").options(way.options.iter().copied());
    limiter.start()?;
    for (place, pair) in (0..).zip(&pairs) {
        let driver = pair.driver.as_str();
        let Some([card, far]) = pair.found()? else { continue };
        let (name, bed, limiter) = (format!("dut{place}"), &bed, &limiter);
        let tried = Tried { bed, limiter, way: &way, card: &card, name, place };
        far.give(&bed.sender, FAR)?;
        tried.far_up()?;
        let plugged = tried.plug("1500")?;
        ensure!(plugged.is_ok(), "{driver}: {plugged:?}");
        let status = limiter.json(&["status"])?;
        let all = status["interfaces"].as_array().context("no interfaces")?;
        let own = all.iter().find(|one| one["name"] == tried.name.as_str());
        let mode = own.context("not in the status")?["mode"].clone();
        let wanted = if NATIVE.contains(&driver) { "native" } else { "generic" };
        println!("{driver}: {mode}");
        ensure!(mode == wanted, "{driver}: {mode} and not {wanted}");
        tried.holds().with_context(|| driver.to_owned())?;
        let link = tried.link().with_context(|| driver.to_owned())?;
        ensure!(link == "yes", "{driver}: {link}");
        card.take_back(&bed.receiver, &tried.name)?;
        far.take_back(&bed.sender, FAR)?;
    }
    limiter.close()?;
    bed.close()
}

/// Each card at XDP in native mode: attached with its limit held, or refused.
#[test]
#[ignore = "of cards: `cargo xtask bench cards`"]
fn xdp_native() -> Result<()> {
    rows(&Way { name: "XDP native", options: &["--mode", "native"], is_out: false })
}

/// Each card at XDP in generic mode: attached with its limit held, or refused.
#[test]
#[ignore = "of cards: `cargo xtask bench cards`"]
fn xdp_generic() -> Result<()> {
    rows(&Way { name: "XDP generic", options: &["--mode", "generic"], is_out: false })
}

/// Each card at tc on the way in: attached with its limit held, or refused.
#[test]
#[ignore = "of cards: `cargo xtask bench cards`"]
fn tc_in() -> Result<()> {
    rows(&Way { name: "tc in", options: &["--hook", "tc"], is_out: false })
}

/// Each card at tc on the way out: attached with its limit held, or refused.
#[test]
#[ignore = "of cards: `cargo xtask bench cards`"]
fn tc_out() -> Result<()> {
    rows(&Way { name: "tc out", options: &["--direction", "out"], is_out: true })
}
