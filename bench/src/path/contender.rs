//! The tools at the receiving end, under one limit for every source.

use anyhow::Result;
use aya::Ebpf;
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::RECEIVER;

use super::programs::{self, Program};
use crate::peers::{self, Hook, Kept, Of};

/// A way to drop packets, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// No rule: everything goes to a socket that nobody reads.
    Nothing,
    /// An XDP program that drops every packet, native: the least that this way costs.
    Drop,
    /// An XDP program written by hand: clock, header, one look-up, one exchange.
    Paced,
    /// This project, native.
    Limiter,
    /// This project, native, with the buckets of sources in lines.
    Lines,
    /// This project, in generic mode.
    Generic,
    /// The hand-written program at tc, for what comes in.
    PacedTc,
    /// `nft limit` in a dynamic set at netdev ingress.
    NftIngress,
    /// `nft limit` in a dynamic set in prerouting at raw priority.
    NftPrerouting,
    /// `iptables -m hashlimit` in raw PREROUTING.
    Hashlimit,
    /// A program at tc that drops everything: the least that this way costs.
    DropTc,
    /// This project at tc.
    LimiterTc,
    /// This project at tc, with the buckets of sources in lines.
    LinesTc,
    /// `tc police`, for what comes in.
    Police,
    /// What goes out is dropped at tc. What has come in is routed back to its source.
    DropOut,
    /// The hand-written program at tc, for what goes out.
    PacedOut,
    /// This project at tc, for what goes out.
    LimiterOut,
    /// This project at tc, for what goes out, with buckets in lines.
    LinesOut,
    /// `nft limit` in a dynamic set at netdev egress.
    NftEgress,
    /// `tc police`, for what goes out.
    PoliceOut,
}

impl Tool {
    /// Tools that are measured beside the bare drop at XDP.
    pub const ALL: [Self; 10] = [
        Self::Nothing,
        Self::Drop,
        Self::Paced,
        Self::Limiter,
        Self::Lines,
        Self::Generic,
        Self::PacedTc,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Hashlimit,
    ];

    /// Tools that are measured with a rule by port and source.
    pub const KEYED: [Self; 6] = [
        Self::Drop,
        Self::Limiter,
        Self::Lines,
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Hashlimit,
    ];

    /// Tools that are measured beside the bare drop at tc: of what comes in, and of what goes out.
    pub const AT_TC: [[Self; 6]; 2] = [
        [
            Self::DropTc,
            Self::PacedTc,
            Self::LimiterTc,
            Self::LinesTc,
            Self::NftIngress,
            Self::Police,
        ],
        [
            Self::DropOut,
            Self::PacedOut,
            Self::LimiterOut,
            Self::LinesOut,
            Self::NftEgress,
            Self::PoliceOut,
        ],
    ];

    /// Tools that limiter is to be ahead of, at one hook or the other.
    pub const PEERS: [Self; 6] = [
        Self::NftIngress,
        Self::NftPrerouting,
        Self::Hashlimit,
        Self::Police,
        Self::NftEgress,
        Self::PoliceOut,
    ];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no filter",
            Self::Drop => "bare XDP drop",
            Self::Paced => "hand-written XDP",
            Self::Limiter => "limiter, native",
            Self::Lines => "limiter, native, lines",
            Self::Generic => "limiter, generic",
            Self::PacedTc | Self::PacedOut => "hand-written, tc",
            Self::NftIngress => "nft, netdev ingress",
            Self::NftPrerouting => "nft, raw prerouting",
            Self::Hashlimit => "hashlimit, raw",
            Self::DropTc | Self::DropOut => "bare drop, tc",
            Self::LimiterTc | Self::LimiterOut => "limiter, tc",
            Self::LinesTc | Self::LinesOut => "limiter, tc, lines",
            Self::Police | Self::PoliceOut => "tc police",
            Self::NftEgress => "nft, netdev egress",
        }
    }

    /// True if the tool looks at sources.
    pub const fn limits(self) -> bool {
        !matches!(self, Self::Nothing) && !self.is_bare()
    }

    /// True if it drops everything, and does nothing else.
    pub const fn is_bare(self) -> bool {
        matches!(self, Self::Drop | Self::DropTc | Self::DropOut)
    }

    /// True if it is `tc police`, which has one bucket, and no rate under a packet a minute.
    pub const fn is_police(self) -> bool {
        matches!(self, Self::Police | Self::PoliceOut)
    }

    /// True if it has its sources in lines.
    pub const fn is_in_lines(self) -> bool {
        matches!(self, Self::Lines | Self::LinesTc | Self::LinesOut)
    }

    /// True if it is for what goes out.
    pub const fn is_out(self) -> bool {
        matches!(
            self,
            Self::DropOut
                | Self::PacedOut
                | Self::LimiterOut
                | Self::LinesOut
                | Self::NftEgress
                | Self::PoliceOut
        )
    }
}

