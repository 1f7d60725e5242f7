//! Counts what every rule let through, by where it is from, at the INPUT hook: where a packet has
//! passed all of them and would go to a socket. There it ends.

use anyhow::{Context as _, Result};
use limiter_tests::command;
use limiter_tests::netns::Netns;
use serde_json::Value;

use super::traffic::Class;

const TABLE: &str = "tally";
const FLOOD: &str = "flood";
/// Of [`limiter_tests::live_frames::Family::V4`].
const FLOOD_PREFIX: &str = "16.0.0.0/4";

/// Packets that came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets of conforming sources, by [`Class::index`].
    pub classes: [u64; Class::COUNT],
    /// Packets of the flood's spoofed sources.
    pub flood: u64,
}

impl Counts {
    /// Counts since then.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut classes = self.classes;
        for (now, before) in classes.iter_mut().zip(before.classes) {
            *now -= before;
        }
        Self { classes, flood: self.flood - before.flood }
    }
}

/// Begins to count.
///
/// # Errors
///
/// Without `nft`.
pub fn start(netns: &Netns) -> Result<()> {
    let kinds = Class::ALL.iter().map(|class| (class.counter(), class.prefix()));
    let kinds: Vec<_> = kinds.chain([(FLOOD, FLOOD_PREFIX)]).collect();
    let counters = kinds.iter().map(|(name, _)| format!("counter {name} {{ }}\n"));
    let counters = counters.collect::<Vec<_>>().concat();
    let rules = kinds.iter();
    let rules = rules.map(|(name, prefix)| format!("ip saddr {prefix} counter name {name} drop\n"));
    let rules = rules.collect::<Vec<_>>().concat();
    let script = format!(
        "table ip {TABLE} {{\n{counters}chain input {{\n\
         type filter hook input priority 100;\n{rules}}}\n}}\n"
    );
    netns.enter(|| command::feed("nft", &["-f", "-"], &script))?
}

/// Counts so far.
///
/// # Errors
///
/// When `nft` does not report it.
pub fn read(netns: &Netns) -> Result<Counts> {
    let text = netns.run("nft", ["-j", "list", "counters", "table", "ip", TABLE])?;
    let listed: Value = serde_json::from_str(&text).context("`nft -j list counters`: not JSON")?;
    let packets = |name: &str| {
        let objects = listed["nftables"].as_array()?;
        let counter = objects.iter().find(|object| object["counter"]["name"] == name)?;
        counter["counter"]["packets"].as_u64()
    };
    let packets = |name: &str| packets(name).with_context(|| format!("no counter {name}"));
    let mut counts = Counts { flood: packets(FLOOD)?, ..Counts::default() };
    for (class, count) in Class::ALL.iter().zip(&mut counts.classes) {
        *count = packets(class.counter())?;
    }
    Ok(counts)
}
