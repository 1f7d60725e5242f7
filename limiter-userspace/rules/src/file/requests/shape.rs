//! The shape of a rule file for requests: names and types of its fields.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::one_or_many::{OneOrMany, WordOr};
use super::super::placed::{Item, Placed, Scalar};
use super::super::read;
use super::super::shape::{self as of_packets, present};
use super::search::has_part;

/// A rule file for requests.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// The name that a request gives, too.
    #[serde(default, deserialize_with = "present")]
    pub(super) domain: Option<Scalar>,
    /// Descriptors of a request that comes as a check of a proxy.
    #[serde(default, deserialize_with = "present")]
    pub(super) check: Option<Placed<Option<Vec<Made>>>>,
    /// The rules.
    #[serde(default, deserialize_with = "present")]
    pub(super) descriptors: Option<Placed<Option<Vec<Item<Descriptor>>>>>,
}

/// A file for packets, with the rules for requests in it.
#[derive(Debug, Deserialize)]
struct Both {
    requests: File,
}

impl File {
    /// Reads a file for requests, or that part of one for both.
    pub(super) fn read(text: &str) -> Result<Self, serde_saphyr::Error> {
        if has_part(text) {
            let both = serde_saphyr::from_str_with_options::<Both>(text, read::limits())?;
            return Ok(both.requests);
        }
        serde_saphyr::from_str_with_options::<Option<Self>>(text, read::limits())
            .map(Option::unwrap_or_default)
    }
}

/// A descriptor that is made of headers.
pub(super) type Made = Placed<Vec<Placed<Entry>>>;

/// An entry of a descriptor that is made of headers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    #[serde(default, deserialize_with = "present")]
    pub(super) key: Option<Scalar>,
    /// The same value for every request.
    #[serde(default, deserialize_with = "present")]
    pub(super) value: Option<Scalar>,
    /// The header whose value it is.
    #[serde(default, deserialize_with = "present")]
    pub(super) header: Option<Scalar>,
}

/// A key, with the rule on it or further keys.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Descriptor {
    #[serde(default, deserialize_with = "present")]
    pub(super) key: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) value: Option<Placed<OneOrMany>>,
    #[serde(default)]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    #[serde(default)]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
    #[serde(default)]
    pub(super) shadow_mode: Option<Placed<bool>>,
    #[serde(default)]
    pub(super) quota_mode: Option<Placed<bool>>,
    #[serde(default)]
    pub(super) detailed_metric: Option<Placed<bool>>,
    #[serde(default)]
    pub(super) value_to_metric: Option<Placed<bool>>,
    #[serde(default)]
    pub(super) share_threshold: Option<Placed<bool>>,
    /// Anything: it is reported, and not used.
    #[serde(default)]
    pub(super) metadata: Option<Placed<IgnoredAny>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) action: Option<Placed<WordOr<of_packets::Action>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) on_full: Option<Scalar>,
    #[serde(default)]
    pub(super) descriptors: Option<Placed<Vec<Item<Self>>>>,
}

/// A rate and how it is counted, or that there is none.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    #[serde(default, deserialize_with = "present")]
    pub(super) name: Option<Scalar>,
    #[serde(default)]
    pub(super) replaces: Option<Placed<Vec<Placed<Replaced>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) rate: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) unit_multiplier: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) requests_per_unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) burst: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) algorithm: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) backlog: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) slots: Option<Scalar>,
    #[serde(default)]
    pub(super) strict: Option<Placed<bool>>,
    #[serde(default)]
    pub(super) unlimited: Option<Placed<bool>>,
}

/// A limit that another one replaces.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replaced {
    #[serde(default, deserialize_with = "present")]
    pub(super) name: Option<Scalar>,
}
