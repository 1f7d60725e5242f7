//! The packets that `limiter set` limits, as people name them: an address or prefix, a port, an
//! interface, or several of these.

use ipnet::IpNet;
use limiter_common::wire::Count;

use super::compile::display_rate;
use super::model::key::{PROTOCOLS, has_ports, service};
use super::model::{Direction, Fact, Part, Path, Quota, SOURCE_MASKS, Selector, SourceMasks, Unit};
use super::rate_text::RateText;
use super::source_text::{self, SourceTextError};
use super::warnings;

/// The words of `limiter set` and `unset` for the packets of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'a> {
    /// An address or a prefix: of outgoing packets the other end.
    pub source: Option<&'a str>,
    /// A port, a range of ports or a protocol: of outgoing packets the one that they go to.
    pub port: Option<&'a str>,
    /// The interface that packets come in by, or go out by.
    pub interface: Option<&'a str>,
    /// One bucket for all of the packets, instead of one for each source.
    pub shared: bool,
    /// Which way the packets go.
    pub direction: Direction,
}

/// The packets of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The sources, if they are named.
    pub selector: Option<Selector>,
    /// The rule's keys.
    pub path: Path,
}

/// Why words name no packets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// An address or prefix.
    #[error(transparent)]
    Source(#[from] SourceTextError),
    /// A port where an address is read.
    #[error("{0:?} is no address: write --port {0}")]
    IsPort(String),
    /// A rate where an address is read.
    #[error("{0:?} is a rate, and no address: write it behind the address")]
    IsRate(String),
    /// A word where an address is read.
    #[error(
        "{0}; a port is --port, as in --port {1}; an interface is --interface, as in --interface \
         eth0"
    )]
    Word(SourceTextError, String),
    /// Neither sources nor a port nor an interface.
    #[error(
        "whom to limit is not said: name an address or prefix, a port with --port, as in --port \
         22/tcp, or an interface with --interface"
    )]
    Nothing,
    /// No name of an interface.
    #[error("{0:?} is no name of an interface: write one of 1 to 15 characters, as in eth0")]
    Interface(String),
    /// One limit on all packets together.
    #[error(
        "one limit over every source and port would be shared by all packets: name a port, or a \
         prefix of at least one bit"
    )]
    Everything,
    /// No port.
    #[error(
        "{0:?} is no port: write one like 22/tcp, 53/udp, 8000-8080/tcp, or a protocol as in icmp"
    )]
    Port(String),
    /// Port 0, which nothing listens on.
    #[error("no packet is for port 0: write one of 1 to 65535, or a protocol as in udp alone")]
    PortZero,
    /// The name of a service.
    #[error("{0:?} is a name, and no port: write {1}")]
    Service(String, String),
    /// A slow rate on a port of TCP, which may be one of packets or of connections.
    #[error(
        "{rate} on {path}: packets or connections? {rate} in packets stops open TCP sessions, \
         too. Say it: --count syns for connections, as in {syns:?}, or --count packets"
    )]
    Ask {
        /// The rate, as it was written.
        rate: String,
        /// The packets.
        path: Path,
        /// The same rate of connections.
        syns: String,
    },
    /// A port of a protocol that has none.
    #[error("{0} has no ports: write {0} alone")]
    NoPorts(&'static str),
}

impl Target {
    /// Reads the words.
    ///
    /// # Errors
    ///
    /// Why they name no packets.
    pub fn parse(words: Words<'_>) -> Result<Self, TargetError> {
        let Words { source, port, interface, shared, direction } = words;
        let selector =
            source.map(|text| source_text::parse(text).map_err(|error| meant(text, error)));
        let selector = selector.transpose()?;
        let service = port.map(self::port).transpose()?.unwrap_or_default();
        let interface = interface.map(self::interface).transpose()?;
        let mut parts: Vec<Part> = interface
            .into_iter()
            .chain(service.into_iter().map(|part| seen_from_the_other_end(part, direction)))
            .collect();
        match (selector, shared) {
            (None, _) if parts.is_empty() => return Err(TargetError::Nothing),
            (Some(selector), false) if parts.is_empty() => {
                let path = Path::of_source(&selector).going(direction);
                return Ok(Self { selector: Some(selector), path });
            }
            (None | Some(Selector::Every), false) => parts.push(Part::Source(SOURCE_MASKS, None)),
            (Some(Selector::Prefix(net)), false) => {
                parts.push(Part::Source(SOURCE_MASKS, Some(net)));
            }
            (Some(Selector::Prefix(net)), true) if net.prefix_len() > 0 => {
                parts.push(Part::Source(masks(net), Some(net)));
            }
            (_, true) if parts.is_empty() => return Err(TargetError::Everything),
            (_, true) => {}
        }
        Ok(Self { selector, path: Path::of(parts).going(direction) })
    }
}

