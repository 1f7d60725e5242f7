//! Chooses the packets around the limit of a rule: their kind, number and times.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::IpNet;
use limiter_common::wire::Count;

use limiter_rules::Path;
use limiter_rules::model::{Fact, Limits, Meter, Part, Values};

use crate::packet::{Frame, Transport, checksum};
use crate::veth::RECEIVER;

/// Most frames of one load.
const MOST: f64 = 20_000.0;

/// Usual and shortest length of a load, in seconds.
const LASTS: f64 = 1.0;
const LEAST: f64 = 0.05;

/// Bytes after the headers: under limits in packets, and under limits in bytes.
const SMALL: usize = 18;
const LARGE: usize = 958;

/// Sources and destinations of packets for rules that name none.
const SOURCE_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 77);
const SOURCE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x77, 0, 0, 0, 0, 0x77);
const BEYOND_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const BEYOND_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);

/// Longest time for which a packet is under way.
const DELAY: Duration = Duration::from_millis(300);

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

const SYN: u8 = 2;
const TCP: u16 = 6;
const UDP: u16 = 17;

/// A load, named by its ratio to what the limit lets pass in its time.
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

#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) forwarded: bool,
    interface: Option<String>,
    protocol: u16,
    port: u16,
    source_port: Option<u16>,
    ttl: Option<u16>,
    dscp: Option<u16>,
    icmp: Option<u8>,
    payload: usize,
    /// Packets at once, and packets a second.
    burst: f64,
    rate: f64,
}

/// Frames, each with the time at which it is sent.
pub(super) type Schedule = Vec<(Duration, Vec<u8>)>;

fn values(path: &Path, wanted: Fact) -> Option<Values> {
    path.parts.iter().find_map(|part| match part {
        Part::Fact(fact, value) if *fact == wanted => *value,
        _ => None,
    })
}

/// Refuses keys for which no packets are made.
fn check(path: &Path) -> Result<(), String> {
    let is_made = |part: &Part| match part {
        Part::Source(..) | Part::Destination(_) | Part::Interface(_) => true,
        Part::Fact(fact, _) => matches!(
            fact,
            Fact::DestinationPort
                | Fact::SourcePort
                | Fact::Protocol
                | Fact::IcmpType
                | Fact::PacketLength
                | Fact::Ttl
                | Fact::Dscp
        ),
        Part::Inner(_) => false,
    };
    if path.direction.has_out() {
        return Err("packets that go out are not made here".to_owned());
    }
    match path.parts.iter().find(|part| !is_made(part)) {
        Some(part) => Err(format!("packets with {} are not made here", part.key(path.direction))),
        None => Ok(()),
    }
}

fn is_v6(path: &Path) -> bool {
    let masked = path.source().is_some_and(|(masks, net)| net.is_none() && masks.v4.is_none());
    masked
        || path.parts.iter().any(|part| {
            matches!(
                part,
                Part::Source(_, Some(IpNet::V6(_))) | Part::Destination(Some(IpNet::V6(_)))
            )
        })
}

impl Traffic {
    /// Traffic that falls under a rule, from a source that is not exempt.
    ///
    /// # Errors
    ///
    /// Says why there is no such traffic.
    pub(super) fn new(
        path: &Path,
        limits: &Limits,
        forwarded: bool,
        spared: &[IpNet],
    ) -> Result<Self, String> {
        check(path)?;
        let fact = |wanted: Fact| values(path, wanted).map(Values::low);
        let counts: Vec<Count> = limits.limits.iter().map(|l| l.meter.quota().count).collect();
        let icmp = fact(Fact::IcmpType);
        let protocol = match fact(Fact::Protocol) {
            Some(protocol) => protocol,
            None if icmp.is_some() => 1,
            None if counts.contains(&Count::Syns) => TCP,
            None => UDP,
        };
        let is_v6 = protocol == 58 || is_v6(path);
        let source = path.source().and_then(|(_, net)| net).filter(|net| net.prefix_len() > 0);
        let source = match source {
            Some(net) => outside(net, first(net), spared)?,
            None if is_v6 => outside(ipnet::Ipv6Net::default().into(), SOURCE_V6.into(), spared)?,
            None => outside(ipnet::Ipv4Net::default().into(), SOURCE_V4.into(), spared)?,
        };
        let destination = path.parts.iter().find_map(|part| match part {
            Part::Destination(net) => net.filter(|net| net.prefix_len() > 0).map(first),
            _ => None,
        });
        let [to, beyond]: [IpAddr; 2] = if is_v6 {
            [RECEIVER.ipv6.into(), BEYOND_V6.into()]
        } else {
            [RECEIVER.ipv4.into(), BEYOND_V4.into()]
        };
        let icmp = match icmp {
            None => None,
            Some(kind) => {
                Some(u8::try_from(kind).map_err(|error| format!("ICMP {kind}: {error}"))?)
            }
        };
        let source_port = fact(Fact::SourcePort);
        if source_port.is_some() && counts.iter().any(|count| *count != Count::Packets) {
            return Err("packets of one source port are of one connection".to_owned());
        }
        let payload = if counts.contains(&Count::Bytes) { LARGE } else { SMALL };
        let interface = path.parts.iter().find_map(|part| match part {
            Part::Interface(name) => name.clone(),
            _ => None,
        });
        let mut traffic = Self {
            source,
            destination: destination.unwrap_or(if forwarded { beyond } else { to }),
            forwarded,
            interface,
            protocol,
            port: fact(Fact::DestinationPort).unwrap_or(9),
            source_port,
            ttl: fact(Fact::Ttl).map(|ttl| ttl.max(1 + u16::from(forwarded))),
            dscp: fact(Fact::Dscp),
            icmp,
            payload,
            burst: f64::MAX,
            rate: f64::MAX,
        };
        traffic.fit(path)?;
        traffic.keep_to(limits);
        Ok(traffic)
    }

