//! Walks random rule sets of iptables and ip6tables packet by packet, beside their translations.
//!
//! The walk here shares no code with the one under test. For each packet it finds the limits that
//! the packet meets, as long as all of them hold, and its bucket in each. Translated rules are
//! looked up as docs/rules.md describes: the most specific rule of each table. A translation must
//! meet the same packets and put the same packets into one bucket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use ipnet::IpNet;
use limiter_common::wire::Count;
use limiter_rules::model::{Fact, Part};
use limiter_rules::{Rule, RuleFile, RuleSet, Terms};

use super::*;

const SOURCES: [&str; 4] = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "192.0.2.0/24"];
const PORTS: [u16; 4] = [22, 53, 80, 443];
const CHAINS: [&str; 3] = ["INPUT", "ONE", "TWO"];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Packet {
    source: IpAddr,
    tcp: bool,
    port: u16,
    /// True for packets of a known connection.
    open: bool,
}

#[derive(Clone, Debug)]
struct Conditions {
    source: Option<(bool, IpNet)>,
    tcp: Option<bool>,
    ports: Vec<u16>,
    open: Option<bool>,
    lo: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Nothing,
    Source,
    Mask,
    SourceAndPort,
}

#[derive(Clone, Debug)]
struct Line {
    chain: usize,
    conditions: Conditions,
    limit: Option<(bool, By)>,
    target: &'static str,
}

/// Maps an IPv4 address to IPv6: each gets a /64 of its own, because that is a source here.
fn of_v6(address: Ipv4Addr) -> Ipv6Addr {
    (0x2001_0db8 << 96 | u128::from(u32::from(address)) << 64 | 1).into()
}

/// Parses a prefix, and maps it to IPv6 if requested. A single address stays a single source.
fn net(text: &str, v6: bool) -> IpNet {
    let net = text.parse().unwrap();
    match net {
        IpNet::V4(net) if v6 => {
            let bits = if net.prefix_len() == 32 { 128 } else { 32 + net.prefix_len() };
            IpNet::new(of_v6(net.addr()).into(), bits).unwrap().trunc()
        }
        net => net,
    }
}

/// Bits of the source that share one bucket in rules with a mask.
const fn mask(v6: bool) -> u8 {
    if v6 { 48 } else { 16 }
}

fn conditions(random: &mut Rng, v6: bool) -> Conditions {
    let some = |random: &mut Rng| random.u8(..3) == 0;
    let tcp = random.bool().then(|| random.u8(..4) > 0);
    let ports = match (tcp, random.u8(..5)) {
        (Some(_), 0 | 1) => vec![PORTS[random.usize(..PORTS.len())]],
        (Some(_), 2) => vec![PORTS[0], PORTS[random.usize(1..PORTS.len())]],
        _ => Vec::new(),
    };
    Conditions {
        source: some(random).then(|| {
            let net = net(SOURCES[random.usize(..SOURCES.len())], v6);
            (random.u8(..5) == 0, net)
        }),
        tcp,
        ports,
        open: (random.u8(..6) == 0).then(|| random.bool()),
        lo: random.u8(..12) == 0,
    }
}

fn lines(random: &mut Rng, v6: bool) -> Vec<Line> {
    let mut lines = Vec::new();
    for _ in 0..random.usize(3..10) {
        let chain = [0, 0, 1, 2][random.usize(..4)];
        let mut conditions = conditions(random, v6);
        let limit = match random.u8(..3) {
            0 => None,
            1 => Some((true, [By::Source, By::Mask, By::SourceAndPort][random.usize(..3)])),
            _ => Some((false, By::Nothing)),
        };
        let target = match limit {
            Some((true, by)) => {
                // A port is part of the key.
                if by == By::SourceAndPort && conditions.tcp.is_none() {
                    conditions.tcp = Some(true);
                }
                "DROP"
            }
            Some((false, _)) => ["ACCEPT", "RETURN"][random.usize(..2)],
            // Few rules without conditions, or little comes far.
            None => match random.u8(..8) {
                0 | 1 => "ACCEPT",
                2 => "DROP",
                3 => "LOG",
                4 => "RETURN",
                5 | 6 if chain == 0 => "ONE",
                _ if chain < 2 => "TWO",
                _ => "DROP",
            },
        };
        lines.push(Line { chain, conditions, limit, target });
        // Mostly the rest is dropped.
        if let Some((false, _)) = limit
            && random.u8(..4) > 0
        {
            let conditions = match random.u8(..3) {
                0 => Conditions { source: None, tcp: None, ports: vec![], open: None, lo: false },
                _ => lines.last().unwrap().conditions.clone(),
            };
            lines.push(Line { chain, conditions, limit: None, target: "DROP" });
        }
    }
    lines
}

