//! Remarks about the packets of captures that were left out.

use std::net::IpAddr;

use limiter_api::render::number;
use limiter_replay::explain::{LeftOut, Own};

/// Argument of the commands that read captures: whose packets are not judged.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct OwnArgument {
    /// An address of the host that captured: what it sent is left out, as only what comes in is
    /// judged; may be repeated; `none` leaves nothing out [default: found from the packets, where
    /// one address is an end of nearly all of them]
    #[arg(long, value_name = "ADDRESS|none", value_parser = own, requires = "pcap")]
    own: Vec<OwnValue>,
}

/// One value of [`OwnArgument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnValue {
    Address(IpAddr),
    None,
}

fn own(text: &str) -> Result<OwnValue, String> {
    if text == "none" {
        return Ok(OwnValue::None);
    }
    let address = text.parse::<IpAddr>().map(|address| OwnValue::Address(address.to_canonical()));
    address
        .map_err(|_no_address| "write an address, as in 192.0.2.1 or 2001:db8::1, or none".into())
}

impl OwnArgument {
    pub(crate) fn own(&self) -> Own {
        if self.own.is_empty() {
            return Own::Recognised;
        }
        let address = |value: &OwnValue| match value {
            OwnValue::Address(address) => Some(*address),
            OwnValue::None => None,
        };
        Own::Named(self.own.iter().filter_map(address).collect())
    }
}

/// Adds what was left out of one capture to the sum.
pub(crate) fn add(sum: &mut LeftOut, of: LeftOut) {
    sum.outgoing += of.outgoing;
    sum.again += of.again;
    for (address, packets) in of.own {
        *sum.own.entry(address).or_default() += packets;
    }
    sum.recognised |= of.recognised;
    sum.either = sum.either.or(of.either);
    sum.too_late.extend(of.too_late);
}

pub(crate) fn lines(left_out: &LeftOut) -> Vec<String> {
    let mut lines = Vec::new();
    let mut counted = |count: u64, what: &str| {
        if count > 0 {
            lines.push(format!("{} packets {what}", number(count)));
        }
    };
    counted(left_out.outgoing, "went out, as the capture says, and were left out");
    counted(
        left_out.again,
        "stand in the capture a second time, as behind an XDP program, and were counted once",
    );
    for (address, packets) in &left_out.own {
        let packets = number(*packets);
        lines.push(if left_out.recognised {
            format!(
                "{packets} packets are from {address}, an end of nearly all packets, so this \
                 host sent them: only what comes in is judged, and they were left out; `--own \
                 none` counts them"
            )
        } else {
            format!("{packets} packets are from {address}, and were left out, as --own says")
        });
    }
    if let Some((one, other)) = left_out.either {
        lines.push(format!(
            "both directions are in the capture, and {one} or {other} may be this host: what it \
             sent counts here, as if it came in; name it, as in `--own {one}`"
        ));
    }
    for address in &left_out.too_late {
        lines.push(format!(
            "both directions are in the capture: {address} is an end of nearly all packets, so \
             this host, and what it sent is among the packets above; `--own {address}` leaves it \
             out"
        ));
    }
    lines
}
