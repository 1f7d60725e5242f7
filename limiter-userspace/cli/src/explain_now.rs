//! `limiter explain --from`: the daemon is asked about one packet.

use std::fmt::Write as _;

use super::args::Explain;
use super::living;

/// A packet to ask the daemon about.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    /// Ask the daemon about a packet from this address, or from an IPv6 /64
    #[arg(long, value_name = "ADDRESS", conflicts_with = "pcap", add = living::sources())]
    pub(super) from: Option<String>,
    /// Destination of the packet: 22/tcp, 53/udp, icmp, protocol/47 or any [default: any]
    #[arg(long, value_name = "PORT/PROTOCOL", requires = "from")]
    pub(super) to: Option<String>,
    /// TCP flags of the packet, as in SYN or SYN,ACK
    #[arg(long, value_name = "FLAGS", requires = "to")]
    pub(super) flags: Option<String>,
    /// ICMP type of the packet: a name as in echo-request, or a number [default: echo-request]
    #[arg(long, value_name = "TYPE", requires = "to")]
    pub(super) icmp_type: Option<String>,
    /// Source port of the packet
    #[arg(long, value_name = "PORT", requires = "to")]
    pub(super) source_port: Option<u16>,
    /// Time to live of the packet, or its hop limit [default: 64]
    #[arg(long, value_name = "TTL", requires = "from")]
    pub(super) ttl: Option<u8>,
    /// Destination address of the packet
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    pub(super) destination: Option<String>,
    /// The id of its VLAN tag
    #[arg(long, value_name = "ID", requires = "from")]
    pub(super) vlan: Option<u16>,
    /// DSCP of the packet: a name as in ef, or a number
    #[arg(long, value_name = "DSCP", requires = "from")]
    pub(super) dscp: Option<String>,
    /// Piece of a larger packet that it is: whole, first or later
    #[arg(long, value_name = "PIECE", requires = "from")]
    pub(super) fragment: Option<String>,
    /// The bytes of its frame [default: 60, the shortest]
    #[arg(long, value_name = "BYTES", requires = "from")]
    pub(super) length: Option<u64>,
}

/// The path to ask at; none if it is about a capture.
pub(super) fn ask(what: &Explain) -> Option<String> {
    let Question {
        from,
        to,
        flags,
        icmp_type,
        source_port,
        ttl,
        destination,
        vlan,
        dscp,
        fragment,
        length,
    } = &what.question;
    let mut path = format!("/v1/explain?from={}", escaped(from.as_ref()?));
    let fields = [
        ("to", to.clone()),
        ("flags", flags.clone()),
        ("icmp_type", icmp_type.clone()),
        ("source_port", source_port.map(|port| port.to_string())),
        ("ttl", ttl.map(|ttl| ttl.to_string())),
        ("destination", destination.clone()),
        ("interface", what.interface.clone()),
        ("vlan", vlan.map(|id| id.to_string())),
        ("dscp", dscp.clone()),
        ("fragment", fragment.clone()),
        ("length", length.map(|length| length.to_string())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            path = format!("{path}&{name}={}", escaped(&value));
        }
    }
    Some(path)
}

/// All that is not plain in a URL.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"./:-_".contains(&byte) {
            escaped.push(byte.into());
        } else {
            // A string takes everything.
            let _: std::fmt::Result = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}
