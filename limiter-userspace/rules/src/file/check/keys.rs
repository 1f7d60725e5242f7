//! Keys and their values.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::source::MAPPED_BITS;

use super::checked::Failure;
use super::scalar::{at, plain, ranged, text};
use crate::file::error::{KeyValueError, Problem};
use crate::file::one_or_many::OneOrMany;
use crate::file::place::Place;
use crate::file::placed::{Placed, Scalar};
use crate::file::shape::Descriptor;
use crate::model::key::{GENERIC, KEYS, NoValue};
use crate::model::{
    Direction, Fact, Part, SOURCE_MASKS, Selector, SelectorError, SourceMasks, Values,
};
use crate::source_text::{self, SourceTextError};

/// Keys of Envoy's rate limit actions that stand above layer 4.
const HTTP_KEYS: [&str; 7] = [
    "header_match",
    "method",
    "path",
    "query_match",
    "query_parameter_value_match",
    "source_cluster",
    "destination_cluster",
];

/// Addition of a descriptor to the path.
#[derive(Debug)]
pub(super) enum Added {
    Label(String),
    /// A key, once for each value.
    Parts(Vec<Part>),
}

/// Reads `key`, `value` and the masks, in a rule of this direction.
pub(super) fn added(
    raw: &Descriptor,
    direction: Direction,
    place: Option<Place>,
) -> Result<Added, Failure> {
    let Some(key) = &raw.key else {
        let remedy = "write `key: remote_address`";
        return Err((place, Problem::Missing { field: "key", remedy }));
    };
    let word = known(key)?;
    fits(key, word, direction)?;
    let masks = [
        ("v4_prefix_mask_len", &raw.v4_prefix_mask_len, 32),
        ("v6_prefix_mask_len", &raw.v6_prefix_mask_len, 128),
    ];
    if word != "masked_remote_address" {
        for (field, mask, _) in &masks {
            if let Some(mask) = mask {
                let remedy = "write `key: masked_remote_address`, or remove the line";
                let needs = "masked_remote_address";
                return Err(at(mask.referenced, Problem::Without { field, needs, remedy }));
            }
        }
    }
    if word == GENERIC {
        return label(raw.value.as_ref(), place);
    }
    let part = |value: Option<&Scalar>| -> Result<Part, Failure> {
        Ok(match word {
            "remote_address" => {
                let net = value.map(remote_address).transpose()?.flatten();
                Part::Source(SOURCE_MASKS, net)
            }
            "masked_remote_address" => {
                let masks = source_masks(raw, place)?;
                Part::Source(masks, value.map(|value| masked(value, masks)).transpose()?)
            }
            "destination_address" | "source_address" => {
                Part::Destination(value.map(address).transpose()?)
            }
            "interface" => Part::Interface(value.map(interface).transpose()?),
            "inner_remote_address" => Part::Inner(value.map(inner).transpose()?),
            word => {
                let fact = Fact::ALL.into_iter().find(|fact| fact.key() == word);
                let fact = fact.ok_or_else(|| unknown(key, word))?;
                let values = value.map(|value| number(value, fact)).transpose()?;
                Part::Fact(fact.in_header(direction), values)
            }
        })
    };
    let Some(value) = &raw.value else {
        return Ok(Added::Parts(vec![part(None)?]));
    };
    let mut parts = Vec::new();
    let remedy = match word {
        "remote_address" => "give an address or prefix, or remove the line to limit every source",
        _ => "give one, or remove the line: then each value has a bucket",
    };
    for value in scalars(value, remedy)? {
        parts.push(part(Some(&value))?);
    }
    Ok(Added::Parts(parts))
}

fn known(key: &Scalar) -> Result<&str, Failure> {
    let word = text(key, "key", "write `key: remote_address`")?;
    if KEYS.contains(&word) {
        return Ok(word);
    }
    Err(unknown(key, word))
}

