//! The shape of a rule file for requests: names and types of its fields.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::one_or_many::{OneOrMany, WordOr};
use super::super::placed::{Item, Placed, Scalar};
use super::super::read;
use super::super::shape::{self as of_packets, present};
use super::schema;
use super::search::has_part;

/// The only word of `charge`.
pub(super) const AFTERWARDS: &str = "afterwards";

/// A rule file for requests.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A rule file of limiter for requests")]
#[schemars(extend("required" = ["domain", "descriptors"]))]
pub(super) struct File {
    /// The name that a request gives, too.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) domain: Option<Scalar>,
    /// Descriptors of a request that comes as a check of a proxy.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::check")]
    pub(super) check: Option<Placed<Option<Vec<Made>>>>,
    /// Limits that several rules share.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Budget>>")]
    pub(super) budgets: Option<Placed<Vec<Item<Budget>>>>,
    /// Queues for what is over the limits, which rules name by `action: {queue: NAME}`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::queues")]
    pub(super) queues: Option<Placed<Option<Vec<Placed<Queue>>>>>,
    /// The rules.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Vec<Descriptor>")]
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

/// A queue.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "queue", extend("required" = ["name"]))]
pub(super) struct Queue {
    /// Up to 64 letters, digits, `-`, `_` and `.`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
    /// Payloads that wait at once; one more is refused.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::depth")]
    pub(super) depth: Option<Scalar>,
    /// The longest wait, as in 1h.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) age: Option<Scalar>,
    /// The longest payload, as in 32KiB.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) payload: Option<Scalar>,
    /// Deliveries of one payload; then it is a dead letter.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::attempts")]
    pub(super) attempts: Option<Scalar>,
    /// The time that a worker has for a payload before another one gets it, as in 1min.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) visibility: Option<Scalar>,
}

/// A descriptor that is made of headers.
pub(super) type Made = Placed<Vec<Placed<Entry>>>;

/// An entry of a descriptor that is made of headers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "entry", extend("required" = ["key"], "oneOf" = schema::of_entry()))]
pub(super) struct Entry {
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) key: Option<Scalar>,
    /// The same value for every request.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) value: Option<Scalar>,
    /// The header whose value it is.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) header: Option<Scalar>,
}

/// A key, with the rule on it or further keys.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "descriptor", extend("required" = ["key"], "allOf" = schema::of_descriptor()))]
pub(super) struct Descriptor {
    /// A part of the request: any name.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) key: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::value")]
    pub(super) value: Option<Placed<OneOrMany>>,
    /// The limit.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default)]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
    /// The name of a budget, instead of limits.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) budget: Option<Scalar>,
    /// Limits for wider prefixes of the source.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Aggregate>>")]
    pub(super) aggregates: Option<Placed<Vec<Item<Aggregate>>>>,
    /// Only count what is over the limits.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) shadow_mode: Option<Placed<bool>>,
    /// Over only with all others of this kind.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) quota_mode: Option<Placed<bool>>,
    /// Metrics have the values of requests.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) detailed_metric: Option<Placed<bool>>,
    /// Metrics have the value of this level.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) value_to_metric: Option<Placed<bool>>,
    /// All values that the pattern matches share one bucket.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) share_threshold: Option<Placed<bool>>,
    /// Anything: it is reported, and not used.
    #[serde(default)]
    #[schemars(schema_with = "schema::anything")]
    pub(super) metadata: Option<Placed<IgnoredAny>>,
    /// Beside the refusal: ban the source, or keep the payload for later.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::action")]
    pub(super) action: Option<Placed<WordOr<Action>>>,
    /// Treatment of requests that get no bucket.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::full")]
    pub(super) on_full: Option<Scalar>,
    /// Hits are reports of what was done already: they are always charged.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::charge")]
    pub(super) charge: Option<Scalar>,
    /// Nodes that the limits are of: each by itself if nothing is said.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::scope")]
    pub(super) scope: Option<Scalar>,
    /// How nodes share the limits, with `scope: cluster`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "of_packets::Cluster")]
    pub(super) cluster: Option<Box<Placed<of_packets::Cluster>>>,
    /// Further keys.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Self>>")]
    pub(super) descriptors: Option<Placed<Vec<Item<Self>>>>,
}

/// Limits that several rules share.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "budget", extend("required" = ["name"], "allOf" = schema::of_limits()))]
pub(super) struct Budget {
    /// The name by which rules mean it.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
    /// The limit.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default)]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
}

/// Limits for wider prefixes of the source.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "aggregate", extend("allOf" = schema::of_limits()))]
pub(super) struct Aggregate {
    /// Bits of an IPv4 source that count.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::v4_bits")]
    pub(super) v4_prefix_mask_len: Option<Scalar>,
    /// Bits of an IPv6 source that count.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::v6_bits")]
    pub(super) v6_prefix_mask_len: Option<Scalar>,
    /// The limit.
    #[serde(default)]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default)]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
}

/// What happens over the limits beside the refusal, or instead of it. Actions on packets are read
/// to be refused in words.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Action {
    #[serde(default, deserialize_with = "present")]
    pub(super) ban: Option<Box<Placed<WordOr<of_packets::Ban>>>>,
    #[serde(default, deserialize_with = "present")]
    pub(super) queue: Option<Scalar>,
    #[serde(default)]
    pub(super) mark: Option<Placed<IgnoredAny>>,
    #[serde(default)]
    pub(super) class: Option<Placed<IgnoredAny>>,
    #[serde(default)]
    pub(super) interface: Option<Placed<IgnoredAny>>,
    #[serde(default)]
    pub(super) cpu: Option<Placed<IgnoredAny>>,
    #[serde(default)]
    pub(super) delay: Option<Placed<IgnoredAny>>,
}

/// A rate and how it is counted, or that there is none.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rate_limit", extend("allOf" = schema::of_rate_limit()))]
pub(super) struct RateLimit {
    /// A name for metrics and answers.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
    /// Rules that are left out where this one matches.
    #[serde(default)]
    #[schemars(with = "Option<Vec<Replaced>>")]
    pub(super) replaces: Option<Placed<Vec<Placed<Replaced>>>>,
    /// The rate as people write it, as in `5/min`: instead of `unit` and `requests_per_unit`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::rate_or_unlimited")]
    pub(super) rate: Option<Scalar>,
    /// The unit of time.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::unit")]
    pub(super) unit: Option<Scalar>,
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::unit_multiplier")]
    pub(super) unit_multiplier: Option<Scalar>,
    /// That many in that time; 0 lets nothing pass.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::requests")]
    pub(super) requests_per_unit: Option<Scalar>,
    /// That many at once.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::burst")]
    pub(super) burst: Option<Scalar>,
    /// How: docs/algorithms.md.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::algorithms")]
    pub(super) algorithm: Option<Scalar>,
    /// For `leaky_bucket`: how far requests may be ahead, as in 10ms.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) backlog: Option<Scalar>,
    /// For `sliding_slots`.
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::slots")]
    pub(super) slots: Option<Scalar>,
    /// For `sliding_slots`: never over in any window.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) strict: Option<Placed<bool>>,
    /// A limit above this one: requests between the two pass, and are marked.
    #[serde(default)]
    #[schemars(with = "of_packets::Rate")]
    pub(super) ceiling: Option<Box<Placed<of_packets::Rate>>>,
    /// Every request passes.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub(super) unlimited: Option<Placed<bool>>,
}

/// A limit that another one replaces.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "replaced", extend("required" = ["name"]))]
pub(super) struct Replaced {
    #[serde(default, deserialize_with = "present")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
}
