//! The arguments of `explain`: about a capture, or about one packet now.

#[cfg(feature = "replay")]
use std::path::PathBuf;

use clap::ValueEnum;

#[cfg(feature = "replay")]
use super::defaults::LEAST_FRAME;
#[cfg(feature = "replay")]
use crate::packets::reading::left_out::OwnArgument;
use crate::shell::completion_values;

/// Sources that are shown one by one unless `--top` says otherwise.
#[cfg(feature = "replay")]
const TOP_SOURCES: usize = 20;

/// Heading of the options about a capture.
#[cfg(feature = "replay")]
const CAPTURE: &str = "A capture";

/// Arguments of `explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    #[cfg(feature = "replay")]
    /// The capture: pcap or pcapng, also with gzip, of Ethernet, raw IP or `any`; `-` for standard
    /// input
    #[arg(
        help_heading = CAPTURE, long, value_name = "FILE", required_unless_present_any = ["from", "address"],
    )]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) question: Question,
    #[cfg(feature = "replay")]
    #[command(flatten)]
    pub(crate) own: OwnArgument,
    #[cfg(feature = "replay")]
    /// A rule file, or a directory of them; may be repeated [default: no rules]
    #[arg(
        help_heading = CAPTURE, long, value_name = "FILE|DIR", conflicts_with_all = ["from", "address"],
    )]
    pub(crate) rules: Vec<PathBuf>,
    #[cfg_attr(
        feature = "replay",
        doc = "The interface that the packets come in by: its name, or its index in a capture \
               [default: what a pcapng file says; the first that is limited]"
    )]
    #[cfg_attr(
        not(feature = "replay"),
        doc = "The interface that the packet comes in by [default: the first that is limited]"
    )]
    #[arg(long, value_name = "NAME|INDEX")]
    pub(crate) interface: Option<String>,
    #[cfg(feature = "replay")]
    /// The largest frame of the interface in bytes: the MTU, and 22 for Ethernet with two VLAN tags
    #[arg(
        help_heading = CAPTURE,
        long, value_name = "BYTES", default_value_t = LEAST_FRAME,
        value_parser = clap::value_parser!(u64).range(LEAST_FRAME..=131_071),
        conflicts_with_all = ["from", "address"],
    )]
    pub(crate) max_frame: u64,
    #[cfg(feature = "replay")]
    /// Sums by source and rule, and no line for each packet
    #[arg(help_heading = CAPTURE, long, conflicts_with_all = ["from", "address"])]
    pub(crate) summary: bool,
    #[cfg(feature = "replay")]
    /// With --summary: the sources to show, those first that lost most; all others are summed
    #[arg(
        help_heading = CAPTURE, long, value_name = "N", default_value_t = TOP_SOURCES, requires = "summary",
    )]
    pub(crate) top: usize,
    /// Same as --output json: a line for each packet, if --summary is not given, and a last one
    /// with the sums
    #[arg(long)]
    pub(crate) json: bool,
}

/// Directions of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OneWay {
    /// It comes in
    #[default]
    In,
    /// It goes out
    Out,
}

impl OneWay {
    /// The word to ask with, unless it is the default.
    pub(crate) const fn asked(self) -> Option<&'static str> {
        match self {
            Self::In => None,
            Self::Out => Some("out"),
        }
    }
}

/// A packet to ask the daemon about.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A packet now")]
pub(crate) struct Question {
    /// Ask the daemon about a packet from this address, or from an IPv6 /64
    #[arg(value_name = "ADDRESS", add = completion_values::sources(), group = "whom")]
    #[cfg_attr(feature = "replay", arg(conflicts_with = "pcap"))]
    #[cfg_attr(not(feature = "replay"), arg(required_unless_present = "from"))]
    pub(crate) address: Option<String>,
    /// The same as ADDRESS
    #[arg(long, value_name = "ADDRESS", add = completion_values::sources(), group = "whom")]
    #[cfg_attr(feature = "replay", arg(conflicts_with = "pcap"))]
    pub(crate) from: Option<String>,
    /// Whether the packet comes in, or goes out: then ADDRESS is its destination
    #[arg(long, value_enum, default_value = "in", requires = "whom")]
    pub(crate) direction: OneWay,
    /// Destination of the packet: 22/tcp, 53/udp, icmp, protocol/47 or any [default: any]
    #[arg(long, value_name = "PORT/PROTOCOL", requires = "whom")]
    pub(crate) to: Option<String>,
    /// TCP flags of the packet, as in SYN or SYN,ACK
    #[arg(long, value_name = "FLAGS", requires = "to")]
    pub(crate) flags: Option<String>,
    /// ICMP type of the packet: a name as in echo-request, or a number [default: echo-request]
    #[arg(long, value_name = "TYPE", requires = "to")]
    pub(crate) icmp_type: Option<String>,
    /// Source port of the packet
    #[arg(long, value_name = "PORT", requires = "to")]
    pub(crate) source_port: Option<u16>,
    /// Time to live of the packet, or its hop limit [default: 64]
    #[arg(long, value_name = "TTL", requires = "whom")]
    pub(crate) ttl: Option<u8>,
    /// Destination address of the packet
    #[arg(long, value_name = "ADDRESS", requires = "whom")]
    pub(crate) destination: Option<String>,
    /// Source address of a packet that goes out
    #[arg(long, value_name = "ADDRESS", requires = "whom")]
    pub(crate) source: Option<String>,
    /// The id of its VLAN tag
    #[arg(long, value_name = "ID", requires = "whom")]
    pub(crate) vlan: Option<u16>,
    /// DSCP of the packet: a name as in ef, or a number
    #[arg(long, value_name = "DSCP", requires = "whom")]
    pub(crate) dscp: Option<String>,
    /// Piece of a larger packet that it is: whole, first or later
    #[arg(long, value_name = "PIECE", requires = "whom")]
    pub(crate) fragment: Option<String>,
    /// The bytes of its frame [default: 60, the shortest]
    #[arg(long, value_name = "BYTES", requires = "whom")]
    pub(crate) length: Option<u64>,
}
