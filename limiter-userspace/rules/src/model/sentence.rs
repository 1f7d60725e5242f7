//! A rule as a sentence, for people who want to see whether they wrote what they meant.

use std::fmt::Write as _;

use ipnet::IpNet;
use limiter_common::wire::Count;
use limiter_text::spoken::{exact, exact_bytes};

use super::action::{Limits, Over, Terms};
use super::direction::Direction;
use super::key::Fact;
use super::limit::{Meter, RuleLimit};
use super::listing::{Listing, until_text};
use super::part::{Part, SOURCE_MASKS, SourceMasks, address_text};
use super::path::Path;
use super::selector::Selector;
use super::text::{limit_text, over_text};
use super::{Budget, Rule, RuleSet};
use crate::compile::display_rate;

/// The sentence of a rule among those of its set, as `each source, of packets to port 22 by tcp: 10
/// syns/min, and 5 more at once (at most 15 SYNs in any minute); more is dropped`.
///
/// If other rules of its table take some of the packets, it is about the others, and says so.
pub fn rule_sentence(rule: &Rule, set: &RuleSet) -> String {
    let traffic = rule.path.traffic();
    let takes_some = |other: &Path| {
        let is_around = other.has_inside(&rule.path) || *other == rule.path;
        rule.path.is_in_table_of(other) && !is_around && traffic.meets(&other.traffic())
    };
    let other = set.rules.iter().any(|other| takes_some(&other.path));
    let subject = subject(&rule.path, other);
    match &rule.terms {
        Terms::Unlimited => format!("{subject}: {}", no_limit(rule, set)),
        Terms::Budget(name) => format!("{subject}: charged to the budget {name}"),
        Terms::Limits(limits) => format!("{subject}: {}", terms(limits)),
    }
}

/// The sentence of a budget.
pub fn budget_sentence(budget: &Budget) -> String {
    format!("budget {}, all that is charged to it together: {}", budget.name, terms(&budget.limits))
}

/// The sentence of an entry of the lists.
pub fn list_sentence(selector: &Selector, entry: &Listing) -> String {
    let what = if entry.allow { "passes, whatever the rules say" } else { "is dropped" };
    let until = entry.until.map(|until| format!(", until {}", until_text(until)));
    let why = entry.reason.as_deref().map(|reason| format!(" ({reason})"));
    let [until, why] = [until, why].map(Option::unwrap_or_default);
    format!("{selector}: every packet {what}{until}{why}")
}

/// True if all sources of a rule pass by the allow list, for good.
fn is_exempt(rule: &Rule, set: &RuleSet) -> bool {
    let Some((_, Some(net))) = rule.path.source() else { return false };
    let sources = Selector::Prefix(net);
    let around = std::iter::once(sources).chain(sources.wider());
    let decides = around.into_iter().find_map(|at| set.lists.get(&at));
    let inside = set.lists.iter().filter(|(at, _)| sources.contains(at));
    let all = decides.into_iter().chain(inside.map(|(_, entry)| entry));
    decides.is_some() && all.into_iter().all(|entry| entry.allow && entry.until.is_none())
}

/// A rule lifts the limits of its own table, and those of others hold.
fn no_limit(rule: &Rule, set: &RuleSet) -> String {
    match limited_by_others(rule, set) {
        None => "no limit".to_owned(),
        Some(_) if is_exempt(rule, set) => "no limit: on the allow list".to_owned(),
        Some(others) => {
            format!("no limit by rules with these keys; limited by others: {others}")
        }
    }
}

/// The rules of other tables that limit packets for which a rule lifts the limits of its own, if
/// there are any.
pub fn limited_by_others(rule: &Rule, set: &RuleSet) -> Option<String> {
    let traffic = rule.path.traffic();
    let only_counts = |other: &Rule| match &other.terms {
        Terms::Budget(name) => {
            set.budgets.iter().any(|budget| budget.name == *name && budget.limits.shadow)
        }
        terms => terms.is_shadow(),
    };
    let mut others = set.rules.iter().filter(|other| {
        other.terms != Terms::Unlimited
            && !only_counts(other)
            && !rule.path.is_in_table_of(&other.path)
            && traffic.meets(&other.path.traffic())
    });
    let first = &others.next()?.path;
    let more = match others.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Some(format!("the rule for {first}{more}"))
}

