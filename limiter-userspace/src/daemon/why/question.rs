//! The packet that somebody asks about, from words.

use std::net::IpAddr;

use limiter_common::packet::{ACK, FIN, Fragment, RST, SYN, TCP};
use limiter_common::wire::Count;

use crate::control::api::check::CheckSource;
use crate::control::api::explain::AskExplain;
use crate::daemon::error::ServiceError;
use crate::rules::model::names::{DSCPS, PROTOCOLS};
use crate::rules::source_text;

/// The shortest frame of Ethernet, without its checksum.
const LEAST_FRAME: u64 = 60;

/// Protocols whose packets have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, 17, 33, 132, 136];

/// Flags without a name in [`limiter_common::packet`]: RFC 9293.
const PSH: u8 = 0x08;
const URG: u8 = 0x20;

const FLAGS: [(&str, u8); 6] =
    [("syn", SYN), ("ack", ACK), ("fin", FIN), ("rst", RST), ("psh", PSH), ("urg", URG)];

/// What is known of the packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Question {
    pub(super) source: IpAddr,
    pub(super) destination: Option<IpAddr>,
    pub(super) protocol: Option<u8>,
    pub(super) port: Option<u16>,
    pub(super) flags: Option<u8>,
    pub(super) interface: Option<String>,
    pub(super) vlan: Option<u16>,
    pub(super) dscp: Option<u8>,
    pub(super) fragment: Option<Fragment>,
    /// Whether its length was given.
    pub(super) sized: bool,
    pub(super) length: u64,
}

impl Question {
    /// Reads the words.
    pub(in crate::daemon) fn parse(asked: &AskExplain) -> Result<Self, ServiceError> {
        let source = source_text::parse_address(&asked.from)?.to_canonical();
        let length = asked.length.unwrap_or(LEAST_FRAME);
        let most = Count::Bytes.max_units();
        if length == 0 || length > most {
            return Err(ServiceError::NoFrame { length, most });
        }
        let (protocol, port) = match asked.to.as_deref() {
            None | Some("any") => (None, None),
            Some(text) => to(text)?,
        };
        let flags = asked.flags.as_deref().map(flags).transpose()?;
        if flags.is_some() && protocol != Some(TCP) {
            return Err(wrong("flags", "only TCP has flags: write to=22/tcp, or leave flags out"));
        }
        let destination = asked.destination.as_deref().map(source_text::parse_address);
        let destination = destination.transpose()?.map(|address| address.to_canonical());
        if destination.is_some_and(|address| address.is_ipv4() != source.is_ipv4()) {
            return Err(wrong("destination", "it is of another IP version than the source"));
        }
        if asked.vlan.is_some_and(|id| id > 4094) {
            return Err(wrong("vlan", "ids are 0 to 4094"));
        }
        Ok(Self {
            source,
            destination,
            protocol,
            port,
            flags,
            interface: asked.interface.clone(),
            vlan: asked.vlan,
            dscp: asked.dscp.as_deref().map(dscp).transpose()?,
            fragment: asked.fragment.as_deref().map(fragment).transpose()?,
            sized: asked.length.is_some(),
            length,
        })
    }

    /// Whether a packet is asked about, and not a source.
    pub(super) const fn is_of_packet(&self) -> bool {
        self.protocol.is_some()
    }
}

impl From<&CheckSource> for AskExplain {
    fn from(asked: &CheckSource) -> Self {
        let CheckSource { address, length, to, flags, destination, interface } = asked.clone();
        Self { from: address, to, flags, destination, interface, length, ..Self::default() }
    }
}

fn wrong(word: &'static str, problem: impl Into<String>) -> ServiceError {
    ServiceError::Question { word, problem: problem.into() }
}