/// Limit of every source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// One packet an hour: the first of each source, in any run.
    Once,
    /// [`Limit::Once`] of packets to [`PORT`] of UDP.
    OnceToPort,
    /// [`Limit::Wide`] of packets to [`PORT`], of those of UDP, and of those with a code point, and
    /// then [`Limit::Once`] of those with a time to live: each packet has them all, and is charged
    /// to three rules before the fourth drops it.
    Four,
    /// 2,000 packets a second, 100 at once.
    Wide,
}

impl Limit {
    /// Packets, the time that they are for, and packets at once.
    pub const fn parts(self) -> (u32, &'static str, u32) {
        match self {
            Self::Once | Self::OnceToPort | Self::Four => (1, "hour", 1),
            Self::Wide => (2_000, "second", 100),
        }
    }

    /// For the hand-written program: nanoseconds that a packet costs, and how far ahead one may be.
    const fn pace(self) -> (u64, u64) {
        let (rate, unit, burst) = self.parts();
        let seconds = if unit.len() == "hour".len() { 3_600 } else { 1 };
        let cost = seconds * 1_000_000_000 / rate as u64;
        (cost, cost * (burst as u64 - 1))
    }

    /// For limiter: everybody has it. Of what goes out, only a rule for all packets.
    fn rules(self, is_out: bool) -> String {
        let rules = self.each().iter().map(|(limit, of)| {
            let (rate, unit, burst) = limit.parts();
            let direction = if is_out { "direction: out, " } else { "" };
            let of_source = format!(
                "{{key: remote_address, {direction}rate_limit: {{unit: {unit}, requests_per_unit: \
                 {rate}, burst: {burst}}}}}"
            );
            let within = |key: &str| format!("{{key: {key}, descriptors: [{of_source}]}}");
            match of {
                Of::All => of_source,
                Of::Udp => within("protocol, value: udp"),
                Of::Port(port) => format!(
                    "{{key: protocol, value: udp, descriptors: [{}]}}",
                    within(&format!("destination_port, value: \"{port}\""))
                ),
                Of::Dscp(point) => within(&format!("dscp, value: \"{point}\"")),
                Of::Ttl(ttl) => within(&format!("ttl, value: \"{ttl}\"")),
            }
        });
        format!("descriptors: [{}]", rules.collect::<Vec<_>>().join(", "))
    }

    /// The rules, in the order in which a packet meets them, each with a limit of one rule.
    const fn each(self) -> &'static [(Self, Of)] {
        match self {
            Self::Once => &[(Self::Once, Of::All)],
            Self::OnceToPort => &[(Self::Once, Of::Port(PORT))],
            Self::Wide => &[(Self::Wide, Of::All)],
            Self::Four => &[
                (Self::Wide, Of::Port(PORT)),
                (Self::Wide, Of::Udp),
                (Self::Wide, Of::Dscp(0)),
                (Self::Once, Of::Ttl(64)),
            ],
        }
    }
}

/// The room of limiter's table as it is shipped.
pub const SHIPPED: u32 = 262_144;

/// The room for keys as it is shipped.
const SHIPPED_KEYS: u32 = 65_536;

/// The discard port, where all frames go.
pub const PORT: u16 = 9;

/// Of tables and sets, one for each rule.
const NAMES: [&str; 4] = ["path", "path2", "path3", "path4"];

/// A tool at work.
pub struct Contender {
    limiter: Option<Limiter>,
    programs: Vec<Ebpf>,
    /// The rule as it was given, or as the tool lists it.
    pub listed: String,
}

