//! Targets of iptables.

use crate::firewall::Verdict;

/// Targets after which the next rule is asked, and that tell people something.
const GO_ON: [&str; 8] = ["AUDIT", "IDLETIMER", "LED", "LOG", "NFLOG", "TEE", "TRACE", "ULOG"];

/// Targets after which the next rule is asked, and that change the packet or what is known of it;
/// those that only translate addresses are among them.
const MARKS: [&str; 25] = [
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
    "MARK",
    "MASQUERADE",
    "NETMAP",
    "NOTRACK",
    "RATEEST",
    "REDIRECT",
    "SECMARK",
    "SET",
    "SNAT",
    "SNPT",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TOS",
    "TTL",
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
        name if MARKS.contains(&name) => Verdict::Marks(format!("the target {name}")),
        name if OTHER.contains(&name) => Verdict::Unknown(format!("the target {name}")),
        name => Verdict::Jump(name.to_owned()),
    }
}