impl Target {
    /// Asks whether packets or connections are meant, of a rate by the minute or longer that no
    /// TCP session lives with. `text` is the text of the rate, and `count` what was said beside it.
    ///
    /// # Errors
    ///
    /// The question.
    pub fn ask(&self, rate: RateText, count: Option<Count>, text: &str) -> Result<(), TargetError> {
        let RateText::Rate { count: Count::Packets, requests_per_unit, period, .. } = rate else {
            return Ok(());
        };
        let quota = Quota::new(Count::Packets, requests_per_unit, period);
        let traffic = self.path.traffic();
        let asks = count.is_none()
            && period.seconds() >= Unit::Minute.seconds()
            && traffic.names_service()
            && traffic.meeting().tcp_data
            && warnings::is_slow(&quota);
        if !asks {
            return Ok(());
        }
        let syns = display_rate(&Quota { count: Count::Syns, ..quota }.with_burst(0));
        Err(TargetError::Ask { rate: text.to_owned(), path: self.path.clone(), syns })
    }
}

/// The words of `limiter set` and `limiter unset` for the packets of a rule, as in
/// `--port 22/tcp --shared`; none where they have no words for its keys.
pub fn words(path: &Path) -> Option<String> {
    let text = path.to_string();
    let value = |key: &str| {
        text.split(' ')
            .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            .map(str::to_owned)
    };
    let port = match (value("destination_port"), value("protocol")) {
        (Some(port), Some(protocol)) => Some(format!("{port}/{protocol}")),
        (port, protocol) => port.or(protocol),
    };
    let net = || path.source().and_then(|(_, net)| net).map(Selector::Prefix);
    let source = path.selector().or_else(net).map(|selector| match selector {
        Selector::Every => "0.0.0.0/0".to_owned(),
        prefix @ Selector::Prefix(_) => prefix.to_string(),
    });
    let interface = value("interface");
    let of = |shared: bool| Words {
        source: source.as_deref(),
        port: port.as_deref(),
        interface: interface.as_deref(),
        shared,
        direction: path.direction,
    };
    let is_of = |shared: &bool| Target::parse(of(*shared)).is_ok_and(|target| target.path == *path);
    let shared = [false, true].into_iter().find(is_of)?;
    let mut words: Vec<String> = source.into_iter().collect();
    words.extend(port.map(|port| format!("--port {port}")));
    words.extend(interface.map(|name| format!("--interface {name}")));
    words.extend(shared.then(|| "--shared".to_owned()));
    if path.direction != Direction::In {
        words.push(format!("--direction {}", path.direction.name()));
    }
    Some(words.join(" "))
}

/// The port that a text names, as `--port` reads it; none of any other text.
pub fn named_port(text: &str) -> Option<String> {
    let is_port = |part: &Part| matches!(part, Part::Fact(Fact::DestinationPort, _));
    match port(text) {
        Ok(parts) => parts.iter().any(is_port).then(|| text.to_owned()),
        Err(TargetError::Service(_, port)) => Some(port),
        Err(_) => None,
    }
}

