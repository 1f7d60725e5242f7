//! Selects events by source, rule and time.

use std::time::SystemTime;

use limiter_api::events::{AskEvents, Line};
use limiter_rules::{Selector, source_text};

use crate::error::ServiceError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Source, or a prefix of sources.
    source: Option<Selector>,
    /// Rule: its keys, or the name that its author gave it.
    rule: Option<String>,
    pub(super) since: Option<SystemTime>,
    pub(super) until: Option<SystemTime>,
}

impl Filter {
    /// The requested filter; `None` if all events are requested.
    pub(crate) fn of(asked: &AskEvents) -> Result<Option<Self>, ServiceError> {
        let source = asked.source.as_deref().map(source_text::parse).transpose()?;
        let filter = Self {
            source,
            rule: asked.rule.clone(),
            since: time("since", asked.since.as_deref())?,
            until: time("until", asked.until.as_deref())?,
        };
        if let (Some(since), Some(until)) = (filter.since, filter.until)
            && since > until
        {
            return Err(refused("until", "it is before `since`: exchange the two"));
        }
        if asked.follow && (filter.since.is_some() || filter.until.is_some()) {
            return Err(refused("follow", "lines come from now on: leave the times out"));
        }
        Ok((filter != Self::default()).then_some(filter))
    }

    /// Returns true if both the source and the rule match.
    pub(super) fn has(&self, source: &str, rule: Option<&str>, name: Option<&str>) -> bool {
        self.has_rule(rule, name) && self.has_source(source)
    }

    fn has_source(&self, source: &str) -> bool {
        self.source.is_none_or(|wanted| {
            source_text::parse(source).is_ok_and(|source| wanted.contains(&source))
        })
    }

    pub(super) const fn names_rule(&self) -> bool {
        self.rule.is_some()
    }

    pub(super) fn has_rule(&self, rule: Option<&str>, name: Option<&str>) -> bool {
        self.rule.as_deref().is_none_or(|wanted| [rule, name].contains(&Some(wanted)))
    }

    /// Returns true if a span of time overlaps the requested one.
    pub(super) fn meets(&self, (from, to): (SystemTime, SystemTime)) -> bool {
        self.since.is_none_or(|since| to >= since) && self.until.is_none_or(|until| from <= until)
    }

    /// Returns true if a reader with this filter gets the line.
    pub(super) fn takes(&self, line: &Line) -> bool {
        match line {
            Line::Drop(at) => self.has(&at.source, at.rule.as_deref(), at.rule_name.as_deref()),
            Line::Start(at) | Line::Still(at) | Line::End(at) => {
                self.has(&at.source, at.rule.as_deref(), at.rule_name.as_deref())
            }
            // The sources of packets without room are unknown: the requested one may be among them.
            Line::TableFull(_) | Line::Lost { .. } => true,
        }
    }
}

fn refused(word: &'static str, problem: &str) -> ServiceError {
    ServiceError::Word { word, problem: problem.to_owned() }
}

fn time(word: &'static str, text: Option<&str>) -> Result<Option<SystemTime>, ServiceError> {
    let Some(text) = text else { return Ok(None) };
    match humantime::parse_rfc3339(text) {
        Ok(time) => Ok(Some(time)),
        Err(error) => {
            let problem = format!("{error}: give a time in UTC, as 2026-11-27T14:05:00Z");
            Err(ServiceError::Word { word, problem })
        }
    }
}
