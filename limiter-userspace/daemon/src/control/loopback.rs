//! Addresses that only this machine reaches, and their names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A loopback address and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loopback(SocketAddr);

/// Reason why a text is not a [`Loopback`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLoopback {
    /// The text is not an address with a port.
    #[error("write a loopback address and a port, as in 127.0.0.1:9465 or [::1]:9465")]
    Malformed,
    /// Others may reach the address.
    #[error(
        "others may reach {0}, and the page has no password: give 127.0.0.1:{1} or [::1]:{1}, and \
         from another machine open it through `ssh -L {1}:127.0.0.1:{1} HOST`"
    )]
    Reachable(IpAddr, u16),
}

impl Loopback {
    /// The address and the port.
    pub const fn address(self) -> SocketAddr {
        self.0
    }
}

impl FromStr for Loopback {
    type Err = NoLoopback;

    fn from_str(text: &str) -> Result<Self, NoLoopback> {
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Err(NoLoopback::Malformed);
        };
        if address.ip().is_loopback() {
            Ok(Self(address))
        } else {
            Err(NoLoopback::Reachable(address.ip(), address.port()))
        }
    }
}

impl fmt::Display for Loopback {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// Returns true if a `Host` header names this machine by a loopback address or `localhost`, with
/// the given port if it is known. Any other name may belong to a site that points it here.
pub(super) fn is_named_by(host: &str, port: Option<u16>) -> bool {
    // Brackets surround an IPv6 address.
    let split = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']'));
    let (name, named) = match split {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host, Some(80)),
    };
    let here = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|at: Ipv6Addr| at.is_loopback()),
        None => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|at: std::net::Ipv4Addr| at.is_loopback())
        }
    };
    here && named.is_some() && (port.is_none() || port == named)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody may read over the page's port what the socket does not let them read.
    #[test]
    fn addresses_that_others_reach_are_refused() {
        for good in ["127.0.0.1:9465", "127.3.2.1:0", "[::1]:80"] {
            assert_eq!(good.parse::<Loopback>().unwrap().to_string(), good);
        }
        for reachable in ["0.0.0.0:9465", "192.0.2.1:9465", "[::]:9465", "[::ffff:127.0.0.1]:1"] {
            let error = reachable.parse::<Loopback>().unwrap_err();
            assert!(matches!(error, NoLoopback::Reachable(..)), "{reachable}");
            assert!(error.to_string().contains("ssh -L"), "{error}");
        }
        for malformed in ["", "9465", "127.0.0.1", "localhost:9465", "127.0.0.1:65536"] {
            assert_eq!(malformed.parse::<Loopback>(), Err(NoLoopback::Malformed), "{malformed}");
        }
    }

    /// No site may read through a name of its own that points to this machine.
    #[test]
    fn a_host_is_this_machine_or_a_site() {
        for here in ["localhost:9465", "LOCALHOST:9465", "127.0.0.1:9465", "[::1]:9465"] {
            assert!(is_named_by(here, Some(9465)) && is_named_by(here, None), "{here}");
            assert!(!is_named_by(here, Some(9466)), "{here}");
        }
        for here in ["localhost", "127.1.2.3", "[::1]"] {
            assert!(is_named_by(here, Some(80)) && is_named_by(here, None), "{here}");
            assert!(!is_named_by(here, Some(9465)), "{here}");
        }
        for other in [
            "",
            ":9465",
            "evil.example:9465",
            "localhost.evil.example:9465",
            "localhost.:9465",
            "127.0.0.1.evil.example:9465",
            "192.0.2.1:9465",
            "0.0.0.0:9465",
            "[::]:9465",
            "::1:9465",
            "[::1:9465",
            "localhost:",
            "localhost:x",
            "localhost:9465:9465",
            "user@localhost:9465",
            "localhost:9465/",
            "[::1]x:9465",
            "[localhost]:9465",
        ] {
            assert!(!is_named_by(other, None), "{other}");
            assert!(!is_named_by(other, Some(9465)), "{other}");
        }
    }
}
