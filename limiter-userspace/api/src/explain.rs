//! Explanations: whether a packet would pass now, and why.

use limiter_rules::model::Fact;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::shown_origin;
use super::sources::SourceRow;
use super::words;
use crate::render::{Render, duration, line, number, push, seconds, table};

/// Arguments that name the other end, and the destination, which others need.
#[cfg(feature = "clap")]
const WHOM: &str = "whom";
#[cfg(feature = "clap")]
const TO: &str = "to";

/// Words of the daemon before the keys of a rule that was not looked at.
const RULE_FOR: &str = "rule for ";

/// The query of `GET /v1/explain`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AskExplain {
    /// The other end: the source of what comes in, the destination of what goes out. An address, or
    /// an IPv6 /64.
    #[param(value_type = words::AnySource)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "ADDRESS", group = WHOM, default_value = "", hide_default_value = true,
        help = "The same as ADDRESS",
    ))]
    pub from: String,
    /// `in` or `out`: `in` when left out. All other fields are what stands in the packet's headers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::OneDirection>)]
    #[cfg_attr(feature = "clap", arg(
        long, requires = WHOM, default_value = "in",
        value_parser = crate::arguments::words([("in", "It comes in"), ("out", "It goes out")]),
        help = "Whether the packet comes in, or goes out: then ADDRESS is its destination",
    ))]
    pub direction: Option<String>,
    /// `22/tcp`, `53/udp`, `icmp`, `protocol/47`, or `any`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Port>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "PORT/PROTOCOL", requires = WHOM,
        help = "Destination of the packet: 22/tcp, 53/udp, icmp, protocol/47 or any [default: any]",
    ))]
    pub to: Option<String>,
    /// Flags of TCP, as in `SYN` or `SYN,ACK`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::TcpFlags>)]
    #[cfg_attr(feature = "clap", arg(long, requires = TO))]
    #[cfg_attr(feature = "clap", arg(help = "TCP flags of the packet, as in SYN or SYN,ACK"))]
    pub flags: Option<String>,
    /// The type of ICMP or `ICMPv6`: a name as in rule files, or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::IcmpType>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "TYPE", requires = TO,
        help = "ICMP type of the packet: a name as in echo-request, or a number \
                [default: echo-request]",
    ))]
    pub icmp_type: Option<String>,
    /// The source port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::SourcePort>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "PORT", requires = TO))]
    #[cfg_attr(feature = "clap", arg(help = "Source port of the packet"))]
    pub source_port: Option<u16>,
    /// The time to live of IPv4, the hop limit of IPv6.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::TimeToLive>)]
    #[cfg_attr(feature = "clap", arg(long, requires = WHOM))]
    #[cfg_attr(
        feature = "clap",
        arg(help = "Time to live of the packet, or its hop limit [default: 64]")
    )]
    pub ttl: Option<u8>,
    /// The destination address of a packet that comes in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Destination>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESS", requires = WHOM))]
    #[cfg_attr(feature = "clap", arg(help = "Destination address of the packet"))]
    pub destination: Option<String>,
    /// The source address of a packet that goes out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Destination>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ADDRESS", requires = WHOM))]
    #[cfg_attr(feature = "clap", arg(help = "Source address of a packet that goes out"))]
    pub source: Option<String>,
    /// The interface that it comes in by, or goes out by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::InterfaceName>)]
    #[cfg_attr(feature = "clap", arg(skip))]
    pub interface: Option<String>,
    /// The id of its VLAN tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::VlanId>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID", requires = WHOM))]
    pub vlan: Option<u16>,
    /// DSCP of the packet: a name or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Dscp>)]
    #[cfg_attr(feature = "clap", arg(long, requires = WHOM))]
    #[cfg_attr(feature = "clap", arg(help = "DSCP of the packet: a name as in ef, or a number"))]
    pub dscp: Option<String>,
    /// `whole`, `first` or `later`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Fragment>)]
    #[cfg_attr(feature = "clap", arg(
        long, value_name = "PIECE", requires = WHOM,
        help = "Piece of a larger packet that it is: whole, first or later",
    ))]
    pub fragment: Option<String>,
    /// Bytes of the frame; the shortest of Ethernet when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::FrameLength>)]
    #[cfg_attr(feature = "clap", arg(long, value_name = "BYTES", requires = WHOM))]
    #[cfg_attr(feature = "clap", arg(help = "The bytes of its frame [default: 60, the shortest]"))]
    pub length: Option<u64>,
}

