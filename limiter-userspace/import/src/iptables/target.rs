//! Targets of iptables.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_rules::model::Fact;

use crate::firewall::Verdict;
use crate::translation::{Change, To};

/// Targets that continue with the next rule and only report something.
const GO_ON: [&str; 8] = ["AUDIT", "IDLETIMER", "LED", "LOG", "NFLOG", "TEE", "TRACE", "ULOG"];

/// Targets that continue with the next rule after changing the packet or what is known about it.
const MARKS: [&str; 18] = [
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "MARK",
    "NOTRACK",
    "RATEEST",
    "SECMARK",
    "SET",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TOS",
    "TTL",
];

/// Targets that decide in their own way.
const OTHER: [&str; 8] =
    ["CHAOS", "DELUDE", "NFQUEUE", "QUEUE", "STEAL", "SYNPROXY", "TARPIT", "TPROXY"];

/// Targets that change headers, with the changed part.
const WRITE: [(&str, Fact); 4] =
    [("DSCP", Fact::Dscp), ("TOS", Fact::Dscp), ("TTL", Fact::Ttl), ("HL", Fact::Ttl)];

/// The part of the headers that a target changes.
pub(super) fn writes(name: &str) -> Option<Fact> {
    WRITE.iter().find(|(known, _)| *known == name).map(|(_, fact)| *fact)
}

/// The change of `-j NAME`, before its options are read. `later` means after routing.
pub(super) fn change(name: &str, later: bool) -> Option<Change> {
    let source = match name {
        "DNAT" | "REDIRECT" | "DNPT" => false,
        "SNAT" | "MASQUERADE" | "SNPT" => true,
        "NETMAP" => later,
        _ => return None,
    };
    let here = name == "REDIRECT";
    let ports = if matches!(name, "DNPT" | "SNPT" | "DNAT" | "SNAT") { To::Any } else { To::Same };
    Some(Change { source, here, addresses: To::Any, ports })
}

/// Reads an option of a translating target; false if it is unknown.
pub(super) fn option(change: &mut Change, option: &str, value: Option<&str>) -> bool {
    match option {
        "--to-ports" => change.ports = value.and_then(ports).map_or(To::Any, To::One),
        "--to-destination" | "--to-source" => {
            let (addresses, ports) = ends(value.unwrap_or_default());
            *change = Change { addresses, ports, ..*change }.settled();
        }
        "--to" => {
            change.addresses =
                value.and_then(super::matches::net).map_or(To::Any, |net| To::One(vec![net]));
        }
        "--random" | "--random-fully" | "--persistent" => {}
        "--src-pfx" | "--dst-pfx" => change.addresses = To::Any,
        _ => return false,
    }
    true
}

/// Reads `8080` or `8080-8090`.
fn ports(text: &str) -> Option<(u16, u16)> {
    let text = text.split('/').next().unwrap_or_default();
    let (low, high) = text.split_once('-').unwrap_or((text, text));
    let (low, high) = (low.parse().ok()?, high.parse().ok()?);
    (low <= high).then_some((low, high))
}

/// Reads `192.0.2.1-192.0.2.9:80-90`, with all of its parts.
fn ends(text: &str) -> (To<Vec<IpNet>>, To<(u16, u16)>) {
    let (addresses, behind) = match text.strip_prefix('[') {
        Some(inner) => inner.split_once(']').unwrap_or((inner, "")),
        None if text.matches(':').count() == 1 => text.split_at(text.find(':').unwrap_or(0)),
        None => (text, ""),
    };
    let to = match behind.strip_prefix(':') {
        Some(behind) => ports(behind).map_or(To::Any, To::One),
        None => To::Same,
    };
    if addresses.is_empty() {
        return (To::Same, to);
    }
    let (low, high) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let nets = match (low.parse::<IpAddr>(), high.parse::<IpAddr>()) {
        (Ok(low), Ok(high)) if low == high => Some(vec![IpNet::from(low)]),
        // A range could be any address.
        _ => None,
    };
    (nets.map_or(To::Any, To::One), to)
}

/// The verdict of `-j NAME`.
pub(super) fn verdict(name: &str) -> Verdict {
    match name {
        "ACCEPT" => Verdict::Accept,
        "DROP" => Verdict::Drop,
        "REJECT" => Verdict::Reject,
        "RETURN" => Verdict::Return,
        name if GO_ON.contains(&name) => Verdict::Continue,
        name if MARKS.contains(&name) => Verdict::Marks(format!("the target {name}")),
        name if OTHER.contains(&name) => Verdict::Unknown(format!("the target {name}")),
        name => Verdict::Jump(name.to_owned()),
    }
}
