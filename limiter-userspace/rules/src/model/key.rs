//! The keys whose value is a number, with all that user space knows of them: one `match` for each
//! property. A new one is a variant of [`Fact`]. Keys of other kinds are in [`super::Part`].

use std::collections::BTreeMap;

use limiter_common::header::{Fragment, Icmp, TCP, Version};
use limiter_common::wire::{Count, field};

use super::direction::Direction;
use super::values::Values;

mod elsewhere;
mod names;
mod service;

pub(crate) use elsewhere::{is_of_packets_alone, key_elsewhere};
pub use names::{DSCPS, PROTOCOLS};
pub(crate) use service::service;

use names::{FLAG_CLASSES, ICMP_TYPES, PIECES, WITH_PORTS, WITH_TYPES};

/// Name of a rule, and no key.
pub const GENERIC: &str = "generic_key";

/// Every key, as rule files name it.
pub const KEYS: [&str; 17] = [
    "remote_address",
    "masked_remote_address",
    "destination_address",
    "source_address",
    Fact::DestinationPort.key(),
    Fact::SourcePort.key(),
    Fact::Protocol.key(),
    Fact::TcpFlags.key(),
    Fact::IcmpType.key(),
    "interface",
    Fact::Vlan.key(),
    Fact::Dscp.key(),
    Fact::Fragment.key(),
    Fact::PacketLength.key(),
    Fact::Ttl.key(),
    "inner_remote_address",
    GENERIC,
];

/// A protocol by its name, or else by its number.
pub fn protocol_text(number: u8) -> String {
    Fact::Protocol.text(number.into())
}

/// True if packets of a protocol have ports.
pub fn has_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol)
}

/// A key whose value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fact {
    /// `destination_port`: of TCP, UDP and other protocols with ports.
    DestinationPort,
    /// `source_port`: of TCP, UDP and other protocols with ports.
    SourcePort,
    /// `protocol`: the IP protocol number.
    Protocol,
    /// The number of a [`limiter_common::wire::FlagClass`].
    TcpFlags,
    /// The type of ICMP or `ICMPv6`, as [`Icmp::message`] has it.
    IcmpType,
    /// The id of the outer VLAN tag.
    Vlan,
    /// `dscp`: the differentiated services code point.
    Dscp,
    /// The number of a [`Fragment`].
    Fragment,
    /// The length of the IP packet in bytes.
    PacketLength,
    /// The time to live of IPv4, the hop limit of IPv6.
    Ttl,
}

/// Facts that are given of a packet that somebody asks about.
pub type Given = BTreeMap<Fact, u16>;

/// Why a text is no value of a [`Fact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoValue {
    /// Not a whole number from 0 to this one.
    Range(u16),
    /// None of the names.
    UnknownName,
    /// Neither a whole number from 0 to this one, nor a range of such numbers.
    NoRange(u16),
}

/// Share of the packets of an SSH session that have the value that a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Overlap {
    /// No packet.
    None,
    /// Some, maybe.
    Some,
    /// Every packet that may be under a rule with it.
    All,
}

impl Fact {
    /// All, in the order in which they are reported.
    pub const ALL: [Self; 10] = [
        Self::DestinationPort,
        Self::SourcePort,
        Self::Protocol,
        Self::TcpFlags,
        Self::IcmpType,
        Self::Vlan,
        Self::Dscp,
        Self::Fragment,
        Self::PacketLength,
        Self::Ttl,
    ];