fn to(text: &str) -> Result<(Option<u8>, Option<u16>), ServiceError> {
    let help = || {
        let problem = format!(
            "{text:?} is no destination: write PORT/PROTOCOL as in 22/tcp, a protocol as in icmp or 47, or any"
        );
        wrong("to", problem)
    };
    let protocol = |name: &str| {
        let known = PROTOCOLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, number)| *number).or_else(|| name.parse().ok()).ok_or_else(help)
    };
    let Some((port, name)) = text.split_once('/') else {
        return Ok((Some(protocol(text)?), None));
    };
    let number = protocol(name)?;
    if !WITH_PORTS.contains(&number) {
        return Err(wrong("to", format!("{name} has no ports: write to={name}")));
    }
    Ok((Some(number), Some(port.parse().map_err(|_no_port| help())?)))
}

fn flags(text: &str) -> Result<u8, ServiceError> {
    let mut flags = 0;
    for name in text.split([',', '-', '+']).filter(|name| !name.eq_ignore_ascii_case("none")) {
        let known = FLAGS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let problem =
            || format!("{name:?} is no flag: write some of SYN,ACK,FIN,RST,PSH,URG, or none");
        flags |= known.ok_or_else(|| wrong("flags", problem()))?.1;
    }
    Ok(flags)
}

fn dscp(text: &str) -> Result<u8, ServiceError> {
    let known = DSCPS.iter().find(|(known, _)| known.eq_ignore_ascii_case(text));
    let number = known.map(|(_, number)| *number).or_else(|| text.parse().ok());
    let problem = || format!("{text:?} is no DSCP: write a name as in ef, or 0 to 63");
    number.filter(|number| *number < 64).ok_or_else(|| wrong("dscp", problem()))
}

fn fragment(text: &str) -> Result<Fragment, ServiceError> {
    let found = Fragment::ALL.into_iter().find(|piece| piece.name() == text);
    let problem = || format!("{text:?} is no piece of a packet: write whole, first or later");
    found.ok_or_else(|| wrong("fragment", problem()))
}

/// Flags as people write them.
pub(super) fn flags_text(flags: u8) -> String {
    let names = FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
    let names: Vec<_> = names.map(|(name, _)| name.to_uppercase()).collect();
    if names.is_empty() { "no flags".to_owned() } else { names.join(",") }
}

/// Whether packets of a protocol have ports.
pub(super) fn has_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(to: &str, flags: Option<&str>) -> Result<Question, String> {
        let (from, to) = ("192.0.2.1".to_owned(), Some(to.to_owned()));
        let flags = flags.map(str::to_owned);
        Question::parse(&AskExplain { from, to, flags, ..AskExplain::default() })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn destinations_are_ports_and_protocols() {
        for (text, protocol, port) in [
            ("22/tcp", Some(6), Some(22)),
            ("53/UDP", Some(17), Some(53)),
            ("5000/132", Some(132), Some(5000)),
            ("icmp", Some(1), None),
            ("47", Some(47), None),
            ("any", None, None),
        ] {
            let question = ask(text, None).unwrap();
            assert_eq!((question.protocol, question.port), (protocol, port), "{text}");
        }
        for (text, word) in [
            ("22", ""),
            ("x/tcp", "to: "),
            ("70000/tcp", "to: "),
            ("1/icmp", "no ports"),
            ("", "to: "),
        ] {
            match ask(text, None) {
                Ok(question) => assert_eq!(question.protocol, Some(22)),
                Err(error) => assert!(!word.is_empty() && error.contains(word), "{error}"),
            }
        }
    }

    #[test]
    fn flags_are_of_tcp() {
        for (text, flags) in
            [("SYN", SYN), ("syn,ack", SYN | ACK), ("syn-ack", SYN | ACK), ("none", 0)]
        {
            assert_eq!(ask("22/tcp", Some(text)).unwrap().flags, Some(flags), "{text}");
        }
        assert!(ask("22/tcp", Some("SIN")).unwrap_err().starts_with("flags: \"SIN\""));
        assert!(ask("53/udp", Some("SYN")).unwrap_err().contains("only TCP"));
    }
}
