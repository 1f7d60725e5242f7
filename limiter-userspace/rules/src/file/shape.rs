//! The shape of a rule file: one row a field, for packets and for requests. One set of structs is
//! read, written and described: their comments are the descriptions of the JSON schemas.
//!
//! A file may have 100,000 rules: what most of them do not have, and is large, is in a box.

use std::borrow::Cow;
use std::fmt;

use limiter_sharing::OnPartition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;

use super::check::words::{
    ALGORITHMS, CHARGES, COUNTS, EVIDENCE, FULL, MOST_ATTEMPTS, MOST_DEPTH, MOST_STRIKES, ON_LOSS,
    SCOPES,
};
use super::one_or_many::{OneOrMany, WordOr};
use super::placed::{At, Item, Placed, Scalar, Stands as _, rules};
use super::schema::fields::{self as schema, number, of, words};
use super::table::{Field, Name, Number, Table, Written, only, read, shape, value};
use crate::dialect::Dialect;
use crate::model::{Direction, Martians, Period, Unit};

/// A list of limits.
pub(super) type Limits = Box<Placed<Vec<Placed<RateLimit>>>>;

/// A descriptor that is made of headers.
pub(super) type Made = Placed<Vec<Placed<Entry>>>;

/// Rules behind `descriptors`; `None` if nothing stands there.
#[derive(Debug, Serialize)]
pub(super) struct Rules(pub(super) Option<Vec<Item<Descriptor>>>);

impl<'de> Deserialize<'de> for Rules {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        rules(deserializer).map(Self)
    }
}

/// Why requests have no actions on packets.
pub(super) const ANSWERED: &str = "a request over the limits is answered with 429: remove the \
    field, or write `action: {ban: {first: 10min}}` to ban its source, too, or `action: {queue: \
    NAME}` to keep its payload for later";

/// Where fields of requests stand in a file for both.
const FOR_REQUESTS: &str = "it is for requests: write it inside `requests`, by which \
    `limiter serve` answers";