    /// Name in rule files.
    pub const fn key(self) -> &'static str {
        match self {
            Self::DestinationPort => "destination_port",
            Self::SourcePort => "source_port",
            Self::Protocol => "protocol",
            Self::TcpFlags => "tcp_flags",
            Self::IcmpType => "icmp_type",
            Self::Vlan => "vlan",
            Self::Dscp => "dscp",
            Self::Fragment => "fragment",
            Self::PacketLength => "packet_length",
            Self::Ttl => "ttl",
        }
    }

    /// The fact as it stands in the header of a packet, of one as the other end sees it, and the
    /// other way round: the ports of an outgoing packet change places.
    #[must_use]
    pub const fn in_header(self, direction: Direction) -> Self {
        match (direction, self) {
            (Direction::Out, Self::DestinationPort) => Self::SourcePort,
            (Direction::Out, Self::SourcePort) => Self::DestinationPort,
            _ => self,
        }
    }

    /// Bit in [`field`].
    pub const fn field(self) -> u32 {
        match self {
            Self::DestinationPort => field::DESTINATION_PORT,
            Self::SourcePort => field::SOURCE_PORT,
            Self::Protocol => field::PROTOCOL,
            Self::TcpFlags => field::TCP_FLAGS,
            Self::IcmpType => field::ICMP_TYPE,
            Self::Vlan => field::VLAN,
            Self::Dscp => field::DSCP,
            Self::Fragment => field::FRAGMENT,
            Self::PacketLength => field::PACKET_LENGTH,
            Self::Ttl => field::TTL,
        }
    }

    /// Values with a name.
    pub const fn names(self) -> &'static [(&'static str, u8)] {
        match self {
            Self::DestinationPort
            | Self::SourcePort
            | Self::Vlan
            | Self::PacketLength
            | Self::Ttl => &[],
            Self::Protocol => &PROTOCOLS,
            Self::TcpFlags => &FLAG_CLASSES,
            Self::IcmpType => &ICMP_TYPES,
            Self::Dscp => &DSCPS,
            Self::Fragment => &PIECES,
        }
    }

    /// Name of the list of names in the JSON schema, if that lists them.
    pub const fn names_in_schema(self) -> Option<&'static str> {
        match self {
            Self::Protocol => Some("Protocols with a name"),
            Self::TcpFlags => Some("TCP flags"),
            Self::IcmpType => Some("ICMP types with a name"),
            Self::DestinationPort
            | Self::SourcePort
            | Self::Vlan
            | Self::Dscp
            | Self::Fragment
            | Self::PacketLength
            | Self::Ttl => None,
        }
    }

    /// The largest number that may be written; `None` if a value is one of the names.
    pub const fn most(self) -> Option<u16> {
        match self {
            Self::DestinationPort | Self::SourcePort | Self::PacketLength => Some(65_535),
            Self::Protocol | Self::IcmpType | Self::Ttl => Some(255),
            Self::Vlan => Some(4_095),
            Self::Dscp => Some(63),
            Self::TcpFlags | Self::Fragment => None,
        }
    }

    /// True if ranges of its values mean something: an order that people know.
    pub const fn has_ranges(self) -> bool {
        match self {
            Self::DestinationPort
            | Self::SourcePort
            | Self::Vlan
            | Self::Dscp
            | Self::PacketLength
            | Self::Ttl => true,
            Self::Protocol | Self::TcpFlags | Self::IcmpType | Self::Fragment => false,
        }
    }

    /// Reads a value, or a range of them as in `80-90`.
    ///
    /// # Errors
    ///
    /// [`NoValue`] if the text is none of this fact.
    pub fn values(self, text: &str) -> Result<Values, NoValue> {
        let (true, Some(most)) = (self.has_ranges(), self.most()) else {
            return self.read(text).map(Values::from);
        };
        let no_range = |error| match error {
            NoValue::Range(_) => NoValue::NoRange(most),
            other => other,
        };
        let is_number = |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
        match text.split_once('-') {
            Some((low, high)) if is_number(low) => {
                let end = |text: &str| self.read(text.trim()).map_err(no_range);
                Values::range(end(low)?, end(high)?).ok_or(NoValue::NoRange(most))
            }
            _ => self.read(text).map(Values::from).map_err(no_range),
        }
    }

    /// Values as they stand in rule files.
    pub fn values_text(self, values: Values) -> String {
        if values.is_range() {
            format!("{}-{}", values.low(), values.high())
        } else {
            self.text(values.low())
        }
    }

    /// A value as it stands in rule files.
    pub fn text(self, value: u16) -> String {
        let name = self.names().iter().find(|(_, known)| u16::from(*known) == value);
        match name {
            // DSCPs are shown as numbers, whichever way they were written.
            Some((name, _)) if self != Self::Dscp => (*name).to_owned(),
            _ => value.to_string(),
        }
    }

    /// Values in the name of a bucket, as `explain` reports them.
    pub fn reported(self, values: Values) -> String {
        let text = self.values_text(values);
        match self {
            Self::DestinationPort => format!("port {text}"),
            Self::SourcePort => format!("source port {text}"),
            Self::PacketLength => format!("length {text}"),
            Self::Ttl => format!("TTL {text}"),
            Self::Vlan | Self::Dscp => format!("{} {text}", self.key()),
            Self::Fragment => format!("{text} packet"),
            Self::IcmpType => format!("ICMP {text}"),
            Self::Protocol | Self::TcpFlags => text,
        }
    }

    /// Reads a value: a name, or a number where that may be written.
    ///
    /// # Errors
    ///
    /// [`NoValue`] if the text is no value of this fact.
    pub fn read(self, text: &str) -> Result<u16, NoValue> {
        let is_number = text.starts_with(|first: char| first.is_ascii_digit() || first == '-');
        if let Some(most) = self.most()
            && (is_number || self.names().is_empty())
        {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|number| digits && *number <= most);
            let number = number.ok_or(NoValue::Range(most))?;
            return if self == Self::IcmpType { message(number) } else { Ok(number) };
        }
        let mut names = self.names().iter();
        let found = names.find(|(name, _)| *name == text);
        found.map(|(_, value)| (*value).into()).ok_or(NoValue::UnknownName)
    }

    /// Reads a value that `explain` is asked about, in letters of either case.
    ///
    /// # Errors
    ///
    /// The values that may be written, in words.
    pub fn asked(self, text: &str) -> Result<u16, String> {
        let number = self.read(&text.to_ascii_lowercase()).ok();
        // 4095 is reserved (IEEE 802.1Q), whatever a rule may say.
        let number = number.filter(|number| self != Self::Vlan || *number < 4_095);
        number.ok_or_else(|| match self {
            Self::Vlan => "ids are 0 to 4094".to_owned(),
            Self::Dscp => format!("{text:?} is no DSCP: write a name as in ef, or 0 to 63"),
            Self::Fragment => {
                format!("{text:?} is no piece of a packet: write whole, first or later")
            }
            Self::IcmpType => format!(
                "{text:?} is no ICMP type: write a name as in echo-request, or 0 to 255 but not 3 \
                 or 4, which ICMP and ICMPv6 have for different messages"
            ),
            Self::SourcePort => format!("{text:?} is no port: write 0 to 65535"),
            Self::Ttl => format!("{text:?} is no time to live: write 0 to 255"),
            Self::DestinationPort | Self::Protocol | Self::TcpFlags | Self::PacketLength => {
                format!("{text:?} is no {}", self.key())
            }
        })
    }

    /// Assumption about a packet for which this fact is not given; `None` if it has no such fact.
    pub fn assumed(self, given: &Given) -> Option<&'static str> {
        let protocol = given.get(&Self::Protocol).and_then(|number| u8::try_from(*number).ok());
        let whole = given.get(&Self::Fragment) != Some(&u16::from(Fragment::Later as u8));
        match self {
            Self::DestinationPort if whole && protocol.is_some_and(has_ports) => {
                Some("destination port not given; assumed 0")
            }
            Self::SourcePort if whole && protocol.is_some_and(has_ports) => {
                Some("source port not given; assumed 0")
            }
            Self::TcpFlags if whole && protocol == Some(TCP) => {
                Some("TCP flags not given; assumed SYN")
            }
            Self::IcmpType if whole && protocol.is_some_and(has_types) => {
                Some("ICMP type not given; assumed echo-request")
            }
            Self::Vlan => Some("VLAN not given; assumed no tag"),
            Self::Dscp => Some("DSCP not given; assumed 0"),
            Self::Fragment => Some("fragment not given; assumed a whole packet"),
            Self::Ttl => Some("TTL not given; assumed 64"),
            Self::PacketLength => Some("length not given; assumed the shortest frame"),
            // Without a protocol, it is asked about a source and no packet.
            Self::Protocol
            | Self::DestinationPort
            | Self::SourcePort
            | Self::TcpFlags
            | Self::IcmpType => None,
        }
    }

    /// Checks that packets of a protocol may have this fact, for `explain`.
    ///
    /// # Errors
    ///
    /// The protocols that have it, and what to write.
    pub fn fits(self, protocol: Option<u8>) -> Result<(), &'static str> {
        match self {
            Self::TcpFlags if protocol != Some(TCP) => {
                Err("only TCP has flags: write 22/tcp, or leave flags out")
            }
            Self::IcmpType if !protocol.is_some_and(has_types) => {
                Err("only ICMP has types: write icmp or icmpv6 as `to`, or leave icmp_type out")
            }
            Self::SourcePort if !protocol.is_some_and(has_ports) => {
                Err("only TCP, UDP and their like have ports: write 53/udp as `to`, or leave \
                     source_port out")
            }
            Self::TcpFlags
            | Self::IcmpType
            | Self::DestinationPort
            | Self::SourcePort
            | Self::Protocol
            | Self::Vlan
            | Self::Dscp
            | Self::Fragment
            | Self::PacketLength
            | Self::Ttl => Ok(()),
        }
    }

    /// True if no path has both: a packet with a port has no type of ICMP.
    pub const fn excludes(self, other: Self) -> bool {
        matches!((self, other), (Self::IcmpType, Self::DestinationPort | Self::SourcePort))
    }

    /// Unit that limits may count by this fact.
    pub const fn counted(self) -> Option<Count> {
        match self {
            Self::DestinationPort => Some(Count::Flows),
            Self::TcpFlags => Some(Count::Syns),
            Self::SourcePort
            | Self::Protocol
            | Self::IcmpType
            | Self::Vlan
            | Self::Dscp
            | Self::Fragment
            | Self::PacketLength
            | Self::Ttl => None,
        }
    }

    /// Share of the packets of an SSH session, to `port` if that is known, that have one of the
    /// values.
    pub(super) fn overlap(self, values: Option<Values>, port: Option<u16>) -> Overlap {
        let lacks = |value: u16| values.is_some_and(|values| !values.has(value));
        match self {
            Self::DestinationPort => match (values, port) {
                (Some(_), Some(port)) if lacks(port) => Overlap::None,
                (Some(_), _) => Overlap::All,
                (None, _) => Overlap::Some,
            },
            Self::Protocol if lacks(TCP.into()) => Overlap::None,
            Self::Protocol => Overlap::All,
            // TCP finds a size that needs no fragments.
            Self::Fragment if lacks(Fragment::Whole as u16) => Overlap::None,
            // The session is TCP. What its hosts need of ICMPv6 to find each other is exempt.
            Self::IcmpType => Overlap::None,
            Self::TcpFlags
            | Self::SourcePort
            | Self::Vlan
            | Self::Dscp
            | Self::Fragment
            | Self::PacketLength
            | Self::Ttl => Overlap::Some,
        }
    }
}

/// True if packets of a protocol have a type.
fn has_types(protocol: u8) -> bool {
    WITH_TYPES.contains(&protocol)
}

/// The message that a number means, whichever family it is of. 3 and 4 mean two: those are written
/// by name.
fn message(number: u16) -> Result<u16, NoValue> {
    let kind = u8::try_from(number).map_err(|_too_large| NoValue::Range(255))?;
    let icmp = Icmp { kind, code: 0 };
    let [v4, v6] = [Version::V4, Version::V6].map(|version| icmp.message(version));
    if v4 == v6 { Ok(v4.into()) } else { Err(NoValue::UnknownName) }
}