/// Refuses a key that packets of this direction do not have, or have under another name.
fn fits(key: &Scalar, word: &str, direction: Direction) -> Result<(), Failure> {
    let (key_name, remedy) = match (word, direction) {
        ("source_address", Direction::In | Direction::Both) => {
            ("source_address", "write remote_address, the source of what comes in")
        }
        ("destination_address", Direction::Out) => {
            ("destination_address", "write remote_address, which is the destination on the way out")
        }
        ("inner_remote_address", Direction::Out | Direction::Both) => (
            "inner_remote_address",
            "the packet inside a tunnel is looked for on the way in alone: write `direction: in`, \
             or remote_address, the other end of the tunnel",
        ),
        _ => return Ok(()),
    };
    Err(at(key.referenced, Problem::KeyOfDirection { key: key_name, direction, remedy }))
}

fn unknown(key: &Scalar, word: &str) -> Failure {
    let problem = if HTTP_KEYS.contains(&word) {
        let reason = "it needs HTTP, and packets are judged before there is any: it may be a key of requests, \
             for `limiter serve`";
        Problem::NotSupported { what: word.to_owned(), reason }
    } else {
        Problem::UnknownWord { field: "key", word: word.to_owned(), expected: KEYS.to_vec() }
    };
    at(key.referenced, problem)
}

/// The values of a key that is a number, by its name where it has one.
fn number(value: &Scalar, fact: Fact) -> Result<Values, Failure> {
    let (field, word) = ("value", text(value, "value", "give one, or remove the line")?);
    fact.values(word).map_err(|error| {
        let text = word.to_owned();
        at(
            value.referenced,
            match error {
                NoValue::Range(most) => Problem::Range { field, text, low: 0, high: most.into() },
                NoValue::NoRange(most) => Problem::NoRange { field, text, high: most },
                NoValue::UnknownName => {
                    let expected = fact.names().iter().map(|(name, _)| *name).collect();
                    Problem::UnknownWord { field, word: text, expected }
                }
            },
        )
    })
}

/// The values of `value`: at least one, none of them empty.
pub(in crate::file) fn scalars(
    value: &Placed<OneOrMany>,
    remedy: &'static str,
) -> Result<Vec<Scalar>, Failure> {
    let values = match &value.value {
        OneOrMany::One(text) => vec![Placed { value: text.clone(), referenced: value.referenced }],
        OneOrMany::Many(values) if values.is_empty() => {
            return Err(at(value.referenced, Problem::Empty { field: "value", remedy }));
        }
        OneOrMany::Many(values) => values.clone(),
    };
    for value in &values {
        text(value, "value", remedy)?;
    }
    Ok(values)
}

fn label(value: Option<&Placed<OneOrMany>>, place: Option<Place>) -> Result<Added, Failure> {
    let remedy = "write a name, as in `value: everything`";
    let Some(value) = value else {
        return Err((place, Problem::Missing { field: "value", remedy }));
    };
    match &value.value {
        OneOrMany::One(Some(text)) if !text.is_empty() => {
            plain(text, "value", value.referenced)?;
            Ok(Added::Label(text.clone()))
        }
        OneOrMany::One(_) | OneOrMany::Many(_) => {
            Err(at(value.referenced, Problem::Empty { field: "value", remedy }))
        }
    }
}

fn remote_address(value: &Scalar) -> Result<Option<IpNet>, Failure> {
    let remedy = "give an address or prefix, or remove the line to limit every source";
    let text = text(value, "value", remedy)?;
    match source_text::parse(text).map_err(|e| at(value.referenced, Problem::Value(e)))? {
        Selector::Every => Ok(None),
        Selector::Prefix(net) => Ok(Some(net)),
    }
}

