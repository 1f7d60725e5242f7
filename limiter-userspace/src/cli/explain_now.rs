//! `limiter explain --from`: the daemon is asked about one packet.

use std::fmt::Write as _;

use super::args::Explain;
use super::render::{Render, duration, line, number, push, table};
use crate::control::api::explain::{ExplainLimit, ExplainStep, ExplainedNow};

/// A packet to ask the daemon about.
#[derive(Debug, clap::Args)]
pub(super) struct Question {
    /// Ask the daemon about a packet from this address, or from an IPv6 /64
    #[arg(long, value_name = "ADDRESS", conflicts_with = "pcap")]
    pub(super) from: Option<String>,
    /// Where it goes: 22/tcp, 53/udp, icmp, protocol/47 or any [default: any]
    #[arg(long, value_name = "PORT/PROTOCOL", requires = "from")]
    pub(super) to: Option<String>,
    /// Its TCP flags, as in SYN or SYN,ACK
    #[arg(long, value_name = "FLAGS", requires = "to")]
    pub(super) flags: Option<String>,
    /// Its destination address
    #[arg(long, value_name = "ADDRESS", requires = "from")]
    pub(super) destination: Option<String>,
    /// The id of its VLAN tag
    #[arg(long, value_name = "ID", requires = "from")]
    pub(super) vlan: Option<u16>,
    /// Its DSCP: a name as in ef, or a number
    #[arg(long, value_name = "DSCP", requires = "from")]
    pub(super) dscp: Option<String>,
    /// Which piece of a larger packet it is: whole, first or later
    #[arg(long, value_name = "PIECE", requires = "from")]
    pub(super) fragment: Option<String>,
    /// The bytes of its frame [default: 60, the shortest]
    #[arg(long, value_name = "BYTES", requires = "from")]
    pub(super) length: Option<u64>,
}

/// The path to ask at; none if it is about a capture.
pub(super) fn ask(what: &Explain) -> Option<String> {
    let Question { from, to, flags, destination, vlan, dscp, fragment, length } = &what.question;
    let mut path = format!("/v1/explain?from={}", escaped(from.as_ref()?));
    let fields = [
        ("to", to.clone()),
        ("flags", flags.clone()),
        ("destination", destination.clone()),
        ("interface", what.interface.clone()),
        ("vlan", vlan.map(|id| id.to_string())),
        ("dscp", dscp.clone()),
        ("fragment", fragment.clone()),
        ("length", length.map(|length| length.to_string())),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            path = format!("{path}&{name}={}", escaped(&value));
        }
    }
    Some(path)
}

/// All that is not plain in a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"./:-_".contains(&byte) {
            escaped.push(byte.into());
        } else {
            // A string takes everything.
            let _: std::fmt::Result = write!(escaped, "%{byte:02x}");
        }
    }
    escaped
}

impl Render for ExplainedNow {
    fn render(&self, text: &mut String) {
        let mut lines = vec![
            ("packet", self.packet.clone()),
            ("verdict", format!("{}: {}", self.verdict, self.reason)),
        ];
        lines.extend(self.rule.clone().map(|rule| ("rule", rule)));
        lines.push(("so", self.happens.clone()));
        if self.verdict == "drop" {
            let wait = self.passes_in_ns.map_or_else(|| "never".to_owned(), duration);
            lines.push(("passes in", wait));
        }
        if let Some(seconds) = self.trial_seconds_left {
            lines.push(("on trial", format!("these rules, for {seconds} s more")));
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
    let from = step.place.clone().or_else(|| step.origin.clone()).unwrap_or_default();
    let count = |count: Option<u64>| count.map(number).unwrap_or_default();
    let key = step.key.clone().unwrap_or_default();
    let new = step.rule.is_some() && step.passed.is_none();
    let key = if new { format!("{key}, new") } else { key };
    let action = step.action.clone().unwrap_or_default();
    vec![step.step.clone(), says, rule, from, key, count(step.passed), count(step.dropped), action]
}

fn limit_row(step: &ExplainStep, limit: &ExplainLimit) -> Vec<String> {
    let time = |time: Option<u64>| time.map_or_else(|| "never".to_owned(), duration);
    vec![
        step.step.clone(),
        limit.limit.clone(),
        number(limit.remaining),
        limit.size.map(number).unwrap_or_default(),
        limit.count.clone(),
        if limit.conforms { "within" } else { "over" }.to_owned(),
        if limit.conforms { String::new() } else { time(limit.conforms_in_ns) },
        if limit.full_in_ns == Some(0) { "full".to_owned() } else { time(limit.full_in_ns) },
    ]
}
