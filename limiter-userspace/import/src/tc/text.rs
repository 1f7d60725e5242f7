//! Reads the output of `tc filter show dev X ingress`.

use super::police::{Police, bytes_a_second, size};
use super::{Action, Filter, ethernet, firewall, flower, is_ingress};
use crate::error::ImportError;
use crate::firewall::Firewall;
use crate::packets::Packets;

/// Words after which nothing changes a verdict.
const FLAGS: [&str; 6] = ["not_in_hw", "in_hw", "skip_hw", "skip_sw", "terminal", "in_hw_count"];

/// Actions that decide in their own way.
const OTHER: [&str; 9] =
    ["mirred", "skbedit", "pedit", "vlan", "nat", "csum", "ct", "sample", "tunnel_key"];

pub(crate) fn read(text: &str) -> Result<Firewall, ImportError> {
    let mut filters: Vec<Filter> = Vec::new();
    let mut kind = String::new();
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), filters.last_mut()) {
            ([], _) => {}
            (["filter", rest @ ..], _) => {
                let mut filter =
                    Filter { place: format!("line {}", index + 1), ..Filter::default() };
                line.trim_end().clone_into(&mut filter.text);
                kind = head(rest, &mut filter);
                filters.push(filter);
            }
            (_, None) => {
                return Err(ImportError::Line {
                    line: index + 1,
                    what: "no filter begins before it".to_owned(),
                    remedy: "give the output of `tc filter show dev IFACE ingress`",
                });
            }
            (words, Some(filter)) => {
                filter.text.push_str(" / ");
                filter.text.push_str(line.trim());
                body(&kind, words, filter);
            }
        }
    }
    // The first line of a filter kind does not describe a filter yet.
    filters.retain(|filter| {
        !filter.actions.is_empty() || filter.text.contains(" handle ") || filter.text.contains("::")
    });
    Ok(firewall(filters))
}

/// Reads the line that begins a filter. Returns its kind.
fn head(words: &[&str], filter: &mut Filter) -> String {
    let mut kind = String::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().unwrap_or_default();
        match *word {
            "parent" => filter.egress = !is_ingress(value()),
            "protocol" => ethernet(value(), &mut filter.packets),
            "chain" => match value().parse() {
                Ok(chain) => filter.chain = chain,
                Err(_) => filter.packets.lacks("its chain cannot be read"),
            },
            "pref" | "handle" | "fh" | "order" | "bkt" | "flowid" | "classid" => {
                value();
            }
            "key" | "ht" | "divisor" | "*flowid" => {}
            "egress" => filter.egress = true,
            "matchall" | "flower" | "u32" => (*word).clone_into(&mut kind),
            word if FLAGS.contains(&word) || word.starts_with("0x") => {}
            word if word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':') => {}
            word => filter.packets.lacks(format!("the filter {word} is not known")),
        }
    }
    if kind.is_empty() {
        filter.packets.lacks_limit("its kind of filter is not known");
    }
    kind
}

fn body(kind: &str, words: &[&str], filter: &mut Filter) {
    let words = match words {
        ["action", "order", _, rest @ ..] => rest,
        words => words,
    };
    match words {
        ["police", rest @ ..] => filter.actions.push(Action::Police(police(rest))),
        ["gact", "action", verdict, ..] => filter.actions.push(match *verdict {
            "drop" | "shot" => Action::Drop,
            "pass" | "ok" => Action::Pass,
            other => Action::Other(other.to_owned()),
        }),
        // Details of an action, and counters.
        [
            "index" | "ref" | "random" | "Action" | "Sent" | "backlog" | "installed"
            | "used_hw_stats" | "cookie" | "no_percpu" | "bind",
            ..,
        ] => {}
        [flag] | ["in_hw", flag, _] if FLAGS.contains(flag) => {}
        ["match", what, "at", place] if kind == "u32" => matched(what, place, &mut filter.packets),
        [key, value] if kind == "flower" => flower(key, value, &mut filter.packets),
        [name, ..] if OTHER.contains(name) => {
            filter.actions.push(Action::Other((*name).to_owned()));
        }
        words => filter.packets.lacks(format!("`{}` is not known", words.join(" "))),
    }
}

fn police(words: &[&str]) -> Police {
    let mut police = Police::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().copied().unwrap_or_default();
        let read = match *word {
            "rate" => {
                police.rate = bytes_a_second(value());
                police.rate.is_some()
            }
            "burst" => {
                police.burst = size(value());
                police.burst.is_some()
            }
            "pkts_rate" => {
                police.packets = value().parse().ok();
                police.packets.is_some()
            }
            "pkts_burst" => {
                police.packets_burst = value().parse().ok();
                police.packets_burst.is_some()
            }
            "action" => {
                let actions = value();
                let (exceed, conform) = actions.split_once('/').unwrap_or((actions, "pass"));
                police.goes_on = conform == "continue";
                police.exceed = Some(exceed.to_owned());
                matches!(conform, "pass" | "ok" | "pipe" | "continue")
            }
            "mtu" => size(value()).is_some(),
            // Additional bytes per packet.
            "overhead" => value() == "0b",
            "linklayer" => value() == "ethernet",
            word => {
                let index = word.strip_prefix("0x").and_then(|n| u64::from_str_radix(n, 16).ok());
                police.index = index;
                index.is_some()
            }
        };
        if !read {
            police.refused = Some(format!("its {word} cannot be read"));
        }
    }
    police
}

/// Reads `match 0a000000/ff000000 at 12`: a word of the IPv4 header.
fn matched(what: &str, place: &str, packets: &mut Packets) {
    use std::net::Ipv4Addr;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let read = what.split_once('/').and_then(|(value, mask)| Some((number(value)?, number(mask)?)));
    let prefix = read.and_then(|(value, mask)| {
        let net = ipnet::Ipv4Net::with_netmask(Ipv4Addr::from(value), Ipv4Addr::from(mask)).ok()?;
        Some(ipnet::IpNet::from(net.trunc()))
    });
    match (read, prefix, place) {
        (Some((_, 0)), ..) => {}
        (_, Some(net), "12") if packets.sources.is_none() => packets.sources = Some(vec![net]),
        (_, Some(net), "16") if packets.destinations.is_none() => {
            packets.destinations = Some(vec![net]);
        }
        _ => packets.lacks(format!("limiter has no condition as `match {what} at {place}`")),
    }
}
