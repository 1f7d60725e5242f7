//! Why a capture cannot be explained.

use super::bound::MAX_MEGABYTES;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Opening or reading failed.
    #[error("{file}: {source}: name a capture file that you may read")]
    Read {
        /// File that the error is about.
        file: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// Standard input is a terminal.
    #[error(
        "standard input is a terminal: pipe a capture into it, as in `tcpdump -w - ... | limiter \
         explain --pcap -`"
    )]
    Terminal,
    /// The file is empty.
    #[error("{file}: it is empty: write a capture with `tcpdump -w` or `dumpcap -w`")]
    Empty {
        /// File that the error is about.
        file: String,
    },
    /// The file must be unpacked first.
    #[error(
        "{file}: it is compressed ({name}): unpack it, as in `{unpack} FILE | limiter explain \
         --pcap -`"
    )]
    Compressed {
        /// File that the error is about.
        file: String,
        /// Kind of compression.
        name: &'static str,
        /// Program that unpacks.
        unpack: &'static str,
    },
    /// The compressed bytes cannot be unpacked.
    #[error(
        "{file}: its gzip is damaged: what is printed is of the packets before that: look with \
         `gzip -t`, and fetch the file again"
    )]
    Damaged {
        /// File that the error is about.
        file: String,
    },
    /// The file begins like neither format.
    #[error("{file}: neither pcap nor pcapng: write one with `tcpdump -w` or `dumpcap -w`")]
    NoCapture {
        /// File that the error is about.
        file: String,
    },
    /// The file ends before its first packet.
    #[error(
        "{file}: it ends within its header, before the first packet: it was cut off while it was \
         written: write it again"
    )]
    CutHeader {
        /// File that the error is about.
        file: String,
    },
    /// The link type of the packets is not known.
    #[error(
        "{file}: link type {number} ({name}), none of Ethernet (1), raw IP (101) and Linux cooked \
         (113, 276): limiter sees no others; capture on an interface of these{remedy}"
    )]
    LinkType {
        /// File that the error is about.
        file: String,
        /// Number of the link type.
        number: i32,
        /// Description of the link type.
        name: &'static str,
        /// Remedy after a comma; may be empty.
        remedy: &'static str,
    },
    /// The file ends within a packet.
    #[error(
        "{file}: it ends within {what} {packet}: it was cut off while it was written; what is \
         printed is of the packets before it: write it again for the rest"
    )]
    CutOff {
        /// File that the error is about.
        file: String,
        /// Where it ends: in a packet, or for pcapng in a block, which may contain no packet.
        what: &'static str,
        /// Number of the incomplete packet.
        packet: u64,
    },
    /// The format is broken.
    #[error(
        "{file}: packet {packet}: {what}: what is printed is of the packets before it: check the \
         file with `capinfos`, or write it again"
    )]
    Broken {
        /// File that the error is about.
        file: String,
        /// Number of the packet in or before which the format is broken.
        packet: u64,
        /// Error in the packet.
        what: &'static str,
    },
}

/// Why a packet cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no memory for more state.
    #[error(
        "packet {packet}: the sources, keys, flows and bans of the packets before it take \
         {MAX_MEGABYTES} MB of memory{over}, and that is the most: what is printed is of the \
         packets before it: {remedy} a part of the capture (`editcap -r FILE PART 1-{before}`)",
        before = packet.saturating_sub(1),
        over = if *candidates > 1 {
            format!(" with {candidates} rule sets side by side")
        } else {
            String::new()
        },
        remedy = if *candidates > 1 { "give fewer rule sets, or" } else { "give" },
    )]
    Full {
        /// Number of the packet in the capture, from 1.
        packet: u64,
        /// Number of rule sets side by side.
        candidates: usize,
    },
}
