//! An address or prefix, as people write it in rule files and on the command line.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::{IpNet, IpSubnets, Ipv4Subnets, Ipv6Subnets};

use super::model::{Selector, SelectorError};

/// Why a text names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTextError {
    /// Not an address, not a prefix.
    #[error("{0:?} is not an IP address or prefix: {way}", way = meant(.0))]
    Syntax(String),
    /// Not an address.
    #[error("{0:?} is not an IP address: write one like 192.0.2.7 or 2001:db8::1")]
    Address(String),
    /// A prefix that selects nothing.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A prefix of a part of a source.
    #[error(
        "{0}, or for {net} alone a rule with `masked_remote_address` and `v6_prefix_mask_len: {l}`",
        net = .1, l = .1.prefix_len()
    )]
    Part(SelectorError, IpNet),
    /// A prefix with many sources, where one is asked for.
    #[error(
        "{0:?} is more than one source, which is an IPv4 address or an IPv6 /64: name one; \
         `limiter sources --within {0}` lists those in it"
    )]
    Several(String),
}

/// Most prefixes of a range that are reported.
const REPORTED: usize = 6;

/// Advice for a text that is near to an address or prefix.
fn meant(text: &str) -> String {
    near(text)
        .unwrap_or_else(|| "write one like 192.0.2.7, 192.0.2.0/24 or 2001:db8::/48".to_owned())
}

fn near(text: &str) -> Option<String> {
    let address = |text: &str| text.parse::<IpAddr>().ok();
    if let Some((low, high)) = text.split_once('-') {
        let range = match (address(low.trim())?, address(high.trim())?) {
            (IpAddr::V4(low), IpAddr::V4(high)) => IpSubnets::from(Ipv4Subnets::new(low, high, 0)),
            (IpAddr::V6(low), IpAddr::V6(high)) => IpSubnets::from(Ipv6Subnets::new(low, high, 64)),
            _ => return None,
        };
        let prefixes: Vec<String> = range.take(REPORTED + 1).map(|net| net.to_string()).collect();
        let reported = match prefixes.len() {
            0 => return None,
            count if count > REPORTED => "it takes a line for each".to_owned(),
            _ => prefixes.join(", "),
        };
        return Some(format!("a range is written as its prefixes: {reported}"));
    }
    if let Some((first, _)) = text.split_once(',')
        && first.parse::<IpNet>().is_ok() | address(first).is_some()
    {
        return Some(format!(
            "write {first}, and a list without columns: `cut -d, -f1` takes them"
        ));
    }
    if let Some((address, zone)) = text.split_once('%') {
        address.parse::<IpAddr>().ok()?;
        return Some(format!("write {address}; {zone:?} is the key `interface` of a rule"));
    }
    if let Some(inner) = text.strip_prefix('[') {
        let inner = inner.split(']').next()?;
        return address(inner).map(|address| format!("write {address}, without brackets"));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        let (address, port) = (socket.ip(), socket.port());
        return Some(format!("write {address}; a port is --port {port}/tcp"));
    }
    if let Some((first, length)) = text.split_once('/') {
        let first = address(first)?;
        if let Some(mask) = address(length) {
            let net = IpNet::with_netmask(first, mask).ok()?.trunc();
            return Some(format!("write {net}"));
        }
        let most = IpNet::from(first).max_prefix_len();
        length.parse::<u64>().ok().filter(|length| *length > u64::from(most))?;
        return Some(format!("the longest prefix of its family is /{most}"));
    }
    // Some programs read a part with a zero before it as octal.
    let parts: Option<Vec<u8>> = text.split('.').map(|part| part.parse().ok()).collect();
    let [a, b, c, d] = <[u8; 4]>::try_from(parts?).ok()?;
    let plain = Ipv4Addr::new(a, b, c, d);
    Some(format!("zeros before a number may mean octal: write {plain}, if that is meant"))
}

/// Reads an address (IPv4: itself; IPv6: the /64 around it) or a prefix.
pub fn parse(text: &str) -> Result<Selector, SourceTextError> {
    if text.contains('/') {
        let net: IpNet =
            text.parse().map_err(|_source| SourceTextError::Syntax(text.to_owned()))?;
        return Selector::prefix(net).map_err(|error| match error {
            SelectorError::TooLong(..) => SourceTextError::Part(error, net),
            error => error.into(),
        });
    }
    let address: IpAddr =
        text.parse().map_err(|_source| SourceTextError::Syntax(text.to_owned()))?;
    Ok(Selector::address(address))
}