impl AskExplain {
    /// True if nothing is said of a packet, but for which way it goes.
    pub fn is_of_source(&self) -> bool {
        let Self { from, direction, .. } = self;
        *self == Self { from: from.clone(), direction: direction.clone(), ..Self::default() }
    }

    /// The facts that the question has fields for, with their values.
    pub fn facts(&self) -> [(Fact, Option<String>); 6] {
        [
            (Fact::SourcePort, self.source_port.map(|port| port.to_string())),
            (Fact::Ttl, self.ttl.map(|ttl| ttl.to_string())),
            (Fact::IcmpType, self.icmp_type.clone()),
            (Fact::Vlan, self.vlan.map(|id| id.to_string())),
            (Fact::Dscp, self.dscp.clone()),
            (Fact::Fragment, self.fragment.clone()),
        ]
    }
}

/// `GET /v1/explain`: what the program would do with a packet now, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExplainedNow {
    /// The packet in a line.
    pub packet: String,
    /// The source that is charged: an IPv4 address or an IPv6 /64.
    pub source: String,
    /// `pass` or `drop`; `unknown` where what was not looked at may drop a packet that passes all
    /// else.
    #[schema(value_type = words::VerdictNow)]
    pub verdict: String,
    /// A reason of `GET /v1/stats`; of an unknown verdict, that of what was looked at.
    pub reason: String,
    /// The rule that decides, if one does.
    pub rule: Option<String>,
    /// Outcome for the packet, in words.
    pub happens: String,
    /// Nanoseconds until such a packet would pass; none for one that passes, where no time helps,
    /// and where a lease has to come first.
    pub passes_in_ns: Option<u64>,
    /// Nanoseconds that the packet waits before it goes on, if it passes under `action: delay`.
    #[serde(default)]
    pub waits_ns: Option<u64>,
    /// The moment until which it waits.
    #[serde(default)]
    #[schema(value_type = Option<words::Moment>)]
    pub departs_at: Option<String>,
    /// True if the answer holds whatever was not given, and nothing but other packets can change
    /// it.
    pub exact: bool,
    /// Facts that the rules ask for and the question does not say, with what was assumed.
    pub assumed: Vec<String>,
    /// Parts that were not looked at, because the question does not say enough.
    pub not_looked_at: Vec<String>,
    /// Drops of the source that were reported lately, whatever their packets were.
    #[serde(default)]
    pub dropped_lately: Vec<String>,
    /// What is dropped now of that which the source really sends, in each direction; only where the
    /// question is about the source alone.
    #[serde(default)]
    pub drops: Vec<SourceRow>,
    /// The rule set that judges it.
    pub generation: u64,
    /// Seconds that it is on trial for, if it is.
    pub trial_seconds_left: Option<u64>,
    /// All that is asked, in the order of the program.
    pub steps: Vec<ExplainStep>,
}

/// A thing that the program asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainStep {
    /// `bypass`, `lists`, `bans`, `martians`, `table` with its number, `remote_address`.
    pub step: String,
    /// True if the program comes to it.
    pub reached: bool,
    /// Result of the step: a reason of `GET /v1/stats`, or that there is nothing.
    pub says: String,
    /// The rule.
    pub rule: Option<String>,
    /// The name that the rule file gives it.
    pub name: Option<String>,
    /// `file`, `run`, `applied`, `cli` or `management`.
    #[schema(value_type = Option<words::RuleOrigin>)]
    pub origin: Option<String>,
    /// Place of the rule in the rule files.
    pub place: Option<String>,
    /// The budget that it is charged to, if any.
    pub budget: Option<String>,
    /// Action over its limits.
    pub action: Option<String>,
    /// True if the rule only counts.
    pub shadow: bool,
    /// Key of the bucket: the masked source, or the values of the keys.
    pub key: Option<String>,
    /// Packets that passed since there is a bucket; none without one.
    pub passed: Option<u64>,
    /// Packets that were dropped since.
    pub dropped: Option<u64>,
    /// The limits.
    pub limits: Vec<ExplainLimit>,
}

