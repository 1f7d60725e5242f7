//! Ranges of values in keys: the values of a table that count as one.
//!
//! A range is one value of its key: all packets in it share a bucket. So the program puts the
//! lowest value of the range in the place of each of them, before it looks for the bucket, and
//! neither bucket nor rule takes another look-up. A value or a narrower range inside a range has
//! buckets of its own. Therefore the rule of the inner one must decide about all packets of it: a
//! packet that fell under the outer rule all the same would be charged to a second bucket of that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use limiter_common::wire::{MAX_RANGES, Range, Table};

use super::rule_error::{CompileError, RangeError, RuleError};
use super::rule_id::{RuleId, TableForm};
use crate::model::{Fact, Part, Path, Rule, Subject, Values};

/// The values that have this one as their class in a table.
pub fn values_of_class(table: &Table, fact: Fact, class: u16) -> Values {
    let pieces = table.ranges.iter().filter_map(|range| range.of_class(fact.field(), class));
    let high = pieces.map(|(_, high)| high).max();
    high.and_then(|high| Values::range(class, high)).unwrap_or_else(|| class.into())
}

/// The ranges of each table that has some.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    pub(super) by_form: BTreeMap<TableForm, Vec<Range>>,
    pub(super) errors: Vec<CompileError>,
}

/// Rules of a table by the values that they require of one fact; `None` for any.
type ByValues<'a> = BTreeMap<Option<Values>, Vec<&'a Rule>>;

impl Ranges {
    /// Finds the ranges of keyed rules.
    pub(super) fn of(rules: &[(RuleId, &Rule)]) -> Self {
        let mut found = Self::default();
        let with_ranges = rules.iter().flat_map(|(id, rule)| {
            rule.path.parts.iter().filter_map(|part| match part {
                Part::Fact(fact, Some(values)) if values.is_range() => Some((id.form, *fact)),
                _ => None,
            })
        });
        // Usually there are none.
        for (form, fact) in with_ranges.collect::<BTreeSet<_>>() {
            let mut by_values = ByValues::new();
            for (_, rule) in rules.iter().filter(|(id, _)| id.form == form) {
                by_values.entry(values_of(&rule.path, fact)).or_default().push(rule);
            }
            found.add(form, fact, &by_values);
        }
        found
    }

    fn add(&mut self, form: TableForm, fact: Fact, by_values: &ByValues<'_>) {
        let mut values: Vec<Values> = by_values.keys().copied().flatten().collect();
        values.sort_unstable_by_key(|values| (values.low(), Reverse(values.high())));
        let mut inner: BTreeMap<Option<Values>, Vec<Values>> = BTreeMap::new();
        let mut open: Vec<Values> = Vec::new();
        let mut before: Option<Values> = None;
        for values in values {
            if let Some(before) = before
                && before.low() == values.low()
            {
                self.refuse(fact, by_values, before, |key| RangeError::Begins {
                    key,
                    values: fact.values_text(before),
                    inner: fact.values_text(values),
                });
            }
            before = Some(values);
            while open.last().is_some_and(|around| around.high() < values.low()) {
                open.pop();
            }
            let around = open.last().copied();
            if let Some(around) = around
                && !around.has_all(values)
            {
                self.refuse(fact, by_values, values, |key| RangeError::Overlap {
                    key,
                    values: fact.values_text(values),
                    other: fact.values_text(around),
                });
            }
            if values.is_range() {
                open.push(values);
            }
            // Single values make no class: only inside a range do they cut something.
            if values.is_range() || around.is_some() {
                inner.entry(around).or_default().push(values);
            }
        }
        for (around, inner) in &inner {
            for values in inner {
                self.check_inner(fact, by_values, *around, *values);
            }
        }
        for values in by_values.keys().copied().flatten().filter(|values| values.is_range()) {
            let inner = inner.get(&Some(values)).map_or(&[][..], Vec::as_slice);
            let pieces = pieces(fact, values, inner);
            let ranges = self.by_form.entry(form).or_default();
            ranges.extend(pieces);
            if ranges.len() > MAX_RANGES {
                ranges.clear();
                self.refuse(fact, by_values, values, |_key| RangeError::TooMany);
                return;
            }
        }
    }

    /// The rules of inner values must decide about all packets that the rules around them are for.
    fn check_inner(
        &mut self,
        fact: Fact,
        by_values: &ByValues<'_>,
        around: Option<Values>,
        inner: Values,
    ) {
        let rules = |values| by_values.get(&values).map_or(&[][..], Vec::as_slice);
        let of_inner = rules(Some(inner));
        let is_covered =
            |outer: &&&Rule| of_inner.iter().any(|rule| covers(&rule.path, &outer.path, fact));
        if let Some(outer) = rules(around).iter().find(|outer| !is_covered(outer)) {
            let outer = Subject::Rule(outer.path.clone());
            self.refuse(fact, by_values, inner, |key| RangeError::Cut {
                key,
                inner: fact.values_text(inner),
                outer,
            });
        }
    }

