//! The documents about why a packet would pass or not.

use serde::{Deserialize, Serialize};

/// The query of `GET /v1/explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AskExplain {
    /// The source: an address, or an IPv6 /64.
    pub from: String,
    /// `22/tcp`, `53/udp`, `icmp`, `protocol/47`, or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Flags of TCP, as in `SYN` or `SYN,ACK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags: Option<String>,
    /// The destination address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// The interface that it comes in by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The id of its VLAN tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its DSCP: a name or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dscp: Option<String>,
    /// `whole`, `first` or `later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragment: Option<String>,
    /// Bytes of the frame; the shortest of Ethernet when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
}

/// `GET /v1/explain`: what the program would do with a packet now, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainedNow {
    /// The packet in a line.
    pub packet: String,
    /// The source that is charged: an IPv4 address or an IPv6 /64.
    pub source: String,
    /// `pass` or `drop`.
    pub verdict: String,
    /// A reason of `GET /v1/stats`.
    pub reason: String,
    /// The rule that decides, if one does.
    pub rule: Option<String>,
    /// What happens to the packet, in words.
    pub happens: String,
    /// Nanoseconds until such a packet would pass; none for one that passes, and where no time helps.
    pub passes_in_ns: Option<u64>,
    /// Whether the answer holds whatever was not given, and nothing but other packets can change it.
    pub exact: bool,
    /// What the rules ask for and the question does not say, with what was assumed.
    pub assumed: Vec<String>,
    /// What was not looked at, because the question does not say enough.
    pub not_looked_at: Vec<String>,
    /// The rule set that judges it.
    pub generation: u64,
    /// Seconds that it is on trial for, if it is.
    pub trial_seconds_left: Option<u64>,
    /// All that is asked, in the order of the program.
    pub steps: Vec<ExplainStep>,
}

/// One thing that the program asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainStep {
    /// `brake`, `lists`, `bans`, `martians`, `table` with its number, `remote_address`.
    pub step: String,
    /// Whether the program comes to it.
    pub reached: bool,
    /// What it says: a reason of `GET /v1/stats`, or that there is nothing.
    pub says: String,
    /// The rule.
    pub rule: Option<String>,
    /// The name that the rule file gives it.
    pub name: Option<String>,
    /// `file`, `applied`, `cli` or `management`.
    pub origin: Option<String>,
    /// Where in the rule files it stands.
    pub place: Option<String>,
    /// The budget that it is charged to, if any.
    pub budget: Option<String>,
    /// What happens over its limits.
    pub action: Option<String>,
    /// Whether it only counts.
    pub shadow: bool,
    /// Whose bucket it is: the masked source, or the values of the keys.
    pub key: Option<String>,
    /// Packets that passed since there is a bucket; none without one.
    pub passed: Option<u64>,
    /// Packets that were dropped since.
    pub dropped: Option<u64>,
    /// The limits.
    pub limits: Vec<ExplainLimit>,
}

/// One limit, and how full it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExplainLimit {
    /// The limit, as in `10 syns/min burst 5`; that of a budget after its name.
    pub limit: String,
    /// What it counts: `packets`, `bytes`, `syns` or `flows`.
    pub count: String,
    /// What may come at once; none where that is not a number.
    pub size: Option<u64>,
    /// What would pass at once now.
    pub remaining: u64,
    /// Whether this packet is within it.
    pub conforms: bool,
    /// Nanoseconds until it is; none for never.
    pub conforms_in_ns: Option<u64>,
    /// Nanoseconds until nothing of it is used; none for never.
    pub full_in_ns: Option<u64>,
}
