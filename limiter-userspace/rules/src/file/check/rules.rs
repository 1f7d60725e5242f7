//! Descriptors inside descriptors, and the rules that they make.

use std::sync::Arc;

use ipnet::IpNet;

use super::checked::{Checked, Failure, stand};
use super::keys::{Added, added, masks, within_aggregate};
use super::scalar::{at, one_of, text};
use super::{actions, limits, sharing};
use crate::file::error::Problem;
use crate::file::place::Place;
use crate::file::placed::{At, Item};
use crate::file::rule_file::RuleFile;
use crate::file::shape::{Aggregate, Descriptor};
use crate::model::key::GENERIC;
use crate::model::{Direction, Limits, Over, Part, Path, Rule, SourceMasks, Subject, Terms};

/// More rules than fit anywhere, so that lists inside lists end.
pub(in super::super) const MAX_RULES: usize = 1 << 19;

/// The problem of a descriptor with nothing but its key.
pub(in crate::file) const MISSING: Problem = Problem::Missing {
    field: "rate_limit",
    remedy: "write `rate_limit: {rate: 100/s}`, or `rate_limit: {unlimited: true}` to let all of \
             them pass, as envoyproxy/ratelimit does",
};

/// What to do about a field that means nothing without a limit.
pub(in crate::file) const WITHOUT: &str = "add a limit, or remove the field";

/// The paths from the top to a descriptor: several where keys have lists of values.
#[derive(Clone, Debug)]
pub(super) struct Paths {
    label: Option<Box<str>>,
    /// The direction of all of them; none outside of the outermost descriptor.
    direction: Option<Direction>,
    all: Vec<Path>,
}

impl Default for Paths {
    fn default() -> Self {
        Self { label: None, direction: None, all: vec![Path::default()] }
    }
}

/// Adds the rules of a descriptor and of those inside it.
pub(super) fn add(
    Item(raw): &Item<Descriptor>,
    outer: &Paths,
    checked: &mut Checked,
) -> Result<(), Failure> {
    let place = checked.place(raw.referenced);
    let descriptor = &raw.value;
    let paths = extended(descriptor, outer, place)?;
    let besides = Limits {
        over: actions::over(descriptor.action.as_deref())?,
        shadow: descriptor.shadow_mode.is_some(),
        full: descriptor.on_full.as_ref().map(actions::full).transpose()?.unwrap_or_default(),
        on_loss: actions::on_loss(descriptor.on_daemon_loss.as_ref())?,
        sharing: sharing::sharing(descriptor.scope.as_ref(), descriptor.cluster.as_deref())?,
        ..Limits::new(Vec::new())
    };
    let (one, several) = (descriptor.rate_limit.as_deref(), descriptor.rate_limits.as_deref());
    let read = limits::limits(one, several, checked.units)?;
    let has_limits = read.is_some();
    if let Some(budget) = &descriptor.budget {
        let name = text(budget, "budget", "name a budget, or remove the line")?;
        if let Some(field) =
            [one.map(|_| "rate_limit"), several.map(|_| "rate_limits")].into_iter().flatten().next()
        {
            return Err(at(budget.referenced, Problem::Beside("budget", field)));
        }
        rules(&paths, None, &Terms::Budget(name.to_owned()), place, &mut checked.file)?;
    }
    if let Some(read) = read {
        let terms = match read.limits {
            Some(limits) => Terms::Limits(Limits { limits, ..besides.clone() }),
            None => Terms::Unlimited,
        };
        if terms == Terms::Unlimited
            && descriptor.aggregates.is_none()
            && let Some((field, location)) = descriptor.of_limits()
        {
            return Err(at(location, Problem::UnlimitedWith(field)));
        }
        rules(&paths, read.name.as_deref(), &terms, place, &mut checked.file)?;
    }
    for aggregate in descriptor.aggregates.iter().flat_map(|list| &list.value) {
        let added = add_aggregate(aggregate, &paths, &besides, checked);
        checked.note(added);
    }
    let nested = descriptor.descriptors.as_ref().map_or(&[][..], |list| &list.value);
    let nothing = !has_limits && descriptor.budget.is_none() && descriptor.aggregates.is_none();
    let bare = nothing && nested.is_empty();
    if bare
        && descriptor.descriptors.is_none()
        && let Some(action) = &descriptor.action
    {
        return block(descriptor, action.referenced, &paths, besides, place, checked);
    }
    if bare && !names_whom(descriptor) {
        return Err((place, MISSING));
    }
    if !has_limits
        && descriptor.aggregates.is_none()
        && let Some((field, location)) = descriptor.of_limits()
    {
        let needs = "rate_limit";
        let remedy = if descriptor.budget.is_some() {
            "the budget has one of its own; write it there"
        } else {
            WITHOUT
        };
        return Err(at(location, Problem::Without { field, needs, remedy }));
    }
    if bare {
        rules(&paths, None, &Terms::Unlimited, place, &mut checked.file)?;
    }
    for inner in nested {
        let added = add(inner, &paths, checked);
        checked.note(added);
    }
    Ok(())
}