fn text(lines: &[Line], drops: bool, v6: bool) -> String {
    let policy = if drops { "DROP" } else { "ACCEPT" };
    let mut text = format!("*filter\n:INPUT {policy} [0:0]\n:ONE - [0:0]\n:TWO - [0:0]\n");
    for (index, line) in lines.iter().enumerate() {
        let Line { chain, conditions, limit, target } = line;
        put(&mut text, &format!("-A {}", CHAINS[*chain]));
        if let Some((not, net)) = conditions.source {
            put(&mut text, &format!("{} -s {net}", if not { " !" } else { "" }));
        }
        if conditions.lo {
            text.push_str(" -i lo");
        }
        if let Some(tcp) = conditions.tcp {
            text.push_str(if tcp { " -p tcp" } else { " -p udp" });
        }
        let ports: Vec<String> = conditions.ports.iter().map(ToString::to_string).collect();
        match ports.as_slice() {
            [] => {}
            [one] => put(&mut text, &format!(" --dport {one}")),
            many => put(&mut text, &format!(" -m multiport --dports {}", many.join(","))),
        }
        if let Some(open) = conditions.open {
            let states = if open { "RELATED,ESTABLISHED" } else { "NEW" };
            put(&mut text, &format!(" -m conntrack --ctstate {states}"));
        }
        match limit {
            Some((true, by)) => {
                let mode = match by {
                    By::Source | By::Nothing => "srcip".to_owned(),
                    By::Mask => format!("srcip --hashlimit-srcmask {}", mask(v6)),
                    By::SourceAndPort => "srcip,dstport".to_owned(),
                };
                put(
                    &mut text,
                    &format!(
                        " -m hashlimit --hashlimit-above {}/s --hashlimit-mode {mode} \
                         --hashlimit-name n{index}",
                        index + 1
                    ),
                );
            }
            Some((false, _)) => put(&mut text, &format!(" -m limit --limit {}/s", index + 1)),
            None => {}
        }
        put(&mut text, &format!(" -j {target}\n"));
    }
    text + "COMMIT\n"
}

fn put(text: &mut String, part: &str) {
    text.push_str(part);
}

impl Conditions {
    fn hold(&self, packet: Packet) -> bool {
        self.source.is_none_or(|(not, net)| net.contains(&packet.source) != not)
            && self.tcp.is_none_or(|tcp| tcp == packet.tcp)
            && (self.ports.is_empty() || self.ports.contains(&packet.port))
            && self.open.is_none_or(|open| open == packet.open)
            && !self.lo
    }
}

/// End of a walk, and the limits that were met.
#[derive(Debug, PartialEq)]
enum End {
    Accepted,
    /// Dropped, by a rule without a limit or by the policy.
    Dropped(Option<usize>),
    /// Out of the chain with the hook, by a rule.
    Returned(usize),
}

/// Walks through the chains. `over` is a limit that does not hold.
fn walk(
    lines: &[Line],
    drops: bool,
    packet: Packet,
    over: Option<usize>,
) -> (End, BTreeSet<usize>) {
    let mut met = BTreeSet::new();
    let end = chain(lines, 0, packet, over, &mut met, 0);
    let policy = |by| if drops { End::Dropped(by) } else { End::Accepted };
    let end = match end {
        None => policy(None),
        Some(End::Returned(line)) => policy(Some(line)),
        Some(end) => end,
    };
    (end, met)
}

