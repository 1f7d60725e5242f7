//! Captures of real tools, and what tshark makes of every packet in them: an opinion on source
//! addresses, lengths and times that shares no code with limiter.
//!
//! `limiter-captures` records them ([`record`]); the test `captures` reads them.

pub mod record;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command;

/// Ends the name of the file with tshark's answer.
const ANSWER: &str = "tshark.txt";

/// Fields that tshark is asked for, in the order of the columns of [`Row`].
const FIELDS: [&str; 9] = [
    "frame.number",
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.protocols",
    "ip.src",
    "ipv6.src",
    "icmpv6.type",
    "ipv6.hlim",
];

/// Directory of the captures of the checkout.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("captures")
}

/// All captures in a directory, by name.
///
/// # Errors
///
/// When it cannot be read, or has none.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("cannot read {}", directory.display()))?;
    let mut captures = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot read {}", directory.display()))?.path();
        let kind = path.extension().and_then(|kind| kind.to_str());
        if matches!(kind, Some("pcap" | "pcapng")) {
            captures.push(path);
        }
    }
    captures.sort();
    ensure!(
        !captures.is_empty(),
        "no capture in {}: record them with `cargo xtask captures`",
        directory.display()
    );
    Ok(captures)
}

/// The file with tshark's answer on a capture.
pub fn answer_of(capture: &Path) -> PathBuf {
    let mut name = capture.as_os_str().to_owned();
    name.push(".");
    name.push(ANSWER);
    name.into()
}

/// The version line of the tshark on this machine; none without.
pub fn tshark() -> Option<String> {
    let text = command::run("tshark", ["--version"]).ok()?;
    text.lines().next().map(str::to_owned)
}

/// Asks the tshark of this machine: its answer, a line for each packet.
///
/// # Errors
///
/// When there is no tshark, or it does not take the file.
pub fn ask(capture: &Path) -> Result<String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-n", "-T", "fields", "-E", "occurrence=f", "-E", "separator=/t"]);
    // Every packet by itself.
    for reassembly in [
        "ip.defragment",
        "ipv6.defragment",
        "tcp.desegment_tcp_streams",
        "tcp.reassemble_out_of_order",
    ] {
        tshark.args(["-o", &format!("{reassembly}:FALSE")]);
    }
    for field in FIELDS {
        tshark.args(["-e", field]);
    }
    tshark.env("LC_ALL", "C").arg("-r").arg(capture);
    command::checked(&mut tshark)
}

/// Facts of one packet by tshark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the packet in the capture.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub nanos: u64,
    /// Length of the packet on the wire, in bytes.
    pub length: u64,
    /// Bytes that were captured of the packet.
    pub captured: u64,
    /// Headers of the packet, outermost first.
    pub protocols: Vec<String>,
    /// The source address of the outermost IP header. tshark shows none where the header's length
    /// field is below its minimum, or the header is cut.
    pub source: Option<std::net::IpAddr>,
    /// The type of `ICMPv6`.
    pub icmpv6: Option<u8>,
    /// The hop limit of the outermost IPv6 header.
    pub hop_limit: Option<u8>,
}

/// Reads an answer.
///
/// # Errors
///
/// When a line is not tshark's.
pub fn rows(answer: &str) -> Result<Vec<Row>> {
    let lines = answer.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| row(line).with_context(|| format!("not a line of tshark's: {line:?}")))
        .collect()
}

fn row(line: &str) -> Result<Row> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [number, time, length, captured, protocols, v4, v6, icmpv6, hops] = columns.as_slice()
    else {
        anyhow::bail!("{} columns, not {}", columns.len(), FIELDS.len());
    };
    let (seconds, fraction) = time.split_once('.').context("no time")?;
    ensure!(fraction.len() == 9, "a time without nanoseconds");
    let protocols: Vec<String> = protocols.split(':').map(str::to_owned).collect();
    let outermost = protocols.iter().find(|name| matches!(name.as_str(), "ip" | "ipv6"));
    let source = match outermost.map(String::as_str) {
        Some("ip") => *v4,
        Some(_) => *v6,
        None => "",
    };
    let source = match source {
        "" => None,
        address => Some(address.parse().context("no address")?),
    };
    let small = |text: &str| -> Result<Option<u8>> {
        if text.is_empty() { Ok(None) } else { Ok(Some(text.parse()?)) }
    };
    Ok(Row {
        number: number.parse()?,
        nanos: seconds.parse::<u64>()? * 1_000_000_000 + fraction.parse::<u64>()?,
        length: length.parse()?,
        captured: captured.parse()?,
        protocols,
        source,
        icmpv6: small(icmpv6)?,
        hop_limit: small(hops)?,
    })
}
