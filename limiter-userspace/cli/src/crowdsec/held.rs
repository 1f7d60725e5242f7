//! The bans in force, by the sources that they are for: two addresses of one IPv6 /64 are one entry
//! of the deny list, which stays until both bans have ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use limiter_api::arguments::seconds;
use limiter_api::lists::Timed;
use limiter_rules::Selector;
use limiter_rules::feed::{Decision, Unlisted};
use limiter_rules::model::LONGEST_REASON;
use limiter_text::plain::clean;

use super::stream::{Heard, News};

/// Longest ban, ten years; the end of a longer one might be no time that the clock has.
const LONGEST: Duration = Duration::from_hours(10 * 366 * 24);

/// Most kinds of problems that are counted apart; further ones count as one kind.
const MOST_KINDS: usize = 10;

/// Bans of CrowdSec.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<Selector, Vec<Ban>>);

#[derive(Debug)]
struct Ban {
    /// Address or range, as CrowdSec writes it.
    value: Box<str>,
    until: Instant,
    scenario: Box<str>,
}

/// Decisions that make no entry: how many, by the reason.
pub(super) type LeftOut = BTreeMap<String, usize>;

fn note(left_out: &mut LeftOut, why: Unlisted) {
    let (Unlisted::PassedOver(problem) | Unlisted::Bad(problem)) = why;
    let known = left_out.len() < MOST_KINDS || left_out.contains_key(&problem);
    let problem = if known { problem } else { "other reasons".to_owned() };
    *left_out.entry(problem).or_default() += 1;
}

impl Held {
    /// Takes an answer in, first what has ended, and returns the sources that it concerns.
    pub(super) fn take(
        &mut self,
        news: News,
        now: Instant,
        left_out: &mut LeftOut,
    ) -> BTreeSet<Selector> {
        let mut concerned = BTreeSet::new();
        for heard in news.deleted {
            let (decision, _) = heard.into_decision();
            // What makes no entry has none to take off.
            for source in decision.sources().unwrap_or_default() {
                self.end(source, &decision.value);
                concerned.insert(source);
            }
        }
        for heard in news.new {
            match self.begin(heard, now) {
                Ok(sources) => concerned.extend(sources),
                Err(why) => note(left_out, why),
            }
        }
        concerned
    }

    fn begin(&mut self, heard: Heard, now: Instant) -> Result<Vec<Selector>, Unlisted> {
        let (decision, scenario) = heard.into_decision();
        let (sources, until) = ends(&decision, now)?;
        for source in &sources {
            let bans = self.0.entry(*source).or_default();
            let same = bans.iter().position(|ban| *ban.value == *decision.value);
            // Of several decisions on one address, the API sends the longest.
            if let Some(at) = same
                && bans.get(at).is_none_or(|ban| ban.until < until)
            {
                bans.swap_remove(at);
            } else if same.is_some() {
                continue;
            }
            let [value, scenario] = [decision.value.as_str(), scenario.as_str()].map(Box::from);
            bans.push(Ban { value, until, scenario });
        }
        Ok(sources)
    }

    fn end(&mut self, source: Selector, value: &str) {
        if let Some(bans) = self.0.get_mut(&source) {
            bans.retain(|ban| *ban.value != *value);
            if bans.is_empty() {
                self.0.remove(&source);
            }
        }
    }

    /// Forgets bans that have ended by themselves, as their entries have.
    pub(super) fn forget_ended(&mut self, now: Instant) {
        self.0.retain(|_, bans| {
            bans.retain(|ban| ban.until > now);
            !bans.is_empty()
        });
    }

    /// True if a source is banned.
    pub(super) fn has(&self, source: &Selector) -> bool {
        self.0.contains_key(source)
    }

    /// The entry for a source: of the ban that lasts longest.
    pub(super) fn entry(&self, source: &Selector, now: Instant) -> Option<Timed> {
        let ban = self.0.get(source)?.iter().max_by_key(|ban| ban.until)?;
        let seconds = seconds(ban.until.saturating_duration_since(now));
        let reason: String = clean(&ban.scenario).trim().chars().take(LONGEST_REASON).collect();
        let reason = Some(reason).filter(|reason| !reason.is_empty());
        Some(Timed { source: source.to_string(), seconds: seconds.max(1), reason })
    }
}

/// The sources of a ban, and its end.
fn ends(decision: &Decision, now: Instant) -> Result<(Vec<Selector>, Instant), Unlisted> {
    let (sources, seconds) = decision.entry()?;
    let endless = || Unlisted::Bad("it has no duration".to_owned());
    let left = Duration::from_secs(seconds.ok_or_else(endless)?).min(LONGEST);
    Ok((sources, now.checked_add(left).ok_or_else(endless)?))
}