/// Whom a rule is for: one bucket for each of what has no value, of packets with all values. With
/// `other`, other rules take some of them.
fn subject(path: &Path, other: bool) -> String {
    let other = if other { "other " } else { "" };
    let (mut each, mut whose) = (Vec::new(), Vec::new());
    let direction = path.direction;
    for part in path.parts.iter() {
        let other = if each.is_empty() { other } else { "" };
        match part {
            Part::Source(masks, Some(net))
                if *masks != SOURCE_MASKS && masks.of(net) == Some(net.prefix_len()) =>
            {
                let way = if direction == Direction::Out { "to" } else { "from" };
                whose.push(format!("{way} {}", address_text(net)));
            }
            Part::Source(masks, net) => each.push(source(*masks, net.as_ref(), other, direction)),
            Part::Inner(net) => {
                each.push(format!(
                    "{} inside a tunnel",
                    source(SOURCE_MASKS, net.as_ref(), other, direction)
                ));
            }
            Part::Destination(None) => {
                each.push(format!("each {other}{}", own_address(direction)));
            }
            Part::Destination(Some(net)) if net.prefix_len() < net.max_prefix_len() => {
                each.push(format!("each {other}{} in {net}", own_address(direction)));
            }
            Part::Fact(fact, None) => {
                each.push(format!("each {other}{}", spoken(fact.in_header(direction))));
            }
            Part::Interface(None) => each.push(format!("each {other}interface")),
            Part::Destination(Some(_)) | Part::Interface(Some(_)) | Part::Fact(_, Some(_)) => {
                whose.push(filter(part, direction));
            }
        }
    }
    let packets = if direction == Direction::Out { "outgoing packets" } else { "packets" };
    let both = if direction == Direction::Both { ", in and out" } else { "" };
    if each.is_empty() {
        let whose = whose.join(" ");
        let space = if whose.is_empty() { "" } else { " " };
        return format!("all {other}{packets}{space}{whose} together{both}");
    }
    let mut text = each.join(" and ");
    if !whose.is_empty() || direction == Direction::Out {
        let space = if whose.is_empty() { "" } else { " " };
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result = write!(text, ", of {packets}{space}{}", whose.join(" "));
    }
    text + both
}

/// The address that a packet has of this side.
const fn own_address(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "source address",
        Direction::In | Direction::Both => "destination address",
    }
}

/// Other ends with a bucket of their own.
fn source(masks: SourceMasks, net: Option<&IpNet>, other: &str, direction: Direction) -> String {
    let what = if direction == Direction::Out { "destination" } else { "source" };
    let within = |each: String| net.map_or_else(|| each.clone(), |net| format!("{each} in {net}"));
    if masks == SOURCE_MASKS {
        return match net {
            Some(net) if masks.of(net) == Some(net.prefix_len()) => {
                format!("the {what} {}", address_text(net))
            }
            _ => within(format!("each {other}{what}")),
        };
    }
    let of =
        |length: Option<u8>, family: &str| length.map(|length| format!("/{length} of {family}"));
    let blocks = if let Some(net) = net {
        masks.of(net).map_or_else(String::new, |length| format!("/{length}"))
    } else {
        let both = [of(masks.v4, "IPv4"), of(masks.v6, "IPv6")];
        both.into_iter().flatten().collect::<Vec<_>>().join(" and each ")
    };
    within(format!("each {other}{blocks}"))
}

/// A key with its value, behind "packets".
fn filter(part: &Part, direction: Direction) -> String {
    let value = part.value().unwrap_or_default();
    match part {
        Part::Destination(_) if direction == Direction::Out => format!("from {value}"),
        Part::Destination(_) => format!("to {value}"),
        Part::Interface(_) => format!("by the interface {value}"),
        Part::Fact(fact, values) => match (fact.in_header(direction), values) {
            (Fact::DestinationPort, Some(ports)) if ports.is_range() => {
                format!("to the ports {value}")
            }
            (Fact::DestinationPort, _) => format!("to port {value}"),
            (Fact::Protocol, _) => format!("by {value}"),
            (fact, _) => format!("with {} {value}", spoken(fact)),
        },
        Part::Source(..) | Part::Inner(_) => part.text(direction),
    }
}

/// Name of a key in a sentence.
const fn spoken(fact: Fact) -> &'static str {
    match fact {
        Fact::DestinationPort => "destination port",
        Fact::SourcePort => "source port",
        Fact::Protocol => "protocol",
        Fact::TcpFlags => "TCP flags",
        Fact::IcmpType => "ICMP type",
        Fact::Vlan => "VLAN",
        Fact::Dscp => "DSCP",
        Fact::Fragment => "fragment",
        Fact::PacketLength => "packet length",
        Fact::Ttl => "TTL",
    }
}

