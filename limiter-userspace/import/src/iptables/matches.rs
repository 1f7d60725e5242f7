//! Conditions of iptables.

use std::collections::btree_map::Entry;
use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::header::{Icmp, TCP, Version};
use limiter_rules::model::Fact;

use super::rule::OptionReader;
use crate::packets::{ALL_BUT, BY_FLAGS, Family, Packets, state};
use crate::rate;

/// Reads an option of a match; false if it is unknown.
pub(super) fn option(reading: &mut OptionReader<'_>, word: &str) -> bool {
    match word {
        "-p" | "--protocol" | "--proto" => protocol(reading, word),
        "-s" | "--source" | "--src" => addresses(reading, word, true),
        "-d" | "--destination" | "--dst" => addresses(reading, word, false),
        "-i" | "--in-interface" => interface(reading, word),
        "-o" | "--out-interface" => {
            reading.negated();
            reading.value(word);
            reading
                .packets
                .lacks("the interface that packets leave by is not known before routing");
        }
        "-f" | "--fragment" => {
            reading.negated();
            reading.packets.lacks("`-f`: write a rule with the key `fragment` by hand");
        }
        "--dport"
        | "--destination-port"
        | "--dports"
        | "--destination-ports"
        | "--sport"
        | "--source-port"
        | "--sports"
        | "--source-ports" => ports(reading, word),
        "--ports" => {
            reading.load("multiport");
            reading.negated();
            reading.value(word);
            reading.packets.lacks("--ports asks for either port: write a rule for each by hand");
        }
        "--length" => numbers(reading, word, Fact::PacketLength, range),
        "--ttl-eq" | "--ttl" | "--hl-eq" => numbers(reading, word, Fact::Ttl, one),
        "--ttl-lt" | "--hl-lt" => {
            numbers(reading, word, Fact::Ttl, |text| Some((0, one(text)?.0.checked_sub(1)?)));
        }
        "--ttl-gt" | "--hl-gt" => numbers(reading, word, Fact::Ttl, |text| {
            Some((one(text)?.0.checked_add(1)?, 255)).filter(|(low, _)| *low <= 255)
        }),
        "--dscp" => numbers(reading, word, Fact::Dscp, dscp),
        "--dscp-class" => numbers(reading, word, Fact::Dscp, |text| {
            Fact::Dscp.read(&text.to_ascii_lowercase()).ok().map(|value| (value, value))
        }),
        "--ctorigdstport" | "--ctorigdst" => original(reading, word),
        "--ctdir" => {
            reading.load("conntrack");
            let plain = reading.plain(word);
            match reading.value(word).as_deref() {
                Some("ORIGINAL") if plain => reading.packets.original.way = true,
                _ => reading.packets.lacks("`--ctdir`: limiter does not see replies as such"),
            }
        }
        "--ctproto" => {
            reading.load("conntrack");
            protocol(reading, word);
        }
        "--syn" => {
            load_transport(reading);
            reading.packets.opens = reading.plain(word);
        }
        "--tcp-flags" => flags(reading, word),
        "--icmp-type" | "--icmpv6-type" => icmp(reading, word),
        "--ctstate" => states(reading, word, "conntrack"),
        "--state" => states(reading, word, "state"),
        _ => return false,
    }
    true
}

/// Options of the transport protocol load its module at their position.
fn load_transport(reading: &mut OptionReader<'_>) {
    let name = match reading.packets.protocols.as_deref() {
        Some([TCP]) => "tcp",
        Some([17]) => "udp",
        Some([1 | 58]) => "icmp",
        _ => "transport",
    };
    reading.load(name);
}

fn protocol(reading: &mut OptionReader<'_>, word: &str) {
    let plain = reading.plain(word);
    let Some(name) = reading.value(word).filter(|_| plain) else { return };
    match protocol_number(&name) {
        Some(0) => {}
        Some(number) if reading.packets.protocols.is_none() => {
            reading.packets.protocols = Some(vec![number]);
        }
        _ => reading.packets.lacks(format!("the protocol {name} is not known")),
    }
}

/// Number of a protocol; 0 stands for all.
pub(crate) fn protocol_number(name: &str) -> Option<u8> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "all" | "0" => return Some(0),
        "ipv6-icmp" | "icmp6" => return Some(58),
        "ipencap" => return Some(4),
        "ipv6-auth" => return Some(51),
        "ipv6-crypt" => return Some(50),
        _ => {}
    }
    Fact::Protocol.read(&name).ok().and_then(|number| u8::try_from(number).ok())
}

