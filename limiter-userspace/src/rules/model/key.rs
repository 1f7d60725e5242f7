//! The keys whose value is a number, with all that user space knows of them: one `match` for each
//! property. A new one is a variant of [`Fact`]. Keys of other kinds are in [`super::Part`].

use std::collections::BTreeMap;

use limiter_common::packet::{Fragment, Icmp, TCP, Version};
use limiter_common::wire::{Count, FlagClass, field};

/// Name of a rule, and no key.
pub const GENERIC: &str = "generic_key";

/// Every key, as rule files name it.
pub const KEYS: [&str; 13] = [
    "remote_address",
    "masked_remote_address",
    "destination_address",
    Fact::DestinationPort.key(),
    Fact::Protocol.key(),
    Fact::TcpFlags.key(),
    Fact::IcmpType.key(),
    "interface",
    Fact::Vlan.key(),
    Fact::Dscp.key(),
    Fact::Fragment.key(),
    "inner_remote_address",
    GENERIC,
];

/// Protocols with a name (IANA).
pub const PROTOCOLS: [(&str, u8); 17] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

/// DSCPs with a name (RFC 2474, 2597, 3246, 5865, 8622).
pub const DSCPS: [(&str, u8); 23] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("va", 44),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

/// Classes of TCP flags.
const FLAG_CLASSES: [(&str, u8); 6] = [
    (FlagClass::Syn.name(), FlagClass::Syn as u8),
    (FlagClass::SynAck.name(), FlagClass::SynAck as u8),
    (FlagClass::Rst.name(), FlagClass::Rst as u8),
    (FlagClass::Fin.name(), FlagClass::Fin as u8),
    (FlagClass::Ack.name(), FlagClass::Ack as u8),
    (FlagClass::Other.name(), FlagClass::Other as u8),
];

/// Types of ICMP and `ICMPv6` with a name, by the numbers of [`Icmp::message`] (RFC 792, 950, 2710,
/// 3810, 4443, 4861).
const ICMP_TYPES: [(&str, u8); 20] = [
    ("echo-request", 8),
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("packet-too-big", 2),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("redirect", 5),
    ("source-quench", 4),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
    ("multicast-listener-query", 130),
    ("multicast-listener-report", 131),
    ("multicast-listener-done", 132),
    ("multicast-listener-report-v2", 143),
    ("router-solicitation", 10),
    ("router-advertisement", 9),
    ("neighbour-solicitation", 135),
    ("neighbour-advertisement", 136),
];

/// Protocols with types: ICMP and `ICMPv6`.
const WITH_TYPES: [u8; 2] = [1, 58];

/// Pieces of a packet.
const PIECES: [(&str, u8); 3] = [
    (Fragment::Whole.name(), Fragment::Whole as u8),
    (Fragment::First.name(), Fragment::First as u8),
    (Fragment::Later.name(), Fragment::Later as u8),
];

