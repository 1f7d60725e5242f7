//! The YAML as it stands: names and types of fields, nothing more.
//!
//! A file may have 100,000 rules, and all of them are here at once: what most rules do not have, and is large, is in a
//! box.

use serde::{Deserialize, Deserializer};
use serde_saphyr::{Options, Spanned, alias_limits, budget, options};

use super::error::{Place, Problem};
use super::one_or_many::{OneOrMany, WordOr};
use super::placed::{Placed, Places, reading, rules};

/// A scalar that is there; `None` inside is a key without a value.
pub(super) type Scalar = Placed<Option<String>>;

/// The document.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default, deserialize_with = "present")]
    pub(super) domain: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) replies: Option<Placed<Rate>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) bans: Option<Placed<Rate>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) martians: Option<Scalar>,
    #[serde(default)]
    pub(super) budgets: Option<Vec<Placed<Budget>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) descriptors: Option<Placed<Rules>>,
}

/// What stands behind `descriptors`; `None` if nothing does.
#[derive(Debug)]
pub(super) struct Rules(pub(super) Option<Vec<Spanned<Descriptor>>>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rules(deserializer).map(Self)
    }
}

/// One entry of `descriptors`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Descriptor {
    #[serde(default, deserialize_with = "present")]
    pub(super) key: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) value: Option<Placed<OneOrMany>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) v4_prefix_mask_len: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) v6_prefix_mask_len: Option<Scalar>,
    #[serde(default)]
    pub(super) rate_limit: Option<Placed<RateLimit>>,
    #[serde(default)]
    pub(super) rate_limits: Option<Placed<Vec<Placed<RateLimit>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) budget: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) action: Option<Box<Placed<WordOr<Action>>>>,
    #[serde(default)]
    pub(super) shadow_mode: Option<Placed<bool>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) on_full: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) on_daemon_loss: Option<Scalar>,
    #[serde(default)]
    pub(super) aggregates: Option<Placed<Vec<Spanned<Aggregate>>>>,
    #[serde(default)]
    pub(super) descriptors: Option<Placed<Vec<Spanned<Self>>>>,
}

/// One entry of `aggregates`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Aggregate {
    #[serde(default, deserialize_with = "present")]
    pub(super) v4_prefix_mask_len: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) v6_prefix_mask_len: Option<Scalar>,
    #[serde(default)]
    pub(super) rate_limit: Option<Placed<RateLimit>>,
    #[serde(default)]
    pub(super) rate_limits: Option<Placed<Vec<Placed<RateLimit>>>>,
}

/// One entry of `budgets`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    #[serde(default, deserialize_with = "present")]
    pub(super) name: Option<Scalar>,
    #[serde(default)]
    pub(super) rate_limit: Option<Placed<RateLimit>>,
    #[serde(default)]
    pub(super) rate_limits: Option<Placed<Vec<Placed<RateLimit>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) action: Option<Box<Placed<WordOr<Action>>>>,
    #[serde(default)]
    pub(super) shadow_mode: Option<Placed<bool>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) on_daemon_loss: Option<Scalar>,
}

/// `rate_limit`. Numbers are read as text, so that the checks can say what is wrong with them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RateLimit {
    #[serde(default, deserialize_with = "present")]
    pub(super) name: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) requests_per_unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) burst: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) count: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) algorithm: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) backlog: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) slots: Option<Scalar>,
    #[serde(default)]
    pub(super) strict: Option<Placed<bool>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ceiling: Option<Box<Placed<Rate>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) peak: Option<Box<Placed<Rate>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) excess: Option<Box<Placed<Rate>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) mark: Option<Box<Placed<Mark>>>,
    #[serde(default)]
    pub(super) unlimited: Option<Placed<bool>>,
}

/// A rate and its burst, and nothing else.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rate {
    #[serde(default, deserialize_with = "present")]
    pub(super) unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) requests_per_unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) burst: Option<Scalar>,
}

/// `mark`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Mark {
    #[serde(default, deserialize_with = "present")]
    pub(super) dscp: Option<Scalar>,
    #[serde(default)]
    pub(super) ecn: Option<Placed<bool>>,
}

/// `action`, unless it is a word.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    #[serde(default, deserialize_with = "present")]
    pub(super) mark: Option<Box<Placed<Mark>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) class: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) interface: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) cpu: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) ban: Option<Box<Placed<Ban>>>,
}

/// `ban`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ban {
    #[serde(default, deserialize_with = "present")]
    pub(super) first: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) longest: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) memory: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) strikes: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    pub(super) evidence: Option<Scalar>,
}

/// Tells a key without a value from a key that is not there: `value:` left empty must not select
/// every source.
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

pub(super) fn read(text: &str, places: Places) -> Result<File, (Option<Place>, Problem)> {
    reading(places, || serde_saphyr::from_str_with_options::<Option<File>>(text, limits()))
        .map(Option::unwrap_or_default)
        .map_err(|error| Problem::from_yaml(&error))
}

/// A file of 16 MiB holds at most some 200,000 rules of 20 nodes each. One anchored `rate_limit` may
/// serve them all, but aliases inside aliases end here. Nine keys can be nested, two levels each.
fn limits() -> Options {
    options! {
        budget: budget! {
            max_nodes: 8_000_000,
            max_events: 16_000_000,
            max_depth: 32,
            max_documents: 2,
            max_aliases: 500_000,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: 8_000_000,
            max_replay_stack_depth: 4,
        },
        strict_booleans: true,
        with_snippet: false,
    }
}
