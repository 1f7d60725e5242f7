//! `limiter explain --from`: the daemon is asked about one packet.

use std::fmt::Write as _;

use crate::args::explain::{Explain, Question};

/// The path of the request; `None` if the question is about a capture.
pub(crate) fn ask(what: &Explain) -> Option<String> {
    let Question {
        address,
        from,
        direction,
        to,
        flags,
        icmp_type,
        source_port,
        ttl,
        destination,
        source,
        vlan,
        dscp,
        fragment,
        length,
    } = &what.question;
    let mut path = format!("/v1/explain?from={}", escaped(address.as_ref().or(from.as_ref())?));
    let fields = [
        ("direction", direction.asked().map(str::to_owned)),
        ("to", to.clone()),
        ("flags", flags.clone()),
        ("icmp_type", icmp_type.clone()),
        ("source_port", source_port.map(|port| port.to_string())),
        ("ttl", ttl.map(|ttl| ttl.to_string())),
        ("destination", destination.clone()),
        ("source", source.clone()),
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

/// Escapes everything that is not plain in a URL.
pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"./:-_".contains(&byte) {
            escaped.push(byte.into());
        } else {
            // Writing to a `String` cannot fail.
            let _: std::fmt::Result = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}
