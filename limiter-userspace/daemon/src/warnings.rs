//! Warnings about rules that are in force but may not do what their author thinks.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use limiter_common::header;
use limiter_common::wire::field;
use limiter_datapath::{
    Datapath, Hook, Observed, Queueing, hold_packets, interfaces_of, keep_tags, memory_of,
};
use limiter_rules::model::{Direction, Limits, Listing, Martians, Over, Part};
use limiter_rules::warnings::Warnings;
use limiter_rules::{Path, Selector, Subject, Terms};

use super::effective::{Effective, EffectiveSet};
use crate::api::limits::Origin;
use crate::render::bytes;

/// Warnings that follow from the rules, and the lists of their files, alone. Anybody who sets a
/// limit on the command line says whether all share it.
pub(super) fn of_rules(set: &EffectiveSet, lists: &BTreeMap<Selector, Listing>) -> Warnings {
    let by_hand: HashSet<&Path> = set
        .rules
        .iter()
        .filter(|effective| effective.origin == Origin::Cli)
        .map(|effective| &effective.rule.path)
        .collect();
    Warnings::of(&set.rule_set(), lists, |path| by_hand.contains(path))
}

/// The warning that a change is not in force yet, if limits are off.
pub(super) fn while_off(datapath: &dyn Observed) -> Option<String> {
    // `limiter status` reports an error of this.
    let off = datapath.bypass().unwrap_or_default();
    off.then(|| "limits are off: nothing of this has an effect before `limiter on`".to_owned())
}

