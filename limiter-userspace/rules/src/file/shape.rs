//! The shape of a rule file: names and types of its fields, nothing more. One set of structs is
//! read, written and described: their comments are the descriptions of the JSON schema.
//!
//! A file may have 100,000 rules: what most of them do not have, and is large, is in a box.

use std::borrow::Borrow;

use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::one_or_many::{OneOrMany, WordOr};
use super::placed::{Item, Placed, Scalar, rules};
use super::schema::fields as schema;

/// A rule file: docs/rules.md says what the fields mean; `limiter check` checks more.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "A rule file of limiter", extend("anyOf" = schema::says_something()))]
pub(super) struct File {
    /// A name for this rule set. It changes nothing.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) domain: Option<Scalar>,
    /// Rate of the replies that `action: reject` may send. Without it, none.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rate")]
    pub(super) replies: Option<Placed<Rate>>,
    /// Rate of new bans: 10 a second if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rate")]
    pub(super) bans: Option<Placed<Rate>>,
    /// Treatment of packets whose source no host can have.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::martians")]
    pub(super) martians: Option<Scalar>,
    /// Sources whose packets pass, whatever the rules say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::listings")]
    pub(super) allow: Option<Vec<Placed<WordOr<Listing>>>>,
    /// Sources whose packets are dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::listings")]
    pub(super) deny: Option<Vec<Placed<WordOr<Listing>>>>,
    /// Limits that several rules share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Budget>>")]
    pub(super) budgets: Option<Vec<Placed<Budget>>>,
    /// Rules for requests, which `limiter serve` answers by: docs/requests.md. Nothing of it is for
    /// packets.
    #[serde(default, skip_serializing)]
    #[schemars(schema_with = "schema::of_requests")]
    pub(super) requests: Option<IgnoredAny>,
    // Last: `ExactFile` writes them one by one.
    /// The rules: `[]` if none are meant, so that nobody is limited.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Descriptor>")]
    pub(super) descriptors: Option<Placed<Rules>>,
}

/// Rules behind `descriptors`; `None` if nothing stands there.
#[derive(Debug, Serialize)]
pub(super) struct Rules(pub(super) Option<Vec<Item<Descriptor>>>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rules(deserializer).map(Self)
    }
}

/// A key, with the rule on it or further keys.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "descriptor", extend("required" = ["key"], "allOf" = schema::of_descriptor()))]
pub(super) struct Descriptor {
    /// Key: the part of packets that distinguishes them.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::keys")]
    pub(super) key: Option<Scalar>,
    // The description of the schema has the words that there are.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::value")]
    pub(super) value: Option<Placed<OneOrMany>>,
    /// Packets that come in, that go out, or both: `in` if nothing is said. Of the whole path, so
    /// it stands at the outermost key.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::direction")]
    pub(super) direction: Option<Scalar>,
    /// Bits of an IPv4 source that count.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::v4_bits")]
    pub(super) v4_prefix_mask_len: Option<Scalar>,
    /// Bits of an IPv6 source that count.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::v6_bits")]
    pub(super) v6_prefix_mask_len: Option<Scalar>,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
    /// The name of a budget, instead of limits.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) budget: Option<Scalar>,
    /// Action over the limits: `drop` if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WordOr<Action>")]
    pub(super) action: Option<Box<Placed<WordOr<Action>>>>,
    /// Only count what is over the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) shadow_mode: Option<Placed<bool>>,
    /// Treatment of packets that get no bucket.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::full")]
    pub(super) on_full: Option<Scalar>,
    /// Treatment of the limits without a daemon.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::on_loss")]
    pub(super) on_daemon_loss: Option<Scalar>,
    /// Nodes that the limits are of: each by itself if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::scope")]
    pub(super) scope: Option<Scalar>,
    /// How nodes share the limits, with `scope: cluster`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cluster")]
    pub(super) cluster: Option<Box<Placed<Cluster>>>,
    /// This rule for wider prefixes of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Aggregate>>")]
    pub(super) aggregates: Option<Placed<Vec<Item<Aggregate>>>>,
    /// Further keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<Descriptor>>")]
    pub(super) descriptors: Option<Placed<Vec<Item<Self>>>>,
}

