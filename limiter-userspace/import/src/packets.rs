//! The packets that a rule of another firewall matches: conditions that must all hold.

use std::collections::BTreeMap;

use ipnet::IpNet;
use limiter_rules::model::Fact;

/// Largest product of two lists that are compared; beyond it they are assumed to overlap.
const MOST_PAIRS: usize = 1 << 16;

/// Advice for negated conditions other than sources.
pub(super) const ALL_BUT: &str =
    "by hand, write a rule for all of them, and beside it one for these with `rate: unlimited`";

/// Advice for TCP flags other than an attempt to open a connection.
pub(super) const BY_FLAGS: &str = "write a rule with `tcp_flags` by hand";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) const fn of(net: &IpNet) -> Self {
        match net {
            IpNet::V4(_) => Self::V4,
            IpNet::V6(_) => Self::V6,
        }
    }
}

/// Bits of the states of connection tracking.
pub(super) mod state {
    pub(crate) const NEW: u8 = 1;
    pub(crate) const ESTABLISHED: u8 = 2;
    pub(crate) const RELATED: u8 = 4;
    pub(crate) const INVALID: u8 = 8;
    pub(crate) const UNTRACKED: u8 = 16;
    pub(crate) const ALL: u8 = 31;

    /// The bit of a name, in upper or lower case.
    pub(crate) fn of(name: &str) -> Option<u8> {
        Some(match name.to_ascii_lowercase().as_str() {
            "new" => NEW,
            "established" => ESTABLISHED,
            "related" => RELATED,
            "invalid" => INVALID,
            "untracked" => UNTRACKED,
            _ => return None,
        })
    }
}

/// A condition that limiter lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    /// The reason why it is not translated.
    pub(super) reason: String,
    /// True if it limits something: then its rule counts as a limit, whatever its verdict.
    pub(super) limits: bool,
}

/// Conditions of a rule. A list means "any of these"; `None` means "all".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packets {
    pub(super) family: Option<Family>,
    pub(super) interfaces: Option<Vec<String>>,
    pub(super) protocols: Option<Vec<u8>>,
    /// ICMP messages, by the numbers of rule files.
    pub(super) icmp: Option<Vec<u8>>,
    pub(super) destinations: Option<Vec<IpNet>>,
    /// Ranges of destination ports.
    pub(super) ports: Option<Vec<(u16, u16)>>,
    pub(super) sources: Option<Vec<IpNet>>,
    pub(super) not_sources: Vec<IpNet>,
    /// Ranges of other header fields.
    pub(super) facts: BTreeMap<Fact, Vec<(u16, u16)>>,
    /// The destination of the connection's first packet, before address translation.
    pub(super) original: Original,
    /// True if only packets with a translated destination match.
    pub(super) translated: bool,
    /// Bits of [`state`].
    pub(super) states: Option<u8>,
    /// True if only attempts to open a TCP connection match.
    pub(super) opens: bool,
    pub(super) unknown: Vec<Unknown>,
}

/// Conditions on a connection, as its first packet was on the wire.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Original {
    pub(super) destinations: Option<Vec<IpNet>>,
    pub(super) ports: Option<Vec<(u16, u16)>>,
    /// True if replies do not match.
    pub(super) way: bool,
}

impl Original {
    fn and(&self, other: &Self) -> Result<Self, Never> {
        Ok(Self {
            destinations: common(self.destinations.as_ref(), other.destinations.as_ref(), inner)?,
            ports: common(self.ports.as_ref(), other.ports.as_ref(), |a, b| overlap(*a, *b))?,
            way: self.way || other.way,
        })
    }

    fn has_all_of(&self, other: &Self) -> bool {
        every(self.destinations.as_ref(), other.destinations.as_ref(), |a, b| a.contains(b))
            && every(self.ports.as_ref(), other.ports.as_ref(), |a, b| has_range(*a, *b))
            && (!self.way || other.way)
    }
}

/// Why two conditions cannot both hold.
#[derive(Debug)]
pub(super) struct Never;

impl Packets {
    /// Adds a condition that limiter lacks.
    pub(super) fn lacks(&mut self, reason: impl Into<String>) {
        self.unknown.push(Unknown { reason: reason.into(), limits: false });
    }

    /// Adds a limiting condition that limiter lacks.
    pub(super) fn lacks_limit(&mut self, reason: impl Into<String>) {
        self.unknown.push(Unknown { reason: reason.into(), limits: true });
    }