fn chain(
    lines: &[Line],
    of: usize,
    packet: Packet,
    over: Option<usize>,
    met: &mut BTreeSet<usize>,
    depth: usize,
) -> Option<End> {
    assert!(depth < 9);
    for (index, line) in lines.iter().enumerate().filter(|(_, line)| line.chain == of) {
        if !line.conditions.hold(packet) {
            continue;
        }
        if let Some((above, _)) = line.limit {
            met.insert(index);
            if above != (over == Some(index)) {
                continue;
            }
        }
        match line.target {
            "ACCEPT" => return Some(End::Accepted),
            "DROP" => return Some(End::Dropped(line.limit.is_none().then_some(index))),
            "RETURN" => return (depth == 0).then_some(End::Returned(index)),
            "LOG" => {}
            target => {
                let to = CHAINS.iter().position(|name| *name == target).unwrap();
                if let Some(end) = chain(lines, to, packet, over, met, depth + 1) {
                    return Some(end);
                }
            }
        }
    }
    None
}

fn bucket(line: &Line, packet: Packet) -> String {
    match line.limit.unwrap().1 {
        By::Nothing => String::new(),
        By::Source => packet.source.to_string(),
        By::Mask => {
            let bits = mask(packet.source.is_ipv6());
            IpNet::new(packet.source, bits).unwrap().trunc().to_string()
        }
        By::SourceAndPort => format!("{} {}", packet.source, packet.port),
    }
}

/// The value of a part for a packet, if the part applies to it; and how specific the part's own
/// value is.
fn part(part: &Part, packet: Packet) -> Option<(String, u8)> {
    let source = packet.source;
    Some(match part {
        Part::Source(masks, value) => {
            let bits = if source.is_ipv6() { masks.v6? } else { masks.v4? };
            if value.is_some_and(|net| !net.contains(&source)) {
                return None;
            }
            let masked = IpNet::new(source, bits).unwrap().trunc();
            (masked.to_string(), value.map_or(0, |net| 1 + net.prefix_len()))
        }
        Part::Fact(fact, value) => {
            let own = match fact {
                Fact::Protocol => {
                    if packet.tcp {
                        6
                    } else {
                        17
                    }
                }
                Fact::DestinationPort => packet.port,
                other => panic!("{other:?}"),
            };
            if value.is_some_and(|values| !values.has(own)) {
                return None;
            }
            (own.to_string(), u8::from(value.is_some()))
        }
        other => panic!("{other:?}"),
    })
}

/// Limits that a packet meets by the rules: lines of the other program, each with the bucket.
fn met(set: &RuleSet, packet: Packet) -> BTreeMap<usize, String> {
    let mut tables: BTreeMap<String, (Vec<u8>, &Rule, String)> = BTreeMap::new();
    for rule in &set.rules {
        let keys: Vec<String> = rule
            .path
            .parts
            .iter()
            .map(|part| match part {
                Part::Source(masks, _) => format!("{masks:?}"),
                other => other.key(rule.path.direction).to_owned(),
            })
            .collect();
        let parts: Option<Vec<_>> = rule.path.parts.iter().map(|one| part(one, packet)).collect();
        let Some(parts) = parts else { continue };
        let rank: Vec<u8> = parts.iter().map(|(_, rank)| *rank).collect();
        let values: Vec<String> = parts.into_iter().map(|(value, _)| value).collect();
        let entry = tables.entry(keys.join(" "));
        let new = (rank, &**rule, values.join(" "));
        entry
            .and_modify(|held| {
                if new.0 > held.0 {
                    *held = new.clone();
                }
            })
            .or_insert(new);
    }
    let mut met = BTreeMap::new();
    for (_, rule, values) in tables.into_values() {
        let (limits, names, bucket) = match &rule.terms {
            Terms::Unlimited => continue,
            Terms::Limits(limits) => {
                let name = rule.name.as_ref().or(rule.label.as_ref()).unwrap();
                (limits, name.to_string(), values)
            }
            Terms::Budget(name) => {
                let budget = set.budgets.iter().find(|budget| budget.name == *name).unwrap();
                (&budget.limits, name.clone(), String::new())
            }
        };
        let lines = names
            .split(", ")
            .map(|name| name.strip_prefix("line ").unwrap().parse::<usize>().unwrap() - 5);
        let lines: Vec<usize> = lines.collect();
        assert_eq!(lines.len(), limits.limits.len(), "{names}");
        for (line, limit) in lines.into_iter().zip(limits.limits.iter()) {
            let quota = limit.meter.quota();
            assert_eq!(quota.requests_per_unit, u64::try_from(line).unwrap() + 1);
            let counts = match quota.count {
                Count::Packets => true,
                Count::Syns => packet.tcp && !packet.open,
                Count::Flows => !packet.open,
                Count::Bytes => panic!("no bytes here"),
            };
            if counts {
                assert_eq!(met.insert(line, bucket.clone()), None, "line {line} twice");
            }
        }
    }
    met
}