/// Why a text is no address, with what it may have been meant as.
fn meant(text: &str, error: SourceTextError) -> TargetError {
    let is_word = !text.contains(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    if !matches!(error, SourceTextError::Syntax(_)) {
        error.into()
    } else if RateText::parse(text).is_ok() {
        TargetError::IsRate(text.to_owned())
    } else if port(text).is_ok() {
        TargetError::IsPort(text.to_owned())
    } else if is_word {
        let port = service(text).map_or_else(|| "22/tcp".to_owned(), at);
        TargetError::Word(error, port)
    } else {
        error.into()
    }
}

/// A key of a packet's header as the other end of the conversation sees it.
fn seen_from_the_other_end(part: Part, direction: Direction) -> Part {
    match part {
        Part::Fact(fact, values) => Part::Fact(fact.in_header(direction), values),
        other => other,
    }
}

/// A port with its protocol, as `--port` reads it.
fn at((port, protocol): (u16, &str)) -> String {
    format!("{port}/{protocol}")
}

/// Masks under which a whole prefix is one source.
const fn masks(net: IpNet) -> SourceMasks {
    match net {
        IpNet::V4(net) => SourceMasks { v4: Some(net.prefix_len()), v6: None },
        IpNet::V6(net) => SourceMasks { v4: None, v6: Some(net.prefix_len()) },
    }
}

/// The key of an interface.
fn interface(name: &str) -> Result<Part, TargetError> {
    let bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    // IFNAMSIZ with its terminator.
    if name.is_empty() || name.len() > 15 || name.contains(bad) {
        return Err(TargetError::Interface(name.to_owned()));
    }
    Ok(Part::Interface(Some(name.to_owned())))
}

/// The keys of a port, a range of ports or a protocol.
fn port(text: &str) -> Result<Vec<Part>, TargetError> {
    let wrong = || TargetError::Port(text.to_owned());
    let named =
        |name: &str| PROTOCOLS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).copied();
    let protocol = |number: u8| Part::Fact(Fact::Protocol, Some(u16::from(number).into()));
    if let Some((_, number)) = named(text) {
        return Ok(vec![protocol(number)]);
    }
    let (ports, name) = match text.split_once('/') {
        None => (text, None),
        Some((first, second)) => match (named(first), named(second)) {
            (None, Some(protocol)) => (first, Some(protocol)),
            (Some(protocol), None) => (second, Some(protocol)),
            _ => return Err(wrong()),
        },
    };
    if let Some((number, usual)) = service(ports) {
        let protocol = name.map_or(usual, |(name, _)| name);
        return Err(TargetError::Service(text.to_owned(), at((number, protocol))));
    }
    let values = Fact::DestinationPort.values(ports).map_err(|_no_port| wrong())?;
    if values == 0_u16.into() {
        return Err(TargetError::PortZero);
    }
    let port = Part::Fact(Fact::DestinationPort, Some(values));
    match name {
        None => Ok(vec![port]),
        Some((name, number)) if !has_ports(number) => Err(TargetError::NoPorts(name)),
        Some((_, number)) => Ok(vec![protocol(number), port]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(source: Option<&str>, port: Option<&str>, shared: bool) -> Result<String, String> {
        let target = Target::parse(Words { source, port, shared, ..Words::default() });
        target.map(|target| target.path.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn words_are_keys() {
        for (source, port, shared, wanted) in [
            (Some("192.0.2.7"), None, false, "192.0.2.7"),
            (None, Some("22/tcp"), false, "protocol=tcp destination_port=22 remote_address"),
            (None, Some("tcp/22"), true, "protocol=tcp destination_port=22"),
            (None, Some("443"), true, "destination_port=443"),
            (None, Some("icmp"), false, "protocol=icmp remote_address"),
            (
                Some("192.0.2.0/24"),
                Some("8000-8080/udp"),
                false,
                "protocol=udp destination_port=8000-8080 remote_address=192.0.2.0/24",
            ),
            (Some("198.51.100.0/24"), None, true, "masked_remote_address/v4:24=198.51.100.0/24"),
            (
                Some("2001:db8::/32"),
                Some("53"),
                true,
                "destination_port=53 masked_remote_address/v6:32=2001:db8::/32",
            ),
            (Some("0.0.0.0/0"), Some("53"), true, "destination_port=53"),
        ] {
            assert_eq!(path(source, port, shared).as_deref(), Ok(wanted), "{source:?} {port:?}");
        }
        let error = path(Some("ssh"), None, false).unwrap_err();
        assert!(error.contains("; a port is --port, as in --port 22/tcp; an interface"), "{error}");
        let error = path(Some("https"), None, false).unwrap_err();
        assert!(
            error.contains("; a port is --port, as in --port 443/tcp; an interface"),
            "{error}"
        );
        for (source, port, shared, wanted) in [
            (None, None, false, "whom to limit is not said"),
            (None, None, true, "whom to limit is not said"),
            (Some("0.0.0.0/0"), None, true, "one limit over every source and port"),
            (Some("office"), None, false, "\"office\" is not an IP address or prefix"),
            (Some("22/tcp"), None, false, "\"22/tcp\" is no address: write --port 22/tcp"),
            (Some("icmp"), None, false, "\"icmp\" is no address: write --port icmp"),
            (Some("100/s"), None, false, "\"100/s\" is a rate, and no address: write it behind"),
            (None, Some("ssh"), false, "\"ssh\" is a name, and no port: write 22/tcp"),
            (
                None,
                Some("domain/tcp"),
                false,
                "\"domain/tcp\" is a name, and no port: write 53/tcp",
            ),
            (None, Some("dns"), false, "\"dns\" is a name, and no port: write 53/udp"),
            (None, Some("sshd"), false, "\"sshd\" is no port: write one like 22/tcp"),
            (None, Some("70000/tcp"), false, "\"70000/tcp\" is no port"),
            (None, Some("90-80/tcp"), false, "\"90-80/tcp\" is no port"),
            (None, Some("1/icmp"), false, "icmp has no ports: write icmp alone"),
        ] {
            let error = path(source, port, shared).unwrap_err();
            assert!(error.starts_with(wanted), "{source:?} {port:?}: {error}");
        }
    }

    /// What words mean is said by the same words.
    #[test]
    fn keys_are_words() {
        for (source, port, shared, direction, wanted) in [
            (Some("192.0.2.7"), None, false, Direction::In, "192.0.2.7"),
            (Some("0.0.0.0/0"), None, false, Direction::In, "0.0.0.0/0"),
            (None, Some("tcp/22"), false, Direction::In, "--port 22/tcp"),
            (None, Some("22/tcp"), true, Direction::In, "--port 22/tcp --shared"),
            (None, Some("icmp"), false, Direction::Both, "--port icmp --direction both"),
            (Some("192.0.2.7"), None, false, Direction::Out, "192.0.2.7 --direction out"),
            (
                Some("198.51.100.0/24"),
                Some("8000-8080/udp"),
                true,
                Direction::Out,
                "198.51.100.0/24 --port 8000-8080/udp --shared --direction out",
            ),
            (Some("2001:db8::/48"), None, true, Direction::In, "2001:db8::/48 --shared"),
        ] {
            let named = Words { source, port, shared, direction, ..Words::default() };
            let target = Target::parse(named).unwrap();
            assert_eq!(words(&target.path).as_deref(), Some(wanted), "{}", target.path);
        }
        let label = Path::of(vec![Part::Fact(Fact::SourcePort, Some(53u16.into()))]);
        assert_eq!(words(&label), None);
    }

    /// An interface is the outermost key, as a rule file for it has it.
    #[test]
    fn an_interface_is_a_key() {
        let on = |source, port, shared, direction| {
            let interface = Some("veth7");
            let named = Words { source, port, interface, shared, direction };
            let path = Target::parse(named).unwrap().path;
            (path.to_string(), words(&path).unwrap())
        };
        for (source, port, shared, direction, path, words) in [
            (None, None, true, Direction::In, "interface=veth7", "--interface veth7 --shared"),
            (
                None,
                None,
                true,
                Direction::Out,
                "direction=out interface=veth7",
                "--interface veth7 --shared --direction out",
            ),
            (
                None,
                None,
                false,
                Direction::In,
                "interface=veth7 remote_address",
                "--interface veth7",
            ),
            (
                Some("192.0.2.7"),
                Some("22/tcp"),
                false,
                Direction::In,
                "interface=veth7 protocol=tcp destination_port=22 remote_address=192.0.2.7",
                "192.0.2.7 --port 22/tcp --interface veth7",
            ),
        ] {
            let wanted = (path.to_owned(), words.to_owned());
            assert_eq!(on(source, port, shared, direction), wanted);
        }
        for name in ["", "a name", "a/b", "sixteen-letters-"] {
            let named = Words { interface: Some(name), ..Words::default() };
            assert_eq!(Target::parse(named), Err(TargetError::Interface(name.to_owned())));
        }
    }

    /// A port is the one that an outgoing packet goes to; of both directions, that of this side.
    #[test]
    fn words_of_what_goes_out_are_about_where_it_goes() {
        let path = |source: Option<&str>, port: Option<&str>, shared: bool, direction| {
            let named = Words { source, port, shared, direction, ..Words::default() };
            let target = Target::parse(named).unwrap();
            (target.path.to_string(), target.path.parts)
        };
        let port = |fact| Part::Fact(fact, Some(53u16.into()));
        let (text, parts) = path(None, Some("53/udp"), true, Direction::Out);
        assert_eq!(text, "direction=out protocol=udp destination_port=53");
        assert_eq!(parts[1], port(Fact::SourcePort));
        let (text, parts) = path(Some("192.0.2.7"), Some("53"), false, Direction::Both);
        assert_eq!(text, "direction=both destination_port=53 remote_address=192.0.2.7");
        assert_eq!(parts[0], port(Fact::DestinationPort));
        let (text, _) = path(Some("192.0.2.7"), None, false, Direction::Out);
        assert_eq!(text, "direction=out remote_address=192.0.2.7");
        let (text, _) = path(Some("0.0.0.0/0"), None, false, Direction::Out);
        assert_eq!(text, "direction=out remote_address=0.0.0.0/0");
    }
}
