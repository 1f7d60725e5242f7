//! Packets around the limit of a rule: which, how many, and when.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_common::verdict::Verdict;
use limiter_common::wire::Count;

use limiter_model::{Framing, Model};
use limiter_rules::model::{Fact, Limits, Meter, Part, Values};
use limiter_rules::{Environment, Installed, Path, RuleSet};

use crate::interrupt::Interrupt;
use crate::packet::MAX_FRAME;
use crate::packet::{Frame, Transport};
use crate::packet_socket::PacketSocket;
use crate::veth::RECEIVER;

/// Frames of one load at most.
const MOST: f64 = 20_000.0;

/// How long a load lasts, and the least that it may.
const LASTS: f64 = 1.0;
const LEAST: f64 = 0.05;

/// Bytes behind the headers, where packets are counted, and where bytes are.
const SMALL: usize = 18;
const LARGE: usize = 958;

/// Sources and destinations of packets that a rule says nothing of.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0x77);
const BEYOND_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const BEYOND_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

const SYN: u8 = 2;
const TCP: u16 = 6;
const UDP: u16 = 17;

/// A load, by what it offers of what a limit lets pass in its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    Burst,
    Below,
    At,
    Twice,
    Tenfold,
}

impl Load {
    pub(super) const ALL: [Self; 5] =
        [Self::Burst, Self::Below, Self::At, Self::Twice, Self::Tenfold];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Burst => "burst from silence",
            Self::Below => "half",
            Self::At => "at the limit",
            Self::Twice => "2 x",
            Self::Tenfold => "10 x",
        }
    }

    const fn factor(self) -> f64 {
        match self {
            Self::Below => 0.5,
            Self::At => 1.0,
            Self::Burst | Self::Twice => 2.0,
            Self::Tenfold => 10.0,
        }
    }
}

/// Packets of a rule.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) forwarded: bool,
    interface: Option<String>,
    protocol: u16,
    port: u16,
    icmp: Option<u8>,
    payload: usize,
    /// Packets at once, and in a second.
    burst: f64,
    rate: f64,
}

/// A frame, and when it is sent.
pub(super) type Schedule = Vec<(Duration, Vec<u8>)>;

impl Traffic {
    /// Traffic that falls under a rule.
    ///
    /// # Errors
    ///
    /// Why there is none.
    pub(super) fn new(path: &Path, limits: &Limits, forwarded: bool) -> Result<Self, String> {
        let fact = |wanted: Fact| {
            path.0.iter().find_map(|part| match part {
                Part::Fact(fact, value) if *fact == wanted => Some(value.map(Values::low)),
                _ => None,
            })
        };
        for part in path.0.iter() {
            let is_made = match part {
                Part::Source(..) | Part::Destination(_) | Part::Interface(_) => true,
                Part::Fact(fact, _) => {
                    matches!(fact, Fact::DestinationPort | Fact::Protocol | Fact::IcmpType)
                }
                Part::Inner(_) => false,
            };
            if !is_made {
                return Err(format!("packets with {} are not made here", part.key()));
            }
        }
        let counts: Vec<Count> = limits.limits.iter().map(|l| l.meter.quota().count).collect();
        let icmp = fact(Fact::IcmpType).map(|kind| kind.unwrap_or(8));
        let protocol = match fact(Fact::Protocol).flatten() {
            Some(protocol) => protocol,
            None if icmp.is_some() => 1,
            None if counts.contains(&Count::Syns) => TCP,
            None => UDP,
        };
        let prefixes = path.0.iter().filter_map(|part| match part {
            Part::Source(_, net) | Part::Destination(net) => *net,
            _ => None,
        });
        let mut is_v6 = protocol == 58;
        for net in prefixes {
            is_v6 |= matches!(net, IpNet::V6(_));
        }
        if let Some((masks, None)) = path.source() {
            is_v6 |= masks.v4.is_none();
        }
        let source = path.source().and_then(|(_, net)| net).filter(|net| net.prefix_len() > 0);
        let source = source.map(first);
        let destination = path.0.iter().find_map(|part| match part {
            Part::Destination(net) => net.filter(|net| net.prefix_len() > 0).map(first),
            _ => None,
        });
        let [from, to, beyond]: [IpAddr; 3] = if is_v6 {
            [SOURCE_V6.into(), RECEIVER.ipv6.into(), BEYOND_V6.into()]
        } else {
            [SOURCE_V4.into(), RECEIVER.ipv4.into(), BEYOND_V4.into()]
        };
        let icmp = match icmp {
            None => None,
            Some(kind) => {
                Some(u8::try_from(kind).map_err(|error| format!("ICMP {kind}: {error}"))?)
            }
        };
        let payload = if counts.contains(&Count::Bytes) { LARGE } else { SMALL };
        let interface = path.0.iter().find_map(|part| match part {
            Part::Interface(name) => name.clone(),
            _ => None,
        });
        let mut traffic = Self {
            source: source.unwrap_or(from),
            destination: destination.unwrap_or(if forwarded { beyond } else { to }),
            forwarded,
            interface,
            protocol,
            port: fact(Fact::DestinationPort).flatten().unwrap_or(9),
            icmp,
            payload,
            burst: f64::MAX,
            rate: f64::MAX,
        };
        #[expect(clippy::cast_precision_loss, reason = "limits of rules are far under 2^52")]
        for limit in limits.limits.iter() {
            let quota = limit.meter.quota();
            let unit = match quota.count {
                Count::Bytes => traffic.frame(0).len() as f64,
                Count::Packets | Count::Syns | Count::Flows => 1.0,
            };
            let requests = quota.requests_per_unit as f64 / unit;
            let rate = requests / quota.period.seconds() as f64;
            let burst = match &limit.meter {
                Meter::TokenBucket(bucket) => bucket.burst as f64 / unit,
                Meter::LeakyBucket { backlog, .. } => rate.mul_add(backlog.as_secs_f64(), 1.0),
                _ => requests,
            };
            traffic.burst = traffic.burst.min(burst);
            traffic.rate = traffic.rate.min(rate);
        }
        Ok(traffic)
    }

