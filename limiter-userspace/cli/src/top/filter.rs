//! Filters of the lists: a prefix of sources, and words of a rule.

use limiter_api::events::Episode;
use limiter_api::requests::RequestRow;
use limiter_api::sources::SourceRow;
use limiter_rules::{Selector, source_text};

use super::state::RuleRow;

/// What is to be shown; everything without a filter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filter {
    pub(super) within: Option<String>,
    /// Rules with this text in their name or their keys.
    pub(super) rule: Option<String>,
}

impl Filter {
    pub(super) const fn is_set(&self) -> bool {
        self.within.is_some() || self.rule.is_some()
    }

    fn names(&self, names: [Option<&str>; 2]) -> bool {
        let Some(wanted) = self.rule.as_deref().map(str::to_lowercase) else { return true };
        names.into_iter().flatten().any(|name| name.to_lowercase().contains(&wanted))
    }

    /// True for a source that falls under such a rule, or whose packets one drops. The daemon has
    /// already applied the prefix.
    pub(super) fn has_source(&self, row: &SourceRow) -> bool {
        self.names([row.rule.as_deref(), row.rule_name.as_deref()])
            || row.by.iter().any(|by| {
                self.names([by.rule.as_deref(), by.rule_name.as_deref()])
                    || self.names([Some(&by.title()), None])
            })
    }

    pub(super) fn has_rule(&self, row: &RuleRow) -> bool {
        self.names([Some(&row.rule), row.name.as_deref()])
    }

    pub(super) fn has_request(&self, row: &RequestRow) -> bool {
        self.names([Some(&row.title()), Some(&row.rule)])
    }

    pub(super) fn has_episode(&self, episode: &Episode) -> bool {
        self.has(&episode.source)
            && self.names([episode.rule.as_deref(), episode.rule_name.as_deref()])
    }

    /// True for a source in the prefix, and for a prefix that overlaps it.
    fn has(&self, source: &str) -> bool {
        let within: Option<Selector> =
            self.within.as_deref().and_then(|within| source_text::parse(within).ok());
        let Some(within) = within else { return true };
        source_text::parse(source)
            .is_ok_and(|source| within.contains(&source) || source.contains(&within))
    }
}
