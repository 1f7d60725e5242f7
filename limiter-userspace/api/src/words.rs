//! Words of requests and answers that are text in the code: what may stand there, for the
//! description of the API.

use utoipa::ToSchema;

/// Types of text and of numbers, each with examples.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident($of:ident): $($example:tt),*;)*) => {$(
        $(#[$about])*
        #[derive(ToSchema)]
        #[schema(examples($($example),*))]
        pub struct $name(pub $of);
    )*};
}

words! {
    /// An address or a prefix.
    Prefix(String):
        "192.0.2.7", "192.0.2.0/24", "2001:db8::/64", "203.0.113.0/25", "0.0.0.0/0", "::/0";
    /// Addresses and prefixes with commas between them.
    Prefixes(String):
        "192.0.2.7,192.0.2.0/24", "2001:db8::/64,203.0.113.0/25,192.0.2.7", "192.0.2.7";
    /// A prefix that sources are looked for in.
    Within(String): "192.0.2.0/24", "2001:db8::/48", "192.0.2.7";
    /// An address.
    Address(String):
        "192.0.2.7", "192.0.2.1", "203.0.113.1", "2001:db8::7", "::ffff:192.0.2.7", "10.0.0.1";
    /// An address, or an IPv6 /64.
    AnySource(String):
        "192.0.2.7", "192.0.2.1", "203.0.113.1", "2001:db8::7", "2001:db8::/64",
        "::ffff:192.0.2.7", "10.0.0.1";
    /// A line of text.
    Reason(String): "fail2ban sshd", "ticket 4711";
    /// A destination address.
    Destination(String): "198.51.100.1", "2001:db8::1";
    /// `PORT/PROTOCOL`, a protocol, or `any`.
    Port(String): "22/tcp", "53/udp", "icmp", "protocol/47", "any";
    /// `PORT/PROTOCOL`, a range of ports, a port, or a protocol.
    LimitedPort(String): "22/tcp", "8000-8080/udp", "443", "icmp";
    /// Direction of a rule's packets.
    Direction(String): "in", "out", "both";
    /// Direction of one packet.
    OneDirection(String): "in", "out";
    /// Flags of TCP.
    TcpFlags(String): "SYN", "SYN,ACK";
    /// Type of ICMP: a name or a number.
    IcmpType(String): "echo-request", "13";
    /// Source port.
    SourcePort(u16): 53, 40_000;
    /// Time to live.
    TimeToLive(u8): 64, 255;
    /// A moment in RFC 3339, in UTC.
    Moment(String): "2026-11-27T14:05:00Z", "2026-11-27T14:05:00.250Z";
    /// Name of an interface.
    InterfaceName(String): "fake0", "eth0";
    /// A DSCP: a name or a number.
    Dscp(String): "ef", "0";
    /// Piece of a larger packet.
    Fragment(String): "whole", "first", "later";
    /// Id of a VLAN tag.
    VlanId(u16): 5, 100;
    /// Bytes of a frame.
    FrameLength(u64): 60, 1514, 9000;
    /// Number of sources, from 1 to 1,000.
    SourceCount(u32): 1, 20, 1000;
    /// A rule file.
    RuleText(String):
        "descriptors: []\n",
        "descriptors: [{key: remote_address, rate_limit: {unit: second, requests_per_unit: 5}}]\n",
        "descriptors: [{key: destination_port, value: '22', rate_limits: [{unit: minute, \
         requests_per_unit: 5}, {unit: hour, requests_per_unit: 9, algorithm: fixed_window}]}]\n",
        "descriptors: [{key: vlan, budget: b}]\n\
         budgets: [{name: b, rate_limit: {unit: second, requests_per_unit: 5}}]\n",
        "nonsense";
}

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