    /// Refuses the first rule with some values.
    fn refuse(
        &mut self,
        fact: Fact,
        by_values: &ByValues<'_>,
        values: Values,
        error: impl FnOnce(&'static str) -> RangeError,
    ) {
        let rule = by_values.get(&Some(values)).and_then(|rules| rules.first());
        let Some(Rule { path, .. }) = rule else { return };
        let key = fact.in_header(path.direction).key();
        self.errors.push(CompileError {
            subject: Subject::Rule(path.clone()),
            error: RuleError::Range(Box::new(error(key))),
        });
    }
}

/// The pieces of a range that the values inside it leave.
fn pieces(fact: Fact, values: Values, inner: &[Values]) -> Vec<Range> {
    let (low, high) = (u32::from(values.low()), u32::from(values.high()));
    let mut begin = low;
    let mut pieces = Vec::new();
    let ends = inner.iter().map(|inner| (u32::from(inner.low()), u32::from(inner.high()) + 1));
    for (end, next) in ends.chain([(high + 1, high + 1)]) {
        // The lowest value is its own class.
        let first = if begin == low { low + 1 } else { begin };
        if first < end {
            let piece = (u16::try_from(begin), u16::try_from(end - 1));
            if let (Ok(begin), Ok(end)) = piece {
                pieces.extend(Range::new(fact.field(), begin, end, values.low()));
            }
        }
        begin = next;
    }
    pieces
}

/// The values that a path requires of a fact; `None` for any.
fn values_of(path: &Path, fact: Fact) -> Option<Values> {
    path.parts.iter().find_map(|part| match part {
        Part::Fact(own, values) if *own == fact => *values,
        _ => None,
    })
}

/// True if all packets of one path have the keys of another, apart from one fact.
fn covers(path: &Path, other: &Path, but: Fact) -> bool {
    let same = |part: &Part| other.parts.iter().find(|other| other.same_key(part));
    path.parts.iter().filter(|part| part.field() != but.field()).all(|part| {
        match (part, same(part)) {
            (Part::Source(_, one), Some(Part::Source(_, other)))
            | (Part::Destination(one), Some(Part::Destination(other)))
            | (Part::Inner(one), Some(Part::Inner(other))) => match (one, other) {
                (None, _) => true,
                (Some(one), Some(other)) => one.contains(other),
                (Some(_), None) => false,
            },
            (Part::Fact(_, one), Some(Part::Fact(_, other))) => match (one, other) {
                (None, _) => true,
                (Some(one), Some(other)) => one.has_all(*other),
                (Some(_), None) => false,
            },
            (Part::Interface(one), Some(Part::Interface(other))) => one.is_none() || one == other,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use limiter_common::wire::TableKey;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::Terms;

    const FACTS: [Fact; 6] = [
        Fact::DestinationPort,
        Fact::SourcePort,
        Fact::Vlan,
        Fact::Dscp,
        Fact::PacketLength,
        Fact::Ttl,
    ];

    /// A value as the program has it in a key.
    fn class(ranges: &[Range], fact: Fact, value: u16) -> u32 {
        let key = TableKey::EMPTY.with(TableKey::place(fact.field(), value.into()));
        ranges.iter().fold(key, |key, range| range.classed(key)).value(fact.field())
    }

    fn rule(fact: Fact, values: Values) -> Rule {
        Rule::new(Path::of([Part::Fact(fact, Some(values))]), Terms::Unlimited)
    }

    fn found(rules: &[Rule]) -> Ranges {
        let id = |rule: &Rule| RuleId::new(&rule.path, &|_| None).unwrap();
        Ranges::of(&rules.iter().map(|rule| (id(rule), rule)).collect::<Vec<_>>())
    }

    proptest! {
        /// Whatever values there are: each packet has the class of the narrowest ones around its
        /// own.
        #[test]
        fn a_value_is_classed_by_the_narrowest_range(
            fact in 0usize..6, ends in vec((0u16..400, 0u16..60), 1..7),
        ) {
            let fact = FACTS[fact];
            let most = fact.most().unwrap();
            let values: BTreeSet<Values> = ends
                .iter()
                .filter_map(|(low, width)| {
                    let low = low % most;
                    Values::range(low, (low + width / 3 * (width % 3)).min(most))
                })
                .collect();
            let rules: Vec<Rule> = values.iter().map(|values| rule(fact, *values)).collect();
            let ranges = found(&rules);
            let pairs = || values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)));
            let wrong = |(a, b): (Values, Values)| {
                a < b && (a.is_range() || b.is_range())
                    && (a.low() == b.low() || a.meets(b) && !a.has_all(b) && !b.has_all(a))
            };
            prop_assert_eq!(!ranges.errors.is_empty(), pairs().any(wrong), "{:?}", values);
            if !ranges.errors.is_empty() {
                return Ok(());
            }
            let ranges = ranges.by_form.into_values().next().unwrap_or_default();
            for value in 0..=most.min(500) {
                let around = values.iter().filter(|values| values.has(value));
                let narrowest = around.min_by_key(|values| values.high() - values.low());
                let wanted = narrowest.map_or(value, |values| values.low());
                prop_assert_eq!(class(&ranges, fact, value), u32::from(wanted), "{}", value);
            }
        }
    }

    #[test]
    fn the_whole_of_a_key_is_a_range() {
        for fact in FACTS {
            let most = fact.most().unwrap();
            let ranges = found(&[rule(fact, Values::range(0, most).unwrap())]);
            let ranges = ranges.by_form.into_values().next().unwrap();
            for value in [0, 1, most / 2, most] {
                assert_eq!(class(&ranges, fact, value), 0, "{fact:?} {value}");
            }
        }
    }
}