/// Adds the rules of a descriptor whose action stands without a limit: all of it is dropped.
fn block(
    descriptor: &Descriptor,
    action: At,
    paths: &Paths,
    besides: Limits,
    place: Option<Place>,
    checked: &mut Checked,
) -> Result<(), Failure> {
    let without = |location, field, remedy| {
        Err(at(location, Problem::Without { field, needs: "rate_limit", remedy }))
    };
    if !matches!(besides.over, Over::Drop | Over::Reject) {
        let remedy = "add a limit; without one, drop and reject alone have a meaning: they block";
        return without(action, "action", remedy);
    }
    if paths.all.iter().any(|path| path.parts.is_empty()) {
        let remedy = "it would drop every packet: put a key around it, or add a limit";
        return without(action, "action", remedy);
    }
    let remedy = "what is blocked gets no bucket, and nodes share nothing; remove the field";
    let fields = [("on_full", &descriptor.on_full), ("scope", &descriptor.scope)];
    for (field, value) in fields {
        if let Some(value) = value {
            return without(value.referenced, field, remedy);
        }
    }
    rules(paths, None, &Terms::Limits(besides), place, &mut checked.file)
}

/// True if a descriptor is for named packets, and so an exception when it has no limit: there
/// envoyproxy/ratelimit lets pass. Without a value a limit was forgotten.
fn names_whom(descriptor: &Descriptor) -> bool {
    let key = descriptor.key.as_ref().and_then(|key| key.value.as_deref());
    descriptor.value.is_some() && key != Some(GENERIC)
}

/// The paths with what a descriptor adds to them.
fn extended(
    descriptor: &Descriptor,
    outer: &Paths,
    place: Option<Place>,
) -> Result<Paths, Failure> {
    let twice = |key| {
        let location = descriptor.key.as_ref().and_then(|key| key.referenced.place());
        Err((location.or(place), Problem::KeyTwice(key)))
    };
    let direction = direction(descriptor, outer)?;
    let going = |path: &Path| path.clone().going(direction);
    let parts = match added(descriptor, direction, place)? {
        Added::Label(_) if outer.label.is_some() => return twice("generic_key"),
        Added::Label(label) => {
            let all = outer.all.iter().map(going).collect();
            return Ok(Paths { label: Some(label.into()), direction: Some(direction), all });
        }
        Added::Parts(parts) => parts,
    };
    let mut paths = Vec::new();
    for path in outer.all.iter().map(going) {
        for part in &parts {
            if path.parts.iter().any(|other| other.same_key(part)) {
                return twice(part.key(direction));
            }
            let path = path.with(part.clone());
            if let Some((key, other)) = excluded(&path) {
                let location = descriptor.key.as_ref().and_then(|key| key.referenced.place());
                return Err((location.or(place), Problem::Beside(key, other)));
            }
            if one_family(&path) {
                paths.push(path);
            }
            if paths.len() > MAX_RULES {
                return Err((place, Problem::TooManyRules(MAX_RULES)));
            }
        }
    }
    if paths.is_empty() {
        return Err((place, Problem::NoFamily));
    }
    Ok(Paths { label: outer.label.clone(), direction: Some(direction), all: paths })
}

