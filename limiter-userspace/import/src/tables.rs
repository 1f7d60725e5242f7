//! Turns limits of rules that apply one after the other into tables in which the most specific rule
//! wins. Rules of one table whose packets overlap are adapted: a rule inside another one gets the
//! limits of both.

use std::collections::BTreeSet;
use std::sync::Arc;

use limiter_rules::model::{
    Budget, LimitList, Limits, Over, Part, Path, Period, Quota, RateLimit, Rule, RuleLimit,
    RuleSet, Terms, Unit, Values,
};

use super::firewall::Hook;

const MOST_LIMITS: usize = 4;

/// The most paths of all rules together: far below what a daemon accepts.
const MOST_PATHS: usize = 8192;

/// Most comparisons of paths.
const MOST_EFFORT: usize = 10_000_000;

/// A limit of another program as paths of a rule file.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) rule: usize,
    /// Name in the rule file.
    pub(super) name: String,
    pub(super) hook: Hook,
    pub(super) limited: Vec<Path>,
    pub(super) exempt: Vec<Path>,
    pub(super) limit: RuleLimit,
    pub(super) over: Over,
    /// The budget to charge, if all paths share one.
    pub(super) budget: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Apart,
    Same,
    /// The first is inside the second.
    Inside,
    /// The second is inside the first.
    Around,
    Partial,
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pieces: Vec<Piece>,
    /// For each piece, those with overlapping paths, including itself.
    near: Vec<Vec<usize>>,
    paths: usize,
    effort: usize,
}

impl Tables {
    /// Adds a piece.
    ///
    /// # Errors
    ///
    /// The reason why it cannot be combined with the others. `place` returns the place of a rule.
    pub(super) fn add(
        &mut self,
        piece: Piece,
        place: impl Fn(usize) -> String,
    ) -> Result<(), String> {
        let paths = piece.limited.len() + piece.exempt.len();
        if self.paths + paths > MOST_PATHS {
            return Err(format!("there are more than {MOST_PATHS} rules before it"));
        }
        let own = self.pieces.len();
        let mut near = vec![own];
        for (index, other) in self.pieces.iter().enumerate() {
            self.effort += paths * (other.limited.len() + other.exempt.len());
            if self.effort > MOST_EFFORT {
                return Err("there are too many rules before it to compare it with".to_owned());
            }
            let overlap = fits(&piece, other);
            if overlap.map_err(|why| format!("{}: {why}", place(other.rule)))? {
                near.push(index);
            }
        }
        for index in &near {
            if let Some(others) = self.near.get_mut(*index) {
                others.push(own);
            }
        }
        self.near.push(near.clone());
        self.paths += paths;
        self.pieces.push(piece);
        // Enough space for the limits where rules are inside others.
        let among = near.iter().filter_map(|index| self.pieces.get(*index));
        let crowded = near.len() > MOST_LIMITS
            && among
                .flat_map(|piece| piece.limited.iter().chain(&piece.exempt))
                .any(|path| self.applying(path, own).len() > MOST_LIMITS);
        if crowded {
            self.remove_at(own);
            return Err(format!("more than {MOST_LIMITS} limits would be for the same packets"));
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, rule: usize) {
        for index in 0..self.pieces.len() {
            if self.pieces.get(index).is_some_and(|piece| piece.rule == rule) {
                self.remove_at(index);
            }
        }
    }

    /// A piece without paths has no effect.
    fn remove_at(&mut self, index: usize) {
        if let Some(piece) = self.pieces.get_mut(index) {
            self.paths -= piece.limited.len() + piece.exempt.len();
            piece.limited.clear();
            piece.exempt.clear();
        }
    }

    /// The rules with this path or budget, which an error names.
    pub(super) fn rules_of(&self, path: Option<&Path>, budget: Option<&str>) -> Vec<usize> {
        let of = |piece: &&Piece| {
            !piece.limited.is_empty()
                && (path.is_some_and(|path| {
                    piece.limited.contains(path) || piece.exempt.contains(path)
                }) || (budget.is_some() && piece.budget.as_deref() == budget))
        };
        self.pieces.iter().filter(of).map(|piece| piece.rule).collect()
    }

    /// Paths in order, each with a piece that has it.
    fn all_paths(&self) -> Vec<(&Path, usize)> {
        let mut seen = BTreeSet::new();
        let mut paths = Vec::new();
        for (index, piece) in self.pieces.iter().enumerate() {
            for path in piece.limited.iter().chain(&piece.exempt) {
                if seen.insert(path) {
                    paths.push((path, index));
                }
            }
        }
        paths
    }

    fn near(&self, piece: usize) -> impl Iterator<Item = &Piece> {
        let mut near = self.near.get(piece).cloned().unwrap_or_default();
        near.sort_unstable();
        near.into_iter().filter_map(|index| self.pieces.get(index))
    }

    /// Pieces whose limits apply to a path of a piece.
    fn applying(&self, path: &Path, of: usize) -> Vec<&Piece> {
        let applies = |piece: &&Piece| {
            piece.limited.iter().any(|own| inside(path, own))
                && !piece.exempt.iter().any(|own| inside(path, own))
        };
        self.near(of).filter(applies).collect()
    }

    /// The rule set, and for each of its rules the rules from which it was made.
    pub(super) fn set(&self, shadow: bool) -> (RuleSet, Vec<Vec<usize>>) {
        let mut set = RuleSet::default();
        let mut origins = Vec::new();
        for (path, of) in self.all_paths() {
            let applying = self.applying(path, of);
            let from = |piece: &&Piece| {
                piece.limited.contains(path)
                    || piece.exempt.contains(path)
                    || applying.iter().any(|applies| applies.rule == piece.rule)
            };
            let mut rules: Vec<usize> =
                self.near(of).filter(from).map(|piece| piece.rule).collect();
            rules.dedup();
            let names: Vec<&str> = applying.iter().map(|piece| piece.name.as_str()).collect();
            let terms = terms(&applying, shadow);
            let limited = terms != Terms::Unlimited;
            let mut rule = Rule::new(path.clone(), terms);
            if path.parts.is_empty() {
                rule.label = Some(names.join(", ").into());
            } else if limited && applying.iter().all(|piece| piece.budget.is_none()) {
                rule.name = Some(names.join(", ").into());
            }
            set.rules.push(Arc::new(rule));
            origins.push(rules);
        }
        let mut named = BTreeSet::new();
        let held = || self.pieces.iter().filter(|piece| !piece.limited.is_empty());
        for piece in held() {
            let Some(name) = &piece.budget else { continue };
            if named.insert(name) {
                let limits = limits(vec![piece.limit], piece.over.clone(), shadow);
                set.budgets.push(Budget { name: name.clone(), limits });
            }
        }
        if held().any(|piece| piece.over == Over::Reject) {
            set.replies = Some(REPLIES);
        }
        (set, origins)
    }
}

/// Rate of replies that `reject` may send, if the other program rejected.
const REPLIES: RateLimit =
    Quota::new(limiter_common::wire::Count::Packets, 100, Period::one(Unit::Second))
        .with_burst(100);

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

/// Checks that the most specific rule can express both pieces. Returns true if their paths overlap.
fn fits(piece: &Piece, other: &Piece) -> Result<bool, &'static str> {
    let (mut overlap, mut limits_overlap) = (false, false);
    let own = piece.limited.iter().map(|path| (path, true));
    for (path, limited) in own.chain(piece.exempt.iter().map(|path| (path, false))) {
        let others = other.limited.iter().map(|path| (path, true));
        for (of_other, limits) in others.chain(other.exempt.iter().map(|path| (path, false))) {
            if let Some(why) = ranges_meet(path, of_other) {
                return Err(why);
            }
            match relation(path, of_other) {
                Relation::Apart => {}
                Relation::Partial => {
                    return Err(
                        "both are for some of the same packets, and neither is for all of the \
                         other's: only one of them would be asked here",
                    );
                }
                Relation::Same | Relation::Inside | Relation::Around => {
                    overlap = true;
                    limits_overlap |= limited && limits;
                }
            }
        }
    }
    if !limits_overlap || (piece.budget.is_some() && piece.budget == other.budget) {
        return Ok(overlap);
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
    Ok(overlap)
}

/// The reason why two ranges cannot be in one table, regardless of their rules' other conditions.
fn ranges_meet(one: &Path, other: &Path) -> Option<&'static str> {
    let is_table = one.is_in_table_of(other);
    let parts = one.parts.iter().zip(other.parts.iter());
    let values = parts.filter(|_| is_table).filter_map(|pair| match pair {
        (Part::Fact(_, Some(one)), Part::Fact(_, Some(other))) => Some((one, other)),
        _ => None,
    });
    for (one, other) in values {
        let relation = of_values(*one, *other);
        if relation == Relation::Partial {
            return Some("the ranges of both overlap in part, which no table has");
        }
        // A range has one bucket; values cut out of it have others.
        if matches!(relation, Relation::Inside | Relation::Around) {
            return Some(
                "a range of one is inside of a range of the other, and would have a bucket of its \
                 own for both limits",
            );
        }
    }
    None
}

