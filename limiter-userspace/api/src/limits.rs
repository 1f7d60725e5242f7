//! Limits: the rules in force with what they did, and single ones from the command line.

use limiter_rules::Words;
use limiter_rules::model::Direction;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::{Counts, words};
use crate::render::{Render, Table, counted_in, line, number, push, rate_of, seconds, table};

/// Origin of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The rule file.
    File,
    /// `limiter run --limit`.
    Run,
    /// `limiter set`.
    Cli,
    /// A management prefix.
    Management,
    /// Not known: what was asked are the maps, without a daemon. Nor are name, label, end and
    /// warnings, then.
    Unknown,
}

impl Origin {
    /// Name of the origin in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Run => "run",
            Self::Cli => "cli",
            Self::Management => "management",
            Self::Unknown => "unknown",
        }
    }
}

/// An origin as tables show it, after the command or option that made the rule. The JSON keeps
/// `cli` and `run`.
pub fn shown_origin(name: &str) -> &str {
    match name {
        "cli" => "set",
        "run" => "--limit",
        name => name,
    }
}

/// `GET /v1/limits`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// The rule set in force.
    pub generation: u64,
    /// Rules in force.
    pub limits: Vec<LimitEntry>,
    /// Budgets in force.
    #[serde(default)]
    pub budgets: Vec<LimitEntry>,
    /// Warnings: rules that are not in force, and why.
    pub warnings: Vec<String>,
    /// Facts that are not known, in the answer of a command that had no daemon to ask and read the
    /// maps. None in a daemon's.
    #[serde(default)]
    pub unknown: Vec<String>,
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Rule)]
pub struct LimitEntry {
    /// For whom: an address, a prefix, `every source`, or keys as in `destination_port=22
    /// remote_address`. A budget's name.
    pub source: String,
    /// `in`, `out` or `both`: the packets that the rule is for; none of a budget.
    #[serde(default)]
    #[schema(value_type = Option<words::Direction>)]
    pub direction: Option<String>,
    /// Name of the rule in the rule file.
    pub name: Option<String>,
    /// Origin of the rule.
    pub origin: Origin,
    /// The rate; of the first limit, if there are several. Or `unlimited`, or `budget NAME`.
    pub limit: String,
    /// Packets or bytes at once; none without a token bucket.
    pub burst: Option<u64>,
    /// `packets`, `bytes`, `syns` or `flows`; none without a limit.
    pub count: Option<String>,
    /// The rate that the program really holds, per second; none without a limit.
    pub effective_per_second: Option<f64>,
    /// True if it only counts: `shadow_mode`.
    pub shadow: bool,
    /// Packets that it let pass.
    pub passed: Counts,
    /// Packets that it dropped.
    pub dropped: Counts,
    /// Of what passed: what it would drop, were it not in shadow mode.
    pub shadowed: Counts,
    /// Of what passed: what was over a limit, and was marked or went another way.
    #[serde(default)]
    pub marked: Counts,
    /// All limits.
    #[serde(default)]
    pub limits: Vec<LimitView>,
    /// Action over its limits; none without limits of its own.
    #[serde(default)]
    pub action: Option<String>,
    /// The budget that it is charged to, if any: its counts are there.
    #[serde(default)]
    pub budget: Option<String>,
    /// The value of its `generic_key`, if any.
    #[serde(default)]
    pub label: Option<String>,
    /// How nodes share a budget, as in `over all nodes, sync 200 ms, share 25%, share_of_burst 10%,
    /// on_partition share`; none for limits of this node alone.
    #[serde(default)]
    pub sharing: Option<String>,
    /// Seconds until it ends by itself; none for a limit without an end.
    #[serde(default)]
    pub ends_in_seconds: Option<u64>,
}

/// A limit of a rule or a budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Limit)]
pub struct LimitView {
    /// Text of the limit in one line, as in `10 syns/min burst 5`.
    pub text: String,
    /// `token_bucket`, or another algorithm.
    pub algorithm: String,
    /// Rate, as in `10 syns/min`, after the algorithm if it is not the token bucket.
    pub rate: String,
    /// `packets`, `bytes`, `syns` or `flows`.
    #[schema(value_type = words::Unit)]
    pub count: String,
    /// Units at once; none but for token buckets.
    pub burst: Option<u64>,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
    /// Upper limit, of a limit that is soft.
    pub upper: Option<UpperView>,
}

