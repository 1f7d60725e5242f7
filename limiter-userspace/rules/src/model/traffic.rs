//! Traffic: the packets that keys are for, judged by what headers can hold. It tells which rules no
//! packet meets, and which have a packet in common.

use ipnet::IpNet;
use limiter_common::header::{Fragment, Icmp, TCP, Version};
use limiter_common::wire::{Count, FlagClass};

use super::direction::Direction;
use super::key::{Fact, has_ports};
use super::part::Part;
use super::path::Path;
use super::values::Values;

mod sort;

use sort::{Depth, Sort};

/// Keys in a form that does not depend on their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    shape: Shape,
    direction: Direction,
    source: Option<IpNet>,
    destination: Option<IpNet>,
    inner: Option<IpNet>,
    interface: Option<String>,
}

/// Everything that decides which packets can meet keys. Many rules have the same shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// True if IPv4 packets may meet them, and IPv6 packets.
    v4: bool,
    v6: bool,
    /// Requirements for facts, in the order of [`Fact::ALL`].
    facts: [Wish; Fact::ALL.len()],
    /// True if a packet inside a tunnel is required.
    tunnel: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Wish {
    /// The fact is no key.
    #[default]
    Nothing,
    /// The packet has the fact, whatever its value.
    Known,
    /// The packet has one of these values.
    In(Values),
}

/// Packets that can meet keys.
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meeting {
    /// True if a packet can meet them at all.
    pub any: bool,
    /// True if a whole packet that keeps to the standards can meet them.
    pub proper: bool,
    /// True if such a packet can, and is no later fragment.
    pub with_head: bool,
    /// True if a packet that is charged to a limit on SYNs can meet them.
    pub syns: bool,
    /// True if a packet that can be evidence for a ban can meet them: a segment of an established
    /// TCP connection.
    pub evidence: bool,
    /// True if data of TCP connections are among them.
    pub tcp_data: bool,
}

impl Path {
    /// The packets that have all of the keys.
    pub fn traffic(&self) -> Traffic {
        let mut traffic = Traffic { direction: self.direction, ..Traffic::EVERYTHING };
        for part in self.parts.iter() {
            traffic.narrow(part);
        }
        traffic
    }

    /// The fewest keys, with their values, that no such packet has together; `None` if one has them
    /// all.
    pub fn contradiction(&self, such: impl Fn(Meeting) -> bool) -> Option<Vec<&Part>> {
        let meets = |parts: &[&Part]| {
            let parts = parts.iter().copied().cloned().collect();
            such(Self { parts, direction: self.direction }.traffic().meeting())
        };
        let all: Vec<&Part> = self.parts.iter().collect();
        if meets(&all) {
            return None;
        }
        // Keys that the contradiction does not need are removed one by one; the rest is needed.
        let mut needed = all;
        let mut at = 0;
        while at < needed.len() {
            let mut fewer = needed.clone();
            fewer.remove(at);
            if meets(&fewer) {
                at += 1;
            } else {
                needed = fewer;
            }
        }
        Some(needed)
    }
}

impl Traffic {
    const EVERYTHING: Self = Self {
        direction: Direction::Both,
        shape: Shape { v4: true, v6: true, facts: [Wish::Nothing; 10], tunnel: false },
        source: None,
        destination: None,
        inner: None,
        interface: None,
    };

    fn narrow(&mut self, part: &Part) {
        match part {
            Part::Source(masks, net) => {
                self.shape.v4 &= masks.v4.is_some();
                self.shape.v6 &= masks.v6.is_some();
                self.of_family(net.as_ref());
                self.source = *net;
            }
            Part::Destination(net) => {
                self.of_family(net.as_ref());
                self.destination = *net;
            }
            Part::Inner(net) => {
                self.shape.tunnel = true;
                self.inner = *net;
            }
            Part::Interface(name) => self.interface.clone_from(name),
            Part::Fact(fact, values) => {
                let wish = values.map_or(Wish::Known, Wish::In);
                if let Some(place) = self.shape.wish_mut(*fact) {
                    *place = wish;
                }
            }
        }
    }

    fn of_family(&mut self, net: Option<&IpNet>) {
        self.shape.v4 &= !matches!(net, Some(IpNet::V6(_)));
        self.shape.v6 &= !matches!(net, Some(IpNet::V4(_)));
    }

    /// True if a key asks for ports, TCP or its flags: not just for everything of a source.
    pub fn names_service(&self) -> bool {
        let ports = [Fact::DestinationPort, Fact::SourcePort];
        ports.into_iter().any(|fact| self.shape.wish(fact) != Wish::Nothing) || self.names_tcp()
    }

    /// True if a key asks for TCP: its protocol, or its flags.
    pub fn names_tcp(&self) -> bool {
        self.shape.wish(Fact::TcpFlags) != Wish::Nothing || self.shape.is_of(TCP)
    }

    /// True if a key asks for more than whose packets they are: a protocol, or what only some of
    /// them have.
    pub fn names_protocol(&self) -> bool {
        let facts = [Fact::DestinationPort, Fact::Protocol, Fact::TcpFlags, Fact::IcmpType];
        facts.into_iter().any(|fact| self.shape.wish(fact) != Wish::Nothing)
    }

