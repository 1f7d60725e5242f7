//! The tools that are measured with real packets, and their rules.

use limiter_common::wire::Count;

/// A limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    /// This project: daemon and XDP program.
    Limiter,
    /// `iptables -m hashlimit`, by source address.
    Hashlimit,
    /// `iptables -m limit`, one bucket for all.
    Limit,
    /// `nft limit` in a dynamic set, by source address.
    Nft,
}

impl Tool {
    /// Every tool that is measured.
    pub const ALL: [Self; 4] = [Self::Limiter, Self::Hashlimit, Self::Limit, Self::Nft];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Limiter => "limiter",
            Self::Hashlimit => "iptables hashlimit",
            Self::Limit => "iptables limit",
            Self::Nft => "nft limit",
        }
    }

    /// The program that installs its rules, for the ones that are not ours.
    pub const fn program(self) -> Option<&'static str> {
        match self {
            Self::Limiter => None,
            Self::Hashlimit | Self::Limit => Some("iptables"),
            Self::Nft => Some("nft"),
        }
    }

    /// Bytes of a frame that a byte limit does not count: the peers see IP packets.
    pub const fn uncounted(self) -> u32 {
        match self {
            Self::Limiter => 0,
            Self::Hashlimit | Self::Limit | Self::Nft => 14,
        }
    }
}

/// One rule of one limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Tool of the rule.
    pub tool: Tool,
    /// Packets or bytes a second.
    pub per_second: u32,
    /// Unit that the rule counts.
    pub count: Count,
    /// Packets or bytes at once.
    pub burst: u32,
    /// True if the rule leaves the burst to the tool's default.
    pub default_burst: bool,
    /// Length of the frames sent, from the Ethernet header.
    pub frame: u32,
}

const fn packets(tool: Tool, per_second: u32, burst: u32) -> Contender {
    let count = Count::Packets;
    Contender { tool, per_second, count, burst, default_burst: false, frame: 60 }
}

const fn default(tool: Tool, per_second: u32) -> Contender {
    // Five packets with every one of the peers.
    Contender { default_burst: true, ..packets(tool, per_second, 5) }
}

const fn bytes(tool: Tool, per_second: u32, burst: u32, frame: u32) -> Contender {
    Contender { tool, per_second, count: Count::Bytes, burst, default_burst: false, frame }
}

/// Every rule that is measured.
pub const CONTENDERS: [Contender; 28] = [
    packets(Tool::Limiter, 100, 5),
    packets(Tool::Limiter, 1_000, 5),
    packets(Tool::Limiter, 1_000, 100),
    packets(Tool::Limiter, 6_000, 100),
    packets(Tool::Limiter, 10_000, 5),
    packets(Tool::Limiter, 10_000, 100),
    packets(Tool::Limiter, 60_000, 100),
    bytes(Tool::Limiter, 125_000, 125_000, 60),
    bytes(Tool::Limiter, 125_000, 125_000, 1514),
    bytes(Tool::Limiter, 12_500_000, 150_000, 1514),
    default(Tool::Hashlimit, 100),
    default(Tool::Hashlimit, 1_000),
    packets(Tool::Hashlimit, 1_000, 100),
    packets(Tool::Hashlimit, 6_000, 100),
    default(Tool::Hashlimit, 10_000),
    packets(Tool::Hashlimit, 10_000, 100),
    bytes(Tool::Hashlimit, 125_000, 125_000, 60),
    bytes(Tool::Hashlimit, 125_000, 125_000, 1514),
    packets(Tool::Limit, 1_000, 100),
    packets(Tool::Limit, 3_000, 100),
    packets(Tool::Limit, 6_000, 100),
    packets(Tool::Limit, 10_000, 100),
    default(Tool::Nft, 100),
    default(Tool::Nft, 1_000),
    default(Tool::Nft, 10_000),
    packets(Tool::Nft, 10_000, 100),
    bytes(Tool::Nft, 125_000, 125_000, 60),
    bytes(Tool::Nft, 125_000, 125_000, 1514),
];

impl Contender {
    /// Units that a frame costs as this tool counts it.
    pub const fn cost(&self) -> u32 {
        match self.count {
            Count::Packets | Count::Syns | Count::Flows => 1,
            Count::Bytes => self.frame - self.tool.uncounted(),
        }
    }

    /// The configured rate in frames a second.
    pub fn frames_per_second(&self) -> f64 {
        f64::from(self.per_second) / f64::from(self.cost())
    }

    /// Frames that empty a full bucket. The peers' byte buckets hold more than their burst: nft
    /// adds a second's worth, hashlimit doubles it.
    pub const fn spent(&self) -> u32 {
        match self.count {
            Count::Packets | Count::Syns | Count::Flows => self.burst * 5 / 4 + 5,
            Count::Bytes => 3 * self.burst / self.cost(),
        }
    }

    /// The limit in words: `10,000/s, burst 5`.
    pub fn limit(&self) -> String {
        use limiter_tests::sandbox::format::thousands;
        let (rate, burst) = (thousands(self.per_second.into()), thousands(self.burst.into()));
        let default = if self.default_burst { " (default)" } else { "" };
        match self.count {
            Count::Packets | Count::Syns | Count::Flows => {
                format!("{rate}/s, burst {burst}{default}")
            }
            Count::Bytes => {
                format!("{rate} B/s, burst {burst} B{default}, frames of {} B", self.frame)
            }
        }
    }
}