/// A limit, and how full it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExplainLimit {
    /// The limit, as in `10 syns/min burst 5`; that of a budget after its name.
    pub limit: String,
    /// Unit of the limit: `packets`, `bytes`, `syns` or `flows`.
    #[schema(value_type = words::Unit)]
    pub count: String,
    /// Units that may come at once; none where that is not a number.
    pub size: Option<u64>,
    /// Base of this node's decisions, of a limit over all nodes; none for one of this node alone.
    /// All the others are then about that.
    #[serde(default)]
    pub here: Option<Here>,
    /// Units that would pass at once now.
    pub remaining: u64,
    /// True if this packet is within it.
    pub conforms: bool,
    /// Nanoseconds until it is; none for never, and where a lease has to come first.
    pub conforms_in_ns: Option<u64>,
    /// Nanoseconds that this packet waits for it; none where packets over it do not wait, or not so
    /// long.
    #[serde(default)]
    pub waits_ns: Option<u64>,
    /// Nanoseconds until nothing of it is used; none for never, and of a limit over all nodes
    /// that a lease decides.
    pub full_in_ns: Option<u64>,
}

/// Base of a node's decisions for a limit over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Here {
    /// A lease of units that the node was granted.
    Lease,
    /// The node's share, or what holds in its place without contact.
    Share,
    /// Nothing: no packet passes before there is a lease.
    Nothing,
}

impl Here {
    /// Words behind a number of units.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Lease => "leased here",
            Self::Share => "of this node's share",
            Self::Nothing => "before there is a lease",
        }
    }
}

impl ExplainedNow {
    /// The explanation with the rows of the source: a verdict about a packet of no port is none
    /// about what the source really sends, if some of that is dropped now. Rows of the other
    /// direction have no part in the verdict; they are left out of an answer about what goes out.
    #[must_use]
    pub fn with_drops(self, rows: Vec<SourceRow>, direction: Option<&str>) -> Self {
        let way = direction.unwrap_or("in");
        let goes = |row: &SourceRow| match row.direction.as_str() {
            "both" => true,
            "" => way == "in",
            direction => direction == way,
        };
        let (judged, others): (Vec<_>, Vec<_>) =
            rows.into_iter().filter(SourceRow::loses_now).partition(goes);
        let others = if way == "in" { others } else { Vec::new() };
        let is_judged = !judged.is_empty();
        let drops: Vec<_> = judged.into_iter().chain(others).collect();
        if self.verdict == "drop" || !is_judged {
            return Self { drops, ..self };
        }
        // What is seen to drop is no longer unknown.
        let by = |rule: &str| drops.iter().flat_map(|row| &row.by).any(|by| by.is(rule));
        let seen = |part: &String| part.strip_prefix(RULE_FOR).is_some_and(by);
        let (seen, not_looked_at): (Vec<_>, Vec<_>) =
            self.not_looked_at.into_iter().partition(seen);
        let other = match (seen.as_slice(), not_looked_at.as_slice()) {
            ([], _) => self.happens,
            (_, []) => "it passes".to_owned(),
            _ => "it may be dropped by what was not looked at".to_owned(),
        };
        let sent =
            if way == "out" { "some of what is sent to it" } else { "some of what it sends" };
        Self {
            happens: format!("{sent} is dropped now; else {other}"),
            verdict: "unknown".to_owned(),
            exact: false,
            dropped_lately: Vec::new(),
            not_looked_at,
            drops,
            ..self
        }
    }

