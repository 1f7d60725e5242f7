//! Finds the packets of a capture that the host itself sent. limiter sees incoming packets;
//! `tcpdump` without `-Q in` writes both directions, and most files do not say which is which. The
//! capturing host is an end of all its packets. So an address is the host's own if it is an end of
//! nearly all packets, and both sends and receives.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use fastrand::Rng;
use limiter_decision::packet::{self, Facts, Layer3};
use limiter_model::Framing;

use super::Captured;

/// The host's own addresses, whose packets are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Own {
    /// Recognise them from the packets.
    #[default]
    Recognised,
    /// These addresses. If empty, nothing is left out.
    Named(Vec<IpAddr>),
}

/// Size of the sample of pairs: each pair is equally likely to be in it.
const PAIRS: usize = 1 << 16;

/// Most own addresses that are recognised. A router has more, and then none are.
const MOST: usize = 16;

/// Thresholds in per cent: for packets that have an end among the own addresses; and for packets
/// that have both ends there, that go one of the two directions, or that the other ends alone would
/// leave over.
const NEARLY_ALL: usize = 95;
const SOME: usize = 1;

/// Fewer packets than this show nothing.
const LEAST: usize = 8;

/// Initial times to live of senders, and the same less one router, because containers answer
/// through one.
const FRESH: [u8; 7] = [32, 63, 64, 127, 128, 254, 255];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    from: IpAddr,
    to: IpAddr,
    is_fresh: bool,
}

impl Ends {
    /// The ends of a packet between two hosts; `None` for a packet to several hosts, or that is not
    /// IP.
    pub(super) fn of(captured: &Captured) -> Option<Self> {
        let facts = facts(captured)?;
        let (from, to) = (address(facts.source_address()), address(facts.destination_address()));
        let is_broadcast = matches!(to, IpAddr::V4(to) if to.is_broadcast());
        if to.is_multicast() || is_broadcast || from.is_unspecified() || to.is_unspecified() {
            return None;
        }
        Some(Self { from, to, is_fresh: FRESH.contains(&facts.ttl()) })
    }
}

/// The full source address of a packet; `None` if it is not IP.
pub(super) fn sender(captured: &Captured) -> Option<IpAddr> {
    facts(captured).map(|facts| address(facts.source_address()))
}

fn facts(captured: &Captured) -> Option<Facts> {
    let frame = captured.frame.as_slice();
    let mut facts = Facts::EMPTY;
    let read = match captured.framing {
        Framing::Ethernet => packet::facts(&frame, &mut facts),
        Framing::Layer3 => packet::facts(&Layer3(frame), &mut facts),
    };
    read.ok().map(|()| facts)
}

fn address(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// What the packets show about the own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Opinion {
    /// Nothing: the capture has one direction only, or forwarded packets.
    None,
    Own(Vec<IpAddr>),
    /// Both directions are in the capture, and either of these ends could be the host.
    Either(IpAddr, IpAddr),
}

/// Collects the ends of packets.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pairs: Vec<Ends>,
    seen: u64,
    random: Rng,
}

impl Default for Look {
    fn default() -> Self {
        // A fixed seed, for the same answer each time.
        Self { pairs: Vec::new(), seen: 0, random: Rng::with_seed(0) }
    }
}

impl Look {
    pub(super) fn add(&mut self, ends: Ends) {
        self.seen += 1;
        if self.pairs.len() < PAIRS {
            self.pairs.push(ends);
        } else if let Ok(place) = usize::try_from(self.random.u64(..self.seen))
            && let Some(pair) = self.pairs.get_mut(place)
        {
            *pair = ends;
        }
    }

    /// What the packets so far show.
    pub(super) fn opinion(&self) -> Opinion {
        let pairs = &self.pairs;
        if pairs.len() < LEAST {
            return Opinion::None;
        }
        let own = cover(pairs, &[]);
        let is_own = |address: &IpAddr| own.contains(address);
        let share = |holds: &dyn Fn(&Ends) -> bool| pairs.iter().filter(|pair| holds(pair)).count();
        let of_all = |count: usize, hundredths: usize| count * 100 >= pairs.len() * hundredths;
        let covered = share(&|pair| is_own(&pair.from) || is_own(&pair.to));
        let out = share(&|pair| is_own(&pair.from));
        let within = share(&|pair| is_own(&pair.from) && is_own(&pair.to));
        let both_ways = of_all(out, SOME) && of_all(covered - out, SOME);
        if !of_all(covered, NEARLY_ALL) || of_all(within, SOME) || !both_ways {
            return Opinion::None;
        }
        // If as many other addresses cover nearly as much, either side may be the host.
        let others = cover(pairs, &own);
        let by_others = share(&|pair| others.contains(&pair.from) || others.contains(&pair.to));
        let is_reported = of_all(covered.saturating_sub(by_others), SOME);
        let fresh = share(&|pair| is_own(&pair.from) && pair.is_fresh);
        if is_reported && fresh * 100 >= out * NEARLY_ALL {
            return Opinion::Own(own);
        }
        match (own.first(), others.first()) {
            (Some(one), Some(other)) => Opinion::Either(*one, *other),
            _ => Opinion::None,
        }
    }
}

/// About the fewest addresses, none of them in `without`, that are an end of nearly all packets. If
/// `without` is not empty, finds no more than it contains.
fn cover(pairs: &[Ends], without: &[IpAddr]) -> Vec<IpAddr> {
    let most = if without.is_empty() { MOST } else { without.len() };
    let mut found: Vec<IpAddr> = Vec::new();
    let mut left: Vec<Ends> = pairs.to_vec();
    while found.len() < most && left.len() * 100 > pairs.len() * (100 - NEARLY_ALL) {
        let mut ends: HashMap<IpAddr, usize> = HashMap::new();
        for pair in &left {
            for end in [pair.from, pair.to] {
                if !without.contains(&end) {
                    *ends.entry(end).or_default() += 1;
                }
            }
        }
        let Some((address, _)) = ends.into_iter().max_by_key(|(address, count)| (*count, *address))
        else {
            break;
        };
        left.retain(|pair| pair.from != address && pair.to != address);
        found.push(address);
    }
    // Add the ends of the remaining packets that both send and receive: a host has more addresses
    // than its busy one.
    if without.is_empty() {
        for address in seldom(&left) {
            if found.len() < most {
                found.push(address);
            }
        }
    }
    found
}

/// Addresses that send to several others and receive from several others.
fn seldom(left: &[Ends]) -> Vec<IpAddr> {
    let mut peers: HashMap<IpAddr, [Vec<IpAddr>; 2]> = HashMap::new();
    let mut note = |address, way: usize, peer| {
        let known = peers.entry(address).or_default();
        if let Some(known) = known.get_mut(way)
            && known.len() < 2
            && !known.contains(&peer)
        {
            known.push(peer);
        }
    };
    for pair in left {
        note(pair.from, 0, pair.to);
        note(pair.to, 1, pair.from);
    }
    let several = peers.into_iter().filter(|(_, ways)| ways.iter().all(|peers| peers.len() > 1));
    let mut addresses: Vec<IpAddr> = several.map(|(address, _)| address).collect();
    addresses.sort_unstable();
    addresses
}

#[cfg(test)]
mod tests;