/// Warnings about a rule set as a whole: one line for each kind.
pub(super) fn of_whole(set: &EffectiveSet) -> Vec<String> {
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

/// Like [`limiter_rules::RuleSet::limits_anybody`], of the rules in force.
fn limits_anybody(set: &EffectiveSet) -> bool {
    set.rules.iter().any(|effective| effective.rule.terms != Terms::Unlimited)
        || set.martians == Some(Martians::Drop)
}

/// Rules for VLANs, on interfaces where the program sees no tag; asked anew for each rule set. At
/// tc it sees those that were taken off, too.
pub(super) fn of_tags(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
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

/// Bytes of packets that wait from which on a warning names them.
const LARGE: u64 = 64_000_000;

/// Interfaces that are named one by one in warnings about the same.
const MOST_ALIKE: usize = 4;

/// Who lets packets in a direction wait, and how many of one flow at most: rules, and budgets that
/// they are charged to. In shadow mode nothing waits.
fn waiting(set: &EffectiveSet, direction: Direction) -> Option<(String, u64)> {
    let mut charged = HashSet::new();
    let mut all: Vec<(Subject, &Limits)> = Vec::new();
    let rules = set.rules.iter().map(|effective| &effective.rule);
    for rule in rules.filter(|rule| [direction, Direction::Both].contains(&rule.path.direction)) {
        match &rule.terms {
            Terms::Budget(name) => {
                charged.insert(name);
            }
            Terms::Limits(limits) => {
                if let Over::Class(name) = &limits.over {
                    charged.insert(name);
                }
                all.push((Subject::Rule(rule.path.clone()), limits));
            }
            Terms::Unlimited => {}
        }
    }
    let classes = set.budgets.iter().filter(|budget| charged.contains(&budget.name));
    let classes: Vec<&String> = classes
        .filter_map(|budget| match &budget.limits.over {
            Over::Class(name) => Some(name),
            _ => None,
        })
        .collect();
    charged.extend(classes);
    let budgets = set.budgets.iter().filter(|budget| charged.contains(&budget.name));
    all.extend(budgets.map(|budget| (Subject::Budget(budget.name.clone()), &budget.limits)));
    let waiting = all.into_iter().filter(|(_, limits)| !limits.shadow);
    let waiting = waiting.filter_map(|(subject, limits)| Some((subject, limits.most_waiting()?)));
    let (subjects, packets): (Vec<Subject>, Vec<u64>) = waiting.unzip();
    Some((first_of(&subjects)?, packets.into_iter().max()?))
}

/// Has packets that come in wait, if rules let any wait; a warning if they cannot.
pub(super) fn hold_incoming(set: &EffectiveSet, datapath: &mut dyn Datapath) -> Option<String> {
    let at_tc = datapath.is_at(Hook::Tc(header::Direction::In));
    let waiting = waiting(set, Direction::In).filter(|_| at_tc);
    let packets = waiting.as_ref().map(|(_, packets)| *packets);
    let error = datapath.hold_incoming(packets).err()?;
    let (who, _) = waiting?;
    Some(format!(
        "packets of {who} that come in do not wait, and those that should go on at once: {error}"
    ))
}

/// Rules whose packets are to wait on their way out, on interfaces where they do not; asked anew
/// for each rule set.
pub(super) fn of_delays(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let Some((who, packets)) = waiting(set, Direction::Out) else {
        return Vec::new();
    };
    let outgoing = Hook::Tc(header::Direction::Out);
    let limited = datapath.attachments().iter().filter(|at| at.mode.hook() == outgoing);
    let mut warnings: Vec<String> = limited
        .map(|at| &at.interface)
        .filter_map(|interface| {
            let command = hold_packets(interface, packets);
            // The usual room of fq takes 23 MB.
            let memory = match memory_of(packets) {
                ..LARGE => String::new(),
                memory => format!(" (room for {packets} of 1,500 bytes takes {})", bytes(memory)),
            };
            match datapath.queueing(interface) {
                Ok(Queueing::Fq(fq)) if u64::from(fq.flow_packets.min(fq.packets)) >= packets => {
                    None
                }
                Ok(Queueing::Fq(fq)) => Some(format!(
                    "fq on {interface} has room for {} packets of a flow, and of {who} up to \
                     {packets} may wait{memory}: fq drops the others, which limiter does not count: \
                     {command}",
                    fq.flow_packets.min(fq.packets)
                )),
                Ok(Queueing::Other(kind)) => Some(format!(
                    "packets of {who} do not wait on {interface}, which has {kind} and not fq: \
                     those that should wait go out at once{memory}: {command}"
                )),
                Err(error) => Some(format!(
                    "packets of {who} wait on {interface} only if it has fq, which is not known \
                     ({error}): see tc qdisc show dev {interface}; {command}"
                )),
            }
        })
        .collect();
    let more = warnings.len().saturating_sub(MOST_ALIKE);
    warnings.truncate(MOST_ALIKE);
    if more > 0 {
        warnings.push(format!("packets do not wait on {more} more interfaces, as on those named"));
    }
    warnings
}

/// Rules for packets in a direction in which no interface is limited; asked anew for each rule set.
pub(super) fn of_direction(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let sees_out = datapath.is_at(Hook::Tc(header::Direction::Out));
    let sees_in = datapath.is_at(Hook::Xdp) || datapath.is_at(Hook::Tc(header::Direction::In));
    let (own, unseen, seen, start) = match (sees_in, sees_out) {
        (true, true) => return Vec::new(),
        // On no interface at all nothing is limited, as `limiter status` says.
        (_, false) => (Direction::Out, "outgoing", "incoming", "in"),
        (false, true) => (Direction::In, "incoming", "outgoing", "out"),
    };
    let of = |direction: Direction| -> Vec<Subject> {
        let rules = set.rules.iter().map(|effective| &effective.rule);
        let limiting = rules.filter(|rule| rule.terms != Terms::Unlimited);
        let paths = limiting.map(|rule| &rule.path).filter(|path| path.direction == direction);
        paths.cloned().map(Subject::Rule).collect()
    };
    let none = first_of(&of(own)).map(|who| {
        format!(
            "{who} limits nothing: limiter sees no {unseen} packets on any interface; start the \
             daemon with --direction {} or both, or write `direction: {start}`",
            own.name()
        )
    });
    let both = first_of(&of(Direction::Both)).map(|who| {
        format!(
            "{who} limits {seen} packets alone: limiter sees no {unseen} ones on any interface; \
             start the daemon with --direction both, or write `direction: {start}`"
        )
    });
    none.into_iter().chain(both).collect()
}

/// Rules for interfaces that are not limited, so that no packet of theirs is seen; asked anew for
/// each rule set.
pub(super) fn of_interfaces(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    let attached = datapath.attachments();
    let is_limited = |name: &str| {
        let index = datapath.interface_index(name).unwrap_or(0);
        attached.iter().any(|at| at.asked == name || index != 0 && at.ifindex == index)
            // Limited once it is there; until then `limiter status` says why it is not.
            || datapath.patterns().iter().any(|pattern| pattern.matches(name))
    };
    let limited: Vec<String> = interfaces_of(attached).into_iter().map(str::to_owned).collect();
    let paths: Vec<&Path> = set.rules.iter().map(|effective| &effective.rule.path).collect();
    let by_interface = by_interface(&paths);
    let elsewhere = by_interface.iter().filter(|(name, _)| !is_limited(name));
    elsewhere.filter_map(|(name, rules)| not_limited(name, rules, &limited)).collect()
}

/// Rules for packets of one interface, by its name.
pub(super) fn by_interface(paths: &[&Path]) -> BTreeMap<String, Vec<Subject>> {
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

/// The warning of rules for an interface that is not limited.
pub(super) fn not_limited(name: &str, rules: &[Subject], limited: &[String]) -> Option<String> {
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

pub(super) fn first_of(subjects: &[Subject]) -> Option<String> {
    let (first, others) = subjects.split_first()?;
    Some(match others.len() {
        0 => format!("the {first}"),
        more => format!("the {first} (and {more} more)"),
    })
}
