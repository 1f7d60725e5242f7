//! Why a capture cannot be explained.

use super::MAX_TRACKED;

/// Why a capture cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Opening or reading.
    #[error("{file}: {source}: name a capture file that you may read")]
    Read {
        /// Which.
        file: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It begins as neither format does.
    #[error(
        "{file}: neither pcap nor pcapng: write one with `tcpdump -w` or `dumpcap -w`, and unpack it if \
         it is compressed"
    )]
    NoCapture {
        /// Which.
        file: String,
    },
    /// What lies before the network header is not known.
    #[error(
        "{file}: link type {number} ({name}), neither Ethernet (1) nor raw IP (101): limiter starts at \
         the one or the other; capture on one such interface{remedy}"
    )]
    LinkType {
        /// Which.
        file: String,
        /// The number.
        number: i32,
        /// What it is.
        name: &'static str,
        /// What to avoid.
        remedy: &'static str,
    },
    /// The file ends within a packet.
    #[error(
        "{file}: it ends within packet {packet}: it was cut off while it was written; `editcap {file} \
         NEW` keeps the packets before it"
    )]
    CutOff {
        /// Which.
        file: String,
        /// The packet that is not all there.
        packet: u64,
    },
    /// The format is broken.
    #[error("{file}: packet {packet}: {what}: check the file with `capinfos`, or write it again")]
    Broken {
        /// Which.
        file: String,
        /// At or before which packet.
        packet: u64,
        /// What is wrong.
        what: &'static str,
    },
}

/// Why a packet cannot be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no room for more state.
    #[error(
        "packet {packet}: the packets before it have {MAX_TRACKED} sources, keys, flows and bans, and no \
         more are kept: explain a part of the capture (`editcap -r FILE PART 1-{before}`)",
        before = packet.saturating_sub(1)
    )]
    Full {
        /// Which one.
        packet: u64,
    },
}
