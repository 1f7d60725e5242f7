//! Which packets a rule is for, and what makes their key.

use std::fmt;
use std::sync::Arc;

use ipnet::IpNet;
use limiter_common::packet::Fragment;
use limiter_common::source::V6_BITS;
use limiter_common::wire::FlagClass;

use super::names;
use super::selector::Selector;

/// How much of a source address counts, by family; a family without is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceMasks {
    /// Bits of an IPv4 address, 1 to 32.
    pub v4: Option<u8>,
    /// Bits of an IPv6 address, 1 to 128.
    pub v6: Option<u8>,
}

/// Those of `remote_address`.
#[expect(clippy::cast_possible_truncation, reason = "64")]
pub const SOURCE_MASKS: SourceMasks = SourceMasks { v4: Some(32), v6: Some(V6_BITS as u8) };

impl SourceMasks {
    /// The mask of an address's family.
    pub const fn of(self, net: &IpNet) -> Option<u8> {
        match net {
            IpNet::V4(_) => self.v4,
            IpNet::V6(_) => self.v6,
        }
    }
}

/// One key, with the value that it must have; without one there is a bucket for each value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The source, masked.
    Source(SourceMasks, Option<IpNet>),
    /// The destination address.
    Destination(Option<IpNet>),
    /// The destination port.
    DestinationPort(Option<u16>),
    /// The protocol's number.
    Protocol(Option<u8>),
    /// What the flags of TCP say.
    TcpFlags(Option<FlagClass>),
    /// The name of the interface that the packet came in by.
    Interface(Option<String>),
    /// The id of the outer VLAN tag.
    Vlan(Option<u16>),
    /// The DSCP.
    Dscp(Option<u8>),
    /// Which piece of a larger packet it is.
    Fragment(Option<Fragment>),
    /// The source of the packet inside a tunnel, with the masks of [`SOURCE_MASKS`].
    Inner(Option<IpNet>),
}

impl Part {
    /// Its name in rule files.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Source(masks, _) if *masks == SOURCE_MASKS => "remote_address",
            Self::Source(..) => "masked_remote_address",
            Self::Destination(_) => "destination_address",
            Self::DestinationPort(_) => "destination_port",
            Self::Protocol(_) => "protocol",
            Self::TcpFlags(_) => "tcp_flags",
            Self::Interface(_) => "interface",
            Self::Vlan(_) => "vlan",
            Self::Dscp(_) => "dscp",
            Self::Fragment(_) => "fragment",
            Self::Inner(_) => "inner_remote_address",
        }
    }

    /// Its value as it stands in rule files.
    pub fn value(&self) -> Option<String> {
        match self {
            Self::Source(_, net) | Self::Destination(net) | Self::Inner(net) => {
                net.as_ref().map(address_text)
            }
            Self::DestinationPort(number) | Self::Vlan(number) => {
                number.map(|number| number.to_string())
            }
            Self::Protocol(number) => number.map(names::protocol_text),
            Self::TcpFlags(class) => class.map(|class| class.name().to_owned()),
            Self::Interface(name) => name.clone(),
            Self::Dscp(number) => number.map(|number| number.to_string()),
            Self::Fragment(piece) => piece.map(|piece| piece.name().to_owned()),
        }
    }

    /// Whether it is the same key, whatever the value and the masks.
    pub fn same_key(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// A whole IPv4 address reads better without its length.
fn address_text(net: &IpNet) -> String {
    let whole = net.prefix_len() == net.max_prefix_len();
    if whole { net.addr().to_string() } else { net.to_string() }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())?;
        if let Self::Source(masks, _) = self
            && *masks != SOURCE_MASKS
        {
            let lengths = [("v4", masks.v4), ("v6", masks.v6)];
            for (family, length) in lengths {
                if let Some(length) = length {
                    write!(f, "/{family}:{length}")?;
                }
            }
        }
        match self.value() {
            Some(value) => write!(f, "={value}"),
            None => Ok(()),
        }
    }
}

/// The keys of a rule in the order in which they are nested; none for a rule on all packets
/// together. A copy shares them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(pub Arc<[Part]>);

impl Path {
    /// The path with one key more, nested inside of the others.
    #[must_use]
    pub fn with(&self, part: Part) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }

    /// The selector, if this is a rule by source alone.
    pub fn selector(&self) -> Option<Selector> {
        match &*self.0 {
            [Part::Source(masks, value)] if *masks == SOURCE_MASKS => {
                Some(value.map_or(Selector::Every, Selector::Prefix))
            }
            _ => None,
        }
    }

    /// The path of a rule by source alone: what [`Path::selector`] is the selector of.
    pub fn of_source(selector: &Selector) -> Self {
        let value = match selector {
            Selector::Every => None,
            Selector::Prefix(net) => Some(*net),
        };
        Self(Arc::new([Part::Source(SOURCE_MASKS, value)]))
    }

    /// Whether the source of the packet inside a tunnel is one of the keys.
    pub fn has_inner(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::Inner(_)))
    }

    /// The masks and the value of the source, if it is one of the keys.
    pub fn source(&self) -> Option<(SourceMasks, Option<IpNet>)> {
        self.0.iter().find_map(|part| match part {
            Part::Source(masks, value) => Some((*masks, *value)),
            _ => None,
        })
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The sources alone say it all.
        if let Some(selector) = self.selector() {
            return selector.fmt(f);
        }
        if self.0.is_empty() {
            return f.write_str("every packet");
        }
        for (index, part) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(" ")?;
            }
            part.fmt(f)?;
        }
        Ok(())
    }
}
