//! Limits of rules that are asked one after the other, as tables in which the most specific rule
//! wins. Rules of one table whose packets overlap are made to say the same: a rule inside of another
//! one has the limits of both.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::firewall::Hook;
use crate::rules::model::{
    Budget, LimitList, Limits, Over, Part, Path, Period, RateLimit, Rule, RuleLimit, RuleSet,
    Terms, Unit,
};

/// The most limits of one rule.
const MOST_LIMITS: usize = 4;

/// The most paths of all rules together: well under what a daemon takes.
const MOST_PATHS: usize = 8192;

/// Most comparisons of paths.
const MOST_EFFORT: usize = 20_000_000;

/// A limit of another program, as paths of a rule file.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    /// Index of the rule.
    pub(super) rule: usize,
    /// Name in the rule file.
    pub(super) name: String,
    pub(super) hook: Hook,
    pub(super) limited: Vec<Path>,
    pub(super) exempt: Vec<Path>,
    pub(super) limit: RuleLimit,
    pub(super) over: Over,
    /// The budget that is charged, where that is one for all paths.
    pub(super) budget: Option<String>,
}

/// Relation of two paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Apart,
    Same,
    /// The first is inside of the second.
    Inside,
    /// The second is inside of the first.
    Around,
    Partial,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pieces: Vec<Piece>,
    paths: usize,
    effort: usize,
}

impl Tables {
    /// Adds one.
    ///
    /// # Errors
    ///
    /// The reason why it cannot stand beside the others; `name` tells how they are called.
    pub(super) fn add(
        &mut self,
        piece: Piece,
        place: impl Fn(usize) -> String,
    ) -> Result<(), String> {
        let paths = piece.limited.len() + piece.exempt.len();
        if self.paths + paths > MOST_PATHS {
            return Err(format!("there are more than {MOST_PATHS} rules before it"));
        }
        for other in &self.pieces {
            self.effort += paths * (other.limited.len() + other.exempt.len());
            if self.effort > MOST_EFFORT {
                return Err("there are too many rules before it to compare it with".to_owned());
            }
            fits(&piece, other).map_err(|why| format!("{}: {why}", place(other.rule)))?;
        }
        self.paths += paths;
        self.pieces.push(piece);
        // Enough room for the limits where rules are inside of others.
        let piece = self.pieces.last();
        let crowded = piece.is_some_and(|piece| {
            self.all_paths().into_iter().any(|path| {
                let among = piece.limited.iter().any(|own| inside(path, own));
                among && self.applying(path).len() > MOST_LIMITS
            })
        });
        if crowded {
            self.pieces.pop();
            return Err(format!("more than {MOST_LIMITS} limits would be for the same packets"));
        }
        Ok(())
    }

    /// Takes the limits of a rule away.
    pub(super) fn remove(&mut self, rule: usize) {
        self.pieces.retain(|piece| piece.rule != rule);
    }

    /// The rules that have a path or a budget, by what an error is about.
    pub(super) fn rules_of(&self, path: Option<&Path>, budget: Option<&str>) -> Vec<usize> {
        let of = |piece: &&Piece| {
            path.is_some_and(|path| piece.limited.contains(path) || piece.exempt.contains(path))
                || (budget.is_some() && piece.budget.as_deref() == budget)
        };
        self.pieces.iter().filter(of).map(|piece| piece.rule).collect()
    }

    fn all_paths(&self) -> Vec<&Path> {
        let mut seen = BTreeMap::new();
        let paths = self.pieces.iter().flat_map(|piece| piece.limited.iter().chain(&piece.exempt));
        for (index, path) in paths.enumerate() {
            seen.entry(path).or_insert(index);
        }
        let mut paths: Vec<(&Path, usize)> = seen.into_iter().collect();
        paths.sort_by_key(|(_, index)| *index);
        paths.into_iter().map(|(path, _)| path).collect()
    }

    /// Pieces whose limits are for a path.
    fn applying(&self, path: &Path) -> Vec<&Piece> {
        let applies = |piece: &&Piece| {
            piece.limited.iter().any(|own| inside(path, own))
                && !piece.exempt.iter().any(|own| inside(path, own))
        };
        self.pieces.iter().filter(applies).collect()
    }

    /// True if a rule's limit stands beside another one.
    pub(super) fn is_beside(&self, rule: usize) -> bool {
        self.pieces.iter().filter(|piece| piece.rule == rule).any(|piece| {
            piece.limited.iter().chain(&piece.exempt).any(|path| {
                let applying = self.applying(path);
                applying.len() > 1 && applying.iter().any(|other| other.rule == rule)
            })
        })
    }

