//! Further causes, beside the rules on sources, that may drop packets of a source.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_api::sources::source::SourceView;
use limiter_common::time::Ticks;
use limiter_datapath::Observed;
use limiter_rules::model::{Martians, Part};
use limiter_rules::{Rule, Terms};

use super::keys::key;
use super::reported::Result;
use crate::rule_sets::effective::EffectiveSet;

/// Most rules that are named; the others are counted.
const NAMED: usize = 10;

/// Adds everything that the program checks before the rule of a source and beside it.
pub(crate) fn with_others(
    view: SourceView,
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let (source, now) = (key(address), datapath.now());
    let ban = datapath.ban(source)?;
    let until = ban.map(|ban| Ticks::new(ban.until)).filter(|until| *until > now);
    let address = address.to_canonical();
    let mut names = Vec::new();
    let mut all = 0;
    for rule in effective
        .on_other_keys()
        .map(|effective| &*effective.rule)
        .filter(|rule| may_drop(rule, effective, address))
    {
        all += 1;
        if names.len() < NAMED {
            let path = rule.path.to_string();
            names.push(
                rule.called().map_or_else(|| path.clone(), |name| format!("{name} ({path})")),
            );
        }
    }
    Ok(SourceView {
        banned_seconds: until.map(|until| until.since(now).as_nanos().div_ceil(1_000_000_000)),
        martian: effective.martians == Some(Martians::Drop) && source.is_martian(),
        other_rules: names,
        other_rules_in_all: all,
        ..view
    })
}

/// Returns true if a rule may drop packets of a source, and does not only count them.
pub(crate) fn may_drop(rule: &Rule, effective: &EffectiveSet, address: IpAddr) -> bool {
    let shadow = match &rule.terms {
        Terms::Unlimited => return false,
        Terms::Limits(limits) => limits.shadow,
        Terms::Budget(name) => {
            let budget = effective.budgets.iter().find(|budget| budget.name == *name);
            budget.is_some_and(|budget| budget.limits.shadow)
        }
    };
    !shadow && rule.path.parts.iter().all(|part| fits(part, address))
}

/// Returns true if packets of a source may have the value that a key matches.
fn fits(part: &Part, address: IpAddr) -> bool {
    match part {
        Part::Source(masks, value) => {
            masks.of(&IpNet::from(address)).is_some()
                && value.is_none_or(|prefix| overlap(&prefix, address))
        }
        Part::Destination(value) => {
            value.is_none_or(|prefix| prefix.addr().is_ipv4() == address.is_ipv4())
        }
        _ => true,
    }
}

/// Returns true if a prefix contains addresses of a source: the address, or part of the /64 around
/// an IPv6 address.
fn overlap(prefix: &IpNet, address: IpAddr) -> bool {
    let source = match address {
        IpAddr::V4(_) => IpNet::from(address),
        IpAddr::V6(_) => IpNet::new_assert(address, 64).trunc(),
    };
    prefix.contains(&source) || source.contains(prefix)
}