    /// The rule that decides, with the name that its author gave it.
    fn titled(&self, rule: &str) -> String {
        let step = self.steps.iter().find(|step| step.rule.as_deref() == Some(rule));
        match step.and_then(|step| step.name.as_deref()) {
            Some(name) => format!("{name} ({rule})"),
            None => rule.to_owned(),
        }
    }
}

impl Render for ExplainedNow {
    fn render(&self, text: &mut String) {
        let verdict = match self.verdict.as_str() {
            "unknown" if self.drops.is_empty() => self.verdict.clone(),
            "unknown" => "it depends on the packet".to_owned(),
            verdict => format!("{verdict}: {}", self.reason),
        };
        let mut lines = vec![("packet", self.packet.clone())];
        // What is seen comes before what would be.
        lines.extend(self.drops.iter().map(|row| ("now", row.in_words())));
        lines.push(("verdict", verdict));
        lines.extend(self.rule.as_deref().map(|rule| ("rule", self.titled(rule))));
        lines.push(("so", self.happens.clone()));
        if self.verdict == "drop" {
            let waits = self.steps.iter().flat_map(|step| &step.limits).any(waits_for_lease);
            lines.push(("passes in", time(self.passes_in_ns, waits)));
        }
        lines.extend(self.dropped_lately.iter().map(|drops| ("dropped", drops.clone())));
        if let Some(left) = self.trial_seconds_left {
            lines.push(("on trial", format!("these rules, for {} more", seconds(left))));
        }
        for (name, value) in lines {
            line(text, format_args!("{name:<10} {value}"));
        }
        text.push('\n');
        let mut steps =
            table(&["ASKED", "SAYS", "RULE", "FROM", "BUCKET", ">PASSED", ">DROPPED", "ACTION"]);
        for step in &self.steps {
            steps.add_row(row(step));
        }
        push(text, &steps);
        if self.steps.iter().any(|step| !step.limits.is_empty()) {
            let mut limits = table(&[
                "ASKED",
                "LIMIT",
                ">LEFT",
                ">OF",
                "COUNT",
                "PACKET",
                "PASSES IN",
                "FULL IN",
            ]);
            for step in &self.steps {
                for limit in &step.limits {
                    limits.add_row(limit_row(step, limit));
                }
            }
            text.push('\n');
            push(text, &limits);
        }
        for assumed in &self.assumed {
            line(text, format_args!("{assumed}"));
        }
        for missing in &self.not_looked_at {
            line(text, format_args!("not looked at: {missing}"));
        }
    }
}

fn row(step: &ExplainStep) -> Vec<String> {
    let says = if step.reached { step.says.clone() } else { format!("({})", step.says) };
    let says = if step.shadow { format!("{says}, shadow mode") } else { says };
    let mut rule = step.rule.clone().unwrap_or_default();
    if let Some(name) = &step.name {
        rule = format!("{rule} ({name})");
    }
    if let Some(budget) = &step.budget {
        rule = format!("{rule} [budget {budget}]");
    }
    let from = step.place.as_deref().or_else(|| step.origin.as_deref().map(shown_origin));
    let from = from.unwrap_or_default().to_owned();
    let count = |count: Option<u64>| count.map(number).unwrap_or_default();
    let key = step.key.clone().unwrap_or_default();
    let new = step.rule.is_some() && step.passed.is_none();
    let key = if new { format!("{key}, new") } else { key };
    let action = step.action.clone().unwrap_or_default();
    vec![step.step.clone(), says, rule, from, key, count(step.passed), count(step.dropped), action]
}

fn limit_row(step: &ExplainStep, limit: &ExplainLimit) -> Vec<String> {
    let text = match limit.here {
        Some(here) => format!("{}: {}", limit.limit, here.words()),
        None => limit.limit.clone(),
    };
    let leased = limit.here.is_some_and(|here| here != Here::Share);
    vec![
        step.step.clone(),
        text,
        number(limit.remaining),
        limit.size.map(number).unwrap_or_default(),
        limit.count.clone(),
        match limit.waits_ns {
            Some(wait) if wait > 0 => format!("waits {}", duration(wait)),
            _ if limit.conforms => "within".to_owned(),
            _ => "over".to_owned(),
        },
        if limit.conforms { String::new() } else { time(limit.conforms_in_ns, leased) },
        match limit.full_in_ns {
            Some(0) => "full".to_owned(),
            None if leased => String::new(),
            other => time(other, false),
        },
    ]
}

