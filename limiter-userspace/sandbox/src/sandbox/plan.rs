//! The senders of the sandbox. The addresses are fixed; how fast each sends follows from its
//! limit in the rule file, so that a changed file is measured just as well.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::generator::{Pattern, Stream};
use crate::packet::Frame;
use crate::receiver::{End, masked};
use crate::sandbox::rules::{Count, Rule, Rules};
use crate::veth::{RECEIVER, SENDER};

const SPOOFED: u32 = 30_000;

/// The flood's cap. Above it, two CPUs would measure themselves.
const FLOOD_PER_SECOND: u32 = 50_000;

/// Fastest single source that one sender can pace beside the others.
const FASTEST: f64 = 20_000.0;

/// Share of its limit that a conforming source uses.
const WITHIN: f64 = 0.8;
const OVER: f64 = 3.0;

/// Frame lengths under a limit in packets and in bytes.
const SMALL: usize = 80;
const LARGE: usize = 500;

/// Addresses of its /64 that an IPv6 source uses in turn.
const HOSTS: u16 = 16;

/// Which way the packets go past the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Direction {
    /// From many sources to the machine with the limiter.
    In,
    /// From the machine with the limiter to many destinations.
    Out,
}

impl Direction {
    /// The end of a frame that has limits.
    pub fn end(self) -> End {
        match self {
            Self::In => End::Source,
            Self::Out => End::Destination,
        }
    }
}

/// How a source behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Stays within its limit.
    Conforming,
    /// Sends three times its limit.
    Over,
    /// Is quiet, then sends more than its burst at once.
    Bursting,
    /// Many spoofed sources.
    Flood,
}

impl Role {
    /// For the table.
    pub fn text(self) -> &'static str {
        match self {
            Self::Conforming => "within its limit",
            Self::Over => "3 x its limit",
            Self::Bursting => "bursting",
            Self::Flood => "spoofed flood",
        }
    }

    /// For JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Conforming => "conforming",
            Self::Over => "over",
            Self::Bursting => "bursting",
            Self::Flood => "flood",
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug)]
pub struct Sender {
    /// Role of the sender.
    pub role: Role,
    /// Sources as the limiter sees them: one, or all of the flood.
    pub sources: Vec<IpAddr>,
    /// Rule of the sources.
    pub rule: Rule,
    /// Units that one frame costs under the rule.
    pub cost: u32,
    /// Frames that the sender sends.
    pub stream: Stream,
    /// The source for a reader.
    pub text: String,
    /// Which way its frames go: out, the sources are destinations.
    pub direction: Direction,
}

/// Everybody who sends.
///
/// # Errors
///
/// When a source has no limit in the rule file or one that cannot be measured here.
pub fn senders(rules: &Rules, direction: Direction) -> Result<Vec<Sender>> {
    let v4 = |last| IpAddr::from(Ipv4Addr::new(203, 0, 113, last));
    let v6 = |subnet| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 6, subnet, 0, 0, 0, 1));
    [
        (Role::Conforming, v4(10)),
        (Role::Over, v4(20)),
        (Role::Bursting, v4(30)),
        (Role::Conforming, v6(1)),
        (Role::Over, v6(2)),
        (Role::Flood, IpAddr::from(Ipv4Addr::new(198, 18, 0, 0))),
    ]
    .into_iter()
    .map(|(role, first)| {
        sender(rules, direction, role, first)
            .with_context(|| format!("the sandbox cannot send from {first}"))
    })
    .collect()
}

fn sender(rules: &Rules, direction: Direction, role: Role, first: IpAddr) -> Result<Sender> {
    let limited = rules.of(first).context("the rule file has no limit for it")?.clone();
    let length = if limited.count == Count::Bytes { LARGE } else { SMALL };
    let sources: Vec<IpAddr> = match (role, first) {
        (Role::Flood, IpAddr::V4(first)) => {
            (0..SPOOFED).map(|n| Ipv4Addr::from_bits(first.to_bits() + n).into()).collect()
        }
        _ => vec![masked(first)],
    };
    for source in [sources.first(), sources.last()].into_iter().flatten() {
        ensure!(rules.of(*source) == Some(&limited), "{source} has another rule");
    }
    let frame = |address, length| frame(direction, address, length);
    let frames: Vec<Vec<u8>> = match first {
        IpAddr::V4(_) => sources.iter().map(|source| frame(*source, length)).collect(),
        IpAddr::V6(first) => (0..HOSTS)
            .map(|n| frame(Ipv6Addr::from_bits(first.to_bits() + u128::from(n)).into(), length))
            .collect(),
    };
    let cost = if limited.count == Count::Bytes { u32::try_from(length)? } else { 1 };
    let pattern = pattern(role, &limited, cost)?;
    let text = match (role, &limited.prefix) {
        (Role::Flood, Some(prefix)) => format!("{SPOOFED} in {prefix}"),
        (Role::Flood, None) => format!("{SPOOFED} from {first}"),
        (_, _) if first.is_ipv6() => format!("{}/64", masked(first)),
        (_, _) => first.to_string(),
    };
    let stream = Stream { frames, pattern };
    Ok(Sender { role, sources, rule: limited, cost, stream, text, direction })
}

