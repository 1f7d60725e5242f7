//! Parses a question about a packet.

use std::net::IpAddr;

use limiter_api::explain::AskExplain;
use limiter_common::header;
use limiter_common::header::{ACK, FIN, RST, SYN};
use limiter_common::wire::Count;
use limiter_rules::model::key::{Given, PROTOCOLS, has_ports};
use limiter_rules::model::{Direction, Fact};
use limiter_rules::source_text;

use crate::error::ServiceError;

/// The shortest Ethernet frame, without its checksum.
const LEAST_FRAME: u64 = 60;

/// Flags without a name in [`limiter_decision::packet`]: RFC 9293.
const PSH: u8 = 0x08;
const URG: u8 = 0x20;

const FLAGS: [(&str, u8); 6] =
    [("syn", SYN), ("ack", ACK), ("fin", FIN), ("rst", RST), ("psh", PSH), ("urg", URG)];

/// Known facts about the packet, from the point of view of the other end, as in rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Direction of the packet: in or out.
    pub(super) direction: Direction,
    /// Address of the other end.
    pub(super) source: IpAddr,
    /// Address of this side.
    pub(super) destination: Option<IpAddr>,
    /// All numeric facts except the flags.
    pub(super) given: Given,
    pub(super) flags: Option<u8>,
    pub(super) interface: Option<String>,
    /// True if the length was given.
    pub(super) sized: bool,
    pub(super) length: u64,
}

impl Question {
    /// A question about the next packet of a source, of which nothing else is known.
    pub(super) const fn of_source(source: IpAddr) -> Self {
        Self {
            direction: Direction::In,
            source,
            destination: None,
            given: Given::new(),
            flags: None,
            interface: None,
            sized: false,
            length: LEAST_FRAME,
        }
    }

    pub(crate) fn parse(asked: &AskExplain) -> Result<Self, ServiceError> {
        let direction = direction(asked.direction.as_deref())?;
        let source = source_text::parse_one(&asked.from)?.to_canonical();
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
        if flags.is_some() {
            Fact::TcpFlags.fits(protocol).map_err(|problem| wrong("flags", problem))?;
        }
        let (destination, word) = own_address(asked, direction)?;
        let destination = destination.map(source_text::parse_address);
        let destination = destination.transpose()?.map(|address| address.to_canonical());
        if destination.is_some_and(|address| address.is_ipv4() != source.is_ipv4()) {
            return Err(wrong(word, format!("it is of another IP version than {source}")));
        }
        let to = [(Fact::Protocol, protocol.map(u16::from)), (Fact::DestinationPort, port)];
        let mut given: Given =
            to.into_iter().filter_map(|(fact, n)| Some((fact.in_header(direction), n?))).collect();
        for (fact, text) in asked.facts() {
            if let Some(text) = text {
                fact.fits(protocol).map_err(|problem| wrong(fact.key(), problem))?;
                let number = fact.asked(&text).map_err(|problem| wrong(fact.key(), problem))?;
                given.insert(fact.in_header(direction), number);
            }
        }
        Ok(Self {
            direction,
            source,
            destination,
            given,
            flags,
            interface: asked.interface.clone(),
            sized: asked.length.is_some(),
            length,
        })
    }

    /// Returns true if the question is about a packet rather than a source.
    pub(super) fn is_of_packet(&self) -> bool {
        self.protocol().is_some()
    }

    /// The protocol, which only a question about a packet has.
    pub(super) fn protocol(&self) -> Option<u8> {
        self.value(Fact::Protocol).and_then(|number| u8::try_from(number).ok())
    }

    pub(super) const fn direction_of_packet(&self) -> header::Direction {
        match self.direction {
            Direction::Out => header::Direction::Out,
            Direction::In | Direction::Both => header::Direction::In,
        }
    }

    /// The value of a fact in the packet's own header, if given.
    pub(super) fn in_header(&self, fact: Fact) -> Option<u16> {
        self.value(fact.in_header(self.direction))
    }

