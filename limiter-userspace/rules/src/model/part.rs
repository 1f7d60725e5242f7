//! One level of a path: a key with the value that it must have.

use std::fmt::Write as _;

use ipnet::IpNet;
use limiter_common::source::V6_BITS;
use limiter_common::wire::field;

use super::direction::Direction;
use super::key::{Fact, Overlap};
use super::selector::Selector;
use super::values::Values;

/// How much of a source address counts, by family; a family without is not in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceMasks {
    /// Bits of an IPv4 address, 1 to 32.
    pub v4: Option<u8>,
    /// Bits of an IPv6 address, 1 to 128.
    pub v6: Option<u8>,
}

/// Masks of `remote_address`.
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

/// One key, with the value that it must have; without a value there is a bucket for each one. For
/// outgoing packets it is as the other end sees it: [`Direction`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The source, masked: the other end, whichever way packets go.
    Source(SourceMasks, Option<IpNet>),
    /// The destination address: that of this side.
    Destination(Option<IpNet>),
    /// A key whose value is a number, or a range of numbers.
    Fact(Fact, Option<Values>),
    /// The name of the interface that the packet came in by, or goes out by.
    Interface(Option<String>),
    /// The source of the packet inside a tunnel, with the masks of [`SOURCE_MASKS`].
    Inner(Option<IpNet>),
}

impl Part {
    /// Name in the rule files of a rule of this direction.
    pub fn key(&self, direction: Direction) -> &'static str {
        match self {
            Self::Source(masks, _) if *masks == SOURCE_MASKS => "remote_address",
            Self::Source(..) => "masked_remote_address",
            Self::Destination(_) if direction == Direction::Out => "source_address",
            Self::Destination(_) => "destination_address",
            Self::Fact(fact, _) => fact.in_header(direction).key(),
            Self::Interface(_) => "interface",
            Self::Inner(_) => "inner_remote_address",
        }
    }

    /// Bit in [`field`].
    pub const fn field(&self) -> u32 {
        match self {
            Self::Source(..) => field::SOURCE,
            Self::Destination(_) => field::DESTINATION,
            Self::Fact(fact, _) => fact.field(),
            Self::Interface(_) => field::INTERFACE,
            Self::Inner(_) => field::INNER,
        }
    }

    /// The value as it stands in rule files.
    pub fn value(&self) -> Option<String> {
        match self {
            Self::Source(_, net) | Self::Destination(net) | Self::Inner(net) => {
                net.as_ref().map(address_text)
            }
            Self::Fact(fact, values) => values.map(|values| fact.values_text(values)),
            Self::Interface(name) => name.clone(),
        }
    }

    /// The key and its value in one word, as in `destination_port=22`, in a rule of this direction.
    pub fn text(&self, direction: Direction) -> String {
        let mut text = self.key(direction).to_owned();
        if let Self::Source(masks, _) = self
            && *masks != SOURCE_MASKS
        {
            let lengths = [("v4", masks.v4), ("v6", masks.v6)];
            for (family, length) in lengths {
                if let Some(length) = length {
                    // Writing to a `String` cannot fail.
                    let _: std::fmt::Result = write!(text, "/{family}:{length}");
                }
            }
        }
        if let Some(value) = self.value() {
            text.push('=');
            text.push_str(&value);
        }
        text
    }

    /// True if both have the same key, whatever the value and the masks.
    pub fn same_key(&self, other: &Self) -> bool {
        self.field() == other.field()
    }

    /// True if no path has both. An inner source stands at the place of the outer one, and its
    /// family is that of the whole key.
    pub const fn excludes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Inner(_), Self::Source(..) | Self::Destination(_)) => true,
            (Self::Fact(fact, _), Self::Fact(other, _)) => fact.excludes(*other),
            _ => false,
        }
    }

    /// True if packets with the other part have this one as well.
    pub fn has_all(&self, other: &Self) -> bool {
        let around = |outer: &Option<IpNet>, inner: &Option<IpNet>| match (outer, inner) {
            (None, _) => true,
            (Some(outer), Some(inner)) => outer.contains(inner),
            (Some(_), None) => false,
        };
        match (self, other) {
            (Self::Source(masks, outer), Self::Source(others, inner)) => {
                masks == others && around(outer, inner)
            }
            (Self::Destination(outer), Self::Destination(inner))
            | (Self::Inner(outer), Self::Inner(inner)) => around(outer, inner),
            (Self::Fact(fact, outer), Self::Fact(of, inner)) => {
                fact == of
                    && match (outer, inner) {
                        (None, _) => true,
                        (Some(outer), Some(inner)) => outer.has_all(*inner),
                        (Some(_), None) => false,
                    }
            }
            (Self::Interface(outer), Self::Interface(inner)) => outer.is_none() || outer == inner,
            _ => false,
        }
    }

    /// Share of the packets of an SSH session that have this part. The session is that of `peer`,
    /// to `port` if that is known.
    pub fn overlap(&self, peer: &Selector, port: Option<u16>) -> Overlap {
        let all = |is: bool| if is { Overlap::All } else { Overlap::None };
        match self {
            Self::Source(masks, value) => {
                let in_table = matches!(peer, Selector::Prefix(net) if masks.of(net).is_some());
                all(in_table && value.is_none_or(|net| overlap(&net, peer)))
            }
            Self::Destination(None) => Overlap::All,
            Self::Fact(fact, value) => fact.overlap(*value, port),
            Self::Destination(Some(_)) | Self::Interface(_) => Overlap::Some,
            // The session is not in a tunnel that is looked into.
            Self::Inner(_) => Overlap::None,
        }
    }
}

/// True if one of two prefixes is in the other. A rule may be for a longer prefix than the /64 that
/// an IPv6 peer is.
fn overlap(net: &IpNet, peer: &Selector) -> bool {
    let rule = Selector::Prefix(*net);
    rule.contains(peer) || peer.contains(&rule)
}

/// A whole IPv4 address reads better without its length.
pub(super) fn address_text(net: &IpNet) -> String {
    let whole = net.prefix_len() == net.max_prefix_len();
    if whole { net.addr().to_string() } else { net.to_string() }
}
