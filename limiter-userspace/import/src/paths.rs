//! Translates a rule's packets and the key of its buckets into paths of rules, so that each of its
//! buckets becomes one bucket here.

use ipnet::IpNet;
use limiter_rules::model as rules;
use limiter_rules::model::key::has_ports;
use limiter_rules::model::{Fact, Part, Path, SOURCE_MASKS, Selector, SourceMasks};

use super::firewall::{Key, Limit};
use super::packets::{Family, Packets, inner};

/// The most paths of one rule.
const MOST: usize = 1024;

/// The most ports of one rule that each have a bucket.
const MOST_PORTS: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paths {
    /// Paths to which the limit applies.
    pub(super) limited: Vec<Path>,
    /// Paths inside these to which it does not apply.
    pub(super) exempt: Vec<Path>,
    /// True if all of them share one bucket.
    pub(super) shared: bool,
    /// True if IPv6 addresses become /64s.
    pub(super) prefix64: bool,
}

/// Values of one key, and whether each has its own bucket or all share one.
struct Values {
    parts: Vec<Part>,
    together: bool,
}

/// Makes the paths of a limit. The paths of a port with its own bucket come first.
pub(super) fn paths_of(
    packets: &Packets,
    limit: &Limit,
    exempt: &[IpNet],
    beside: Option<u16>,
) -> Result<Paths, String> {
    let of = |packets: &Packets| paths(packets, &limit.key, exempt, limit.shared.is_some());
    let mut all = of(packets)?;
    if let Some(port) = beside {
        let before = of(&Packets { ports: Some(vec![(port, port)]), ..packets.clone() })?;
        all.limited.splice(0..0, before.limited);
        all.exempt.splice(0..0, before.exempt);
    }
    Ok(all)
}

/// Makes the paths. `exempt` are sources without the limit; `together` asks for one bucket that
/// rules can share.
fn paths(
    packets: &Packets,
    key: &[Key],
    exempt: &[IpNet],
    together: bool,
) -> Result<Paths, String> {
    let mut levels = vec![
        interfaces(packets, key),
        protocols(packets, key),
        icmp(packets),
        destinations(packets, key),
        ports(packets, key)?,
    ];
    for (of, ranges) in &packets.facts {
        levels.push(Some(facts(packets, *of, ranges)?));
    }
    let source_key = key.iter().find_map(|key| match key {
        Key::Source(bits) => Some(*bits),
        _ => None,
    });
    let many = levels.iter().flatten().any(|values| values.together);
    let (sources, prefix64, shared) = if let Some(bits) = source_key {
        let (parts, prefix64) = keyed_sources(packets, bits)?;
        (Some(Values { parts, together: false }), prefix64, many)
    } else {
        let together = together || many || !exempt.is_empty();
        let (values, shared) = other_sources(packets, key, together)?;
        (values, false, shared || many)
    };
    if shared && !key.is_empty() {
        return Err(
            "one bucket there is for all of its values together, and each of them would have \
             one of its own here: write a rule for each value if that is meant"
                .to_owned(),
        );
    }
    let exempt = match &sources {
        Some(values) => exempted(&values.parts, exempt)?,
        None if exempt.is_empty() => Vec::new(),
        None => return Err("some sources are exempt, and its buckets are not by source".to_owned()),
    };
    levels.push(sources);
    let limited = product(&levels)?;
    if let Some(Some(last)) = levels.last_mut() {
        last.parts = exempt;
    }
    let exempt = match levels.last() {
        Some(Some(last)) if !last.parts.is_empty() => product(&levels)?,
        _ => Vec::new(),
    };
    Ok(Paths { limited, exempt, shared, prefix64 })
}

fn product(levels: &[Option<Values>]) -> Result<Vec<Path>, String> {
    let mut paths = vec![Path::default()];
    for values in levels.iter().flatten() {
        if paths.len().saturating_mul(values.parts.len()) > MOST {
            return Err(format!("it would be more than {MOST} rules here"));
        }
        let with = |path: &Path| values.parts.iter().map(|part| path.with(part.clone())).collect();
        paths = paths.iter().flat_map(|path| -> Vec<Path> { with(path) }).collect();
    }
    // ICMP exists only in IPv4, and ICMPv6 only in IPv6.
    if paths.iter().any(is_of_one_family) {
        paths.retain(is_of_one_family);
    }
    Ok(paths)
}

/// False for ICMP with an IPv6 address, or the reverse: no packet is both.
fn is_of_one_family(path: &Path) -> bool {
    let family = path.parts.iter().find_map(|part| match part {
        Part::Fact(Fact::Protocol, Some(values)) if *values == 1.into() => Some(Family::V4),
        Part::Fact(Fact::Protocol, Some(values)) if *values == 58.into() => Some(Family::V6),
        _ => None,
    });
    let Some(family) = family else { return true };
    path.parts.iter().all(|part| match part {
        Part::Source(_, Some(net)) | Part::Destination(Some(net)) => Family::of(net) == family,
        _ => true,
    })
}

