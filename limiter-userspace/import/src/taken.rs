//! Packets that a rule takes away from those of another one, by their kind.

use ipnet::IpNet;

use super::packets::{Family, Packets, state};

/// True if only packets of loopback are meant.
pub(super) fn is_loopback(packets: &Packets) -> bool {
    packets.interfaces.as_ref().is_some_and(|names| names.iter().all(|name| name == "lo"))
}

/// True if of `from` those of known connections are taken, all of them, and no others.
pub(super) fn only_established(taken: &Packets, from: &Packets) -> bool {
    let states = taken.states.unwrap_or(state::ALL);
    // Connection tracking leaves the discovery of neighbours alone.
    let neighbours =
        from.family != Some(Family::V4) && from.protocols.as_ref().is_none_or(|p| p.contains(&58));
    if states & state::UNTRACKED != 0 && neighbours {
        return false;
    }
    let rest = Packets { states: None, ..taken.clone() };
    states & state::ESTABLISHED != 0
        && states & (state::NEW | state::INVALID) == 0
        && rest.has_all_of(from)
}

/// True if of `from` those are taken that begin a connection which belongs to a known one.
pub(super) fn only_related(taken: &Packets, from: &Packets) -> bool {
    let rest = Packets { states: None, ..taken.clone() };
    taken.states == Some(state::RELATED) && rest.has_all_of(from)
}

/// The sources that are taken away from `from`, if nothing but the source decides on it.
pub(super) fn only_sources(taken: &Packets, from: &Packets) -> Option<Vec<IpNet>> {
    let sources = taken.sources.as_ref()?;
    let rest = Packets {
        sources: None,
        family: taken.family.filter(|family| from.family == Some(*family)),
        ..taken.clone()
    };
    // Of packets of both families only these sources are taken, whichever they are of.
    rest.has_all_of(from).then(|| sources.clone())
}
