//! The question of sources.

use limiter_common::source::Source;
use limiter_rules::{Selector, source_text};

use super::known::{Known, address};
use crate::api::sources::{By, MOST_SOURCES, OtherDrops, SOURCES};
use crate::error::ServiceError;

/// The question of sources: how many, by which measure, in which prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) by: By,
    pub(super) count: usize,
    pub(super) within: Option<Selector>,
}

impl Wanted {
    /// Checks what was asked.
    pub(crate) fn parse(
        by: By,
        limit: Option<u32>,
        prefix: Option<&str>,
    ) -> Result<Self, ServiceError> {
        let count = limit.unwrap_or(SOURCES);
        if count == 0 || count > MOST_SOURCES {
            return Err(ServiceError::SourceCount { count, most: MOST_SOURCES });
        }
        let within = prefix.map(source_text::parse).transpose()?;
        Ok(Self { by, count: usize::try_from(count).unwrap_or(usize::MAX), within })
    }

    /// Drops by other rules that events told lately.
    pub(crate) fn others(&self, known: Known<'_>) -> Vec<OtherDrops> {
        let mut drops = known.events.by_other_rules(self.within, known.effective);
        drops.sort_by_key(|row| std::cmp::Reverse(row.drops.dropped));
        drops.truncate(self.count);
        drops
    }

    pub(super) fn has(&self, source: &Source) -> bool {
        self.within.is_none_or(|within| within.contains(&Selector::address(address(source))))
    }
}