fn interfaces(packets: &Packets, key: &[Key]) -> Option<Values> {
    let keyed = key.contains(&Key::Interface);
    match &packets.interfaces {
        None if keyed => Some(Values { parts: vec![Part::Interface(None)], together: false }),
        None => None,
        Some(names) => {
            let parts: Vec<Part> =
                names.iter().map(|name| Part::Interface(Some(name.clone()))).collect();
            Some(Values { together: parts.len() > 1 && !keyed, parts })
        }
    }
}

fn protocols(packets: &Packets, key: &[Key]) -> Option<Values> {
    let keyed = key.contains(&Key::Protocol);
    match &packets.protocols {
        None if keyed => Some(Values { parts: vec![fact(Fact::Protocol, None)], together: false }),
        None => None,
        Some(numbers) => {
            let parts: Vec<Part> =
                numbers.iter().map(|number| fact(Fact::Protocol, Some((*number).into()))).collect();
            Some(Values { together: parts.len() > 1 && !keyed, parts })
        }
    }
}

fn icmp(packets: &Packets) -> Option<Values> {
    let messages = packets.icmp.as_ref()?;
    let parts: Vec<Part> =
        messages.iter().map(|message| fact(Fact::IcmpType, Some((*message).into()))).collect();
    Some(Values { together: parts.len() > 1, parts })
}

fn destinations(packets: &Packets, key: &[Key]) -> Option<Values> {
    let keyed = key.contains(&Key::Destination);
    match (&packets.destinations, packets.family) {
        (None, _) if !keyed => None,
        // Addresses of one family only.
        (None, family) => {
            let parts = vec![Part::Destination(family.map(whole))];
            Some(Values { parts, together: false })
        }
        (Some(nets), _) => {
            let one = nets.len() == 1
                && nets.first().is_some_and(|net| net.prefix_len() == net.max_prefix_len());
            let parts = nets.iter().map(|net| Part::Destination(Some(*net))).collect();
            Some(Values { parts, together: !keyed && !one })
        }
    }
}

fn ports(packets: &Packets, key: &[Key]) -> Result<Option<Values>, String> {
    let keyed = key.contains(&Key::Port);
    let with_ports = packets
        .protocols
        .as_ref()
        .is_some_and(|protocols| protocols.iter().all(|protocol| has_ports(*protocol)));
    let port = |values| Part::Fact(Fact::DestinationPort, values);
    match &packets.ports {
        None if !keyed => Ok(None),
        _ if !with_ports => {
            Err("it counts by port without naming a protocol that has ports".to_owned())
        }
        None => Ok(Some(Values { parts: vec![port(None)], together: false })),
        Some(ranges) if !keyed => {
            let parts: Vec<Part> =
                merged(ranges).into_iter().map(|values| port(Some(values))).collect();
            Ok(Some(Values { together: parts.len() > 1, parts }))
        }
        Some(ranges) => {
            let count: usize = ranges.iter().map(|(low, high)| usize::from(high - low) + 1).sum();
            if count > MOST_PORTS {
                return Err(format!(
                    "{count} ports that each have a bucket, and the translation has a rule for \
                     each, of at most {MOST_PORTS}"
                ));
            }
            let mut numbers: Vec<u16> =
                ranges.iter().flat_map(|(low, high)| *low..=*high).collect();
            numbers.sort_unstable();
            numbers.dedup();
            let parts = numbers.into_iter().map(|number| port(Some(number.into()))).collect();
            Ok(Some(Values { together: false, parts }))
        }
    }
}

/// Values of a key that is only a condition.
fn facts(packets: &Packets, of: Fact, ranges: &[(u16, u16)]) -> Result<Values, String> {
    let with_ports = |protocols: &Vec<u8>| protocols.iter().all(|protocol| has_ports(*protocol));
    if of == Fact::SourcePort && !packets.protocols.as_ref().is_some_and(with_ports) {
        return Err("it names source ports without a protocol that has ports".to_owned());
    }
    let parts: Vec<Part> =
        merged(ranges).into_iter().map(|values| Part::Fact(of, Some(values))).collect();
    Ok(Values { together: parts.len() > 1, parts })
}

/// Sorted ranges, with adjacent ones merged: a range is one value in a rule file.
fn merged(ranges: &[(u16, u16)]) -> Vec<rules::Values> {
    let mut sorted = ranges.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<(u16, u16)> = Vec::new();
    for (low, high) in sorted {
        match merged.last_mut() {
            Some((_, end)) if u32::from(low) <= u32::from(*end) + 1 => *end = high.max(*end),
            _ => merged.push((low, high)),
        }
    }
    merged.into_iter().filter_map(|(low, high)| rules::Values::range(low, high)).collect()
}

