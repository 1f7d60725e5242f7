//! Warnings about packets that should wait but do not.

use std::collections::HashSet;
use std::sync::Arc;

use limiter_api::render::bytes;
use limiter_api::status::Delays;
use limiter_common::header;
use limiter_datapath::{Datapath, DatapathError, Hook, Queueing, memory_of};
use limiter_rules::model::{Direction, Limits, Over};
use limiter_rules::{Rule, Subject, Terms};

use super::first_of;
use crate::rule_sets::effective::EffectiveSet;

/// Bytes of waiting packets from which on a warning gives the memory.
const LARGE: u64 = 64_000_000;

/// Most interfaces that are named one by one in warnings about the same problem.
const MOST_ALIKE: usize = 4;

/// The rules that let packets in a direction wait, on an interface if one is named, including
/// budgets to which they are charged, and the most packets of one flow that wait. In shadow mode
/// nothing waits.
fn waiting(
    set: &EffectiveSet,
    direction: Direction,
    interface: Option<&str>,
) -> Option<(String, u64)> {
    let mut charged = HashSet::new();
    let mut all: Vec<(Subject, &Limits)> = Vec::new();
    let rules = set.rules.iter().map(|effective| &effective.rule);
    let is_met = |rule: &&Arc<Rule>| {
        let is_here = |(here, only): (&str, &str)| here == only;
        [direction, Direction::Both].contains(&rule.path.direction)
            && interface.zip(rule.path.interface()).is_none_or(is_here)
    };
    for rule in rules.filter(is_met) {
        match &rule.terms {
            Terms::Budget(name) => {
                charged.insert(name);
            }
            Terms::Limits(limits) => {
                if let Over::Class(name) = &limits.over {
                    charged.insert(name);
                }
                if limits.most_waiting().is_some() {
                    all.push((Subject::Rule(rule.path.clone()), limits));
                }
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

/// Makes incoming packets wait, if rules let any wait; returns a warning if that is impossible.
pub(super) fn hold_incoming(set: &EffectiveSet, datapath: &mut dyn Datapath) -> Option<String> {
    let (who, error) = not_held(set, datapath)?;
    Some(format!(
        "packets of {who} that come in do not wait, and those that should go on at once: {error}"
    ))
}

/// [`hold_incoming`]; returns whose packets do not wait, and why.
fn not_held(set: &EffectiveSet, datapath: &mut dyn Datapath) -> Option<(String, DatapathError)> {
    let at_tc = datapath.is_at(Hook::Tc(header::Direction::In));
    let waiting = waiting(set, Direction::In, None).filter(|_| at_tc);
    let packets = waiting.as_ref().map(|(_, packets)| *packets);
    let error = datapath.hold_incoming(packets).err()?;
    Some((waiting?.0, error))
}

/// The delays of a rule set; `None` if none of its rules lets packets wait.
pub(crate) fn delays(set: &EffectiveSet) -> Option<Delays> {
    on_way_out(set, None)
}

/// The delays of packets that go out, by an interface if one is named.
fn on_way_out(set: &EffectiveSet, interface: Option<&str>) -> Option<Delays> {
    waiting(set, Direction::Out, interface).map(|(who, packets)| Delays { who, packets })
}

/// Reason why packets do not wait on an interface as they should, with the remedy; `None` if
/// they do.
pub fn delays_warning(
    delays: &Delays,
    interface: &str,
    queueing: &Result<Queueing, DatapathError>,
) -> Option<String> {
    let Delays { who, packets } = delays;
    // The usual limit of fq takes 23 MB.
    let memory = match memory_of(*packets) {
        ..LARGE => String::new(),
        memory => format!(" (room for {packets} of 1,500 bytes takes {})", bytes(memory)),
    };
    match queueing {
        Ok(Queueing::Fq(fq)) if u64::from(fq.flow_packets.min(fq.packets)) >= *packets => None,
        Ok(found @ Queueing::Fq(fq)) => Some(format!(
            "fq on {interface} has room for {} packets of a flow, and of {who} up to \
             {packets} may wait{memory}: fq drops the others, which limiter does not count: {}",
            fq.flow_packets.min(fq.packets),
            found.remedy(interface, *packets)
        )),
        Ok(found @ (Queueing::Other(kind) | Queueing::NoFq(kind))) => Some(format!(
            "packets of {who} do not wait on {interface}, which has {kind} and not fq: those \
             that should wait go out at once, and count as `delayed`{memory}: {}",
            found.remedy(interface, *packets)
        )),
        Err(error) => Some(format!(
            "packets of {who} wait on {interface} only if it has fq, which is not known \
             ({error}): see tc qdisc show dev {interface}"
        )),
    }
}

fn outgoing_warning(set: &EffectiveSet, name: &str, datapath: &dyn Datapath) -> Option<String> {
    delays_warning(&on_way_out(set, Some(name))?, name, &datapath.queueing(name))
}

/// Why packets of a rule of this set, that is to be in force, would not wait as it says; `None` if
/// they wait. From this call on, incoming packets can.
pub(crate) fn cannot_wait(
    set: &EffectiveSet,
    rule: &Rule,
    interface: Option<&str>,
    datapath: &mut dyn Datapath,
) -> Option<String> {
    let direction = rule.path.direction;
    if direction.has_in()
        && let Some((_, error)) = not_held(set, datapath)
    {
        return Some(format!("packets that come in cannot wait: {error}"));
    }
    if !direction.has_out() {
        return None;
    }
    let outgoing = Hook::Tc(header::Direction::Out);
    let limited = datapath.attachments().iter().filter(|at| at.mode.hook() == outgoing);
    let is_meant = |name: &&str| interface.is_none_or(|only| only == *name);
    let mut names = limited.map(|at| at.interface.as_str()).filter(is_meant);
    names.find_map(|name| {
        let delays = on_way_out(set, Some(name))?;
        match &datapath.queueing(name) {
            Ok(found @ (Queueing::Other(kind) | Queueing::NoFq(kind))) => Some(format!(
                "packets cannot wait on {name}, which has {kind} and not fq: {}",
                found.remedy(name, delays.packets)
            )),
            found => delays_warning(&delays, name, found),
        }
    })
}

/// Warnings about rules whose outgoing packets should wait, on interfaces where they do not.
pub(super) fn of_outgoing(set: &EffectiveSet, datapath: &dyn Datapath) -> Vec<String> {
    if delays(set).is_none() {
        return Vec::new();
    }
    let outgoing = Hook::Tc(header::Direction::Out);
    let limited = datapath.attachments().iter().filter(|at| at.mode.hook() == outgoing);
    let limited = limited.map(|at| &at.interface);
    let mut warnings: Vec<String> =
        limited.filter_map(|name| outgoing_warning(set, name, datapath)).collect();
    let more = warnings.len().saturating_sub(MOST_ALIKE);
    warnings.truncate(MOST_ALIKE);
    if more > 0 {
        warnings.push(format!("packets do not wait on {more} more interfaces, as on those named"));
    }
    warnings
}