/// The limit above a soft one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Upper)]
pub struct UpperView {
    /// `ceiling`, `peak` or `excess`.
    #[schema(value_type = words::UpperKind)]
    pub kind: String,
    /// Rate of the upper limit.
    pub rate: String,
    /// Units at once.
    pub burst: u64,
    /// The rate that the program really holds, per second.
    pub effective_per_second: Option<f64>,
}

// Arguments that `limiter set` and `unset` have both.
#[cfg(feature = "clap")]
const TARGET: &str = "ADDRESS|PREFIX";
#[cfg(feature = "clap")]
const INTERFACE: &str = "Limit packets of this interface alone: those that come in by it, or with \
    --direction out those that go out";
#[cfg(feature = "clap")]
const PORT: &str = "Limit packets to a port, a range of ports or a protocol alone, as in 22/tcp, \
    8000-8080/udp or icmp";
#[cfg(feature = "clap")]
const SHARED: &str = "One limit for all of them together, instead of one for each source";
#[cfg(feature = "clap")]
const DIRECTION: &str = "Packets that come in, that go out, or both; of those that go out, ADDRESS \
    and --port are where they go";
#[cfg(feature = "clap")]
const DIRECTIONS: [(&str, &str); 3] = [
    ("in", "Incoming packets"),
    ("out", "Outgoing packets"),
    ("both", "Both, with one limit for them together"),
];

/// `PUT /v1/limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the request")]
pub struct SetLimit {
    /// An address or a prefix; every source when left out, beside `to` or `interface`. Of outgoing
    /// packets the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Prefix>)]
    // A word that stands alone is the rate.
    #[cfg_attr(feature = "clap", arg(
        required = true, value_name = TARGET,
        help = "Whom to limit, as in 192.0.2.7 or 192.0.2.0/24; with --port or --interface the \
                rate alone is for every source",
    ))]
    pub source: Option<String>,
    /// Rate, as on the command line: `100/s`, `10mbit/s`, `unlimited`.
    #[schema(examples(
        "100/s",
        "10k/s",
        "5/day",
        "600/min",
        "100/5min",
        "10mbit/s",
        "64kbit/s",
        "unlimited"
    ))]
    #[cfg_attr(feature = "clap", arg(default_value = "", hide_default_value = true))]
    #[cfg_attr(feature = "clap", arg(help = "How much it may send"))]
    pub rate: String,
    /// A destination port with its protocol, a range of ports, or a protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::LimitedPort>)]
    #[cfg_attr(feature = "clap", arg(
        long = "port", value_name = "PORT/PROTOCOL", allow_hyphen_values = true, help = PORT,
    ))]
    pub to: Option<String>,
    /// The interface that packets come in by, or go out by; any when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::InterfaceName>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "NAME", allow_hyphen_values = true, help = INTERFACE,
    ))]
    pub interface: Option<String>,
    /// True for one limit over all of them together.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "clap", arg(long, help = SHARED))]
    pub shared: bool,
    /// `in`, `out` or `both`: `in` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Direction>)]
    #[cfg_attr(feature = "clap", arg(
        long, default_value = "in", value_parser = crate::arguments::words(DIRECTIONS),
        help = DIRECTION,
    ))]
    pub direction: Option<String>,
    /// Packets or bytes at once; the amount of `rate` when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples(1, 20, 2000, 100_000))]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub burst: Option<u64>,
    /// Unit that is counted; that of the rate when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Unit>)]
    #[cfg_attr(feature = "clap", arg(
        long,
        value_parser = crate::arguments::words([
            ("packets", "Frames"),
            ("bytes", "Bytes of frames"),
            ("syns", "Attempts to open a TCP connection"),
            ("flows", "New flows"),
        ]),
        help = "Unit that is counted [default: packets, or bytes if RATE is in bits or bytes]",
    ))]
    pub count: Option<String>,
    /// Seconds until the limit ends by itself; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples(60, 3600))]
    #[cfg_attr(feature = "clap", arg(
        long = "for", value_name = "TIME", value_parser = crate::arguments::some_seconds,
        help = "End the limit by itself after this time, as in 10m, 2h or 1d [default: never]",
    ))]
    pub seconds: Option<u64>,
    /// Name of the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples("ssh"))]
    #[cfg_attr(feature = "clap", arg(long))]
    #[cfg_attr(feature = "clap", arg(help = "A name for the rule, which `limiter list` shows"))]
    pub name: Option<String>,
    /// Only count what is over the limit, and let it pass.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "clap", arg(
        long, action = clap::ArgAction::SetTrue,
        help = "Try it out: count what is over the limit, and let it pass",
    ))]
    pub shadow: bool,
    /// Tell the sender of what is dropped.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "clap", arg(
        long, action = clap::ArgAction::SetTrue,
        help = "Tell the sender of what is dropped, as far as the rule file's `replies` allows",
    ))]
    pub reject: bool,
    /// Milliseconds that packets over the limit wait at most, 1 to 2,000; they are dropped when
    /// left out. Refused where packets cannot wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 2000)]
    #[cfg_attr(feature = "clap", arg(
        long = "delay", value_name = "TIME", value_parser = crate::arguments::milliseconds,
        help = "Let packets over the limit wait, at most this time, as in 100ms [default: drop]",
    ))]
    pub delay_ms: Option<u64>,
    /// True if it may limit anybody who asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "clap", arg(long, help = "Set it even if it limits this SSH session"))]
    pub force: bool,
    /// The SSH session of anybody who asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub session: Option<Session>,
}

