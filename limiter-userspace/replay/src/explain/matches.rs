//! The rules that apply to a packet, and their buckets for it.

use std::sync::Arc;

use limiter_common::source::Source;
use limiter_common::wire::TableKey;
use limiter_model::Found;
use limiter_rules::Rule;

use super::Explainer;

/// A rule that applies to a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// Table of the rule: 0 for rules by source alone; the others count from 1 in their order.
    pub table: u32,
    /// The rule.
    pub rule: Arc<Rule>,
    /// Number under which the rule is counted: its own, or its budget's.
    pub number: u32,
}

/// The bucket of a rule for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bucket {
    /// A source's bucket in the source table.
    Source(Source),
    /// A key's bucket in another table.
    Key(TableKey),
    /// A budget that several rules share.
    Budget,
}

/// A rule that applies to a packet, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Charge {
    /// Number under which the rule is counted: its own, or its budget's.
    pub number: u32,
    /// Bucket of the rule for the packet.
    pub bucket: Bucket,
}

impl Explainer {
    /// The rules that the data path found.
    pub(super) fn matches(&self, found: &Found) -> Vec<Match> {
        let source = found.source.and_then(|slot| self.book.of_source(slot)).map(|rule| (0, rule));
        let keyed = found.tables.iter().filter_map(|found| {
            let rule = self.book.of_key(found.id, &found.key, found.slot)?;
            let by_source = rule.rule.path.selector().is_some();
            Some((if by_source { 0 } else { found.index + 1 }, rule))
        });
        let matches = source.into_iter().chain(keyed).map(|(table, written)| Match {
            table,
            rule: Arc::clone(&written.rule),
            number: written.number,
        });
        matches.collect()
    }

    /// Writes the rules that the data path found, with their buckets for the packet.
    pub(super) fn charges(&self, found: &Found, source: Option<Source>, to: &mut Vec<Charge>) {
        to.clear();
        let rule = found.source.and_then(|slot| self.book.of_source(slot));
        to.extend(
            rule.zip(source).map(|(rule, source)| Charge {
                number: rule.number,
                bucket: Bucket::Source(source),
            }),
        );
        let records = &self.model.installed().tables.records;
        to.extend(found.tables.iter().filter_map(|found| {
            let record = records.get(&found.slot.index())?;
            let bucket = if record.budget == 0 { Bucket::Key(found.key) } else { Bucket::Budget };
            Some(Charge { number: record.rule, bucket })
        }));
    }
}