/// Protocols whose packets have ports: TCP, UDP, DCCP, SCTP and UDP-Lite.
const WITH_PORTS: [u8; 5] = [TCP, 17, 33, 132, 136];

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
    /// The destination port.
    DestinationPort,
    /// The protocol's number.
    Protocol,
    /// The number of a [`FlagClass`].
    TcpFlags,
    /// The type of ICMP or `ICMPv6`, as [`Icmp::message`] has it.
    IcmpType,
    /// The id of the outer VLAN tag.
    Vlan,
    /// The DSCP.
    Dscp,
    /// The number of a [`Fragment`].
    Fragment,
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
    /// All, in the order in which they are told.
    pub const ALL: [Self; 7] = [
        Self::DestinationPort,
        Self::Protocol,
        Self::TcpFlags,
        Self::IcmpType,
        Self::Vlan,
        Self::Dscp,
        Self::Fragment,
    ];

    /// Name in rule files.
    pub const fn key(self) -> &'static str {
        match self {
            Self::DestinationPort => "destination_port",
            Self::Protocol => "protocol",
            Self::TcpFlags => "tcp_flags",
            Self::IcmpType => "icmp_type",
            Self::Vlan => "vlan",
            Self::Dscp => "dscp",
            Self::Fragment => "fragment",
        }
    }

    /// Bit in [`field`].
    pub const fn field(self) -> u32 {
        match self {
            Self::DestinationPort => field::DESTINATION_PORT,
            Self::Protocol => field::PROTOCOL,
            Self::TcpFlags => field::TCP_FLAGS,
            Self::IcmpType => field::ICMP_TYPE,
            Self::Vlan => field::VLAN,
            Self::Dscp => field::DSCP,
            Self::Fragment => field::FRAGMENT,
        }
    }

    /// Values with a name.
    pub const fn names(self) -> &'static [(&'static str, u8)] {
        match self {
            Self::DestinationPort | Self::Vlan => &[],
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
            Self::DestinationPort | Self::Vlan | Self::Dscp | Self::Fragment => None,
        }
    }

    /// The largest number that may be written; none where a value is one of the names.
    pub const fn most(self) -> Option<u16> {
        match self {
            Self::DestinationPort => Some(65_535),
            Self::Protocol | Self::IcmpType => Some(255),
            Self::Vlan => Some(4_095),
            Self::Dscp => Some(63),
            Self::TcpFlags | Self::Fragment => None,
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

    /// A value in the name of a bucket, as `explain` tells it.
    pub fn told(self, value: u16) -> String {
        let text = self.text(value);
        match self {
            Self::DestinationPort => format!("port {text}"),
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
            Self::DestinationPort | Self::Protocol | Self::TcpFlags => {
                format!("{text:?} is no {}", self.key())
            }
        })
    }

    /// Assumption about a packet of which this fact is not given; none if it has no such fact.
    pub fn assumed(self, given: &Given) -> Option<&'static str> {
        let protocol = given.get(&Self::Protocol).and_then(|number| u8::try_from(*number).ok());
        let whole = given.get(&Self::Fragment) != Some(&u16::from(Fragment::Later as u8));
        match self {
            Self::DestinationPort if whole && protocol.is_some_and(has_ports) => {
                Some("destination port not given; assumed 0")
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
            // Without a protocol, it is asked about a source and no packet.
            Self::Protocol | Self::DestinationPort | Self::TcpFlags | Self::IcmpType => None,
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
            Self::TcpFlags
            | Self::IcmpType
            | Self::DestinationPort
            | Self::Protocol
            | Self::Vlan
            | Self::Dscp
            | Self::Fragment => Ok(()),
        }
    }

    /// True if no path has both: a packet with a port has no type of ICMP.
    pub const fn excludes(self, other: Self) -> bool {
        matches!((self, other), (Self::IcmpType, Self::DestinationPort))
    }

    /// Unit that limits may count by this fact.
    pub const fn counted(self) -> Option<Count> {
        match self {
            Self::DestinationPort => Some(Count::Flows),
            Self::TcpFlags => Some(Count::Syns),
            Self::Protocol | Self::IcmpType | Self::Vlan | Self::Dscp | Self::Fragment => None,
        }
    }

    /// Share of the packets of an SSH session, to `port` if that is known, that have a value.
    pub(super) fn overlap(self, value: Option<u16>, port: Option<u16>) -> Overlap {
        match self {
            Self::DestinationPort => match (value, port) {
                (Some(value), Some(port)) if value != port => Overlap::None,
                (Some(_), _) => Overlap::All,
                (None, _) => Overlap::Some,
            },
            Self::Protocol if value.is_some_and(|value| value != u16::from(TCP)) => Overlap::None,
            Self::Protocol => Overlap::All,
            // TCP finds a size that needs no fragments.
            Self::Fragment if value.is_some_and(|value| value != Fragment::Whole as u16) => {
                Overlap::None
            }
            // The session is TCP. What its hosts need of ICMPv6 to find each other is exempt.
            Self::IcmpType => Overlap::None,
            Self::TcpFlags | Self::Vlan | Self::Dscp | Self::Fragment => Overlap::Some,
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
