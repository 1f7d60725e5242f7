//! Sentences of `limiter check`, read back: whom they are about, and what they promise. Nothing of
//! the code that writes them is used.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::packet::{ICMP, ICMPV6, Packet, Piece, SYN, TCP, UDP};

#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) who: Who,
    pub(crate) what: What,
}

/// Packets that a sentence is about.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    /// True if other rules of the table take some of them.
    pub(crate) other: bool,
    /// True if they go out.
    outgoing: bool,
    each: Vec<String>,
    filters: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    /// No rule of the set drops any.
    NoLimit,
    /// Nothing is promised.
    Anything,
    Nothing,
    /// Of each bucket no more passes.
    AtMost(Vec<Bound>),
    /// They are charged to a budget.
    Budget(String),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bound {
    pub(crate) most: u64,
    pub(crate) one_more: bool,
    pub(crate) unit: String,
    pub(crate) nanos: u64,
}

/// Words of keys, the longest first.
const SPOKEN: [&str; 10] = [
    "destination port",
    "source port",
    "packet length",
    "TCP flags",
    "ICMP type",
    "fragment",
    "protocol",
    "VLAN",
    "DSCP",
    "TTL",
];

impl Claim {
    pub(crate) fn read(sentence: &str) -> Self {
        let (who, what) = sentence.split_once(": ").unwrap();
        Self { who: Who::read(who), what: What::read(what) }
    }
}

impl Who {
    fn read(text: &str) -> Self {
        // What is said of packets in both directions is said of those that come in.
        let text = text.strip_suffix(", in and out").unwrap_or(text);
        if let Some(rest) = text.strip_prefix("all ") {
            let other = rest.starts_with("other ");
            let rest = rest.trim_start_matches("other ");
            let outgoing = rest.starts_with("outgoing ");
            let rest = rest.trim_start_matches("outgoing ").strip_prefix("packets").unwrap();
            let filters = rest.strip_suffix("together").unwrap().trim();
            return Self { other, outgoing, each: Vec::new(), filters: filters_of(filters) };
        }
        let out = text.split_once(", of outgoing packets");
        let outgoing = out.is_some();
        let (each, filters) = out.or(text.split_once(", of packets ")).unwrap_or((text, ""));
        let filters = filters.trim();
        let other = each.starts_with("each other ");
        let each = each.replacen("each other ", "each ", 1);
        let each = each.split(" and ").map(str::to_owned).collect();
        Self { other, outgoing, each, filters: filters_of(filters) }
    }

    /// The bucket of a packet, by this sentence; none if it is about others.
    pub(crate) fn bucket(&self, packet: &Packet) -> Option<Vec<String>> {
        // All of these packets come in.
        if self.outgoing {
            return None;
        }
        for (key, value) in &self.filters {
            if !meets(packet, key, value)? {
                return None;
            }
        }
        let mut bucket = Vec::new();
        let mut of_family = None;
        for each in &self.each {
            let text = each.strip_prefix("each ").or(each.strip_prefix("the ")).unwrap();
            let (what, net) = text.split_once(" in ").unwrap_or((text, ""));
            if let Some(length) = what.strip_prefix('/') {
                let (length, family) = length.split_once(" of ").unwrap_or((length, ""));
                let v4 = packet.source.is_ipv4();
                let right = family.is_empty() || (family == "IPv4") == v4;
                of_family = Some(of_family.unwrap_or(false) | right);
                if right {
                    inside(packet.source, net)?;
                    bucket.push(masked(packet.source, length.parse().unwrap()));
                }
            } else if what == "source" {
                inside(packet.source, net)?;
                bucket.push(of_source(packet.source));
            } else if let Some(address) = what.strip_prefix("source ")
                && !SPOKEN.contains(&what)
            {
                inside(packet.source, address)?;
                bucket.push(of_source(packet.source));
            } else if what == "destination address" {
                inside(packet.destination, net)?;
                bucket.push(packet.destination.to_string());
            } else if what == "interface" {
                bucket.push(packet.interface.to_string());
            } else {
                bucket.push(fact(packet, what)?);
            }
        }
        (of_family != Some(false)).then_some(bucket)
    }
}

/// A source is an IPv4 address or an IPv6 /64.
fn of_source(address: IpAddr) -> String {
    masked(address, if address.is_ipv4() { 32 } else { 64 })
}

fn masked(address: IpAddr, length: u8) -> String {
    IpNet::new(address, length).unwrap().trunc().to_string()
}

/// Some if the address is in the net, or no net is named.
fn inside(address: IpAddr, net: &str) -> Option<()> {
    let contains = |net: &str| match net.parse::<IpNet>() {
        Ok(net) => net.contains(&address),
        Err(_) => net.parse::<IpAddr>().unwrap() == address,
    };
    (net.is_empty() || contains(net)).then_some(())
}

fn filters_of(text: &str) -> Vec<(String, String)> {
    let mut filters = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let keys = ["from ", "to port ", "to the ports ", "to ", "by the interface ", "by "];
        let spoken = SPOKEN.map(|name| format!("with {name} "));
        let mut all = keys.into_iter().chain(spoken.iter().map(String::as_str));
        let key = all.find(|key| rest.starts_with(key)).unwrap();
        let value = rest.strip_prefix(key).unwrap();
        let (value, behind) = value.split_once(' ').unwrap_or((value, ""));
        filters.push((key.trim().to_owned(), value.to_owned()));
        rest = behind;
    }
    filters
}