/// The query of `DELETE /v1/limits`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UnsetLimit {
    /// An address or a prefix; every source when left out, beside `to` or `interface`.
    #[serde(default)]
    #[param(value_type = Option<words::Prefix>)]
    #[cfg_attr(feature = "clap", arg(
        value_name = TARGET, required_unless_present_any = ["to", "interface", "all"],
        help = "Source whose limit to remove",
    ))]
    pub source: Option<String>,
    /// A destination port with its protocol, a range of ports, or a protocol.
    #[serde(default)]
    #[param(value_type = Option<words::LimitedPort>)]
    #[cfg_attr(feature = "clap", arg(
        long = "port", value_name = "PORT/PROTOCOL", allow_hyphen_values = true, help = PORT,
    ))]
    pub to: Option<String>,
    /// The interface that packets come in by, or go out by; any when left out.
    #[serde(default)]
    #[param(value_type = Option<words::InterfaceName>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "NAME", allow_hyphen_values = true, help = INTERFACE,
    ))]
    pub interface: Option<String>,
    /// `in`, `out` or `both`: `in` when left out.
    #[serde(default)]
    #[param(value_type = Option<words::Direction>)]
    // In the help it stands behind `shared`, as for `set`.
    #[cfg_attr(feature = "clap", arg(
        long, default_value = "in", value_parser = crate::arguments::words(DIRECTIONS),
        help = DIRECTION, display_order = 4,
    ))]
    pub direction: Option<String>,
    /// True for the limit over all of them together.
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(long, help = SHARED))]
    pub shared: bool,
    /// True if it may limit anybody who asks.
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(
        long, action = clap::ArgAction::SetTrue,
        help = "Remove it even if another rule limits this SSH session then",
    ))]
    pub force: bool,
    /// True for all limits of `limiter set`, in the place of one.
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(
        long, conflicts_with_all = ["source", "to", "interface", "shared", "direction"],
        help = "Remove all limits that `set` made",
    ))]
    pub all: bool,
    /// The client's address of the SSH session of anybody who asks, if it is one.
    #[serde(default)]
    #[param(value_type = Option<words::Address>)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub peer: Option<std::net::IpAddr>,
    /// The port that its server listens at.
    #[serde(default)]
    #[param(maximum = 65_535)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub port: Option<u16>,
}

/// A burst in its unit.
fn at_once(burst: Option<u64>, count: &str) -> String {
    burst.map_or_else(|| "-".to_owned(), |burst| number(burst) + counted_in(count))
}

/// Empty for a rule that drops: 0 would read as "in shadow mode, and harmless".
fn shadowed(shadow: bool, counts: Counts) -> String {
    if shadow { number(counts.packets) } else { String::new() }
}