fn addresses(reading: &mut OptionReader<'_>, word: &str, source: bool) {
    let not = reading.negated();
    let Some(text) = reading.value(word) else { return };
    let nets: Option<Vec<IpNet>> = text.split(',').map(net).collect();
    let Some(mut nets) = nets else {
        return reading.packets.lacks(format!("{text} is no address or prefix"));
    };
    let family = reading.family;
    if nets.iter().any(|net| Family::of(net) != family) {
        return reading.packets.lacks(format!("{text} is of another family than its rule set"));
    }
    let all = nets.iter().any(|net| net.prefix_len() == 0);
    let packets = &mut reading.packets;
    match (not, source) {
        _ if all && not => packets.lacks("it is for no address at all"),
        _ if all => {}
        (true, true) => packets.not_sources.append(&mut nets),
        (true, false) => packets.lacks(format!("`! -d`: {ALL_BUT}")),
        (false, true) => packets.sources = Some(nets),
        (false, false) => packets.destinations = Some(nets),
    }
}

/// Reads an address, a prefix, or an address with a mask.
pub(crate) fn net(text: &str) -> Option<IpNet> {
    let Some((address, mask)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    let address: IpAddr = address.parse().ok()?;
    let net = match mask.parse::<u8>() {
        Ok(length) => IpNet::new(address, length).ok()?,
        Err(_) => IpNet::with_netmask(address, mask.parse().ok()?).ok()?,
    };
    Some(net.trunc())
}

fn interface(reading: &mut OptionReader<'_>, word: &str) {
    let not = reading.negated();
    let Some(name) = reading.value(word) else { return };
    match name.as_str() {
        "lo" if not => reading.not_loopback(),
        "+" if !not => {}
        name if not || name.contains('+') => {
            let which = if not { "all but one" } else { "a pattern" };
            reading.packets.lacks(format!("its interfaces are {which}: limiter has their names"));
        }
        name => reading.packets.interfaces = Some(vec![name.to_owned()]),
    }
}

/// Reads values of a key that rule files have. The option's name begins with its module's.
fn numbers(
    reading: &mut OptionReader<'_>,
    word: &str,
    fact: Fact,
    read: impl Fn(&str) -> Option<(u16, u16)>,
) {
    let module = word.trim_start_matches('-').split('-').next().unwrap_or_default();
    reading.load(module);
    let not = reading.negated();
    let Some(text) = reading.value(word) else { return };
    let Some((low, high)) = read(&text).filter(|(_, high)| fact.most().is_none_or(|m| *high <= m))
    else {
        return reading.packets.lacks(format!("{word} {text} cannot be read"));
    };
    let most = fact.most().unwrap_or(u16::MAX);
    let mut ranges = vec![(low, high)];
    if not {
        ranges.clear();
        ranges.extend(low.checked_sub(1).map(|below| (0, below)));
        ranges.extend((high < most).then(|| (high + 1, most)));
    }
    match reading.packets.facts.entry(fact) {
        Entry::Vacant(entry) if !ranges.is_empty() => {
            entry.insert(ranges);
        }
        _ => reading.packets.lacks(format!("{word} twice in one rule, or for no packet")),
    }
}

/// Reads an eight-bit number.
fn one(text: &str) -> Option<(u16, u16)> {
    rate::whole(text).and_then(|number| u8::try_from(number).ok()).map(|n| (n.into(), n.into()))
}

/// Reads `0x2e` or `46`.
fn dscp(text: &str) -> Option<(u16, u16)> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16).ok()?,
        None => text.parse().ok()?,
    };
    Some((number.into(), number.into()))
}

/// Reads the destination of the first packet of a connection.
fn original(reading: &mut OptionReader<'_>, word: &str) {
    reading.load("conntrack");
    let not = reading.negated();
    let Some(text) = reading.value(word) else { return };
    let family = reading.family;
    let of_first = &mut reading.packets.original;
    let read = if word == "--ctorigdst" {
        let net = net(&text).filter(|net| Family::of(net) == family && net.prefix_len() > 0);
        net.is_some_and(|net| of_first.destinations.replace(vec![net]).is_none())
    } else {
        range(&text).is_some_and(|ports| of_first.ports.replace(vec![ports]).is_none())
    };
    if not || !read {
        reading.packets.lacks(format!("{word} {text} cannot be read, or is negated"));
    }
}

fn ports(reading: &mut OptionReader<'_>, word: &str) {
    if word.ends_with("ports") {
        reading.load("multiport");
    } else {
        load_transport(reading);
    }
    let not = reading.negated();
    let Some(text) = reading.value(word) else { return };
    if not {
        return reading.packets.lacks(format!("`! {word}`: {ALL_BUT}"));
    }
    let ports: Option<Vec<(u16, u16)>> = text.split(',').map(range).collect();
    let packets = &mut reading.packets;
    let source = word.starts_with("--s");
    match ports {
        Some(ports) if source && !packets.facts.contains_key(&Fact::SourcePort) => {
            packets.facts.insert(Fact::SourcePort, ports);
        }
        Some(ports) if !source && packets.ports.is_none() => packets.ports = Some(ports),
        Some(_) => reading.packets.lacks("it names ports twice"),
        None => reading.packets.lacks(format!("the ports {text} cannot be read")),
    }
}

