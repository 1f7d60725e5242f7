//! Keys and values of rules for requests.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv6Net};

use super::super::check::checked::Failure;
use super::super::check::keys::scalars;
use super::super::check::scalar::{at, text};
use super::super::error::{KeyValueError, Problem};
use super::super::one_or_many::OneOrMany;
use super::super::placed::Placed;
use super::super::shape;
use super::model::{Entry, EntryValue, LevelValue, Pattern};

/// The key whose values are sources, as they are for packets.
pub const SOURCE: &str = "remote_address";

/// What the keys of a rule say of the source of its requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::file) enum Sources {
    /// Nothing: the rule does not ask for it.
    #[default]
    Unknown,
    /// Several sources share the buckets of the rule.
    Together,
    /// A text that is no address.
    NoAddress,
    /// Each source has buckets of its own.
    Apart,
}

impl Sources {
    /// With a key and its values inside of this.
    pub(super) fn with(self, key: &str, values: &[LevelValue], shared: bool) -> Self {
        if key != SOURCE || self != Self::Unknown {
            return self;
        }
        if values.iter().any(|value| matches!(value, LevelValue::Exact(_))) {
            Self::NoAddress
        } else if shared {
            Self::Together
        } else {
            Self::Apart
        }
    }
}

pub(super) fn entry(raw: &Placed<shape::Entry>) -> Result<Entry, Failure> {
    let (place, raw) = (raw.referenced, &raw.value);
    let remedy = "name an entry, as in `{key: remote_address, header: X-Real-IP}`";
    let missing = |field, remedy| at(place, Problem::Missing { field, remedy });
    let key = raw.key.as_ref().ok_or_else(|| missing("key", remedy))?;
    let key = text(key, "key", remedy)?.into();
    let value = match (&raw.value, &raw.header) {
        (Some(_), Some(header)) => {
            return Err(at(header.referenced, Problem::Beside("header", "value")));
        }
        (Some(value), None) => {
            EntryValue::Fixed(text(value, "value", "write one, or `header: NAME`")?.into())
        }
        (None, Some(header)) => {
            let name = text(header, "header", "name a header, as in X-Real-IP")?;
            let token =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            if !name.bytes().all(token) {
                let reason = "a header has letters, digits and hyphens, as in X-Real-IP";
                let what = name.to_owned();
                return Err(at(header.referenced, Problem::NotSupported { what, reason }));
            }
            EntryValue::Header(name.to_ascii_lowercase().into())
        }
        (None, None) => return Err(missing("header", "name the header that the value comes from")),
    };
    Ok(Entry { key, value })
}

/// The values of a descriptor: at least one.
pub(super) fn values(
    key: &str,
    raw: Option<&Placed<OneOrMany>>,
) -> Result<Vec<LevelValue>, Failure> {
    let Some(raw) = raw else {
        return Ok(vec![LevelValue::Any]);
    };
    let remedy = "write one, or remove the line if every value is meant";
    let values = scalars(raw, remedy)?;
    let values = values.iter().map(|scalar| {
        let text = scalar.value.as_deref().unwrap_or_default();
        value(key, text).map_err(|problem| at(scalar.referenced, problem))
    });
    values.collect()
}

fn value(key: &str, text: &str) -> Result<LevelValue, Problem> {
    if key == SOURCE
        && let Some(net) = source(text)?
    {
        return Ok(LevelValue::Source(net));
    }
    Ok(match Pattern::of(text) {
        Some(pattern) => LevelValue::Pattern(pattern),
        None => LevelValue::Exact(text.into()),
    })
}

/// The prefix that a value of `remote_address` is, if it is one: an IPv6 address is its /64.
fn source(text: &str) -> Result<Option<IpNet>, Problem> {
    let net = match (text.parse::<IpAddr>(), text.parse::<IpNet>()) {
        (Ok(IpAddr::V6(address)), _) => match address.to_ipv4_mapped() {
            Some(mapped) => IpNet::from(IpAddr::V4(mapped)),
            None => IpNet::V6(Ipv6Net::new_assert(address, 64).trunc()),
        },
        (Ok(address), _) => IpNet::from(address),
        (Err(_), Ok(net)) => net,
        (Err(_), Err(_)) => return Ok(None),
    };
    if net != net.trunc() {
        return Err(Problem::KeyValue(KeyValueError::HostBits(net)));
    }
    if matches!(net, IpNet::V6(_)) && net.prefix_len() > 64 {
        let reason = "all addresses of a /64 share a bucket: write that";
        return Err(Problem::NotSupported { what: text.to_owned(), reason });
    }
    Ok(Some(net))
}