/// The direction of a descriptor: that of the one around it, or else its own.
fn direction(descriptor: &Descriptor, outer: &Paths) -> Result<Direction, Failure> {
    let said = descriptor.direction.as_ref();
    let own = said.map(|said| one_of(said, "direction", &Direction::NAMED)).transpose()?;
    match (said.zip(own), outer.direction) {
        (Some((said, own)), Some(outer)) if own != outer => {
            Err(at(said.referenced, Problem::OtherDirection { own, outer }))
        }
        (_, outer) => Ok(outer.or(own).unwrap_or_default()),
    }
}

/// Two keys of a path that no path has both.
fn excluded(path: &Path) -> Option<(&'static str, &'static str)> {
    let pairs =
        path.parts.iter().flat_map(|part| path.parts.iter().map(move |other| (part, other)));
    let mut excluded = pairs.filter(|(part, other)| part.excludes(other));
    excluded.next().map(|(part, other)| (part.key(path.direction), other.key(path.direction)))
}

/// True if a packet can have both addresses.
fn one_family(path: &Path) -> bool {
    let is_v4 = |net: &IpNet| matches!(net, IpNet::V4(_));
    let destination = path.parts.iter().find_map(|part| match part {
        Part::Destination(value) => value.as_ref().map(is_v4),
        _ => None,
    });
    let Some(v4) = destination else {
        return true;
    };
    path.source().is_none_or(|(masks, source)| {
        let fits = if v4 { masks.v4 } else { masks.v6 };
        fits.is_some() && source.is_none_or(|source| is_v4(&source) == v4)
    })
}

/// Adds one rule for each path.
fn rules(
    paths: &Paths,
    name: Option<&str>,
    terms: &Terms,
    place: Option<Place>,
    checked: &mut RuleFile,
) -> Result<(), Failure> {
    for path in &paths.all {
        stand(checked, Subject::Rule(path.clone()), place)?;
        let (label, path) = (paths.label.clone(), path.clone());
        let rule = Rule { name: name.map(Box::from), label, path, terms: terms.clone() };
        checked.rules.rules.push(Arc::new(rule));
        if checked.rules.rules.len() > MAX_RULES {
            return Err((place, Problem::TooManyRules(MAX_RULES)));
        }
    }
    Ok(())
}

fn add_aggregate(
    Item(raw): &Item<Aggregate>,
    paths: &Paths,
    besides: &Limits,
    checked: &mut Checked,
) -> Result<(), Failure> {
    let place = checked.place(raw.referenced);
    let Aggregate { v4_prefix_mask_len, v6_prefix_mask_len, rate_limit, rate_limits } = &raw.value;
    let masks = masks(v4_prefix_mask_len.as_ref(), v6_prefix_mask_len.as_ref(), place)?;
    let read = limits::limits(rate_limit.as_deref(), rate_limits.as_deref(), checked.units)?;
    let Some(read) = read else {
        let remedy = "write `rate_limit: {rate: 100/s}`";
        return Err((place, Problem::Missing { field: "rate_limit", remedy }));
    };
    let terms = match read.limits {
        Some(limits) => Terms::Limits(Limits { limits, ..besides.clone() }),
        None => Terms::Unlimited,
    };
    let wider = Paths { all: wider(&paths.all, masks, place)?, ..paths.clone() };
    rules(&wider, read.name.as_deref(), &terms, place, &mut checked.file)
}

/// The paths whose source has these masks; those of the other family are left out.
fn wider(paths: &[Path], masks: SourceMasks, place: Option<Place>) -> Result<Vec<Path>, Failure> {
    let mut wider = Vec::with_capacity(paths.len());
    for path in paths {
        let Some((_, value)) = path.source() else {
            let (field, needs) = ("aggregates", "remote_address");
            let remedy = "add it to the path, or remove the field";
            return Err((place, Problem::Without { field, needs, remedy }));
        };
        if let Some(net) = value {
            if masks.of(&net).is_none() && paths.len() > 1 {
                continue;
            }
            within_aggregate(net, masks).map_err(|error| (place, Problem::KeyValue(error)))?;
        }
        let parts = path.parts.iter().map(|part| match part {
            Part::Source(..) => Part::Source(masks, value),
            other => other.clone(),
        });
        let path = Path { parts: parts.collect(), direction: path.direction };
        if one_family(&path) {
            wider.push(path);
        }
    }
    if wider.is_empty() {
        return Err((place, Problem::NoFamily));
    }
    Ok(wider)
}
