//! Warnings about rules that are in force but may not do what their author expects.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::Ipv6Addr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv6Net};
use limiter_api::limits::Origin;
use limiter_api::render::seconds;
use limiter_common::header;
use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::field;
use limiter_datapath::{Datapath, Hook, Observed, interfaces_of, keep_tags};
use limiter_rules::model::{Direction, Limits, Listing, Martians, Over, Part};
use limiter_rules::warnings::Warnings;
use limiter_rules::{Path, Rule, RuleSet, Selector, Subject, Terms};

use super::effective::{Effective, EffectiveSet};

mod delays;

pub use delays::delays_warning;
pub(crate) use delays::{cannot_wait, delays};

/// Warnings that follow only from the rules and from the lists of their files. A limit set on the
/// command line states itself whether its sources share it.
pub(crate) fn of_rules(set: &EffectiveSet, lists: &BTreeMap<Selector, Listing>) -> Warnings {
    let by_hand: HashSet<&Path> = set
        .rules
        .iter()
        .filter(|effective| effective.origin == Origin::Cli)
        .map(|effective| &effective.rule.path)
        .collect();
    Warnings::of(&set.rule_set(), lists, |path| by_hand.contains(path))
}

/// The warning that a change is not in force yet, if limits are off.
pub(crate) fn while_off(datapath: &dyn Observed) -> Option<String> {
    // `limiter status` reports an error here.
    let off = datapath.bypass().unwrap_or_default();
    off.then(|| "limits are off: nothing of this has an effect before `limiter on`".to_owned())
}

/// The warning that a time exceeds the range of the program's clock, which cuts it.
pub(crate) fn cut(asked: u64, datapath: &dyn Observed) -> Option<String> {
    let longest = Ticks::new(MAX_TICKS).since(datapath.now()).as_nanos() / 1_000_000_000;
    (asked > longest).then(|| {
        format!(
            "{} are cut to {}, after which the program's clock does not go on: leave the time out \
             of an entry that is for ever",
            seconds(asked),
            seconds(longest)
        )
    })
}

/// Warnings about a rule set as a whole: one line for each kind.
pub(crate) fn of_whole(set: &EffectiveSet) -> Vec<String> {
    let (mut rejects, mut shared) = (Vec::new(), Vec::new());
    let mut named = BTreeSet::new();
    let mut look = |subject: Subject, limits: &Limits| {
        if limits.sharing.is_some() {
            shared.push(subject.clone());
        }
        match &limits.over {
            Over::Reject => rejects.push(subject),
            Over::Class(name) => {
                named.insert(name.clone());
            }
            Over::Drop
            | Over::Mark(_)
            | Over::Interface(_)
            | Over::Cpu(_)
            | Over::Ban(_)
            | Over::Delay(_) => {}
        }
    };
    let mut charged = BTreeSet::new();
    for Effective { rule, .. } in &set.rules {
        match &rule.terms {
            Terms::Unlimited => {}
            Terms::Budget(name) => {
                charged.insert(name.as_str());
            }
            Terms::Limits(limits) => look(Subject::Rule(rule.path.clone()), limits),
        }
    }
    for budget in &set.budgets {
        look(Subject::Budget(budget.name.clone()), &budget.limits);
    }
    let is_named = |name: &str| named.contains(name) || charged.contains(name);
    let mut warnings = Vec::new();
    if !limits_anybody(set) {
        warnings.push("nobody is limited: no rule that limits is in force".to_owned());
    }
    if let Some(who) = first_of(&rejects)
        && set.replies.is_none()
    {
        warnings.push(format!(
            "{who} rejects, but there is no `replies`: packets over it are dropped, and nobody is \
             notified; add replies to the rule file"
        ));
    }
    if let Some(who) = first_of(&shared)
        && set.cluster.is_none()
    {
        warnings.push(format!(
            "{who} has `scope: cluster`, but no cluster is configured (`limiter run --cluster \
             FILE`): it is a limit of this node alone"
        ));
    }
    for budget in set.budgets.iter().filter(|budget| !is_named(&budget.name)) {
        warnings.push(format!(
            "the budget {} is not in force: no rule names it; add one, or remove the budget",
            budget.name
        ));
    }
    warnings
}