/// Reads one source: an address, or what it is printed as, which for IPv6 is a /64.
pub fn parse_one(text: &str) -> Result<IpAddr, SourceTextError> {
    if !text.contains('/') {
        return parse_address(text);
    }
    match parse(text)? {
        Selector::Prefix(net) if Selector::Prefix(net).is_source() => Ok(net.addr()),
        Selector::Every | Selector::Prefix(_) => Err(SourceTextError::Several(text.to_owned())),
    }
}

/// Reads an address, and no prefix.
pub fn parse_address(text: &str) -> Result<IpAddr, SourceTextError> {
    text.parse().map_err(|_source| SourceTextError::Address(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_sources() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("192.0.2.0/24", "192.0.2.0/24"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("2001:db8::1", "2001:db8::/64"),
            ("2001:db8::/48", "2001:db8::/48"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(parse(text).unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn one_source_may_be_written_as_it_is_printed() {
        for (text, address) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/32", "192.0.2.7"),
            ("2001:db8::/64", "2001:db8::"),
            ("2001:db8::7", "2001:db8::7"),
        ] {
            assert_eq!(parse_one(text).unwrap().to_string(), address, "{text}");
        }
        for source in ["192.0.2.7", "2001:db8::7"] {
            let printed = parse(source).unwrap().to_string();
            assert_eq!(Selector::address(parse_one(&printed).unwrap()).to_string(), printed);
        }
        for (text, message) in [
            (
                "192.0.2.0/24",
                "\"192.0.2.0/24\" is more than one source, which is an IPv4 address or an IPv6 \
                 /64: name one; `limiter sources --within 192.0.2.0/24` lists those in it",
            ),
            (
                "2001:db8::/48",
                "\"2001:db8::/48\" is more than one source, which is an IPv4 address or an IPv6 \
                 /64: name one; `limiter sources --within 2001:db8::/48` lists those in it",
            ),
            (
                "2001:db8::7/128",
                "2001:db8::7/128 is longer than /64, and an IPv6 source is a /64: write \
                 2001:db8::/64, or for 2001:db8::7/128 alone a rule with `masked_remote_address` \
                 and `v6_prefix_mask_len: 128`",
            ),
            ("2001:db8::7/64", "2001:db8::7/64 has host bits set: write 2001:db8::/64"),
            (
                "every source",
                "\"every source\" is not an IP address: write one like 192.0.2.7 or 2001:db8::1",
            ),
        ] {
            assert_eq!(parse_one(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn refusals_name_the_remedy() {
        for (text, message) in [
            ("192.0.2.7/24", "192.0.2.7/24 has host bits set: write 192.0.2.0/24"),
            (
                "2001:db8::1/128",
                "2001:db8::1/128 is longer than /64, and an IPv6 source is a /64: write \
                 2001:db8::/64, or for 2001:db8::1/128 alone a rule with `masked_remote_address` \
                 and `v6_prefix_mask_len: 128`",
            ),
            (
                "300.0.0.1",
                "\"300.0.0.1\" is not an IP address or prefix: write one like 192.0.2.7, \
                 192.0.2.0/24 or 2001:db8::/48",
            ),
            (
                "10.0.0.0/33",
                "\"10.0.0.0/33\" is not an IP address or prefix: the longest prefix of its family \
                 is /32",
            ),
            (
                "10.0.0.1-10.0.0.9",
                "\"10.0.0.1-10.0.0.9\" is not an IP address or prefix: a range is written as its \
                 prefixes: 10.0.0.1/32, 10.0.0.2/31, 10.0.0.4/30, 10.0.0.8/31",
            ),
            (
                "10.0.0.1-10.9.7.5",
                "\"10.0.0.1-10.9.7.5\" is not an IP address or prefix: a range is written as its \
                 prefixes: it takes a line for each",
            ),
            (
                "10.0.0.7/255.255.255.0",
                "\"10.0.0.7/255.255.255.0\" is not an IP address or prefix: write 10.0.0.0/24",
            ),
            (
                "010.0.0.1",
                "\"010.0.0.1\" is not an IP address or prefix: zeros before a number may mean \
                 octal: write 10.0.0.1, if that is meant",
            ),
            (
                "[2001:db8::1]",
                "\"[2001:db8::1]\" is not an IP address or prefix: write 2001:db8::1, without \
                 brackets",
            ),
            (
                "fe80::1%eth0",
                "\"fe80::1%eth0\" is not an IP address or prefix: write fe80::1; \"eth0\" is the \
                 key `interface` of a rule",
            ),
            (
                "192.0.2.7:22",
                "\"192.0.2.7:22\" is not an IP address or prefix: write 192.0.2.7; a port is \
                 --port 22/tcp",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