    pub(super) fn value(&self, fact: Fact) -> Option<u16> {
        self.given.get(&fact).copied()
    }

    pub(super) fn says(&self, fact: Fact) -> bool {
        self.given.contains_key(&fact)
            || fact == Fact::TcpFlags && self.flags.is_some()
            || fact == Fact::PacketLength && self.sized
    }
}

/// Parses the name of a direction; `in` if none is given.
fn direction(word: Option<&str>) -> Result<Direction, ServiceError> {
    match word.map(Direction::named) {
        None => Ok(Direction::In),
        Some(Some(direction @ (Direction::In | Direction::Out))) => Ok(direction),
        Some(_) => Err(wrong("direction", "a packet comes in or goes out: write in or out")),
    }
}

/// The given address of this side, and the word of the request for it.
fn own_address(
    asked: &AskExplain,
    direction: Direction,
) -> Result<(Option<&str>, &'static str), ServiceError> {
    let AskExplain { source, destination, .. } = asked;
    let outgoing = direction == Direction::Out;
    match (source, destination) {
        (_, Some(_)) if outgoing => Err(wrong(
            "destination",
            "of a packet that goes out it is the address that is asked about: write source for \
             the address of this side",
        )),
        (Some(_), _) if !outgoing => Err(wrong(
            "source",
            "of a packet that comes in it is the address that is asked about: write destination \
             for the address of this side",
        )),
        (source, _) if outgoing => Ok((source.as_deref(), "source")),
        (_, destination) => Ok((destination.as_deref(), "destination")),
    }
}

fn wrong(word: &'static str, problem: impl Into<String>) -> ServiceError {
    ServiceError::Word { word, problem: problem.into() }
}

/// Prefix of a protocol's number, which alone could be a port.
const PROTOCOL: &str = "protocol";

