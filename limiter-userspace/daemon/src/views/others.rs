//! Causes beside the rules on sources that may drop packets of a source.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_common::time::Ticks;
use limiter_datapath::Observed;
use limiter_rules::model::{Martians, Part};
use limiter_rules::{Rule, Terms};

use super::keys::key;
use super::reported::Result;
use crate::api::source::SourceView;
use crate::effective::EffectiveSet;

/// Rules that are named; the others are counted.
const NAMED: usize = 10;

/// A source with what is asked before its rule and beside it.
pub(crate) fn with_others(
    view: SourceView,
    datapath: &dyn Observed,
    effective: &EffectiveSet,
    address: IpAddr,
) -> Result<SourceView> {
    let (source, now) = (key(address), datapath.now());
    let ban = datapath.ban(&source)?;
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

/// True if packets of a source may be over a rule, and are not only counted then.
fn may_drop(rule: &Rule, effective: &EffectiveSet, address: IpAddr) -> bool {
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

/// True if packets of a source may have the value that a key asks for.
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

/// True if a prefix has addresses of a source: of the address, or of the /64 around one of IPv6.
fn overlap(prefix: &IpNet, address: IpAddr) -> bool {
    let source = match address {
        IpAddr::V4(_) => IpNet::from(address),
        IpAddr::V6(_) => IpNet::new_assert(address, 64).trunc(),
    };
    prefix.contains(&source) || source.contains(prefix)
}
