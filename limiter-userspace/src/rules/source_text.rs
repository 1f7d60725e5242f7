//! An address or prefix, as people write it in rule files and on the command line.

use std::net::IpAddr;

use ipnet::IpNet;

use super::model::{Selector, SelectorError};

/// Why a text names no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceTextError {
    /// Not an address, not a prefix.
    #[error(
        "{0:?} is not an IP address or prefix: write one like 192.0.2.7, 192.0.2.0/24 or \
         2001:db8::/48"
    )]
    Syntax(String),
    /// Not an address.
    #[error("{0:?} is not an IP address: write one like 192.0.2.7 or 2001:db8::1")]
    Address(String),
    /// A prefix that selects nothing.
    #[error(transparent)]
    Selector(#[from] SelectorError),
    /// A prefix with many sources, where one is asked for.
    #[error(
        "{0:?} is more than one source, which is an IPv4 address or an IPv6 /64: name one; \
         `limiter sources --within {0}` lists those in it"
    )]
    Several(String),
}

/// Reads an address (IPv4: itself; IPv6: the /64 around it) or a prefix.
pub fn parse(text: &str) -> Result<Selector, SourceTextError> {
    if text.contains('/') {
        let net: IpNet =
            text.parse().map_err(|_source| SourceTextError::Syntax(text.to_owned()))?;
        return Ok(Selector::prefix(net)?);
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
                 2001:db8::/64",
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
                 2001:db8::/64",
            ),
            (
                "300.0.0.1",
                "\"300.0.0.1\" is not an IP address or prefix: write one like 192.0.2.7, \
                 192.0.2.0/24 or 2001:db8::/48",
            ),
            (
                "10.0.0.0/33",
                "\"10.0.0.0/33\" is not an IP address or prefix: write one like 192.0.2.7, \
                 192.0.2.0/24 or 2001:db8::/48",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }
}