/// True if a packet passes no earlier than with the next lease, as far as this node knows.
pub fn waits_for_lease(limit: &ExplainLimit) -> bool {
    !limit.conforms && limit.here.is_some_and(|here| here != Here::Share)
}

fn time(time: Option<u64>, leased: bool) -> String {
    let without = if leased { "with the next lease" } else { "never" };
    time.map_or_else(|| without.to_owned(), duration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::RuleDrops;

    fn row(direction: &str, rule: &str) -> SourceRow {
        let by = RuleDrops {
            rule: Some(rule.to_owned()),
            rule_name: Some("game".to_owned()),
            of: None,
            reason: "over-limit".to_owned(),
            passed: Some(5),
            dropped: 9,
            dropped_per_second: Some(205.0),
            since: None,
            keys: Some(1),
            exact: true,
            with_before: false,
        };
        SourceRow {
            source: "192.0.2.8".to_owned(),
            direction: direction.to_owned(),
            by: vec![by],
            dropped: 9,
            passed_per_second: Some(300.0),
            dropped_per_second: Some(205.0),
            ..SourceRow::default()
        }
    }

    fn explained(verdict: &str, not_looked_at: &[&str]) -> ExplainedNow {
        ExplainedNow {
            verdict: verdict.to_owned(),
            happens: "it passes".to_owned(),
            not_looked_at: not_looked_at.iter().map(|part| (*part).to_owned()).collect(),
            exact: true,
            ..ExplainedNow::default()
        }
    }

    /// What goes out says nothing of what comes in, and the other way round.
    #[test]
    fn drops_of_the_other_direction_have_no_part_in_the_verdict() {
        let out = || vec![row("out", "direction=out remote_address")];
        let both = || vec![row("both", "direction=both remote_address")];
        for (rows, direction, verdict, drops) in [
            (out(), None, "pass", 1),
            (out(), Some("in"), "pass", 1),
            (out(), Some("out"), "unknown", 1),
            (vec![row("in", "every source")], Some("out"), "pass", 0),
            (both(), None, "unknown", 1),
            (both(), Some("out"), "unknown", 1),
        ] {
            let said = explained("pass", &[]).with_drops(rows, direction);
            assert_eq!(
                (said.verdict.as_str(), said.drops.len()),
                (verdict, drops),
                "{direction:?}"
            );
            assert_eq!(said.exact, verdict == "pass");
        }
        let said = explained("pass", &[]).with_drops(out(), Some("out"));
        assert_eq!(said.happens, "some of what is sent to it is dropped now; else it passes");
        let text = crate::render::text(&said);
        let now =
            "\nnow        dropped of what goes out: 205/s by game (over-limit); passed 300/s\n";
        assert!(text.contains(now), "{text}");
    }

    /// The rule that drops now was looked at.
    #[test]
    fn a_rule_that_is_seen_to_drop_is_not_unknown() {
        let game = "protocol=udp destination_port=27015";
        let (seen, other) = (format!("rule for {game}"), "rule for destination_port=53");
        let said = explained("unknown", &[&seen, other]).with_drops(vec![row("in", game)], None);
        assert_eq!(said.not_looked_at, [other]);
        let happens = "some of what it sends is dropped now; else it may be dropped by what was \
                       not looked at";
        assert_eq!(said.happens, happens);
        let said = explained("unknown", &[&seen]).with_drops(vec![row("in", game)], None);
        assert_eq!(said.happens, "some of what it sends is dropped now; else it passes");
        let text = crate::render::text(&said);
        assert!(text.contains("\nverdict    it depends on the packet\n"), "{text}");
    }
}