/// Limits for wider prefixes of the source.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "aggregate", extend("allOf" = schema::of_aggregate()))]
pub(super) struct Aggregate {
    /// Bits of an IPv4 source that count.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::v4_bits")]
    pub(super) v4_prefix_mask_len: Option<Scalar>,
    /// Bits of an IPv6 source that count.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::v6_bits")]
    pub(super) v6_prefix_mask_len: Option<Scalar>,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
}

/// An entry of the allow or the deny list, unless it is an address or a prefix alone.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "listing", extend("required" = ["address"]))]
pub(super) struct Listing {
    /// An address or a prefix. An IPv6 address stands for its /64.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::word")]
    pub(super) address: Option<Scalar>,
    /// The reason for the entry, which is shown with it: up to 128 characters.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) reason: Option<Scalar>,
    /// The end of the entry in UTC, as in 2026-12-31 (all of that day) or 2026-12-31T18:00:00Z:
    /// never if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::until")]
    pub(super) until: Option<Scalar>,
}

/// Limits that several rules share.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "budget", extend("required" = ["name"], "allOf" = schema::of_budget()))]
pub(super) struct Budget {
    /// Name that rules call the budget by.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
    /// The limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "RateLimit")]
    pub(super) rate_limit: Option<Box<Placed<RateLimit>>>,
    /// Several limits: any of them trips.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<RateLimit>>")]
    pub(super) rate_limits: Option<Box<Placed<Vec<Placed<RateLimit>>>>>,
    /// Action over the limits: `drop` if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "WordOr<Action>")]
    pub(super) action: Option<Box<Placed<WordOr<Action>>>>,
    /// Only count what is over the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) shadow_mode: Option<Placed<bool>>,
    /// Treatment of the limits without a daemon.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::on_loss")]
    pub(super) on_daemon_loss: Option<Scalar>,
    /// Nodes that the limits are of: each by itself if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::scope")]
    pub(super) scope: Option<Scalar>,
    /// How nodes share the limits, with `scope: cluster`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Cluster")]
    pub(super) cluster: Option<Box<Placed<Cluster>>>,
}

/// How nodes share limits: docs/cluster.md.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "cluster")]
pub(super) struct Cluster {
    /// Time between two calls to the store, 50ms to 10s: 200ms if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) sync: Option<Scalar>,
    /// Part of the rate that nodes have without asking, all together: 25% if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::share")]
    pub(super) share: Option<Scalar>,
    /// Part of the burst that nodes have without asking, all together: 10% if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::share")]
    pub(super) share_of_burst: Option<Scalar>,
    /// Part of the burst, or of a window's quota, that a node holds at most: 25% if nothing is
    /// said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::share")]
    pub(super) lease_cap: Option<Scalar>,
    /// Behaviour of a node without contact to the store: `share` if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::on_partition")]
    pub(super) on_partition: Option<Scalar>,
    /// The shares are kept out of what the store gives, so that a partition adds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) strict: Option<Placed<bool>>,
}

/// A rate and how it is counted, or that there is none.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rate_limit", extend("allOf" = schema::of_rate_limit()))]
pub(super) struct RateLimit {
    /// The name of the rule.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) name: Option<Scalar>,
    /// The rate as people write it, as in `100/s` or `10mbit/s`: instead of `unit` and
    /// `requests_per_unit`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rate_or_unlimited")]
    pub(super) rate: Option<Box<Scalar>>,
    /// The unit of time.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::unit")]
    pub(super) unit: Option<Scalar>,
    /// That many of them are the length of time: 1 if nothing is said.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::unit_multiplier")]
    pub(super) unit_multiplier: Option<Box<Scalar>>,
    /// That many in that time.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::number")]
    pub(super) requests_per_unit: Option<Scalar>,
    /// That many at once, as in 200 or `60kB`: the amount of the rate if nothing is said.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::burst")]
    pub(super) burst: Option<Scalar>,
    /// Unit of the count: packets if nothing is said.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::counts")]
    pub(super) count: Option<Scalar>,
    /// How: docs/algorithms.md.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::algorithms")]
    pub(super) algorithm: Option<Scalar>,
    /// For `leaky_bucket`: how far packets may be ahead, as in 10ms.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) backlog: Option<Scalar>,
    /// For `sliding_slots`.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::slots")]
    pub(super) slots: Option<Scalar>,
    /// For `sliding_slots`: never over in any window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) strict: Option<Placed<bool>>,
    /// Makes the limit soft: bounds all that passes.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rate")]
    pub(super) ceiling: Option<Box<Placed<Rate>>>,
    /// Makes the limit soft: the peak rate of RFC 2698.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rate")]
    pub(super) peak: Option<Box<Placed<Rate>>>,
    /// Makes the limit soft: RFC 4115.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Rate")]
    pub(super) excess: Option<Box<Placed<Rate>>>,
    /// How packets over a soft limit are marked.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mark")]
    pub(super) mark: Option<Box<Placed<WordOr<Mark>>>>,
    /// Every packet passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) unlimited: Option<Placed<bool>>,
}