    /// True if a key asks for a kind of fragment.
    pub fn names_fragment(&self) -> bool {
        self.shape.wish(Fact::Fragment) != Wish::Nothing
    }

    /// All that decides which packets meet the keys.
    pub const fn shape(&self) -> Shape {
        self.shape
    }

    /// True if none of the packets comes in.
    pub fn only_goes_out(&self) -> bool {
        self.direction == Direction::Out
    }

    /// True if a packet may be for these keys and for the others.
    pub fn meets(&self, other: &Self) -> bool {
        let nets = [
            (&self.source, &other.source),
            (&self.destination, &other.destination),
            (&self.inner, &other.inner),
        ];
        let apart = |(one, other): (&Option<IpNet>, &Option<IpNet>)| match (one, other) {
            (Some(one), Some(other)) => !one.contains(other) && !other.contains(one),
            _ => false,
        };
        let named = self.interface.as_ref().zip(other.interface.as_ref());
        let elsewhere = named.is_some_and(|(one, other)| one != other);
        !elsewhere
            && self.direction.meets(other.direction)
            && !nets.into_iter().any(apart)
            && self.shape.both(&other.shape).is_some_and(|shape| shape.meeting().any)
    }

    /// The packets that can meet the keys.
    pub fn meeting(&self) -> Meeting {
        self.shape.meeting()
    }
}

impl Shape {
    fn wish(&self, fact: Fact) -> Wish {
        let place = Fact::ALL.iter().position(|known| *known == fact);
        place.and_then(|place| self.facts.get(place)).copied().unwrap_or_default()
    }

    fn wish_mut(&mut self, fact: Fact) -> Option<&mut Wish> {
        let place = Fact::ALL.iter().position(|known| *known == fact)?;
        self.facts.get_mut(place)
    }

    /// The keys of both; `None` if they have no value in common.
    fn both(&self, other: &Self) -> Option<Self> {
        let mut both = *self;
        both.v4 &= other.v4;
        both.v6 &= other.v6;
        both.tunnel |= other.tunnel;
        for (wish, other) in both.facts.iter_mut().zip(other.facts) {
            *wish = wish.both(other)?;
        }
        Some(both)
    }

    fn is_of(&self, protocol: u8) -> bool {
        self.wish(Fact::Protocol) == Wish::In(Values::from(u16::from(protocol)))
    }

    fn meeting(&self) -> Meeting {
        let mut meeting = Meeting::default();
        for sort in Sort::all(self.protocol()) {
            let Some(proper) = self.takes(sort) else {
                continue;
            };
            meeting.any = true;
            meeting.proper |= proper;
            meeting.with_head |= proper && sort.piece != Fragment::Later;
            meeting.syns |= sort.is_syn();
            meeting.evidence |= sort.is_evidence();
            meeting.tcp_data |= proper && sort.is_evidence() && sort.flags == Some(FlagClass::Ack);
        }
        meeting
    }

    /// The protocol, if the keys have one.
    fn protocol(&self) -> Option<u8> {
        match self.wish(Fact::Protocol) {
            Wish::In(values) => u8::try_from(values.low()).ok(),
            Wish::Nothing | Wish::Known => None,
        }
    }

    /// True if packets of a sort that meet the keys can be proper; `None` if none meets them.
    fn takes(&self, sort: Sort) -> Option<bool> {
        let family = match sort.version {
            Version::V4 => self.v4,
            Version::V6 => self.v6,
        };
        // The families of a key with an inner source are those inside the tunnel.
        if !family && !self.tunnel || self.tunnel && !self.is_tunnel(sort) {
            return None;
        }
        let mut proper = sort.is_proper();
        for (fact, wish) in Fact::ALL.into_iter().zip(self.facts) {
            proper &= match wish {
                Wish::Nothing => true,
                Wish::Known => sort.has(fact)?,
                Wish::In(values) => sort.has_one(fact, values)?,
            };
        }
        Some(proper)
    }

    /// True if the program looks for a packet inside.
    fn is_tunnel(&self, sort: Sort) -> bool {
        sort.depth != Depth::Nothing
            && match sort.protocol {
                Some(sort::IPIP | sort::IPV6 | sort::GRE) => true,
                Some(sort::UDP) => match self.wish(Fact::DestinationPort) {
                    Wish::In(values) => values.has(sort::VXLAN_PORT),
                    Wish::Nothing | Wish::Known => true,
                },
                _ => false,
            }
    }
}

impl Wish {
    fn both(self, other: Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Nothing, wish)
            | (wish, Self::Nothing | Self::Known)
            | (Self::Known, wish @ Self::In(_)) => wish,
            (Self::In(one), Self::In(other)) => {
                let (low, high) = (one.low().max(other.low()), one.high().min(other.high()));
                Self::In(Values::range(low, high)?)
            }
        })
    }
}

impl Meeting {
    /// True if a packet can be charged to a limit that counts `count`.
    pub const fn charged(&self, count: Count) -> bool {
        match count {
            Count::Syns => self.syns,
            Count::Packets | Count::Bytes | Count::Flows => self.any,
        }
    }
}