fn inside(inner: &Path, outer: &Path) -> bool {
    matches!(relation(inner, outer), Relation::Same | Relation::Inside)
}

/// Relation of two paths. Paths of different tables are apart, because each table is looked up
/// separately.
fn relation(one: &Path, other: &Path) -> Relation {
    if one.parts.len() != other.parts.len() {
        return Relation::Apart;
    }
    let mut whole = Relation::Same;
    for (one, other) in one.parts.iter().zip(other.parts.iter()) {
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
    let nets = |one: &Option<ipnet::IpNet>, other: &Option<ipnet::IpNet>| {
        either(one.as_ref(), other.as_ref(), |one, other| match (one, other) {
            _ if one == other => Relation::Same,
            _ if one.contains(other) => Relation::Around,
            _ if other.contains(one) => Relation::Inside,
            _ => Relation::Apart,
        })
    };
    match (one, other) {
        (Part::Source(masks, one), Part::Source(others, other)) if masks == others => {
            nets(one, other)
        }
        (Part::Destination(one), Part::Destination(other)) => nets(one, other),
        (Part::Fact(fact, one), Part::Fact(others, other)) if fact == others => {
            either(one.as_ref(), other.as_ref(), |one, other| of_values(*one, *other))
        }
        (Part::Interface(one), Part::Interface(other)) => {
            let of = |one: &String, other: &String| {
                if one == other { Relation::Same } else { Relation::Apart }
            };
            either(one.as_ref(), other.as_ref(), of)
        }
        // A different table.
        _ => Relation::Apart,
    }
}

/// Relation of two values; `None` contains every value.
fn either<T>(one: Option<&T>, other: Option<&T>, of: impl Fn(&T, &T) -> Relation) -> Relation {
    match (one, other) {
        (None, None) => Relation::Same,
        (None, Some(_)) => Relation::Around,
        (Some(_), None) => Relation::Inside,
        (Some(one), Some(other)) => of(one, other),
    }
}

const fn of_values(one: Values, other: Values) -> Relation {
    if one.has_all(other) && other.has_all(one) {
        Relation::Same
    } else if one.has_all(other) {
        Relation::Around
    } else if other.has_all(one) {
        Relation::Inside
    } else if one.meets(other) {
        Relation::Partial
    } else {
        Relation::Apart
    }
}
