//! Kinds of packets that a rule takes away from another one.

use ipnet::IpNet;

use super::packets::{Family, Packets, state};

/// True if only loopback packets match.
pub(super) fn is_loopback(packets: &Packets) -> bool {
    packets.interfaces.as_ref().is_some_and(|names| names.iter().all(|name| name == "lo"))
}

/// True if exactly the packets of known connections are taken from `from`.
pub(super) fn only_established(taken: &Packets, from: &Packets) -> bool {
    let states = taken.states.unwrap_or(state::ALL);
    // Connection tracking ignores neighbour discovery.
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

/// True if exactly the packets are taken from `from` that begin a connection related to a known
/// one.
pub(super) fn only_related(taken: &Packets, from: &Packets) -> bool {
    let rest = Packets { states: None, ..taken.clone() };
    taken.states == Some(state::RELATED) && rest.has_all_of(from)
}

/// The sources that are taken away from `from`, if only the source decides.
pub(super) fn only_sources(taken: &Packets, from: &Packets) -> Option<Vec<IpNet>> {
    let sources = taken.sources.as_ref()?;
    let rest = Packets {
        sources: None,
        family: taken.family.filter(|family| from.family == Some(*family)),
        ..taken.clone()
    };
    // If `from` has both families, only these sources are taken, whatever their family.
    rest.has_all_of(from).then(|| sources.clone())
}
