//! The tools that are flooded, and their rules: everybody may send the same, and has a table of the
//! same size.

use anyhow::{Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::testbed::Testbed;

use super::scene::Sample;
use super::traffic::LIMIT;
use crate::peers::{self, Hook, Kept, Limit, Of};

/// Packets at once that every rule allows a source.
const BURST: u32 = 100;

/// A limiter, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// No rule: what the stack itself takes.
    Nothing,
    /// This project: daemon and XDP program.
    Limiter,
    /// `iptables -m hashlimit` in raw PREROUTING. With a limit by the second it keeps an entry for
    /// a second after the last packet.
    Hashlimit,
    /// `iptables -m hashlimit`, asked to keep an entry for ten seconds.
    HashlimitKept,
    /// `nft limit` in a dynamic set at netdev ingress.
    Nft,
}

impl Tool {
    /// Every tool that is measured.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Limiter, Self::Hashlimit, Self::HashlimitKept, Self::Nft];

    /// Name in tables.
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
            Self::Hashlimit | Self::HashlimitKept => Some(IPTABLES),
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
        let rate = format!("{LIMIT}/second");
        let limit = Limit { name: NAME, rate: &rate, burst: BURST, entries, of: Of::All };
        let listed = match tool {
            Tool::Nothing => String::new(),
            Tool::Limiter => {
                let rules = format!(
                    "descriptors: [{{key: remote_address, rate_limit: {{unit: second, \
                     requests_per_unit: {LIMIT}, burst: {BURST}}}}}]"
                );
                let started = limiter.insert(bed.limiter(&rules)?);
                started.options(["--source-table", "hash"]);
                started.options(["--max-sources".to_owned(), entries.to_string()]).start()?;
                format!("{rules}, --source-table hash, --max-sources {entries}")
            }
            Tool::Hashlimit => peers::hashlimit(&bed.receiver, IPTABLES, &limit, "")?,
            Tool::HashlimitKept => peers::hashlimit(&bed.receiver, IPTABLES, &limit, EXPIRE)?,
            Tool::Nft => peers::nft(&bed.receiver, Hook::Ingress, Kept::Minute, &[limit])?,
        };
        Ok(Self { tool, limiter, listed })
    }

    /// Fails unless its table had no more room in a flood, or for limiter its budget for new
    /// entries.
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

const IPTABLES: &str = "iptables";

const NAME: &str = "floods";

const EXPIRE: &str = "--hashlimit-htable-expire 10000";