shape! {
    /// A rule file: docs/rules.md and docs/requests.md say what the fields mean; `limiter check`
    /// checks more.
    File ["A rule file of limiter", schema::of_file()] {
        domain: some Scalar => schema::domain;
        /// Rate of the replies that `action: reject` may send. Without it, none.
        replies: some Placed<Rate> => of::<Rate>, packets "it is for packets; remove the field";
        /// Rate of new bans: 10 a second if nothing is said.
        bans: some Placed<Rate> => of::<Rate>, packets "it is for packets; remove the field";
        /// Treatment of packets whose source no host can have.
        martians: some Scalar => |_| words(&Martians::NAMED),
            packets "it is for packets; remove the field";
        /// Sources whose packets pass, whatever the rules say.
        allow: maybe Placed<Vec<Placed<WordOr<Listing>>>> => schema::listings,
            packets "it is for packets; use a rule with `unlimited: true`";
        /// Sources whose packets are dropped.
        deny: maybe Placed<Vec<Placed<WordOr<Listing>>>> => schema::listings,
            packets "it is for packets; use a rule with `requests_per_unit: 0`";
        /// Descriptors of a request that comes as a check of a proxy.
        check: some Placed<Option<Vec<Made>>> => schema::check, requests FOR_REQUESTS;
        /// Limits that several rules share.
        budgets: maybe Placed<Vec<Placed<Budget>>> => of::<Option<Vec<Budget>>>;
        /// Queues for what is over the limits, which rules name by `action: {queue: NAME}`.
        queues: some Placed<Option<Vec<Placed<Queue>>>> => schema::queues, requests FOR_REQUESTS;
        /// Rules for requests, which `limiter serve` answers by: docs/requests.md. Nothing of it is
        /// for packets.
        requests: any Placed<IgnoredAny> => |_| json_schema!({"type": "object"}), packets;
        // Last: `ExactFile` writes them one by one.
        /// The rules: `[]` if none are meant, so that nobody is limited.
        descriptors: some Placed<Rules> => of::<Vec<Descriptor>>;
    }

    /// A key, with the rule on it or further keys.
    Descriptor ["descriptor", schema::of_descriptor()] {
        key: some Scalar => schema::key;
        value: some Placed<OneOrMany> => schema::value;
        /// Packets that come in, that go out, or both: `in` if nothing is said. Of the whole path,
        /// so it stands at the outermost key.
        direction: some Scalar => |_| words(&Direction::NAMED),
            packets "requests have no direction; remove the field";
        /// Bits of an IPv4 source that count.
        v4_prefix_mask_len: number Scalar => |_| number(1, Some(32)),
            packets "who asks masks the address; remove the field";
        /// Bits of an IPv6 source that count.
        v6_prefix_mask_len: number Scalar => |_| number(1, Some(128)),
            packets "who asks masks the address; remove the field";
        /// The limit.
        rate_limit: maybe Box<Placed<RateLimit>> => of::<RateLimit>;
        /// Several limits: any of them trips.
        rate_limits: maybe Limits => of::<Option<Vec<RateLimit>>>;
        /// The name of a budget, instead of limits.
        budget: some Scalar => schema::text;
        action: some Box<Placed<WordOr<Action>>> => schema::action;
        /// Only count what is over the limits.
        shadow_mode: flag Placed<bool> => of::<bool>;
        /// Over only with all others of this kind.
        quota_mode: flag Placed<bool> => of::<bool>,
            requests "limits are always enforced, or only counted with shadow_mode; remove the \
                      field";
        /// Treatment of what gets no bucket.
        on_full: some Scalar => |_| words(&FULL);
        /// Treatment of the limits without a daemon.
        on_daemon_loss: some Scalar => |_| words(&ON_LOSS),
            packets "requests are decided without the daemon; remove the field";
        /// Hits are reports of what was done already: they are always charged.
        charge: some Box<Scalar> => |_| words(&CHARGES),
            requests "packets are charged as they come, and only requests are reported afterwards; \
                      remove the field";
        /// Nodes that the limits are of: each by itself if nothing is said.
        scope: some Scalar => |_| words(&SCOPES);
        /// How nodes share the limits, with `scope: cluster`.
        cluster: some Box<Placed<Cluster>> => of::<Cluster>;
        /// Metrics have the values of requests.
        detailed_metric: flag Placed<bool> => of::<bool>,
            requests "`limiter show` has every source's counts; remove the field";
        /// Metrics have the value of this level.
        value_to_metric: flag Placed<bool> => of::<bool>,
            requests "`limiter show` has every source's counts; remove the field";
        /// All values that the pattern matches share one bucket.
        share_threshold: flag Placed<bool> => of::<bool>,
            requests "rules share a limit by `budget: NAME`; remove the field";
        /// Anything: it is reported, and not used.
        metadata: any Placed<IgnoredAny> => |_| Schema::default(),
            requests "it is for the answer to a request, and packets get none; remove the field";
        /// Limits for wider prefixes of the source, with the other fields of this rule.
        aggregates: maybe Placed<Vec<Item<Aggregate>>> => of::<Option<Vec<Aggregate>>>;
        /// Further keys.
        descriptors: maybe Placed<Vec<Item<Descriptor>>> => of::<Option<Vec<Descriptor>>>;
    }

    /// Limits for wider prefixes of the source.
    Aggregate ["aggregate", schema::of_aggregate()] {
        /// Bits of an IPv4 source that count.
        v4_prefix_mask_len: number Scalar => |_| number(1, Some(32));
        /// Bits of an IPv6 source that count.
        v6_prefix_mask_len: number Scalar => |_| number(1, Some(128));
        /// The limit.
        rate_limit: maybe Box<Placed<RateLimit>> => of::<RateLimit>;
        /// Several limits: any of them trips.
        rate_limits: maybe Limits => of::<Option<Vec<RateLimit>>>;
    }

    /// An entry of the allow or the deny list, unless it is an address or a prefix alone.
    Listing ["listing", json!({"required": ["address"]})] {
        /// An address or a prefix. An IPv6 address stands for its /64.
        address: some Scalar => of::<String>;
        /// The reason for the entry, which is shown with it: up to 128 characters.
        reason: some Scalar => schema::text;
        /// The end of the entry in UTC, as in 2026-12-31 (all of that day) or 2026-12-31T18:00:00Z:
        /// never if nothing is said.
        until: some Scalar => schema::until;
    }

    /// Limits that several rules share.
    Budget ["budget", schema::of_budget()] {
        /// Name that rules call the budget by.
        name: some Scalar => schema::text;
        /// The limit.
        rate_limit: maybe Box<Placed<RateLimit>> => of::<RateLimit>;
        /// Several limits: any of them trips.
        rate_limits: maybe Limits => of::<Option<Vec<RateLimit>>>;
        action: some Box<Placed<WordOr<Action>>> => schema::action,
            packets "a budget of requests has limits alone: write it in the rules that name it";
        /// Only count what is over the limits.
        shadow_mode: flag Placed<bool> => of::<bool>,
            packets "a budget of requests has limits alone: write it in the rules that name it";
        /// Treatment of the limits without a daemon.
        on_daemon_loss: some Scalar => |_| words(&ON_LOSS),
            packets "requests are decided without the daemon; remove the field";
        /// Nodes that the limits are of: each by itself if nothing is said.
        scope: some Scalar => |_| words(&SCOPES),
            packets "nodes share the limits of rules, not a budget of requests: remove the field";
        /// How nodes share the limits, with `scope: cluster`.
        cluster: some Box<Placed<Cluster>> => of::<Cluster>,
            packets "nodes share the limits of rules, not a budget of requests: remove the field";
    }

    /// How nodes share limits: docs/cluster.md.
    Cluster ["cluster", json!({})] {
        /// Time between two calls to the store, 50ms to 10s: 200ms if nothing is said.
        sync: some Scalar => schema::text;
        /// Part of the rate that nodes have without asking, all together: 25% if nothing is said.
        share: some Scalar => schema::share;
        /// Part of the burst that nodes have without asking, all together: 10% if nothing is said.
        share_of_burst: some Scalar => schema::share;
        /// Part of the burst, or of a window's quota, that a node holds at most: 25% if nothing is
        /// said.
        lease_cap: some Scalar => schema::share;
        /// Behaviour of a node without contact to the store: `share` if nothing is said.
        on_partition: some Scalar => |_| words(&OnPartition::NAMED);
        /// The shares are kept out of what the store gives, so that a partition adds nothing.
        strict: maybe Placed<bool> => of::<bool>;
    }

    /// A rate and its algorithm, or `unlimited`.
    RateLimit ["rate_limit", schema::of_rate_limit()] {
        /// The name of the rule.
        name: some Scalar => schema::text;
        /// Rules that are left out where this one matches.
        replaces: maybe Placed<Vec<Placed<Replaced>>> => of::<Option<Vec<Replaced>>>,
            requests "the most specific rule of a table replaces the others by itself; remove the \
                      field";
        rate: some Box<Scalar> => schema::rate_or_unlimited;
        /// The unit of time.
        unit: some Scalar => schema::unit_of_limit;
        /// That many of them are the length of time: 1 if nothing is said.
        unit_multiplier: number Box<Scalar> => |_| number(1, Some(Period::most(Unit::Second)));
        requests_per_unit: number Scalar => schema::requests_per_unit;
        /// That many at once, as in 200 or `60kB`: the amount of the rate if nothing is said.
        burst: number Scalar => schema::burst;
        /// Unit of the count: packets if nothing is said.
        count: some Scalar => |_| words(&COUNTS),
            packets "requests are counted, or the hits that they ask for; remove the field";
        /// How: docs/algorithms.md.
        algorithm: some Scalar => |_| words(&ALGORITHMS);
        /// For `leaky_bucket`: how far ahead of the rate, as in 10ms.
        backlog: some Scalar => schema::text;
        /// For `sliding_slots`.
        slots: number Scalar => schema::slots;
        /// For `sliding_slots`: never over in any window.
        strict: maybe Placed<bool> => of::<bool>;
        /// Makes the limit soft: bounds all that passes.
        ceiling: some Box<Placed<Rate>> => of::<Rate>;
        /// Makes the limit soft: the peak rate of RFC 2698.
        peak: some Box<Placed<Rate>> => of::<Rate>,
            packets "a soft limit of requests has a `ceiling`: write that";
        /// Makes the limit soft: RFC 4115.
        excess: some Box<Placed<Rate>> => of::<Rate>,
            packets "a soft limit of requests has a `ceiling`: write that";
        /// How packets over a soft limit are marked.
        mark: some Box<Placed<WordOr<Mark>>> => of::<Mark>,
            packets "an answer has no mark; remove the field";
        /// All passes.
        unlimited: flag Placed<bool> => of::<bool>;
    }

    /// A rate and its burst.
    Rate ["rate", json!({"anyOf": schema::of_rate()})] {
        /// The rate as people write it, as in `100/s` or `10mbit/s`: instead of `unit` and
        /// `requests_per_unit`.
        rate: some Box<Scalar> => schema::rate;
        /// The unit of time.
        unit: some Scalar => schema::unit;
        /// That many of them are the length of time: 1 if nothing is said.
        unit_multiplier: number Scalar => |_| number(1, Some(Period::most(Unit::Second)));
        /// That many in that time.
        requests_per_unit: number Scalar => |_| number(1, None);
        /// That many at once, as in 200 or `60kB`: the amount of the rate if nothing is said.
        burst: number Scalar => schema::burst;
    }

    /// Mark that is written into a packet.
    Mark ["mark", json!({"minProperties": 1, "maxProperties": 2})] {
        /// This DSCP.
        dscp: number Scalar => schema::dscp;
        /// ECN's congestion mark.
        ecn: flag Placed<bool> => of::<bool>;
    }

    /// A wait until a packet conforms.
    Delay ["delay", json!({"required": ["longest"]})] {
        /// The longest wait, 1ms to 2s.
        longest: some Scalar => schema::text;
        /// ECN's congestion mark for what waits at least half as long.
        ecn: flag Placed<bool> => of::<bool>;
    }

    /// Action over a limit, unless it is a word.
    Action ["", json!({"minProperties": 1, "maxProperties": 1})] {
        /// Let it pass, marked.
        mark: some Box<Placed<WordOr<Mark>>> => of::<Mark>, packets ANSWERED;
        /// Charge it to this budget.
        class: some Scalar => schema::text, packets ANSWERED;
        /// Let it leave by this interface.
        interface: some Scalar => schema::text, packets ANSWERED;
        /// Let this CPU go on with it.
        cpu: number Scalar => |_| number(0, Some(u32::MAX.into())), packets ANSWERED;
        /// Drop it, and maybe ban its source.
        ban: some Box<Placed<WordOr<Ban>>> => of::<Ban>;
        /// Let it wait until it conforms, and drop what would wait too long.
        delay: some Box<Placed<WordOr<Delay>>> => of::<Delay>, packets ANSWERED;
        /// Keep its payload in this queue until it conforms.
        queue: some Scalar => schema::text,
            requests "payloads of requests can wait in a queue, and packets wait by \
                      `action: {delay: {longest: 200ms}}`: write that, or remove the field";
    }

    /// A ban of the source for a time.
    Ban ["ban", json!({})] {
        /// The length of the first ban, as in 1min.
        first: some Scalar => schema::text;
        /// The length of the longest, as in 1day.
        longest: some Scalar => schema::text;
        /// After how long strikes and bans are forgotten, as in 1h.
        memory: some Scalar => schema::text;
        /// That many over the limits are needed.
        strikes: number Scalar => |_| number(1, Some(MOST_STRIKES));
        /// Evidence that the source is not forged.
        evidence: some Scalar => |_| words(&EVIDENCE),
            packets "who asks knows the source from its connection; remove the field";
    }

    /// An entry of a descriptor that is made of headers.
    Entry ["entry", json!({"required": ["key"], "oneOf": schema::of_entry()})] {
        /// The key.
        key: some Scalar => schema::text;
        /// The same value for every request.
        value: some Scalar => schema::text;
        /// The header whose value it is.
        header: some Scalar => schema::text;
    }

    /// A limit that another one replaces.
    Replaced ["replaced", json!({"required": ["name"]})] {
        /// The name of its rule.
        name: some Scalar => schema::text;
    }

    /// A queue.
    Queue ["queue", json!({"required": ["name"]})] {
        /// Up to 64 letters, digits, `-`, `_` and `.`.
        name: some Scalar => schema::text;
        /// Payloads that wait at once; one more is refused.
        depth: some Scalar => |_| number(1, Some(MOST_DEPTH));
        /// The longest wait, as in 1h.
        age: some Scalar => schema::text;
        /// The longest payload, as in 32KiB.
        payload: some Scalar => schema::text;
        /// Deliveries of one payload; then it is a dead letter.
        attempts: some Scalar => |_| number(1, Some(MOST_ATTEMPTS));
        /// The time that a worker has for a payload before another one gets it, as in 1min.
        visibility: some Scalar => schema::text;
    }
}

/// Fields of a descriptor that say how the limits of its rule apply: they mean nothing without one.
pub(super) const OF_LIMITS: [&str; 9] = [
    "aggregates",
    "action",
    "shadow_mode",
    "quota_mode",
    "on_full",
    "on_daemon_loss",
    "charge",
    "scope",
    "cluster",
];

impl Descriptor {
    /// The first of the fields that mean nothing without a limit.
    pub(super) fn of_limits(&self) -> Option<(&'static str, At)> {
        self.written().find(|(name, _)| OF_LIMITS.contains(name))
    }
}

/// What to say about a field that the table of its struct does not have in this dialect; `expected`
/// are those that it has. Where it is in none of that struct, it may be of another one.
pub(super) fn elsewhere(
    name: &str,
    expected: &[&'static str],
    dialect: Dialect,
) -> Option<&'static str> {
    let own = TABLES.iter().find(|table| table().names(dialect) == expected);
    let all = own.into_iter().chain(TABLES);
    all.map(|table| table().elsewhere(name, dialect)).find_map(|reason| reason)
}