    /// Name of the interface that the packets come in by.
    pub(super) fn interface(&self) -> String {
        self.interface.clone().unwrap_or_else(|| "eth0".to_owned())
    }

    /// The frame of a number: each has ports or an id of its own, so that none belongs to a
    /// connection.
    fn frame(&self, number: usize) -> Vec<u8> {
        let own = 1024 + u16::try_from(number % 60_000).unwrap_or(0);
        let (ethernet, port) = (14, self.port);
        let is_v6 = self.source.is_ipv6();
        let transport = match (self.protocol, self.icmp) {
            (_, Some(8 | 128)) | (1 | 58, None) => Transport::Echo { id: own, sequence: 1 },
            (_, Some(kind)) => Transport::Icmp { kind, code: 0 },
            (TCP, None) => Transport::Tcp { source: own, destination: port, flags: SYN },
            (UDP, None) => Transport::Udp { source: own, destination: port },
            (other, None) => Transport::Raw(u8::try_from(other).unwrap_or(u8::MAX)),
        };
        let frame = match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Frame::ipv4(from.octets(), to.octets()),
            (IpAddr::V6(from), IpAddr::V6(to)) => Frame::ipv6(from.octets(), to.octets()),
            // A rule with both families has no packets, and the importer makes none.
            _ if is_v6 => Frame::ipv6(SOURCE_V6.octets(), BEYOND_V6.octets()),
            _ => Frame::ipv4(SOURCE_V4.octets(), BEYOND_V4.octets()),
        };
        let built = frame.transport(transport).payload(&vec![0; self.payload]).build();
        debug_assert!(built.len() > ethernet);
        built
    }

    /// The frames of a load, with their times.
    ///
    /// # Errors
    ///
    /// Why there are none.
    pub(super) fn schedule(&self, load: Load) -> Result<Schedule, String> {
        let most = MOST / Load::Tenfold.factor();
        let lasts = LASTS.min((most - self.burst) / self.rate);
        if lasts < LEAST {
            return Err(format!(
                "its limit is too wide for {MOST} packets: {} at once and {} a second",
                self.burst, self.rate
            ));
        }
        let (frames, lasts) = match load {
            Load::Burst => (2.0 * self.burst, 0.0),
            _ => (load.factor() * self.rate.mul_add(lasts, self.burst), lasts),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most MOST")]
        let count = frames.floor().max(1.0) as u32;
        let at = |index: u32| Duration::from_secs_f64(lasts * f64::from(index) / f64::from(count));
        Ok((0..count).map(|index| (at(index), self.frame(index as usize))).collect())
    }
}

/// The first address of a prefix that is a host's.
fn first(net: IpNet) -> IpAddr {
    net.hosts().next().unwrap_or_else(|| net.addr())
}

/// Sends each frame into both cables; gives the time of each since the first one, as far as nobody
/// interrupts.
pub(super) fn send(
    frames: &Schedule,
    cables: [&PacketSocket; 2],
    interrupt: &Interrupt,
) -> Result<Vec<Duration>> {
    let begin = Instant::now();
    let mut times = Vec::with_capacity(frames.len());
    for (at, frame) in frames {
        if interrupt.is_set() {
            break;
        }
        let wait = at.saturating_sub(begin.elapsed());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        times.push(begin.elapsed());
        for cable in cables {
            cable.send(frame)?;
        }
    }
    Ok(times)
}

/// Packets that a rule set lets pass, if they come at these times.
pub(super) fn arithmetic(set: &RuleSet, frames: &Schedule, times: &[Duration]) -> Result<u64> {
    const INTERFACE: u32 = 7;
    let environment = Environment {
        max_frame: MAX_FRAME,
        interface_index: &|_| Some(INTERFACE),
        cpus: 1,
        cluster: None,
    };
    let mut model = Model::new();
    model.commit(Installed::default().plan(set, 1, 16_384, &environment)?, Ticks::ZERO);
    let mut passed = 0;
    for ((_, frame), time) in frames.iter().zip(times) {
        let nanos = u64::try_from(time.as_nanos())? + 3_600_000_000_000;
        let (length, now) = (u64::try_from(frame.len())?, Ticks::from_nanos(nanos));
        let outcome = model.judge_captured(Framing::Ethernet, frame, length, INTERFACE, now);
        passed += u64::from(outcome.reason.verdict() == Verdict::Pass);
    }
    Ok(passed)
}