fn to(text: &str) -> Result<(Option<u8>, Option<u16>), ServiceError> {
    let help = || {
        let problem = format!(
            "{text:?} is no destination: write PORT/PROTOCOL as in 22/tcp, a protocol as in icmp \
             or {PROTOCOL}/47, or any"
        );
        wrong("to", problem)
    };
    let named = |name: &str| {
        let known = PROTOCOLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        known.map(|(_, number)| *number)
    };
    let Some((first, second)) = text.split_once('/') else {
        if let Some(protocol) = named(text) {
            return Ok((Some(protocol), None));
        }
        let Ok(number) = text.parse::<u16>() else {
            return Err(help());
        };
        let port = format!("write {number}/tcp or {number}/udp for the port");
        return Err(wrong(
            "to",
            match u8::try_from(number) {
                Ok(number) => format!(
                    "{number} may be a port or an IP protocol: {port}, {PROTOCOL}/{number} for \
                     the protocol"
                ),
                Err(_no_protocol) => format!("{number} is of no protocol: {port}"),
            },
        ));
    };
    let protocol = |text: &str| named(text).or_else(|| text.parse().ok()).ok_or_else(help);
    if first.eq_ignore_ascii_case(PROTOCOL) {
        return Ok((Some(protocol(second)?), None));
    }
    // In the other order, only a name cannot be mistaken for a port.
    let (port, name) = if named(first).is_some() { (second, first) } else { (first, second) };
    let number = protocol(name)?;
    if !has_ports(number) {
        let instead =
            named(name).map_or_else(|| format!("{PROTOCOL}/{number}"), |_| name.to_owned());
        return Err(wrong("to", format!("{name} has no ports: write {instead}")));
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

/// Formats flags as people write them.
pub(super) fn flags_text(flags: u8) -> String {
    let names = FLAGS.iter().filter(|(_, bit)| flags & bit != 0);
    let names: Vec<_> = names.map(|(name, _)| name.to_uppercase()).collect();
    if names.is_empty() { "no flags".to_owned() } else { names.join(",") }
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
            ("tcp/22", Some(6), Some(22)),
            ("sctp/5000", Some(132), Some(5000)),
            ("icmp", Some(1), None),
            ("protocol/47", Some(47), None),
            ("protocol/gre", Some(47), None),
            ("any", None, None),
        ] {
            let question = ask(text, None).unwrap();
            let port_of = question.value(Fact::DestinationPort);
            assert_eq!((question.protocol(), port_of), (protocol, port), "{text}");
        }
        for (text, words) in [
            ("x/tcp", "to: \"x/tcp\" is no destination: write PORT/PROTOCOL as in 22/tcp"),
            ("70000/tcp", "to: \"70000/tcp\" is no destination"),
            ("tcp/x", "to: \"tcp/x\" is no destination"),
            ("tcp/udp", "to: \"tcp/udp\" is no destination"),
            ("protocol/256", "to: \"protocol/256\" is no destination"),
            ("1/icmp", "to: icmp has no ports: write icmp"),
            ("icmp/1", "to: icmp has no ports: write icmp"),
            ("80/22", "to: 22 has no ports: write protocol/22"),
            ("ssh", "to: \"ssh\" is no destination"),
            ("", "to: \"\" is no destination"),
        ] {
            let error = ask(text, None).unwrap_err();
            assert!(error.starts_with(words), "{text}: {error}");
        }
    }

    #[test]
    fn a_number_alone_is_no_destination() {
        assert_eq!(
            ask("22", None).unwrap_err(),
            "to: 22 may be a port or an IP protocol: write 22/tcp or 22/udp for the port, \
             protocol/22 for the protocol"
        );
        let large = "to: 8080 is of no protocol: write 8080/tcp or 8080/udp for the port";
        assert_eq!(ask("8080", None).unwrap_err(), large);
        assert!(ask("70000", None).unwrap_err().contains("is no destination"));
        // A destination may be typed in the form in which it is printed.
        for (text, protocol) in [("22/tcp", 6), ("22/udp", 17), ("protocol/22", 22)] {
            assert_eq!(ask(text, None).unwrap().protocol(), Some(protocol), "{text}");
        }
    }

    #[test]
    fn a_source_may_be_written_as_it_is_printed() {
        let of = |from: &str| AskExplain { from: from.to_owned(), ..AskExplain::default() };
        let source = |from: &str| Question::parse(&of(from)).map(|question| question.source);
        assert_eq!(source("2001:db8::/64").unwrap().to_string(), "2001:db8::");
        let several = source("192.0.2.0/24").unwrap_err().to_string();
        assert!(several.contains("is more than one source"), "{several}");
    }

    /// The words describe the packet's headers, and the facts are from the other end's point of
    /// view.
    #[test]
    fn a_packet_that_goes_out_has_the_other_end_as_its_destination() {
        for (own, other) in [("198.51.100.1", "192.0.2.1"), ("2001:db8::1", "2001:db8:9::1")] {
            let asked = AskExplain {
                from: other.to_owned(),
                direction: Some("out".to_owned()),
                to: Some("53/udp".to_owned()),
                source: Some(own.to_owned()),
                source_port: Some(4711),
                ..AskExplain::default()
            };
            let question = Question::parse(&asked).unwrap();
            let ports = [Fact::SourcePort, Fact::DestinationPort].map(|fact| question.value(fact));
            assert_eq!(ports, [Some(53), Some(4711)]);
            assert_eq!(question.source, other.parse::<IpAddr>().unwrap());
            let bytes = |address: &str| match address.parse().unwrap() {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            let ends = [bytes(own), bytes(other), vec![0x12, 0x67, 0, 53]].concat();
            let frame = super::super::frame::build(&question);
            let begin = if question.source.is_ipv4() { 26 } else { 22 };
            assert_eq!(frame[begin..begin + ends.len()], ends);
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