impl Contender {
    /// Installs a tool at the receiving end of a testbed, with a table for so many sources.
    ///
    /// # Errors
    ///
    /// When it refuses.
    pub fn install(tool: Tool, bed: &Testbed, limit: Limit, entries: u32) -> Result<Self> {
        let netns = &bed.receiver;
        let rates = limit.each().iter().zip(NAMES).map(|((limit, of), name)| {
            let (rate, unit, burst) = limit.parts();
            (name, format!("{rate}/{unit}"), burst, *of)
        });
        let rates: Vec<_> = rates.collect();
        let rules: Vec<_> = rates
            .iter()
            .map(|(name, rate, burst, of)| peers::Limit {
                name,
                rate,
                burst: *burst,
                entries,
                of: *of,
            })
            .collect();
        let nft = |hook| peers::nft(netns, hook, Kept::Always, &rules);
        let (mut limiter, mut programs) = (None, Vec::new());
        let mut attach = |which| -> Result<String> {
            programs.push(programs::attach(which, netns, limit.pace(), entries)?);
            Ok(String::new())
        };
        if tool.is_out() {
            forward(netns)?;
            attach(Program::Turn)?;
        }
        let mut start = |at: [&str; 2], source_store: &str| -> Result<String> {
            let rules = limit.rules(tool.is_out());
            let started = limiter.insert(bed.limiter(&rules)?);
            started.options(at).options(["--source-table", source_store]);
            let at = at.join(" ");
            let listed = format!("`{rules}`, `{at}`, `--source-table {source_store}`");
            let (room, shipped) = match limit.each() {
                // A rule for what goes out has keys.
                [(_, Of::All)] if !tool.is_out() => ("--max-sources", SHIPPED),
                _ => ("--max-keys", SHIPPED_KEYS),
            };
            if entries == shipped {
                started.start()?;
                return Ok(listed);
            }
            started.options([room.to_owned(), entries.to_string()]).start()?;
            Ok(format!("{listed}, `{room} {entries}`"))
        };
        let listed = match tool {
            Tool::Nothing => String::new(),
            Tool::Drop => attach(Program::Drop)?,
            Tool::Paced => attach(Program::Paced)?,
            Tool::PacedTc => attach(Program::PacedTc)?,
            Tool::DropTc => attach(Program::DropTc)?,
            Tool::DropOut => attach(Program::DropOut)?,
            Tool::PacedOut => attach(Program::PacedOut)?,
            Tool::Limiter => start(["--mode", "native"], "hash")?,
            Tool::Lines => start(["--mode", "native"], "lines")?,
            Tool::Generic => start(["--mode", "generic"], "hash")?,
            Tool::LimiterTc => start(["--hook", "tc"], "hash")?,
            Tool::LinesTc => start(["--hook", "tc"], "lines")?,
            Tool::LimiterOut => start(["--direction", "out"], "hash")?,
            Tool::LinesOut => start(["--direction", "out"], "lines")?,
            Tool::NftEgress => nft(Hook::Egress)?,
            Tool::Police => peers::police(netns, RECEIVER.interface, "ingress")?,
            Tool::PoliceOut => peers::police(netns, RECEIVER.interface, "egress")?,
            Tool::NftIngress => nft(Hook::Ingress)?,
            Tool::NftPrerouting => nft(Hook::Prerouting)?,
            Tool::Hashlimit => {
                let each = rules.iter().map(|rule| peers::hashlimit(netns, iptables(), rule, ""));
                each.collect::<Result<Vec<_>>>()?.join("; ")
            }
        };
        Ok(Self { limiter, programs, listed })
    }

    /// Takes it down.
    ///
    /// # Errors
    ///
    /// When limiter does not end in order.
    pub fn close(self) -> Result<()> {
        drop(self.programs);
        self.limiter.map_or(Ok(()), Limiter::close)
    }
}

/// Lets a namespace route what comes in, from an address of its own, back by the same interface.
fn forward(netns: &Netns) -> Result<()> {
    let interface = RECEIVER.interface;
    netns.sysctl("ipv4/ip_forward", "1")?;
    netns.sysctl(&format!("ipv4/conf/{interface}/accept_local"), "1")?;
    for scope in ["all", interface] {
        netns.sysctl(&format!("ipv4/conf/{scope}/send_redirects"), "0")?;
    }
    Ok(())
}

/// The older of the two, which is a little faster, if it is there.
pub fn iptables() -> &'static str {
    let there = limiter_tests::command::run("iptables-legacy", ["--version"]).is_ok();
    if there { "iptables-legacy" } else { "iptables" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_written_program_has_the_same_limit() {
        assert_eq!(Limit::Once.pace(), (3_600_000_000_000, 0));
        assert_eq!(Limit::Wide.pace(), (500_000, 49_500_000));
        assert_eq!(Limit::Four.each().len(), 4);
    }
}