/// A rate and its burst.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "rate", extend("anyOf" = schema::of_rate()))]
#[expect(clippy::struct_field_names, reason = "the names are those of the file")]
pub(super) struct Rate {
    /// The rate as people write it, as in `100/s` or `10mbit/s`: instead of `unit` and
    /// `requests_per_unit`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::rate")]
    pub(super) rate: Option<Box<Scalar>>,
    /// The unit of time.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::unit")]
    pub(super) unit: Option<Scalar>,
    /// That many of them are the length of time: 1 if nothing is said.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::unit_multiplier")]
    pub(super) unit_multiplier: Option<Scalar>,
    /// That many in that time.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::number")]
    pub(super) requests_per_unit: Option<Scalar>,
    /// That many at once, as in 200 or `60kB`: the amount of the rate if nothing is said.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::burst")]
    pub(super) burst: Option<Scalar>,
}

/// Mark that is written into a packet.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "mark", extend("minProperties" = 1, "maxProperties" = 2))]
pub(super) struct Mark {
    /// This DSCP.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::dscp")]
    pub(super) dscp: Option<Scalar>,
    /// ECN's congestion mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) ecn: Option<Placed<bool>>,
}

/// A wait until a packet conforms.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "delay", extend("required" = ["longest"]))]
pub(super) struct Delay {
    /// The longest wait, 1ms to 2s.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) longest: Option<Scalar>,
    /// ECN's congestion mark for what waits at least half as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub(super) ecn: Option<Placed<bool>>,
}

/// Action over a limit, unless it is a word.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("minProperties" = 1, "maxProperties" = 1))]
pub(super) struct Action {
    /// Let it pass, marked.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Mark")]
    pub(super) mark: Option<Box<Placed<WordOr<Mark>>>>,
    /// Charge it to this budget.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) class: Option<Scalar>,
    /// Let it leave by this interface.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) interface: Option<Scalar>,
    /// Let this CPU go on with it.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::cpu")]
    pub(super) cpu: Option<Scalar>,
    /// Drop it, and maybe ban its source.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Ban")]
    pub(super) ban: Option<Box<Placed<WordOr<Ban>>>>,
    /// Let it wait until it conforms, and drop what would wait too long.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Delay")]
    pub(super) delay: Option<Box<Placed<WordOr<Delay>>>>,
}

/// A ban of the source for a time.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ban")]
pub(super) struct Ban {
    /// The length of the first ban, as in 1min.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) first: Option<Scalar>,
    /// The length of the longest, as in 1day.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) longest: Option<Scalar>,
    /// After how long strikes and bans are forgotten, as in 1h.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::text")]
    pub(super) memory: Option<Scalar>,
    /// Packets over the limits that it takes.
    #[serde(
        default,
        deserialize_with = "present",
        serialize_with = "number",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(schema_with = "schema::strikes")]
    pub(super) strikes: Option<Scalar>,
    /// Evidence that the source is not forged.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::evidence")]
    pub(super) evidence: Option<Scalar>,
}

/// Distinguishes a key without a value from a key that is not there: `value:` left empty must not
/// select every source.
pub(super) fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

/// Writes a number as one, although it is read as text.
#[expect(clippy::ref_option, reason = "serde's signature")]
fn number<S: Serializer>(
    scalar: &Option<impl Borrow<Scalar>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let text = scalar.as_ref().and_then(|scalar| scalar.borrow().value.as_deref());
    match text.map(str::parse::<u64>) {
        Some(Ok(number)) => serializer.serialize_u64(number),
        Some(Err(_)) | None => text.serialize(serializer),
    }
}
