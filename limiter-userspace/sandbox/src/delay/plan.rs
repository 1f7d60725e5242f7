//! The rules of the run, and the speed of each sender.

use std::net::Ipv4Addr;
use std::time::Duration;

use super::traffic::Pace;
use crate::oracle::Limit;

/// Datagrams a second to each address, and datagrams at once.
const RATE: u32 = 200;
const BURST: u32 = 10;

/// Longest wait of a datagram.
pub const LONGEST: Duration = Duration::from_millis(250);

/// Steps in which limiter keeps a longest wait, in nanoseconds.
const STEP: u128 = 1 << 16;

/// Address of the TCP stream that waits.
pub const WAITING: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 70);
/// Address of the TCP stream whose packets over the limit are dropped.
pub const DROPPING: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 130);

/// Bits a second of each TCP stream.
pub const STREAM: u64 = 20_000_000;

/// All addresses.
pub const NETWORK: &str = "203.0.113.0/24";

/// The rules of limiter.
pub fn rules() -> String {
    let rule = |network: &str, limit: &str, action: &str| {
        format!(
            "  - key: remote_address\n    value: {network}\n    direction: out\n    rate_limit: \
             {{{limit}}}\n    action: {action}\n"
        )
    };
    let longest = LONGEST.as_millis();
    let stream = "rate: 20mbit/s, burst: 20kB";
    let datagrams = format!("name: datagrams, rate: {RATE}/s, burst: {BURST}");
    [
        "descriptors:\n".to_owned(),
        rule("203.0.113.0/26", &datagrams, &format!("{{delay: {{longest: {longest}ms}}}}")),
        rule("203.0.113.64/26", stream, "{delay: {longest: 200ms}}"),
        rule("203.0.113.128/26", stream, "drop"),
    ]
    .concat()
}

/// The limit of datagrams.
pub fn limit() -> Limit {
    Limit::per_second(RATE.into(), BURST)
}

/// [`LONGEST`] as limiter keeps it: rounded down to its steps.
pub fn kept() -> Duration {
    let nanos = LONGEST.as_nanos() / STEP * STEP;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Behaviour of a sender of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Stays within its limit.
    Within,
    /// Sends more than its burst at once, but less than may wait.
    Bursting,
    /// Sends three times its limit.
    Over,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Within, Self::Bursting, Self::Over];

    /// Text for the table.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Within => "within its limit",
            Self::Bursting => "bursting",
            Self::Over => "3 x its limit",
        }
    }

    /// Name for JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Within => "within",
            Self::Bursting => "bursting",
            Self::Over => "over",
        }
    }

    /// Address that the sender sends to.
    pub const fn target(self) -> Ipv4Addr {
        let last = match self {
            Self::Within => 10,
            Self::Bursting => 20,
            Self::Over => 30,
        };
        Ipv4Addr::new(203, 0, 113, last)
    }

    /// Speed of the sender.
    pub fn pace(self) -> Pace {
        let per = Duration::from_secs(1) / RATE;
        match self {
            Self::Within => Pace { each: 1, every: per * 5 / 4 },
            Self::Bursting => Pace { each: 4 * BURST, every: per * 5 * BURST },
            Self::Over => Pace { each: 1, every: per / 3 },
        }
    }
}