/// Empty for a rule that marks nothing.
fn marked(counts: Counts) -> String {
    if counts.packets > 0 { number(counts.packets) } else { String::new() }
}

impl Render for Limits {
    fn render(&self, text: &mut String) {
        if self.limits.is_empty() {
            text.push_str("no rules: nothing is limited\n");
        } else {
            push(text, &entries("SOURCE", &self.limits));
        }
        if !self.budgets.is_empty() {
            text.push('\n');
            push(text, &entries("BUDGET", &self.budgets));
        }
        // The change that brought one has reported it.
        match self.warnings.len() {
            0 => {}
            1 => text.push_str("1 warning: `limiter status` has it\n"),
            count => line(text, format_args!("{count} warnings: `limiter status` has them")),
        }
    }
}

/// Rules or budgets; each further limit has a line of its own.
fn entries(what: &str, entries: &[LimitEntry]) -> Table {
    let mut table = table(&[
        what,
        "?ORIGIN",
        "LIMIT",
        ">BURST",
        "?>ENFORCED",
        "?ACTION",
        ">PASSED",
        ">DROPPED",
        "?>WOULD DROP",
        "?>MARKED",
        "?NAME",
    ]);
    for entry in entries {
        let mut lines = lines(entry).into_iter();
        let (limit, burst, effective) = lines.next().unwrap_or_default();
        table.add_row([
            entry.source.clone(),
            shown_origin(entry.origin.name()).to_owned(),
            limit,
            burst,
            effective,
            entry.action.clone().unwrap_or_default(),
            number(entry.passed.packets),
            number(entry.dropped.packets),
            shadowed(entry.shadow, entry.shadowed),
            marked(entry.marked),
            name_and_end(entry),
        ]);
        for (limit, burst, effective) in lines {
            let empty = String::new;
            table.add_row([empty(), empty(), limit, burst, effective]);
        }
    }
    table
}

/// The name of a rule, and until when it is in force.
fn name_and_end(entry: &LimitEntry) -> String {
    let unknown =
        || if entry.origin == Origin::Unknown { "(unknown)".to_owned() } else { String::new() };
    let name = entry.name.clone().or_else(|| entry.label.clone()).unwrap_or_else(unknown);
    match entry.ends_in_seconds {
        None => name,
        Some(left) => format!("{name} (for {})", seconds(left)).trim_start().to_owned(),
    }
}

/// Limit, burst and effective rate of each limit; those above soft limits have a line of their own.
fn lines(entry: &LimitEntry) -> Vec<(String, String, String)> {
    if entry.limits.is_empty() {
        let count = entry.count.as_deref().unwrap_or_default();
        let effective = rate_of(&entry.limit, entry.effective_per_second, count);
        return vec![(entry.limit.clone(), at_once(entry.burst, count), effective)];
    }
    let mut lines = Vec::with_capacity(entry.limits.len() + 1);
    for limit in &entry.limits {
        let effective = rate_of(&limit.rate, limit.effective_per_second, &limit.count);
        lines.push((limit.rate.clone(), at_once(limit.burst, &limit.count), effective));
        if let Some(upper) = &limit.upper {
            let text = format!("{} {}", upper.kind, upper.rate);
            let effective = rate_of(&upper.rate, upper.effective_per_second, &limit.count);
            lines.push((text, at_once(Some(upper.burst), &limit.count), effective));
        }
    }
    if entry.sharing.is_some() {
        lines.push(("over all nodes".to_owned(), String::new(), String::new()));
    }
    lines
}

impl SetLimit {
    /// The words for its packets.
    pub fn words(&self, direction: Direction) -> Words<'_> {
        Words {
            source: self.source.as_deref(),
            port: self.to.as_deref(),
            interface: self.interface.as_deref(),
            shared: self.shared,
            direction,
        }
    }
}

impl UnsetLimit {
    /// The words for its packets.
    pub fn words(&self, direction: Direction) -> Words<'_> {
        Words {
            source: self.source.as_deref(),
            port: self.to.as_deref(),
            interface: self.interface.as_deref(),
            shared: self.shared,
            direction,
        }
    }
}