fn packets(v6: bool) -> Vec<Packet> {
    let mut packets = Vec::new();
    for source in
        ["10.1.2.3", "10.1.2.4", "10.1.3.1", "10.2.0.1", "192.0.2.1", "192.0.3.1", "8.8.8.8"]
    {
        let source: Ipv4Addr = source.parse().unwrap();
        let source = if v6 { of_v6(source).into() } else { source.into() };
        for port in [22, 53, 80, 443, 9999] {
            for (tcp, open) in [(true, true), (true, false), (false, true), (false, false)] {
                packets.push(Packet { source, tcp, port, open });
            }
        }
    }
    packets
}

/// Compares one rule set; says how many limits were translated.
fn compare(seed: u64) -> usize {
    let mut random = Rng::with_seed(seed);
    let v6 = seed % 3 == 2;
    let lines = lines(&mut random, v6);
    let drops = random.u8(..3) == 0;
    let text = text(&lines, drops, v6);
    let imported = imported(if v6 { Format::Ip6tables } else { Format::Iptables }, &text);
    let set = RuleFile::parse("x", imported.text.as_bytes(), 1522).unwrap().rules;
    let reported = || format!("seed {seed}\n{text}\n{}", imported.text);
    let translated: BTreeSet<usize> = imported
        .rules
        .iter()
        .enumerate()
        .filter(|(index, rule)| {
            rule.outcome == Outcome::Translated && lines[*index].limit.is_some()
        })
        .map(|(index, _)| index)
        .collect();
    let denied: Vec<IpNet> =
        set.lists.keys().map(|source| crate::iptables::net(&source.to_string()).unwrap()).collect();
    let mut buckets: BTreeMap<usize, BTreeSet<(String, String)>> = BTreeMap::new();
    for packet in packets(v6) {
        let (end, there) = walk(&lines, drops, packet, None);
        let is_denied = denied.iter().any(|net| net.contains(&packet.source));
        // Open connections of denied sources are the difference P.
        assert!(
            !is_denied || packet.open || end != End::Accepted,
            "{packet:?} is denied: {}",
            reported()
        );
        if is_denied {
            continue;
        }
        let here = met(&set, packet);
        for (line, bucket_here) in &here {
            assert!(translated.contains(line), "line {line}: {}", reported());
            // Packets that others drop are the difference H.
            if !there.contains(line) {
                assert!(
                    matches!(end, End::Dropped(Some(_))),
                    "{packet:?} meets limit {line} here only: {}",
                    reported()
                );
                continue;
            }
            let entry = buckets.entry(*line).or_default();
            entry.insert((bucket(&lines[*line], packet), bucket_here.clone()));
        }
        for line in translated.intersection(&there) {
            assert!(
                here.contains_key(line),
                "{packet:?} meets limit {line} there only: {}",
                reported()
            );
            let (over, _) = walk(&lines, drops, packet, Some(*line));
            assert!(
                matches!(over, End::Dropped(_)),
                "{packet:?} over limit {line} is not dropped there: {}",
                reported()
            );
        }
    }
    for (line, pairs) in buckets {
        let there: BTreeSet<_> = pairs.iter().map(|(there, _)| there).collect();
        let here: BTreeSet<_> = pairs.iter().map(|(_, here)| here).collect();
        assert_eq!(
            (there.len(), here.len()),
            (pairs.len(), pairs.len()),
            "{line}: {pairs:?} {}",
            reported()
        );
    }
    translated.len()
}

#[test]
fn random_chains_mean_the_same_here() {
    let seeds: u64 = match std::env::var("LIMITER_IMPORT_CHAINS") {
        Ok(text) => text.parse().unwrap(),
        Err(_) => 500,
    };
    let translated: usize = (0..seeds).map(compare).sum();
    // A translation that refuses everything is right as well.
    assert!(translated > usize::try_from(seeds).unwrap() / 2, "{translated} of {seeds}");
    println!("{translated} limits of {seeds} rule sets");
}