    /// Gives the packets the length and time to live that the rule matches.
    fn fit(&mut self, path: &Path) -> Result<(), String> {
        if let (Some(values), Some(ttl)) = (values(path, Fact::Ttl), self.ttl)
            && !values.has(ttl)
        {
            return Err("no packet with its time to live comes as far".to_owned());
        }
        if let Some(values) = values(path, Fact::PacketLength) {
            let headers = self.frame(0).len() - self.payload - ETHERNET;
            let own = u16::try_from(headers + self.payload).unwrap_or(u16::MAX);
            let length = usize::from(own.clamp(values.low(), values.high()));
            self.payload =
                length.checked_sub(headers).ok_or("packets so short are not made here")?;
        }
        Ok(())
    }

    /// Notes how much the limits let pass.
    fn keep_to(&mut self, limits: &Limits) {
        let length = self.frame(0).len();
        #[expect(clippy::cast_precision_loss, reason = "limits of rules are far under 2^52")]
        for limit in limits.limits.iter() {
            let quota = limit.meter.quota();
            let unit = match quota.count {
                Count::Bytes => length as f64,
                Count::Packets | Count::Syns | Count::Flows => 1.0,
            };
            let requests = quota.requests_per_unit as f64 / unit;
            let rate = requests / quota.period.seconds() as f64;
            let burst = match &limit.meter {
                Meter::TokenBucket(bucket) => bucket.burst as f64 / unit,
                Meter::LeakyBucket { backlog, .. } => rate.mul_add(backlog.as_secs_f64(), 1.0),
                _ => requests,
            };
            self.burst = self.burst.min(burst);
            self.rate = self.rate.min(rate);
        }
    }

    /// Returns true if the limits give no packet back while packets are sent at these times.
    pub(super) fn brings_nothing(&self, times: &[Duration]) -> bool {
        let lasted = times.last().copied().unwrap_or_default() + DELAY;
        self.rate * lasted.as_secs_f64() < 1.0
    }

    /// Name of the interface at which the packets come in.
    pub(super) fn interface(&self) -> String {
        self.interface.clone().unwrap_or_else(|| "eth0".to_owned())
    }

    /// Builds frame `number`. Each frame has ports or an id of its own, so that none belongs to a
    /// connection.
    fn frame(&self, number: usize) -> Vec<u8> {
        let own = 1024 + u16::try_from(number % 60_000).unwrap_or(0);
        let own = self.source_port.unwrap_or(own);
        let port = self.port;
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
            // A rule for both families has no packets, and the importer makes no such rule.
            _ if is_v6 => Frame::ipv6(SOURCE_V6.octets(), BEYOND_V6.octets()),
            _ => Frame::ipv4(SOURCE_V4.octets(), BEYOND_V4.octets()),
        };
        let mut built = frame.transport(transport).payload(&vec![0; self.payload]).build();
        debug_assert!(built.len() > ETHERNET);
        self.write_header(built.get_mut(ETHERNET..).unwrap_or_default());
        built
    }

    /// Writes the fields of the IP header that the rule matches.
    fn write_header(&self, packet: &mut [u8]) {
        let ttl = self.ttl.and_then(|ttl| u8::try_from(ttl).ok());
        let dscp = self.dscp.and_then(|dscp| u8::try_from(dscp).ok());
        let is_v6 = self.source.is_ipv6();
        if let Some(ttl) = ttl {
            packet[if is_v6 { 7 } else { 8 }] = ttl;
        }
        if let Some(dscp) = dscp {
            if is_v6 {
                packet[0] = (packet[0] & 0xf0) | (dscp >> 2);
                packet[1] = (packet[1] & 0x3f) | (dscp << 6);
            } else {
                packet[1] = (packet[1] & 3) | (dscp << 2);
            }
        }
        if !is_v6 && (ttl.is_some() || dscp.is_some()) {
            packet[10..12].fill(0);
            let sum = checksum::internet([&packet[..20], &[]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The frames of a load, with their times.
    ///
    /// # Errors
    ///
    /// Says why there are none.
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

/// Finds an address of prefix `net` that is in none of `others`, starting at `from`.
fn outside(net: IpNet, from: IpAddr, others: &[IpNet]) -> Result<IpAddr, String> {
    let mut address = from;
    for _ in 0..=others.len() {
        let Some(other) = others.iter().find(|other| other.contains(&address)) else {
            return if net.contains(&address) {
                Ok(address)
            } else {
                Err("each of its sources is exempt".to_owned())
            };
        };
        address = match other.broadcast() {
            IpAddr::V4(last) => u32::from(last).wrapping_add(7).to_be_bytes().into(),
            IpAddr::V6(last) => u128::from(last).wrapping_add(7).to_be_bytes().into(),
        };
    }
    Err("its sources outside of those that are exempt were not found".to_owned())
}

/// First host address of a prefix.
fn first(net: IpNet) -> IpAddr {
    net.hosts().next().unwrap_or_else(|| net.addr())
}
