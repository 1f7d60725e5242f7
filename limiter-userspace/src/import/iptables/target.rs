//! Targets of iptables.

use crate::import::firewall::Verdict;

/// Targets after which the next rule is asked, and those that only translate addresses.
const GO_ON: [&str; 33] = [
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DNAT",
    "DNPT",
    "DSCP",
    "ECN",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NFLOG",
    "NOTRACK",
    "RATEEST",
    "REDIRECT",
    "SECMARK",
    "SET",
    "SNAT",
    "SNPT",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TEE",
    "TOS",
    "TRACE",
    "TTL",
    "ULOG",
];

/// Targets that decide in a way of their own.
const OTHER: [&str; 8] =
    ["CHAOS", "DELUDE", "NFQUEUE", "QUEUE", "STEAL", "SYNPROXY", "TARPIT", "TPROXY"];

/// The verdict of `-j NAME`.
pub(super) fn verdict(name: &str) -> Verdict {
    match name {
        "ACCEPT" => Verdict::Accept,
        "DROP" => Verdict::Drop,
        "REJECT" => Verdict::Reject,
        "RETURN" => Verdict::Return,
        name if GO_ON.contains(&name) => Verdict::Continue,
        name if OTHER.contains(&name) => Verdict::Unknown(format!("the target {name}")),
        name => Verdict::Jump(name.to_owned()),
    }
}
