//! The arguments of `explain`: about a capture, or about one packet now.

#[cfg(feature = "replay")]
use std::path::PathBuf;

use limiter_api::explain::AskExplain;

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
        help_heading = CAPTURE, long, value_name = "FILE", required_unless_present = "whom",
        conflicts_with = "whom",
    )]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    question: Question,
    #[cfg(feature = "replay")]
    #[command(flatten)]
    pub(crate) own: OwnArgument,
    #[cfg(feature = "replay")]
    /// A rule file, or a directory of them; may be repeated [default: no rules]
    #[arg(
        help_heading = CAPTURE, long, value_name = "FILE|DIR", conflicts_with = "whom",
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
        conflicts_with = "whom",
    )]
    pub(crate) max_frame: u64,
    #[cfg(feature = "replay")]
    /// Sums by source and rule, and no line for each packet
    #[arg(help_heading = CAPTURE, long, conflicts_with = "whom")]
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

/// A packet to ask the daemon about.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "A packet now")]
pub(crate) struct Question {
    /// Ask the daemon about a packet from this address, or from an IPv6 /64
    #[arg(value_name = "ADDRESS", add = completion_values::sources(), group = "whom")]
    #[cfg_attr(not(feature = "replay"), arg(required_unless_present = "from"))]
    address: Option<String>,
    #[command(flatten)]
    packet: AskExplain,
}

impl Explain {
    /// The question for the daemon; `None` if it is about a capture.
    pub(crate) fn asked(&self) -> Option<AskExplain> {
        #[cfg(feature = "replay")]
        if self.pcap.is_some() {
            return None;
        }
        let Question { address, packet } = &self.question;
        let from = address.as_ref().unwrap_or(&packet.from).clone();
        Some(AskExplain { from, interface: self.interface.clone(), ..packet.clone() })
    }
}