    /// The rule set, and beside each of its rules those that it came from.
    pub(super) fn set(&self, shadow: bool) -> (RuleSet, Vec<Vec<usize>>) {
        let mut set = RuleSet::default();
        let mut origins = Vec::new();
        for path in self.all_paths() {
            let applying = self.applying(path);
            let from = |piece: &&Piece| {
                piece.limited.contains(path)
                    || piece.exempt.contains(path)
                    || applying.iter().any(|applies| applies.rule == piece.rule)
            };
            let mut rules: Vec<usize> =
                self.pieces.iter().filter(from).map(|piece| piece.rule).collect();
            rules.dedup();
            let names: Vec<&str> = applying.iter().map(|piece| piece.name.as_str()).collect();
            let terms = terms(&applying, shadow);
            let limited = terms != Terms::Unlimited;
            let mut rule = Rule::new(path.clone(), terms);
            if path.0.is_empty() {
                rule.label = Some(names.join(", ").into());
            } else if limited && applying.iter().all(|piece| piece.budget.is_none()) {
                rule.name = Some(names.join(", ").into());
            }
            set.rules.push(Arc::new(rule));
            origins.push(rules);
        }
        for piece in &self.pieces {
            let Some(name) = &piece.budget else { continue };
            if set.budgets.iter().all(|budget| budget.name != *name) {
                let limits = limits(vec![piece.limit], piece.over.clone(), shadow);
                set.budgets.push(Budget { name: name.clone(), limits });
            }
        }
        if self.pieces.iter().any(|piece| piece.over == Over::Reject) {
            set.replies = Some(REPLIES);
        }
        (set, origins)
    }
}

/// Replies that `reject` may send, where the other program rejected.
const REPLIES: RateLimit = RateLimit {
    count: limiter_common::wire::Count::Packets,
    requests_per_unit: 100,
    period: Period::one(Unit::Second),
    burst: 100,
};

fn limits(limits: Vec<RuleLimit>, over: Over, shadow: bool) -> Limits {
    Limits { over, shadow, ..Limits::new(LimitList::from(limits)) }
}

fn terms(applying: &[&Piece], shadow: bool) -> Terms {
    let Some(first) = applying.first() else { return Terms::Unlimited };
    if let Some(budget) = &first.budget {
        return Terms::Budget(budget.clone());
    }
    let mut list: Vec<RuleLimit> = Vec::new();
    for piece in applying {
        if !list.contains(&piece.limit) {
            list.push(piece.limit);
        }
    }
    Terms::Limits(limits(list, first.over.clone(), shadow))
}

/// Checks that the most specific rule can say what both say.
fn fits(piece: &Piece, other: &Piece) -> Result<(), &'static str> {
    let both =
        || piece.limited.iter().flat_map(|path| other.limited.iter().map(move |o| (path, o)));
    let limits_overlap = both().any(|(one, other)| relation(one, other) != Relation::Apart);
    let own = piece.limited.iter().chain(&piece.exempt);
    for path in own {
        for of_other in other.limited.iter().chain(&other.exempt) {
            if relation(path, of_other) == Relation::Partial {
                return Err(
                    "both are for some of the same packets, and neither is for all of the \
                     other's: only one of them would be asked here",
                );
            }
        }
    }
    if !limits_overlap {
        return Ok(());
    }
    if piece.budget.is_some() && piece.budget == other.budget {
        return Ok(());
    }
    if piece.budget.is_some() || other.budget.is_some() {
        return Err(
            "both are for some of the same packets, and one has a bucket for all together: \
             only one of them would be asked here",
        );
    }
    if piece.hook != other.hook {
        return Err(
            "it is for other packets, on another way through the host, and here both would \
             be for all",
        );
    }
    if piece.over != other.over {
        return Err("both are for some of the same packets, and one drops where the other rejects");
    }
    Ok(())
}

fn inside(inner: &Path, outer: &Path) -> bool {
    matches!(relation(inner, outer), Relation::Same | Relation::Inside)
}

/// Relation of two paths; those of different tables are apart, as each is asked for itself.
fn relation(one: &Path, other: &Path) -> Relation {
    if one.0.len() != other.0.len() {
        return Relation::Apart;
    }
    let mut whole = Relation::Same;
    for (one, other) in one.0.iter().zip(other.0.iter()) {
        let part = of_parts(one, other);
        whole = match (whole, part) {
            (_, Relation::Apart) => return Relation::Apart,
            (Relation::Same, part) => part,
            (whole, Relation::Same) => whole,
            (whole, part) if whole == part => whole,
            _ => Relation::Partial,
        };
    }
    whole
}

fn of_parts(one: &Part, other: &Part) -> Relation {
    let nets = |one: &Option<ipnet::IpNet>, other: &Option<ipnet::IpNet>| match (one, other) {
        (None, None) => Relation::Same,
        (None, Some(_)) => Relation::Around,
        (Some(_), None) => Relation::Inside,
        (Some(one), Some(other)) if one == other => Relation::Same,
        (Some(one), Some(other)) if one.contains(other) => Relation::Around,
        (Some(one), Some(other)) if other.contains(one) => Relation::Inside,
        _ => Relation::Apart,
    };
    fn values<T: PartialEq>(one: Option<&T>, other: Option<&T>) -> Relation {
        match (one, other) {
            (None, Some(_)) => Relation::Around,
            (Some(_), None) => Relation::Inside,
            (one, other) if one == other => Relation::Same,
            _ => Relation::Apart,
        }
    }
    match (one, other) {
        (Part::Source(masks, one), Part::Source(others, other)) if masks == others => {
            nets(one, other)
        }
        (Part::Destination(one), Part::Destination(other)) => nets(one, other),
        (Part::Fact(fact, one), Part::Fact(others, other)) if fact == others => {
            values(one.as_ref(), other.as_ref())
        }
        (Part::Interface(one), Part::Interface(other)) => values(one.as_ref(), other.as_ref()),
        // Another table.
        _ => Relation::Apart,
    }
}