/// An address or prefix of either family.
fn address(value: &Scalar) -> Result<IpNet, Failure> {
    let text = text(value, "value", "give an address or prefix, or remove the line")?;
    let net = if text.contains('/') {
        text.parse::<IpNet>().ok()
    } else {
        text.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()))
    };
    let Some(net) = net else {
        let error = SourceTextError::Syntax(text.to_owned());
        return Err(at(value.referenced, Problem::Value(error)));
    };
    let wrong = |error| Err(at(value.referenced, Problem::KeyValue(error)));
    if net.trunc() != net {
        return wrong(KeyValueError::HostBits(net));
    }
    if let IpNet::V6(v6) = net
        && v6.addr().to_ipv4_mapped().is_some()
        && u32::from(v6.prefix_len()) >= MAPPED_BITS
    {
        return wrong(KeyValueError::Mapped(net));
    }
    Ok(net)
}

fn masked(value: &Scalar, masks: SourceMasks) -> Result<IpNet, Failure> {
    let net = address(value)?;
    within(net, masks).map_err(|error| at(value.referenced, Problem::KeyValue(error)))?;
    Ok(net)
}

/// A source inside a tunnel: its masks are not the file's to choose.
fn inner(value: &Scalar) -> Result<IpNet, Failure> {
    let net = address(value)?;
    let wrong = |error: SelectorError| at(value.referenced, Problem::Value(error.into()));
    Selector::prefix(net).map(|_| net).map_err(wrong)
}

/// Checks that a prefix is not inside one bucket.
pub(super) fn within(net: IpNet, masks: SourceMasks) -> Result<(), KeyValueError> {
    let (family, field) = match net {
        IpNet::V4(_) => ("IPv4", "v4_prefix_mask_len"),
        IpNet::V6(_) => ("IPv6", "v6_prefix_mask_len"),
    };
    match masks.of(&net) {
        None => Err(KeyValueError::Family { net, family, field }),
        Some(mask) if net.prefix_len() > mask => {
            Err(KeyValueError::TooLong { net, mask, wider: wider(net, mask), field })
        }
        Some(_) => Ok(()),
    }
}

/// The prefix of a length that a longer one is in.
fn wider(net: IpNet, mask: u8) -> IpNet {
    IpNet::new(net.addr(), mask).map_or(net, |wider| wider.trunc())
}

/// Checks that a prefix is not inside one bucket of an aggregate.
pub(super) fn within_aggregate(net: IpNet, masks: SourceMasks) -> Result<(), KeyValueError> {
    within(net, masks).map_err(|error| match error {
        KeyValueError::TooLong { net, mask, wider, field } => {
            KeyValueError::PartOfAggregate { net, mask, wider, field }
        }
        other => other,
    })
}

fn interface(value: &Scalar) -> Result<String, Failure> {
    let text = text(value, "value", "give the name of an interface, or remove the line")?;
    let bad = |c: char| c == '/' || c.is_whitespace() || c.is_control();
    // IFNAMSIZ with its terminator.
    if text.len() > 15 || text.contains(bad) {
        let error = KeyValueError::Interface(text.to_owned());
        return Err(at(value.referenced, Problem::KeyValue(error)));
    }
    Ok(text.to_owned())
}

fn source_masks(raw: &Descriptor, place: Option<Place>) -> Result<SourceMasks, Failure> {
    masks(raw.v4_prefix_mask_len.as_ref(), raw.v6_prefix_mask_len.as_ref(), place)
}

/// `v4_prefix_mask_len` and `v6_prefix_mask_len`, at least one.
pub(in crate::file) fn masks(
    v4: Option<&Scalar>,
    v6: Option<&Scalar>,
    place: Option<Place>,
) -> Result<SourceMasks, Failure> {
    let length = |mask: &Scalar, field, most| ranged(mask, field, 1..=most);
    let masks = SourceMasks {
        v4: v4.map(|mask| length(mask, "v4_prefix_mask_len", 32)).transpose()?,
        v6: v6.map(|mask| length(mask, "v6_prefix_mask_len", 128)).transpose()?,
    };
    if masks.v4.is_none() && masks.v6.is_none() {
        let field = "v4_prefix_mask_len";
        let remedy = "write it, v6_prefix_mask_len, or both";
        return Err((place, Problem::Missing { field, remedy }));
    }
    Ok(masks)
}
