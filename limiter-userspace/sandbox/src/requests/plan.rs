//! The senders, their paths and their speed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::oracle::Limit;

/// Refused log-ins for which a source is banned.
const STRIKES: u32 = 10;

/// Addresses of its /64 that an IPv6 source uses in turn.
const HOSTS: u16 = 4;

/// Path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Limited path.
    Search,
    /// Limited path, with a ban for sources that do not stop.
    Login,
}

impl Path {
    /// Text of the path in requests and in the rules.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Search => "/search",
            Self::Login => "/login",
        }
    }

    const fn per_second_and_burst(self) -> (u32, u32) {
        match self {
            Self::Search => (20, 10),
            Self::Login => (5, 5),
        }
    }

    /// The limit of each source.
    pub fn limit(self) -> Limit {
        let (rate, burst) = self.per_second_and_burst();
        Limit::per_second(rate.into(), burst)
    }

    /// The limit, for the table.
    pub fn limit_text(self) -> String {
        let (rate, burst) = self.per_second_and_burst();
        format!("{rate}/s, burst {burst}")
    }
}

/// The rules of `limiter serve`.
pub fn rules() -> String {
    let of = |path: Path| {
        let (rate, burst) = path.per_second_and_burst();
        format!(
            "  - key: path\n    value: {}\n    descriptors:\n      - key: remote_address\n        \
             rate_limit: {{rate: {rate}/s, burst: {burst}}}\n",
            path.text()
        )
    };
    format!(
        "domain: site\ncheck:\n  - [{{key: path, header: X-Path}}, {{key: remote_address, header: \
         X-Real-IP}}]\ndescriptors:\n{}{}        action: {{ban: {{first: 1h, longest: 1h, \
         strikes: {STRIKES}}}}}\n",
        of(Path::Search),
        of(Path::Login),
    )
}

/// Behaviour of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Stays within its limit.
    Within,
    /// Sends three times its limit.
    Over,
    /// Is quiet, then sends more than its burst, one request after another.
    Bursting,
    /// Sends eight times its limit on the path with a ban.
    Banned,
}

impl Role {
    /// Text for the table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Within => "within its limit",
            Self::Over => "3 x its limit",
            Self::Bursting => "bursting",
            Self::Banned => "8 x its limit",
        }
    }

    /// Name for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Over => "over",
            Self::Bursting => "bursting",
            Self::Banned => "banned",
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sender {
    /// Behaviour of the sender.
    pub role: Role,
    /// Path that the sender asks for.
    pub path: Path,
    /// Addresses that the sender uses in turn: one source for the limiter.
    pub addresses: Vec<IpAddr>,
}

impl Sender {
    /// The source as text for a reader.
    pub fn text(&self) -> String {
        match self.addresses.first() {
            Some(IpAddr::V6(first)) => {
                let net = Ipv6Addr::from_bits(first.to_bits() >> 64 << 64);
                format!("{net}/64")
            }
            Some(first) => first.to_string(),
            None => String::new(),
        }
    }

    /// Requests in a turn, and the time from one turn to the next.
    pub fn pace(&self) -> (u32, Duration) {
        let (rate, burst) = self.path.per_second_and_burst();
        let per = Duration::from_secs(1) / rate;
        match self.role {
            Role::Within => (1, per * 5 / 4),
            Role::Over => (1, per / 3),
            Role::Banned => (1, per / 8),
            Role::Bursting => (burst + burst / 2, per * burst * 5 / 4),
        }
    }
}

/// All senders.
pub fn senders() -> Vec<Sender> {
    let v4 = |last| vec![IpAddr::from(Ipv4Addr::new(203, 0, 113, last))];
    let v6 = (1..=HOSTS).map(|host| Ipv6Addr::new(0x2001, 0xdb8, 6, 1, 0, 0, 0, host).into());
    [
        (Role::Within, Path::Search, v4(10)),
        (Role::Over, Path::Search, v4(20)),
        (Role::Bursting, Path::Search, v4(30)),
        (Role::Over, Path::Search, v6.collect()),
        (Role::Within, Path::Login, v4(40)),
        (Role::Banned, Path::Login, v4(50)),
    ]
    .map(|(role, path, addresses)| Sender { role, path, addresses })
    .into()
}
