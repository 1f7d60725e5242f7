//! Words of requests and answers that are text in the code: what may stand there, for the
//! description of the API.

use utoipa::ToSchema;

/// An address or a prefix.
#[derive(ToSchema)]
#[schema(examples(
    "192.0.2.7",
    "192.0.2.0/24",
    "2001:db8::/64",
    "203.0.113.0/25",
    "0.0.0.0/0",
    "::/0"
))]
pub struct Prefix(pub String);

/// Addresses and prefixes with commas between them.
#[derive(ToSchema)]
#[schema(examples(
    "192.0.2.7,192.0.2.0/24",
    "2001:db8::/64,203.0.113.0/25,192.0.2.7",
    "192.0.2.7"
))]
pub struct Prefixes(pub String);

/// A prefix that sources are looked for in.
#[derive(ToSchema)]
#[schema(examples("192.0.2.0/24", "2001:db8::/48", "192.0.2.7"))]
pub struct Within(pub String);

/// An address.
#[derive(ToSchema)]
#[schema(examples(
    "192.0.2.7",
    "192.0.2.1",
    "203.0.113.1",
    "2001:db8::7",
    "::ffff:192.0.2.7",
    "10.0.0.1"
))]
pub struct Address(pub String);

/// An address, or an IPv6 /64.
#[derive(ToSchema)]
#[schema(examples(
    "192.0.2.7",
    "192.0.2.1",
    "203.0.113.1",
    "2001:db8::7",
    "2001:db8::/64",
    "::ffff:192.0.2.7",
    "10.0.0.1"
))]
pub struct AnySource(pub String);

/// A line of text.
#[derive(ToSchema)]
#[schema(examples("fail2ban sshd", "ticket 4711"))]
pub struct Reason(pub String);

/// A destination address.
#[derive(ToSchema)]
#[schema(examples("198.51.100.1", "2001:db8::1"))]
pub struct Destination(pub String);

/// `PORT/PROTOCOL`, a protocol, or `any`.
#[derive(ToSchema)]
#[schema(examples("22/tcp", "53/udp", "icmp", "protocol/47", "any"))]
pub struct Port(pub String);

/// `PORT/PROTOCOL`, a range of ports, a port, or a protocol.
#[derive(ToSchema)]
#[schema(examples("22/tcp", "8000-8080/udp", "443", "icmp"))]
pub struct LimitedPort(pub String);

/// Direction of a rule's packets.
#[derive(ToSchema)]
#[schema(examples("in", "out", "both"))]
pub struct Direction(pub String);

/// Direction of one packet.
#[derive(ToSchema)]
#[schema(examples("in", "out"))]
pub struct OneDirection(pub String);

/// Flags of TCP.
#[derive(ToSchema)]
#[schema(examples("SYN", "SYN,ACK"))]
pub struct TcpFlags(pub String);

/// Type of ICMP: a name or a number.
#[derive(ToSchema)]
#[schema(examples("echo-request", "13"))]
pub struct IcmpType(pub String);

/// Source port.
#[derive(ToSchema)]
#[schema(examples(53, 40_000))]
pub struct SourcePort(pub u16);

/// Time to live.
#[derive(ToSchema)]
#[schema(examples(64, 255))]
pub struct TimeToLive(pub u8);

/// A moment in RFC 3339, in UTC.
#[derive(ToSchema)]
#[schema(examples("2026-11-27T14:05:00Z", "2026-11-27T14:05:00.250Z"))]
pub struct Moment(pub String);

/// Name of an interface.
#[derive(ToSchema)]
#[schema(examples("fake0", "eth0"))]
pub struct InterfaceName(pub String);

/// A DSCP: a name or a number.
#[derive(ToSchema)]
#[schema(examples("ef", "0"))]
pub struct Dscp(pub String);

/// Piece of a larger packet.
#[derive(ToSchema)]
#[schema(examples("whole", "first", "later"))]
pub struct Fragment(pub String);

/// Id of a VLAN tag.
#[derive(ToSchema)]
#[schema(examples(5, 100))]
pub struct VlanId(pub u16);

/// Bytes of a frame.
#[derive(ToSchema)]
#[schema(examples(60, 1514, 9000))]
pub struct FrameLength(pub u64);

/// Number of sources, from 1 to 1,000.
#[derive(ToSchema)]
#[schema(examples(1, 20, 1000))]
pub struct SourceCount(pub u32);

/// A rule file.
#[derive(ToSchema)]
#[schema(examples(
    "descriptors: []\n",
    "descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}]\n",
    "descriptors: [{key: destination_port, value: '22', rate_limits: [{unit: minute, \
     requests_per_unit: 5}, {unit: hour, requests_per_unit: 9, algorithm: fixed_window}]}]\n",
    "descriptors: [{key: vlan, budget: b}]\n\
     budgets: [{name: b, rate_limit: {unit: second, requests_per_unit: 5}}]\n",
    "nonsense"
))]
pub struct RuleText(pub String);

/// Mode in which a program is attached.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Mode {
    /// Attached in the driver.
    Native,
    /// Attached in the stack.
    Generic,
}

/// Kind of the limit above a soft one.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum UpperKind {
    /// A `ceiling`.
    Ceiling,
    /// A `peak`.
    Peak,
    /// An `excess`.
    Excess,
}

/// Unit that a limit counts.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Unit {
    /// Frames.
    Packets,
    /// Bytes of frames.
    Bytes,
    /// First packets of TCP connections.
    Syns,
    /// First packets of flows.
    Flows,
}

/// Verdict about a packet.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Verdict {
    /// Goes on.
    Pass,
    /// Goes nowhere.
    Drop,
}

/// Verdict about a packet of which not all is known.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum VerdictNow {
    /// Goes on.
    Pass,
    /// Goes nowhere.
    Drop,
    /// May go on or not: by what was not looked at.
    Unknown,
}

/// Origin of a rule that was asked.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum RuleOrigin {
    /// The rule files.
    File,
    /// `limiter run --limit`.
    Run,
    /// `limiter apply`.
    Applied,
    /// `limiter set`.
    Cli,
    /// A management prefix.
    Management,
}
