//! The request for sources.

use limiter_api::sources::{By, MOST_SOURCES, SOURCES};
use limiter_common::source::Source;
use limiter_rules::{Selector, source_text};

use super::known::address;
use crate::error::ServiceError;

/// The request for sources: number, measure and prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) by: By,
    pub(super) count: usize,
    pub(super) within: Option<Selector>,
}

impl Wanted {
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

    pub(super) fn has(&self, source: &Source) -> bool {
        self.within.is_none_or(|within| within.contains(&Selector::address(address(source))))
    }
}