    /// Reasons why the conditions cannot be translated.
    pub(super) fn reasons(&self) -> Option<String> {
        let mut reasons: Vec<&str> = Vec::new();
        for reason in self.unknown.iter().map(|one| one.reason.as_str()) {
            // Two options may lack the same thing.
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    pub(super) fn and(&self, other: &Self) -> Result<Self, Never> {
        let family = match (self.family, other.family) {
            (Some(one), Some(other)) if one != other => return Err(Never),
            (one, other) => one.or(other),
        };
        let same = |one: &String, other: &String| (one == other).then(|| one.clone());
        let number = |one: &u8, other: &u8| (one == other).then_some(*one);
        let states = match (self.states, other.states) {
            (Some(one), Some(other)) if one & other == 0 => return Err(Never),
            (Some(one), Some(other)) => Some(one & other),
            (one, other) => one.or(other),
        };
        let mut facts = self.facts.clone();
        for (fact, values) in &other.facts {
            let both = common(facts.get(fact), Some(values), |a, b| overlap(*a, *b))?;
            facts.insert(*fact, both.unwrap_or_default());
        }
        let mut both = Self {
            family,
            interfaces: common(self.interfaces.as_ref(), other.interfaces.as_ref(), same)?,
            protocols: common(self.protocols.as_ref(), other.protocols.as_ref(), number)?,
            icmp: common(self.icmp.as_ref(), other.icmp.as_ref(), number)?,
            destinations: common(self.destinations.as_ref(), other.destinations.as_ref(), inner)?,
            ports: common(self.ports.as_ref(), other.ports.as_ref(), |a, b| overlap(*a, *b))?,
            sources: common(self.sources.as_ref(), other.sources.as_ref(), inner)?,
            not_sources: self.not_sources.iter().chain(&other.not_sources).copied().collect(),
            facts,
            original: self.original.and(&other.original)?,
            translated: self.translated || other.translated,
            states,
            opens: self.opens || other.opens,
            unknown: self.unknown.iter().chain(&other.unknown).cloned().collect(),
        };
        both.settle()?;
        Ok(both)
    }

    /// Derives the family from the addresses, and restricts the addresses to the family.
    pub(super) fn settle(&mut self) -> Result<(), Never> {
        for nets in [&mut self.sources, &mut self.destinations] {
            let Some(nets) = nets else { continue };
            if let Some(family) = self.family {
                nets.retain(|net| Family::of(net) == family);
            }
            let Some(first) = nets.first().map(Family::of) else { return Err(Never) };
            if nets.iter().all(|net| Family::of(net) == first) {
                self.family = Some(first);
            }
        }
        if let Some(family) = self.family {
            for nets in [&mut self.sources, &mut self.destinations].into_iter().flatten() {
                nets.retain(|net| Family::of(net) == family);
                if nets.is_empty() {
                    return Err(Never);
                }
            }
            self.not_sources.retain(|net| Family::of(net) == family);
        }
        Ok(())
    }

    /// True if certainly no packet matches both.
    pub(super) fn is_apart(&self, other: &Self) -> bool {
        let apart = |one: Option<&Vec<IpNet>>, other: Option<&Vec<IpNet>>| {
            none(one, other, |one, other| inner(one, other).is_none())
        };
        let covered = |nets: Option<&Vec<IpNet>>, not: &[IpNet]| {
            nets.is_some_and(|nets| few(nets, not) && nets.iter().all(|net| within(net, not)))
        };
        matches!((self.family, other.family), (Some(one), Some(other)) if one != other)
            || matches!((self.states, other.states), (Some(one), Some(other)) if one & other == 0)
            || none(self.interfaces.as_ref(), other.interfaces.as_ref(), |a, b| a != b)
            || none(self.protocols.as_ref(), other.protocols.as_ref(), |a, b| a != b)
            || none(self.icmp.as_ref(), other.icmp.as_ref(), |a, b| a != b)
            || none(self.ports.as_ref(), other.ports.as_ref(), |a, b| overlap(*a, *b).is_none())
            || apart(self.sources.as_ref(), other.sources.as_ref())
            || apart(self.destinations.as_ref(), other.destinations.as_ref())
            || self.facts.iter().any(|(fact, values)| {
                none(Some(values), other.facts.get(fact), |a, b| overlap(*a, *b).is_none())
            })
            || covered(other.sources.as_ref(), &self.not_sources)
            || covered(self.sources.as_ref(), &other.not_sources)
    }

    /// True if certainly every packet of `other` matches.
    pub(super) fn has_all_of(&self, other: &Self) -> bool {
        let nets = |all: Option<&Vec<IpNet>>, some: Option<&Vec<IpNet>>| {
            every(all, some, |all, some| all.contains(some))
        };
        let spared = |net: &IpNet| {
            within(net, &other.not_sources)
                || other.sources.as_ref().is_some_and(|sources| {
                    few(sources, &[*net])
                        && sources.iter().all(|source| inner(source, net).is_none())
                })
        };
        self.unknown.is_empty()
            && (self.family.is_none() || self.family == other.family)
            && self.states.is_none_or(|states| {
                other.states.is_some_and(|other| other & !states == 0) || states == state::ALL
            })
            && (!self.opens || other.opens)
            && every(self.interfaces.as_ref(), other.interfaces.as_ref(), |a, b| a == b)
            && every(self.protocols.as_ref(), other.protocols.as_ref(), |a, b| a == b)
            && every(self.icmp.as_ref(), other.icmp.as_ref(), |a, b| a == b)
            && every(self.ports.as_ref(), other.ports.as_ref(), |a, b| has_range(*a, *b))
            && self.facts.iter().all(|(fact, values)| {
                every(Some(values), other.facts.get(fact), |a, b| has_range(*a, *b))
            })
            && self.original.has_all_of(&other.original)
            && (!self.translated || other.translated)
            && nets(self.sources.as_ref(), other.sources.as_ref())
            && nets(self.destinations.as_ref(), other.destinations.as_ref())
            && self.not_sources.iter().all(spared)
    }

    /// The cost of comparing it.
    pub(super) fn weight(&self) -> usize {
        let nets = |nets: &Option<Vec<IpNet>>| nets.as_ref().map_or(0, Vec::len);
        1 + nets(&self.sources) + nets(&self.destinations) + self.not_sources.len()
    }
}

fn few<T, U>(one: &[T], other: &[U]) -> bool {
    one.len().saturating_mul(other.len()) <= MOST_PAIRS
}

fn within(net: &IpNet, nets: &[IpNet]) -> bool {
    nets.iter().any(|outer| outer.contains(net))
}

/// The smaller of two prefixes, if one contains the other.
pub(super) fn inner(one: &IpNet, other: &IpNet) -> Option<IpNet> {
    if one.contains(other) { Some(*other) } else { other.contains(one).then_some(*one) }
}

const fn has_range(all: (u16, u16), some: (u16, u16)) -> bool {
    all.0 <= some.0 && some.1 <= all.1
}

fn overlap(one: (u16, u16), other: (u16, u16)) -> Option<(u16, u16)> {
    let (low, high) = (one.0.max(other.0), one.1.min(other.1));
    (low <= high).then_some((low, high))
}

fn common<T: Clone>(
    one: Option<&Vec<T>>,
    other: Option<&Vec<T>>,
    both: impl Fn(&T, &T) -> Option<T>,
) -> Result<Option<Vec<T>>, Never> {
    match (one, other) {
        (Some(one), Some(other)) => {
            let pairs = one.iter().flat_map(|one| other.iter().filter_map(|o| both(one, o)));
            // More values than both lists have together are unreadable: hostile, or a mistake.
            let found: Vec<T> = pairs.take(MOST_PAIRS).collect();
            if found.is_empty() { Err(Never) } else { Ok(Some(found)) }
        }
        (one, other) => Ok(one.or(other).cloned()),
    }
}

/// True if both are lists, and no pair of their values meets.
fn none<T>(one: Option<&Vec<T>>, other: Option<&Vec<T>>, apart: impl Fn(&T, &T) -> bool) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return false };
    few(one, other) && one.iter().all(|one| other.iter().all(|other| apart(one, other)))
}

/// True if `all` covers every value of `some`.
fn every<T>(all: Option<&Vec<T>>, some: Option<&Vec<T>>, has: impl Fn(&T, &T) -> bool) -> bool {
    match (all, some) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(all), Some(some)) => {
            few(all, some) && some.iter().all(|some| all.iter().any(|all| has(all, some)))
        }
    }
}