fn pattern(role: Role, limited: &Rule, cost: u32) -> Result<Pattern> {
    let burst = limited.limit.burst / cost;
    ensure!(burst > 0, "the burst of `{}` is smaller than one frame", limited.text);
    #[expect(clippy::cast_precision_loss, reason = "rates this high are refused below")]
    let rate = limited.limit.units as f64 / limited.limit.per.as_secs_f64() / f64::from(cost);
    let paced = |factor: f64| -> Result<Pattern> {
        let per_second = rate * factor;
        ensure!(
            (1.0..=FASTEST).contains(&per_second),
            "`{}` asks for {per_second:.1} frames a second, the sandbox sends 1 to {FASTEST}",
            limited.text
        );
        Ok(Pattern::Paced { per_second })
    };
    Ok(match role {
        Role::Conforming => paced(WITHIN)?,
        Role::Over => paced(OVER)?,
        Role::Bursting => {
            let refill = f64::from(burst) / rate;
            ensure!(refill <= 5.0, "`{}` takes {refill:.0} s to refill, over 5 s", limited.text);
            ensure!(burst <= 5000, "`{}` has a burst over 5000 frames", limited.text);
            // More than a refill apart, so that no frame is on the edge of its bucket.
            Pattern::Burst {
                frames: burst + burst.div_ceil(2),
                every: Duration::from_secs_f64(refill * 1.25),
            }
        }
        Role::Flood => Pattern::Flood { per_second: FLOOD_PER_SECOND },
    })
}

/// A UDP frame of a length, from an address to the receiver's discard port, or from the sender to
/// the discard port of the address.
fn frame(direction: Direction, address: IpAddr, length: usize) -> Vec<u8> {
    let empty = match (direction, address) {
        (Direction::In, IpAddr::V4(source)) => Frame::ipv4(source.octets(), RECEIVER.ipv4.octets()),
        (Direction::In, IpAddr::V6(source)) => Frame::ipv6(source.octets(), RECEIVER.ipv6.octets()),
        (Direction::Out, IpAddr::V4(target)) => Frame::ipv4(SENDER.ipv4.octets(), target.octets()),
        (Direction::Out, IpAddr::V6(target)) => Frame::ipv6(SENDER.ipv6.octets(), target.octets()),
    };
    let payload = length.saturating_sub(empty.build().len());
    empty.payload(&vec![0; payload]).build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn example(direction: Direction) -> Vec<Sender> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sandbox.yaml");
        senders(&Rules::read(&path).expect("valid"), direction).expect("valid")
    }

    #[test]
    fn every_frame_has_the_address_of_its_sender_and_its_cost() {
        let both = [Direction::In, Direction::Out].map(example);
        for sender in both.into_iter().flatten() {
            for (n, frame) in sender.stream.frames.iter().enumerate() {
                let source = sender.direction.end().address(frame).expect("IP");
                assert_eq!(source, sender.sources[n % sender.sources.len()], "{}", sender.text);
                if sender.rule.count == Count::Bytes {
                    assert_eq!(frame.len(), sender.cost as usize);
                }
            }
        }
    }

    #[test]
    fn the_example_has_every_kind_of_sender() {
        let senders = example(Direction::In);
        for role in [Role::Conforming, Role::Over, Role::Bursting, Role::Flood] {
            assert!(senders.iter().any(|sender| sender.role == role), "{role:?}");
        }
        assert!(senders.iter().any(|sender| sender.sources[0].is_ipv6()));
        assert!(senders.iter().any(|sender| sender.sources.len() >= 10_000));
    }
}
