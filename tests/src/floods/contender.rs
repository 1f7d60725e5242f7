//! Who is flooded, and under which rules: everybody may send the same, and has a table of the same size.

use anyhow::{Context as _, Result, ensure};

use super::scene::Sample;
use super::traffic::LIMIT;
use crate::command;
use crate::limiter::Limiter;
use crate::netns::Netns;
use crate::testbed::Testbed;
use crate::veth::RECEIVER;

/// Packets at once that every rule allows a source.
const BURST: u32 = 100;

/// A limiter, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// No rule: what the stack itself takes.
    Nothing,
    /// This project: daemon and XDP program.
    Limiter,
    /// `iptables -m hashlimit` in raw PREROUTING. With a limit by the second it keeps an entry for a second
    /// after the last packet.
    Hashlimit,
    /// The same, told to keep an entry for ten seconds.
    HashlimitKept,
    /// `nft limit` in a dynamic set at netdev ingress.
    Nft,
}

impl Tool {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Limiter, Self::Hashlimit, Self::HashlimitKept, Self::Nft];

    /// For tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no filter",
            Self::Limiter => "limiter",
            Self::Hashlimit => "hashlimit",
            Self::HashlimitKept => "hashlimit, expire 10 s",
            Self::Nft => "nft dynamic set",
        }
    }

    /// The program that installs its rules, for the ones that are not ours.
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::Limiter => None,
            Self::Hashlimit | Self::HashlimitKept => Some("iptables"),
            Self::Nft => Some("nft"),
        }
    }
}

/// A tool with its rule installed.
#[derive(Debug)]
pub struct Contender {
    tool: Tool,
    limiter: Option<Limiter>,
    /// The rule as it was given, or as the tool lists it.
    pub listed: String,
}

impl Contender {
    /// Installs a tool at the receiving end of a testbed, with a table for so many sources.
    ///
    /// # Errors
    ///
    /// When the tool refuses the rule.
    pub fn install(tool: Tool, bed: &Testbed, entries: u32) -> Result<Self> {
        let mut limiter = None;
        let listed = match tool {
            Tool::Nothing => String::new(),
            Tool::Limiter => {
                let rules = format!(
                    "descriptors: [{{key: remote_address, rate_limit: {{unit: second, \
                     requests_per_unit: {LIMIT}, burst: {BURST}}}}}]"
                );
                let started = limiter.insert(bed.limiter(&rules)?);
                started.options(["--max-sources".to_owned(), entries.to_string()]).start()?;
                format!("{rules}, --max-sources {entries}")
            }
            Tool::Hashlimit => hashlimit(&bed.receiver, entries, "")?,
            Tool::HashlimitKept => hashlimit(&bed.receiver, entries, EXPIRE)?,
            Tool::Nft => nft(&bed.receiver, entries)?,
        };
        Ok(Self { tool, limiter, listed })
    }

    /// Fails unless its table had no more room in a flood, or for limiter its budget for new entries.
    ///
    /// # Errors
    ///
    /// When there was room: the flood was none.
    pub fn check_full(&self, netns: &Netns, entries: u32, samples: &[Sample]) -> Result<()> {
        match (self.tool, &self.limiter) {
            (Tool::Hashlimit | Tool::HashlimitKept, _) => {
                // No source of the flood is over its limit: only a full table makes it drop one.
                let dropped = |sample: &Sample| sample.dropped() > 0;
                ensure!(samples.iter().any(dropped), "hashlimit was not flooded");
            }
            (Tool::Nft, _) => {
                let set = ["list", "set", "netdev", NAME, "sources"];
                let held = netns.run("nft", set)?.matches(" expires ").count();
                let full = usize::try_from(entries)?;
                ensure!(held == full, "{held} of {entries} elements: nft was not flooded");
            }
            (_, Some(limiter)) => {
                let status = limiter.json(&["status"])?;
                let full =
                    status["no_room_for"].as_array().is_some_and(|tables| !tables.is_empty());
                ensure!(full, "limiter was not flooded: {status}");
            }
            (Tool::Nothing | Tool::Limiter, None) => {}
        }
        Ok(())
    }

    /// Takes it down.
    ///
    /// # Errors
    ///
    /// When limiter does not end in order.
    pub fn close(self) -> Result<()> {
        self.limiter.map_or(Ok(()), Limiter::close)
    }
}

/// Of tables and sets.
const NAME: &str = "floods";

const EXPIRE: &str = "--hashlimit-htable-expire 10000";

fn hashlimit(netns: &Netns, entries: u32, expire: &str) -> Result<String> {
    let rule = format!(
        "-A PREROUTING -i {} -m hashlimit --hashlimit-above {LIMIT}/s --hashlimit-burst {BURST} \
         --hashlimit-mode srcip --hashlimit-name {NAME} --hashlimit-htable-max {entries} \
         --hashlimit-htable-size {entries} {expire} -j DROP",
        RECEIVER.interface
    );
    netns.run("iptables", ["-t", "raw"].into_iter().chain(rule.split_whitespace()))?;
    let listed = netns.run("iptables", ["-t", "raw", "-S", "PREROUTING"])?;
    let listed = listed.lines().find(|line| line.contains("hashlimit"));
    listed.map(|rule| rule.trim().to_owned()).context("iptables does not list its rule")
}

/// Elements are kept for a minute, as in the examples of nft's wiki.
fn nft(netns: &Netns, entries: u32) -> Result<String> {
    let script = format!(
        "table netdev {NAME} {{\n\
           set sources {{ type ipv4_addr; size {entries}; flags dynamic; timeout 1m; }}\n\
           chain ingress {{\n\
             type filter hook ingress device {} priority -500;\n\
             update @sources {{ ip saddr limit rate over {LIMIT}/second burst {BURST} packets }} drop\n\
           }}\n\
         }}\n",
        RECEIVER.interface
    );
    netns.enter(|| command::feed("nft", &["-f", "-"], &script))??;
    let listed = netns.run("nft", ["list", "chain", "netdev", NAME, "ingress"])?;
    let rule = listed.lines().find(|line| line.contains("@sources"));
    let rule = rule.context("nft does not list its rule")?.trim();
    Ok(format!("{rule}, with set size {entries}, timeout 1m"))
}