/// Reads `80`, `1000:2000`, `:1023` or `1024:`; names from `/etc/services` are not supported.
fn range(text: &str) -> Option<(u16, u16)> {
    let number = |text: &str, open: u16| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        if text.is_empty() { Some(open) } else { text.parse().ok().filter(|_| digits) }
    };
    let (low, high) = match text.split_once(':') {
        None => (number(text, 0).filter(|_| !text.is_empty())?, None),
        Some((low, high)) => (number(low, 0)?, Some(number(high, u16::MAX)?)),
    };
    let high = high.unwrap_or(low);
    (low <= high).then_some((low, high))
}

/// Reads the mask of flags and the flags to be set. Supported if they mean a SYN without ACK.
fn flags(reading: &mut OptionReader<'_>, word: &str) {
    load_transport(reading);
    let plain = reading.plain(word);
    let (mask, set) = (reading.value(word), reading.value(word));
    let (Some(mask), Some(set), true) = (mask, set, plain) else { return };
    let sorted = |text: &str| {
        let mut flags: Vec<String> = text.split(',').map(str::to_ascii_uppercase).collect();
        flags.sort_unstable();
        flags.join(",")
    };
    if is_opening(&sorted(&mask), &sorted(&set)) {
        reading.packets.opens = true;
    } else {
        reading.packets.lacks(format!("{word} {mask} {set}: {BY_FLAGS}"));
    }
}

/// True for the flags of an attempt to open a connection. Both must be sorted alphabetically.
pub(crate) fn is_opening(mask: &str, set: &str) -> bool {
    set == "SYN" && matches!(mask, "ACK,FIN,RST,SYN" | "ACK,SYN" | "ACK,RST,SYN" | "ACK,FIN,SYN")
}

fn icmp(reading: &mut OptionReader<'_>, word: &str) {
    load_transport(reading);
    let plain = reading.plain(word);
    let Some(text) = reading.value(word).filter(|_| plain) else { return };
    if text == "any" || (text == "255" && word == "--icmp-type") {
        return;
    }
    match icmp_message(&text, reading.family) {
        Some(_) if reading.packets.icmp.is_some() => {
            reading.packets.lacks(format!("{word} twice in one rule"));
        }
        Some(message) => reading.packets.icmp = Some(vec![message]),
        None => {
            reading.packets.lacks(format!("{word} {text}: limiter has types without codes"));
            // Even so, it matches no other type.
            let kind =
                text.split_once('/').and_then(|(kind, _)| icmp_message(kind, reading.family));
            if let Some(message) = kind.filter(|_| reading.packets.icmp.is_none()) {
                reading.packets.icmp = Some(vec![message]);
            }
        }
    }
}

/// Reads an ICMP message: a name, a number, or a number with the only code of that type.
pub(crate) fn icmp_message(text: &str, family: Family) -> Option<u8> {
    let (version, echoes) = match family {
        Family::V4 => (Version::V4, [0, 8]),
        Family::V6 => (Version::V6, [128, 129]),
    };
    let (kind, code) = match text.split_once('/') {
        Some((kind, code)) => (kind, Some(code)),
        None => (text, None),
    };
    if let Ok(kind) = kind.parse::<u8>() {
        let only = code.is_none_or(|code| code == "0" && echoes.contains(&kind));
        // Rule files name a message of both families alike, so a type of only the other family
        // would become another message.
        let message = Icmp { kind, code: 0 }.message(version);
        let others: &[u8] = match family {
            Family::V4 => &[1, 128, 129, 133, 134, 137],
            Family::V6 => &[0, 5, 8, 9, 10, 11, 12],
        };
        return (only && !others.contains(&kind)).then_some(message);
    }
    if code.is_some() {
        return None;
    }
    Fact::IcmpType.read(text).ok().and_then(|number| u8::try_from(number).ok())
}

fn states(reading: &mut OptionReader<'_>, word: &str, module: &str) {
    reading.load(module);
    let not = reading.negated();
    let Some(text) = reading.value(word) else { return };
    let mut names: Vec<_> = text.split(',').collect();
    if module == "conntrack" && names.contains(&"DNAT") {
        if not {
            reading.packets.lacks("`! --ctstate DNAT`: limiter does not see translations");
            return;
        }
        names.retain(|name| *name != "DNAT");
        // Either of them matches: one case for each.
        if names.is_empty() {
            reading.packets.translated = true;
            return;
        }
        reading.or_translated = true;
    }
    if let Some(bits) = state_bits(&names, &mut reading.packets) {
        let bits = if not { state::ALL & !bits } else { bits };
        let both = reading.packets.states.unwrap_or(state::ALL) & bits;
        reading.packets.states = Some(both);
        if both == 0 {
            reading.packets.lacks("its states exclude each other");
        }
    }
}

/// Bits of several states. An unknown name becomes a condition that limiter lacks.
pub(crate) fn state_bits(names: &[&str], packets: &mut Packets) -> Option<u8> {
    let mut bits = 0;
    for name in names {
        let Some(bit) = state::of(name) else {
            packets.lacks(format!("the state {name} of connections is not known"));
            return None;
        };
        bits |= bit;
    }
    Some(bits)
}
