//! Whom a new rule set must not lock out: the management prefixes, and whoever applies it.
//!
//! Management prefixes are on the lists that the program asks before any rule, so no table limits them. A
//! rule for sources inside one cannot do what it says. An SSH session of another address is an ordinary
//! source, whose packets any table may drop.

use std::collections::BTreeMap;

use ipnet::IpNet;
use limiter_common::packet::Fragment;

use super::layers::{EffectiveSet, Layers};
use crate::control::api::rules::Session;
use crate::rules::model::{Part, SourceMasks};
use crate::rules::plan::{RuleId, TableForm};
use crate::rules::{KeyedRule, Selector, Subject, Terms};

/// The number of TCP.
const TCP: u8 = 6;

/// Why a rule set had better not be in force, if so. `safe` says whether an address is on the allow list for
/// good.
pub(super) fn objection(
    layers: &Layers,
    effective: &EffectiveSet,
    session: Option<&Session>,
    safe: impl Fn(&Selector) -> bool,
) -> Option<String> {
    if let Some((rule, prefix)) = layers.kept_out().first() {
        return Some(format!(
            "the rule for {rule} is inside the management prefix {prefix}, which is never limited: \
             remove the rule, or leave it out of force with --force"
        ));
    }
    let session = session?;
    let peer = Selector::address(session.peer);
    if layers.managed(&peer).is_some() || safe(&peer) {
        return None;
    }
    let rule = limiting(effective, &peer, session)?;
    Some(format!(
        "the {rule} would limit your own SSH session from {peer}: run `limiter allow {peer}` before, \
         start the daemon with --management {peer}, or use --force"
    ))
}

/// A rule that may drop packets of the session.
fn limiting(effective: &EffectiveSet, peer: &Selector, session: &Session) -> Option<Subject> {
    let drops = |terms: &Terms| match terms {
        Terms::Unlimited => false,
        Terms::Limits(limits) => !limits.shadow,
        Terms::Budget(name) => {
            let budget = effective.budgets.iter().find(|budget| budget.name == *name);
            budget.is_none_or(|budget| !budget.limits.shadow)
        }
    };
    if let Some(found) = effective.resolve(peer)
        && drops(&found.rule.action.terms())
    {
        return Some(Subject::Source(found.rule.selector));
    }
    let mut tables: BTreeMap<TableForm, Vec<(u32, &KeyedRule)>> = BTreeMap::new();
    for rule in effective.keyed.iter().filter(|rule| may_match(rule, peer, session)) {
        // Which interface it is does not matter for how specific the rule is.
        if let Ok(id) = RuleId::new(&rule.path, &|_name| Some(1)) {
            tables.entry(id.form).or_default().push((id.rank_of(&rule.path), rule));
        }
    }
    for rules in tables.values() {
        // A more specific rule that surely matches decides alone.
        let sure = rules.iter().filter(|(_, rule)| surely_matches(rule)).map(|(rank, _)| *rank);
        let least = sure.max().unwrap_or(0);
        let may = rules.iter().filter(|(rank, rule)| *rank >= least && drops(&rule.terms));
        if let Some((_, rule)) = may.max_by_key(|(rank, _)| *rank) {
            return Some(Subject::Keyed(rule.path.clone()));
        }
    }
    None
}

/// Whether packets of the session may fall under a rule.
fn may_match(rule: &KeyedRule, peer: &Selector, session: &Session) -> bool {
    rule.path.0.iter().all(|part| match part {
        Part::Source(masks, value) => {
            let in_table = matches!(peer, Selector::Prefix(net) if has(*masks, net));
            in_table && value.is_none_or(|net| overlap(&net, peer))
        }
        Part::DestinationPort(value) => match (value, session.port) {
            (Some(port), Some(listens)) => *port == listens,
            (None, _) | (_, None) => true,
        },
        Part::Protocol(value) => value.is_none_or(|protocol| protocol == TCP),
        // TCP finds a size that needs no fragments, and the session is not in a tunnel that is looked into.
        Part::Fragment(value) => matches!(value, None | Some(Fragment::Whole)),
        Part::Inner(_) => false,
        Part::Destination(_)
        | Part::TcpFlags(_)
        | Part::Interface(_)
        | Part::Vlan(_)
        | Part::Dscp(_) => true,
    })
}

/// Whether all packets of a session that may match do.
fn surely_matches(rule: &KeyedRule) -> bool {
    rule.path.0.iter().all(|part| match part {
        Part::Source(..) | Part::Protocol(_) => true,
        Part::DestinationPort(value) => value.is_some(),
        Part::Destination(value) => value.is_none(),
        Part::TcpFlags(_)
        | Part::Interface(_)
        | Part::Vlan(_)
        | Part::Dscp(_)
        | Part::Fragment(_)
        | Part::Inner(_) => false,
    })
}

fn has(masks: SourceMasks, net: &IpNet) -> bool {
    masks.of(net).is_some()
}

/// A rule may be for a longer prefix than the /64 that an IPv6 peer is.
fn overlap(net: &IpNet, peer: &Selector) -> bool {
    let rule = Selector::Prefix(*net);
    rule.contains(peer) || peer.contains(&rule)
}