/// Sources with a bucket each, and whether IPv6 addresses become /64s.
fn keyed_sources(packets: &Packets, bits: u8) -> Result<(Vec<Part>, bool), String> {
    let by_address = |bits: u8| match packets.family {
        Some(Family::V4) => bits == 32,
        Some(Family::V6) | None => bits == 128,
    };
    let masks = if by_address(bits) {
        SOURCE_MASKS
    } else {
        match packets.family {
            Some(Family::V4) => SourceMasks { v4: Some(bits), v6: None },
            Some(Family::V6) => SourceMasks { v4: None, v6: Some(bits) },
            None => return Err("it masks sources without naming their family".to_owned()),
        }
    };
    let v6 = packets.family != Some(Family::V4);
    let Some(nets) = &packets.sources else {
        let value = match (masks == SOURCE_MASKS, packets.family) {
            (true, Some(family)) => Some(whole(family)),
            _ => None,
        };
        return Ok((vec![Part::Source(masks, value)], masks == SOURCE_MASKS && v6));
    };
    // A prefix within one bucket is a bucket by itself.
    let fits = |net: &IpNet| masks.of(net).is_some_and(|mask| net.prefix_len() <= mask);
    match nets.as_slice() {
        [net] if !fits(net) => {
            let bits = net.prefix_len();
            let masks = match net {
                IpNet::V4(_) => SourceMasks { v4: Some(bits), v6: None },
                IpNet::V6(_) => SourceMasks { v4: None, v6: Some(bits) },
            };
            Ok((vec![Part::Source(masks, Some(*net))], false))
        }
        _ if nets.iter().all(fits) => {
            let parts = nets.iter().map(|net| Part::Source(masks, Some(*net))).collect();
            Ok((parts, masks == SOURCE_MASKS && v6))
        }
        _ => Err("several of its sources are inside of one bucket".to_owned()),
    }
}

/// Sources that are only a condition. The boolean tells whether the rules need a budget.
fn other_sources(
    packets: &Packets,
    key: &[Key],
    together: bool,
) -> Result<(Option<Values>, bool), String> {
    let implied = packets.destinations.is_some()
        || key.contains(&Key::Destination)
        || packets.protocols.as_deref().is_some_and(|protocols| matches!(protocols, [1 | 58]));
    let families = match packets.family {
        Some(family) => vec![family],
        None => vec![Family::V4, Family::V6],
    };
    let all = |together| {
        let parts = families
            .iter()
            .map(|family| Part::Source(SOURCE_MASKS, Some(whole(*family))))
            .collect();
        Ok((Some(Values { parts, together }), true))
    };
    match packets.sources.as_deref() {
        None if together => all(true),
        None if packets.family.is_none() || implied => Ok((None, false)),
        None if key.is_empty() => all(true),
        None => {
            Err("it is for one address family alone, and its buckets are not by address".into())
        }
        // One bucket for all of these sources. A prefix of length 0 has no mask.
        Some([net]) if !together && net.prefix_len() > 0 => {
            let bits = Some(net.prefix_len());
            let masks = match net {
                IpNet::V4(_) if bits == Some(32) => SOURCE_MASKS,
                IpNet::V4(_) => SourceMasks { v4: bits, v6: None },
                IpNet::V6(_) => SourceMasks { v4: None, v6: bits },
            };
            let parts = vec![Part::Source(masks, Some(*net))];
            Ok((Some(Values { parts, together: false }), false))
        }
        Some(nets) => {
            if nets.iter().any(|net| Selector::prefix(*net).is_err()) {
                return Err("IPv6 sources longer than /64 cannot share a bucket".to_owned());
            }
            let parts = nets.iter().map(|net| Part::Source(SOURCE_MASKS, Some(*net))).collect();
            Ok((Some(Values { parts, together: true }), true))
        }
    }
}

/// The exempt sources, with the masks of the others.
fn exempted(limited: &[Part], exempt: &[IpNet]) -> Result<Vec<Part>, String> {
    let mut parts: Vec<Part> = Vec::new();
    for net in exempt {
        for part in limited {
            let Part::Source(masks, value) = part else { continue };
            let both = match value {
                Some(value) => inner(value, net),
                None => masks.of(net).map(|_| *net),
            };
            let Some(both) = both else { continue };
            let fits = masks.of(&both).is_some_and(|mask| both.prefix_len() <= mask);
            if !fits || (*masks == SOURCE_MASKS && Selector::prefix(both).is_err()) {
                return Err(format!(
                    "{both} is exempt from it, and that is inside of one bucket here: \
                     `limiter allow` takes such sources out of all limits"
                ));
            }
            let part = Part::Source(*masks, Some(both));
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    Ok(parts)
}

fn whole(family: Family) -> IpNet {
    match family {
        Family::V4 => ipnet::Ipv4Net::default().into(),
        Family::V6 => ipnet::Ipv6Net::default().into(),
    }
}

fn fact(fact: Fact, value: Option<u16>) -> Part {
    Part::Fact(fact, value.map(Into::into))
}