/// The note that a limit for each source treats all link-local neighbours as one source; `None` if
/// the rules or lists mention them.
pub(crate) fn of_neighbours(set: &RuleSet) -> Option<String> {
    let local = Selector::Prefix(IpNet::from(Ipv6Net::new_assert(LINK_LOCAL, 64)));
    let meets = |at: &Selector| at.contains(&local) || local.contains(at);
    let is_each = |rule: &&Arc<Rule>| {
        let bounds = |limits: &Limits| {
            !limits.shadow && matches!(limits.over, Over::Drop | Over::Reject | Over::Ban(_))
        };
        rule.path.parts.len() == 1
            && rule.path.selector() == Some(Selector::Every)
            && rule.terms.limits().is_some_and(bounds)
    };
    let each = set.rules.iter().find(is_each)?;
    let named = set.rules.iter().filter_map(|rule| rule.path.selector());
    let allowed = set.lists.iter().filter(|(_, entry)| entry.allow).map(|(at, _)| *at);
    let is_thought_of = named.chain(allowed).any(|at| at != Selector::Every && meets(&at));
    (!is_thought_of).then(|| {
        let who = Subject::Rule(each.path.clone());
        format!(
            "to the {who} all neighbours with link-local addresses, fe80::/64, are one source, and \
             so are hosts that have none yet, 0.0.0.0: their DHCPv6, OSPFv3, BFD and VRRP have one \
             limit together (docs/rules-reference.md#sources has the lines for one each)"
        )
    })
}

/// Link-local addresses: RFC 4291.
const LINK_LOCAL: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0);

/// As [`limiter_rules::RuleSet::limits_anybody`], for the rules in force.
fn limits_anybody(set: &EffectiveSet) -> bool {
    set.rules.iter().any(|effective| effective.rule.terms != Terms::Unlimited)
        || set.martians == Some(Martians::Drop)
}

/// Warnings about rules in the present state of the machine; from this call on, incoming packets
/// wait if rules let any wait.
pub(crate) fn of_machine(set: &EffectiveSet, datapath: &mut dyn Datapath) -> Vec<String> {
    let mut warnings = of_tags(set, datapath);
    warnings.extend(of_interfaces(set, datapath));
    warnings.extend(of_direction(set, datapath));
    warnings.extend(delays::hold_incoming(set, datapath));
    warnings.extend(delays::of_outgoing(set, datapath));
    warnings
}

/// Warnings about rules for VLANs on interfaces where the program sees no tags, checked again for
/// each rule set. At tc it also sees tags that the card removed.
fn of_tags(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let by_tag = |path: &&Path| {
        path.direction.has_in() && path.parts.iter().any(|part| part.field() == field::VLAN)
    };
    let paths = set.rules.iter().map(|effective| &effective.rule.path);
    let rules: Vec<_> = paths.filter(by_tag).cloned().map(Subject::Rule).collect();
    let Some(who) = first_of(&rules) else {
        return Vec::new();
    };
    let at_xdp = datapath.attachments().iter().filter(|at| at.mode.hook() == Hook::Xdp);
    at_xdp
        .map(|at| &at.interface)
        .filter_map(|interface| match datapath.strips_tags(interface) {
            Ok(false) => None,
            Ok(true) => Some(format!(
                "{interface} takes VLAN tags off before they are seen, so {who} may match nothing \
                 there: {}",
                keep_tags(interface)
            )),
            Err(error) => Some(format!(
                "{who} may match nothing on {interface}, if that takes VLAN tags off, which \
                 is not known ({error}): see rx-vlan-offload in ethtool -k {interface}"
            )),
        })
        .collect()
}