/// True if a packet has a value; none if it has no such fact.
fn meets(packet: &Packet, key: &str, value: &str) -> Option<bool> {
    Some(match key {
        "from" => inside(packet.source, value).is_some(),
        "to" => inside(packet.destination, value).is_some(),
        "by the interface" => value == format!("eth{}", packet.interface - 1),
        "by" => fact(packet, "protocol")? == value,
        "to port" | "to the ports" => in_range(&fact(packet, "destination port")?, value),
        _ => in_range(&fact(packet, key.strip_prefix("with ")?)?, value),
    })
}

fn in_range(fact: &str, value: &str) -> bool {
    let range = value.split_once('-').and_then(|(low, high)| {
        Some((low.parse::<u16>().ok()?, high.parse::<u16>().ok()?, fact.parse::<u16>().ok()?))
    });
    range.map_or(fact == value, |(low, high, fact)| (low..=high).contains(&fact))
}

/// A fact of a packet, as rule files write it.
fn fact(packet: &Packet, name: &str) -> Option<String> {
    let head = packet.piece != Piece::Later;
    let has_ports = head && matches!(packet.protocol, TCP | UDP);
    let is_icmp = packet.protocol == if packet.source.is_ipv4() { ICMP } else { ICMPV6 };
    match name {
        "destination port" => has_ports.then(|| packet.destination_port.to_string()),
        "source port" => has_ports.then(|| packet.source_port.to_string()),
        "protocol" => Some(match packet.protocol {
            TCP => "tcp".to_owned(),
            UDP => "udp".to_owned(),
            ICMP => "icmp".to_owned(),
            ICMPV6 => "icmpv6".to_owned(),
            47 => "gre".to_owned(),
            other => other.to_string(),
        }),
        "TCP flags" => (head && packet.protocol == TCP).then(|| {
            let flags = packet.flags;
            let name = match (flags & SYN != 0, flags & 16 != 0) {
                (true, false) => "syn",
                (true, true) => "syn-ack",
                _ if flags & 4 != 0 => "rst",
                _ if flags & 1 != 0 => "fin",
                (false, true) => "ack",
                (false, false) => "other",
            };
            name.to_owned()
        }),
        "ICMP type" => (head && is_icmp).then(|| {
            let name = match (packet.source.is_ipv4(), packet.icmp) {
                (_, 8 | 128) => "echo-request",
                (false, 3) => "time-exceeded",
                (_, 0) => "echo-reply",
                (true, 3) => "destination-unreachable",
                _ => unreachable!("no packet has other types"),
            };
            name.to_owned()
        }),
        "VLAN" => packet.vlan.map(|vlan| vlan.to_string()),
        "DSCP" => Some(packet.dscp.to_string()),
        "TTL" => Some(packet.ttl.to_string()),
        "packet length" => Some(packet.length().to_string()),
        "fragment" => Some(
            match packet.piece {
                Piece::Whole => "whole",
                Piece::First => "first",
                Piece::Later => "later",
            }
            .to_owned(),
        ),
        other => unreachable!("{other} is no key"),
    }
}

impl What {
    fn read(text: &str) -> Self {
        if text == "no limit" {
            return Self::NoLimit;
        }
        if let Some(name) = text.strip_prefix("charged to the budget ") {
            return Self::Budget(name.to_owned());
        }
        if text.contains("(shadow mode") || text.contains("(up to ") {
            return Self::Anything;
        }
        if text.starts_with("all dropped") {
            return Self::Nothing;
        }
        let bounds: Vec<Bound> = text.split("(at most ").skip(1).map(Bound::read).collect();
        if bounds.is_empty() {
            assert!(text.starts_with("no limit by rules with these keys; limited by"), "{text}");
            return Self::Anything;
        }
        Self::AtMost(bounds)
    }
}

impl Bound {
    fn read(text: &str) -> Self {
        let (bound, _) = text.split_once(')').unwrap();
        let (amount, period) = bound.split_once(" in any ").unwrap();
        let one_more = amount.ends_with(" and one packet");
        let (most, unit) = amount.trim_end_matches(" and one packet").split_once(' ').unwrap();
        let units = [
            ("second", 1),
            ("minute", 60),
            ("hour", 3_600),
            ("day", 86_400),
            ("week", 604_800),
            ("min", 60),
            ("s", 1),
        ];
        let digits = period.bytes().take_while(u8::is_ascii_digit).count();
        let (number, name) = period.split_at(digits);
        let (_, seconds) = units.into_iter().find(|(known, _)| *known == name).unwrap();
        let number = if number.is_empty() { 1 } else { number.parse().unwrap() };
        let (unit, size) = match unit {
            "kB" => ("bytes", 1_000),
            "MB" => ("bytes", 1_000_000),
            "GB" => ("bytes", 1_000_000_000),
            unit => (unit, 1),
        };
        let (whole, part) = most.split_once('.').unwrap_or((most, ""));
        let part = (1..)
            .zip(part.bytes())
            .map(|(place, digit)| u64::from(digit - b'0') * size / 10_u64.pow(place));
        Self {
            most: whole.parse::<u64>().unwrap() * size + part.sum::<u64>(),
            one_more,
            unit: unit.to_owned(),
            nanos: number * seconds * 1_000_000_000,
        }
    }

    pub(crate) fn units(&self, packet: &Packet) -> u64 {
        match self.unit.as_str() {
            "packets" => 1,
            "bytes" => u64::try_from(packet.frame().len()).unwrap(),
            "SYNs" => {
                let syn = fact(packet, "TCP flags").is_some_and(|flags| flags == "syn");
                u64::from(syn)
            }
            other => unreachable!("{other} are not counted"),
        }
    }
}