fn terms(limits: &Limits) -> String {
    let (is, brings, shadow) = if limits.shadow {
        ("would be", "would bring", " (shadow mode: only counted, nothing happens)")
    } else {
        ("is", "brings", "")
    };
    if limits.limits.is_empty() {
        let all = if limits.shadow { "all would be dropped" } else { "all dropped" };
        let reported = match &limits.over {
            Over::Reject => format!(", and the sender {is} notified"),
            _ => String::new(),
        };
        return format!("{all}{reported}{shadow}");
    }
    let (word, over) = match &limits.over {
        Over::Drop => ("at most", format!("more {is} dropped")),
        Over::Reject => ("at most", format!("more {is} dropped, and the sender {is} notified")),
        Over::Ban(_) => {
            let ban = over_text(&limits.over);
            ("at most", format!("more {is} dropped, and {brings} a {ban}"))
        }
        Over::Mark(_) => ("up to", format!("more passes, {}", over_text(&limits.over))),
        Over::Class(name) => ("up to", format!("more is charged to the budget {name}")),
        Over::Interface(name) => ("up to", format!("more leaves by the interface {name}")),
        Over::Cpu(cpu) => ("up to", format!("more goes on on CPU {cpu}")),
        Over::Delay(delay) => {
            let (waits, is) = if limits.shadow { ("would wait", "be") } else { ("waits", "is") };
            let longest = exact(delay.longest);
            ("at most", format!("more {waits} up to {longest}, and then {is} dropped"))
        }
    };
    let each: Vec<String> = if limits.sharing.is_some() {
        // The bound over all nodes is no number of one node.
        limits.limits.iter().map(|limit| as_written(&limit)).collect()
    } else {
        let bounded =
            |limit: RuleLimit| format!("{} ({word} {})", as_written(&limit), limit.bound());
        limits.limits.iter().map(bounded).collect()
    };
    let each = each.join(", and ");
    if limits.sharing.is_some() {
        return format!("{each} over all nodes, as docs/cluster.md bounds it; {over}{shadow}");
    }
    format!("{each}; {over}{shadow}")
}

fn as_written(limit: &RuleLimit) -> String {
    match (&limit.meter, &limit.upper) {
        (Meter::TokenBucket(rate), None) => {
            let burst = match rate.count {
                Count::Bytes => exact_bytes(rate.burst.into()),
                Count::Packets | Count::Syns | Count::Flows => rate.burst.to_string(),
            };
            format!("{}, and {burst} more at once", display_rate(rate))
        }
        _ => limit_text(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuleFile;

    /// Every kind of key and action has its words.
    #[test]
    fn rules_are_reported_as_sentences() {
        let text = r"
domain: test
budgets:
  - {name: uplink, rate_limit: {rate: 100mbit/s}}
descriptors:
  - {key: remote_address, rate_limit: {rate: 1000/s, burst: 200}}
  - {key: remote_address, value: 192.0.2.7, rate_limit: {unlimited: true}}
  - {key: remote_address, value: 198.51.100.0/24, rate_limit: {rate: 2mbit/s, burst: 60kB}, shadow_mode: true}
  - {key: masked_remote_address, v4_prefix_mask_len: 24, v6_prefix_mask_len: 48, rate_limit: {rate: 5000/s, burst: 100}}
  - key: destination_port
    value: 22
    descriptors:
      - key: protocol
        value: tcp
        descriptors:
          - {key: remote_address, rate_limit: {rate: 10 syns/min, burst: 5}, action: reject}
  - {key: destination_port, value: 19, action: drop}
  - {key: source_port, value: 6000-6010, budget: uplink}
  - {key: generic_key, value: all, rate_limit: {rate: 9/s, burst: 3, algorithm: token_bucket}}
";
        let file = RuleFile::parse("rules.yaml", text.as_bytes(), 1522).unwrap();
        let reported: Vec<String> =
            file.rules.rules.iter().map(|rule| rule_sentence(rule, &file.rules)).collect();
        assert_eq!(
            reported,
            [
                "each other source: 1000/s, and 200 more at once (at most 1200 packets in any second); \
                 more is dropped",
                "the source 192.0.2.7: no limit by rules with these keys; limited by others: the \
                 rule for masked_remote_address/v4:24/v6:48 (and 4 more)",
                "each source in 198.51.100.0/24: 2mbit/s, and 60 kB more at once (at most 310 kB in \
                 any second); more would be dropped (shadow mode: only counted, nothing happens)",
                "each /24 of IPv4 and each /48 of IPv6: 5000/s, and 100 more at once (at most 5100 \
                 packets in any second); more is dropped",
                "each source, of packets to port 22 by tcp: 10 syns/min, and 5 more at once (at most \
                 15 SYNs in any minute); more is dropped, and the sender is notified",
                "all packets to port 19 together: all dropped",
                "all packets with source port 6000-6010 together: charged to the budget uplink",
                "all packets together: 9/s, and 3 more at once (at most 12 packets in any second); \
                 more is dropped",
            ]
        );
        let reported: Vec<String> = file.rules.budgets.iter().map(budget_sentence).collect();
        assert!(
            reported[0].starts_with(
                "budget uplink, all that is charged to it together: 100mbit/s, and 12.5 MB more at \
                 once (at most 25 MB in any second)"
            ),
            "{reported:?}"
        );
    }
}
