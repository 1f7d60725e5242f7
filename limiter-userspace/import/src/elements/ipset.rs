//! The output of `ipset save`.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::Elements;
use crate::error::ImportError;
use crate::iptables::net;
use crate::iptables::words::words;

/// Set types whose elements are sources, with their names before version 6.
const TYPES: [&str; 7] =
    ["hash:ip", "hash:net", "bitmap:ip", "iphash", "nethash", "ipmap", "iptree"];

/// Options of an element that have a value but no effect here.
const WITH_VALUE: [&str; 6] = ["packets", "bytes", "comment", "skbmark", "skbprio", "skbqueue"];

/// The most prefixes for a range of addresses.
const MOST_OF_RANGE: usize = 256;

struct Made {
    list: Elements,
    of_sources: bool,
    timeout: Option<u64>,
    netmask: Option<u8>,
}

/// Reads the sets of a text. With `wanted`, only this one.
pub(crate) fn read(text: &str, wanted: Option<&str>) -> Result<Vec<Elements>, ImportError> {
    let mut order = Vec::new();
    let mut sets: BTreeMap<String, Made> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let refused = |what: &str| ImportError::Line {
            line: number,
            what: what.to_owned(),
            remedy: "give the output of `ipset save`",
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let words = words(line).map_err(|_open| refused("a quote is not closed"))?;
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["create" | "-N", name, kind, options @ ..] => {
                let made = made(name, kind, options);
                if sets.insert((*name).to_owned(), made).is_none() {
                    order.push((*name).to_owned());
                }
            }
            ["add" | "-A", name, element, options @ ..] => {
                let set =
                    sets.get_mut(*name).ok_or_else(|| refused("its set was not made before"))?;
                if set.of_sources {
                    add(set, number, line, element, options);
                }
            }
            ["COMMIT"] => {}
            _ => return Err(refused("it neither makes a set nor adds to one")),
        }
    }
    chosen(&order, sets, wanted)
}

fn chosen(
    order: &[String],
    mut sets: BTreeMap<String, Made>,
    wanted: Option<&str>,
) -> Result<Vec<Elements>, ImportError> {
    let names: Vec<&str> = order.iter().map(String::as_str).collect();
    let names = limiter_text::plain::clean(&names.join(", "));
    if let Some(wanted) = wanted {
        let set = sets.remove(wanted);
        let set = set.ok_or_else(|| ImportError::NoSet(wanted.to_owned(), names))?;
        return Ok(vec![set.list]);
    }
    let of_sources = sets.values().filter(|set| set.of_sources).count();
    if of_sources > 1 {
        return Err(ImportError::Sets(names));
    }
    if sets.is_empty() {
        return Err(ImportError::Empty);
    }
    Ok(order.iter().filter_map(|name| sets.remove(name)).map(|set| set.list).collect())
}

fn made(name: &str, kind: &str, options: &[&str]) -> Made {
    let after = |option: &str| {
        let at = options.iter().position(|word| *word == option)?;
        options.get(at + 1).and_then(|value| value.parse::<u64>().ok())
    };
    let mut list = Elements::named(&format!("set {name}"));
    let masked = options.contains(&"bitmask");
    let of_sources = TYPES.contains(&kind) && !masked;
    if !of_sources {
        let reason = if masked {
            "its bitmask makes of each element more than is written"
        } else {
            "its elements are more than sources: limiter denies sources"
        };
        list.refuse(format!("set {name}"), &format!("create {name} {kind}"), reason);
    }
    // 0 means for ever.
    let timeout = after("timeout").filter(|seconds| *seconds > 0);
    let netmask = after("netmask").and_then(|bits| u8::try_from(bits).ok());
    Made { list, of_sources, timeout, netmask }
}

fn add(set: &mut Made, number: usize, line: &str, element: &str, options: &[&str]) {
    let place = format!("line {number}");
    let mut timeout = set.timeout;
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match *option {
            "timeout" => match options.next().and_then(|seconds| seconds.parse::<u64>().ok()) {
                Some(0) => timeout = None,
                Some(seconds) => timeout = Some(seconds),
                None => return set.list.refuse(place, line, "its timeout cannot be read"),
            },
            "nomatch" => {
                let reason =
                    "it takes these sources out of a wider prefix: `limiter allow` does that";
                return set.list.refuse(place, line, reason);
            }
            option if WITH_VALUE.contains(&option) => {
                options.next();
            }
            option => {
                return set.list.refuse(place, line, format!("{option} is not known"));
            }
        }
    }
    let Some(nets) = nets(element, set.netmask) else {
        return set.list.refuse(place, line, "it is no address or prefix");
    };
    if nets.iter().any(|net| net.prefix_len() == 0) {
        return set.list.refuse(place, line, "it is a whole address family");
    }
    for net in nets {
        set.list.add(net, timeout);
    }
}

/// The prefixes of an element: an address, a prefix or a range. `netmask` is the set's.
fn nets(element: &str, netmask: Option<u8>) -> Option<Vec<IpNet>> {
    if let Some((low, high)) = element.split_once('-') {
        let (low, high) = (low.parse().ok()?, high.parse().ok()?);
        let found: Vec<IpNet> = ipnet::Ipv4Subnets::new(low, high, 0)
            .take(MOST_OF_RANGE + 1)
            .map(IpNet::from)
            .collect();
        return (netmask.is_none() && !found.is_empty() && found.len() <= MOST_OF_RANGE)
            .then_some(found);
    }
    let found = net(element)?;
    let found = match netmask {
        Some(bits) if !element.contains('/') => IpNet::new(found.addr(), bits).ok()?.trunc(),
        _ => found,
    };
    Some(vec![found])
}