/// Warnings about rules for a direction in which no interface is limited, checked again for each
/// rule set.
fn of_direction(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let sees_out = datapath.is_at(Hook::Tc(header::Direction::Out));
    let sees_in = datapath.is_at(Hook::Xdp) || datapath.is_at(Hook::Tc(header::Direction::In));
    let (own, unseen, seen, start) = match (sees_in, sees_out) {
        (true, true) => return Vec::new(),
        // If no interface is limited at all, `limiter status` says so.
        (_, false) => (Direction::Out, "outgoing", "incoming", "in"),
        (false, true) => (Direction::In, "incoming", "outgoing", "out"),
    };
    // The first of them, and how it is written for the other direction.
    let of = |direction: Direction| -> Option<(String, String)> {
        let limiting = set.rules.iter().filter(|at| at.rule.terms != Terms::Unlimited);
        let rules: Vec<_> = limiting.filter(|at| at.rule.path.direction == direction).collect();
        let subjects: Vec<_> = rules.iter().map(|at| Subject::Rule(at.rule.path.clone())).collect();
        let remedy = match rules.first()?.origin {
            Origin::Cli => format!("set it with `--direction {start}`"),
            _ => format!("write `direction: {start}`"),
        };
        Some((first_of(&subjects)?, remedy))
    };
    let none = of(own).map(|(who, remedy)| {
        format!(
            "{who} limits nothing: limiter sees no {unseen} packets on any interface; start the \
             daemon with --direction {} or both, or {remedy}",
            own.name()
        )
    });
    let both = of(Direction::Both).map(|(who, remedy)| {
        format!(
            "{who} limits {seen} packets alone: limiter sees no {unseen} ones on any interface; \
             start the daemon with --direction both, or {remedy}"
        )
    });
    none.into_iter().chain(both).collect()
}

/// Warnings about rules for interfaces that are not limited, whose packets the program does not
/// see; checked again for each rule set.
fn of_interfaces(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let attached = datapath.attachments();
    let is_limited = |name: &str| {
        let index = datapath.interface_index(name).unwrap_or(0);
        attached.iter().any(|at| at.asked == name || index != 0 && at.ifindex == index)
            // Limited as soon as it exists; until then `limiter status` gives the reason.
            || datapath.patterns().iter().any(|pattern| pattern.matches(name))
    };
    let limited: Vec<String> = interfaces_of(attached).into_iter().map(str::to_owned).collect();
    let paths: Vec<&Path> = set.rules.iter().map(|effective| &effective.rule.path).collect();
    let by_interface = by_interface(&paths);
    let elsewhere = by_interface.iter().filter(|(name, _)| !is_limited(name));
    elsewhere.filter_map(|(name, rules)| not_limited(name, rules, &limited)).collect()
}

/// Rules for packets of one interface, by the interface's name.
pub(crate) fn by_interface(paths: &[&Path]) -> BTreeMap<String, Vec<Subject>> {
    let mut by_interface: BTreeMap<String, Vec<Subject>> = BTreeMap::new();
    for path in paths {
        for part in path.parts.iter() {
            if let Part::Interface(Some(name)) = part {
                let rules = match by_interface.get_mut(name) {
                    Some(rules) => rules,
                    None => by_interface.entry(name.clone()).or_default(),
                };
                rules.push(Subject::Rule((*path).clone()));
            }
        }
    }
    by_interface
}

/// The warning about rules for an interface that is not limited.
pub(crate) fn not_limited(name: &str, rules: &[Subject], limited: &[String]) -> Option<String> {
    let limited = limited.join(", ");
    let first = rules.first().map(|rule| match rule {
        Subject::Rule(path) => path.direction,
        _ => Direction::In,
    });
    let (comes, come_in) = match first? {
        Direction::In => ("comes by it", "come in by"),
        Direction::Out => ("that goes out by it is seen", "go out by"),
        Direction::Both => ("of it is seen", "come in and go out by"),
    };
    Some(format!(
        "{} limits nothing: limiter is not on {name}, and no packet {comes}; write the interface \
         that packets {come_in} (limited: {limited}), or start the daemon with --iface {name} as \
         well",
        first_of(rules)?
    ))
}

pub(crate) fn first_of(subjects: &[Subject]) -> Option<String> {
    let (first, others) = subjects.split_first()?;
    Some(match others.len() {
        0 => format!("the {first}"),
        more => format!("the {first} (and {more} more)"),
    })
}
