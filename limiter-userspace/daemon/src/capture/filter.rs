//! Translates the request for a capture into the filter of the program.

use std::collections::BTreeMap;
use std::num::NonZero;

use limiter_api::capture::{AskCapture, CapturedVerdict};
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{CaptureFilter, LEVELS, MAX_SNAP};
use limiter_datapath::{Datapath, capture_rate, random};
use limiter_decision::event::{EventRate, MAX_PER_SECOND};
use limiter_rules::source_text;

use crate::error::ServiceError;
use crate::rule_sets::effective::EffectiveSet;
use crate::views::{Title, rule_names};

/// Packets that each CPU reports a second, unless the request says otherwise.
const PER_SECOND: u32 = 10_000;

/// Part of a second's packets that may come at once: one in `BURSTS`.
const BURSTS: u32 = 4;

/// Bytes of each packet in an observation: enough headers to judge the packet again.
const OBSERVED: u32 = 96;

/// Names of the rules in force by number: the author's name, or else the keys of the rule.
pub(super) fn names(datapath: &dyn Datapath, effective: &EffectiveSet) -> BTreeMap<u32, String> {
    let titles = rule_names(datapath, effective);
    titles.into_iter().map(|(number, title)| (number, title.name.unwrap_or(title.rule))).collect()
}

/// The filter for a request.
pub(super) fn of(
    asked: &AskCapture,
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
) -> Result<CaptureFilter, ServiceError> {
    let (source, mask) = source(asked)?;
    let level = asked.share.map_or(Ok(CaptureFilter::EVERY_SOURCE), level)?;
    let snap = asked.snap.unwrap_or(if asked.share.is_some() { OBSERVED } else { MAX_SNAP });
    if snap > MAX_SNAP {
        return Err(refused("snap", format!("{snap} bytes: give 0 to {MAX_SNAP}")));
    }
    for (word, value) in [("count", asked.count), ("seconds", asked.seconds)] {
        if value == Some(0) {
            return Err(refused(word, "0 is over at once: give at least 1".to_owned()));
        }
    }
    let per_second = asked.per_second.unwrap_or(PER_SECOND);
    let rate = NonZero::new(per_second).filter(|rate| rate.get() <= MAX_PER_SECOND);
    let problem = || format!("{per_second}: give 1 to {MAX_PER_SECOND}");
    let rate = rate.ok_or_else(|| refused("per_second", problem()))?;
    let burst = NonZero::new(rate.get() / BURSTS).unwrap_or(NonZero::<u32>::MIN);
    let EventRate { cost, credit } = capture_rate(rate, burst);
    Ok(CaptureFilter {
        // Never 0, and exact where numbers are doubles.
        session: random()? >> 12 | 1,
        reasons: reasons(asked)?,
        source,
        mask,
        seed: random()?,
        cost,
        credit,
        rule: rule(asked, datapath, effective)?,
        level,
        snap,
        reserved: 0,
    })
}

fn refused(word: &'static str, problem: String) -> ServiceError {
    ServiceError::Word { word, problem }
}

/// Bits of the reasons to be reported.
fn reasons(asked: &AskCapture) -> Result<u64, ServiceError> {
    let of_verdict = |reason: &Reason| match asked.verdict {
        None => true,
        Some(CapturedVerdict::Dropped) => reason.verdict() == Verdict::Drop,
        Some(CapturedVerdict::Passed) => reason.verdict() == Verdict::Pass,
    };
    let named = |reason: &Reason| asked.reason.as_ref().is_none_or(|name| name == reason.name());
    if let Some(name) = &asked.reason
        && !Reason::ALL.iter().any(named)
    {
        let all: Vec<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        return Err(refused(
            "reason",
            format!("there is no {name:?}: give one of {}", all.join(", ")),
        ));
    }
    let bits = Reason::ALL.iter().filter(|reason| of_verdict(reason) && named(reason));
    let bits = bits.fold(0, |bits, reason| bits | 1 << reason.index());
    if bits == 0 {
        let problem = "no packet with it has that verdict: leave one of the two out".to_owned();
        return Err(refused("reason", problem));
    }
    Ok(bits)
}

/// Number of the requested rule, found by the author's name or by its keys as `limiter list` shows
/// them.
fn rule(
    asked: &AskCapture,
    datapath: &dyn Datapath,
    effective: &EffectiveSet,
) -> Result<u32, ServiceError> {
    let Some(name) = &asked.rule else { return Ok(CaptureFilter::EVERY_RULE) };
    let titles = rule_names(datapath, effective);
    let called = |title: &Title| title.rule == *name || title.name.as_ref() == Some(name);
    let mut numbers: Vec<u32> =
        titles.iter().filter(|(_, title)| called(title)).map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    match numbers.as_slice() {
        [number] => Ok(*number),
        [] => {
            let problem = format!("no rule in force is called {name:?}: `limiter list` shows all");
            Err(refused("rule", problem))
        }
        several => {
            let problem = format!(
                "{} rules are called {name:?}: give the keys of one, as `limiter list` shows them",
                several.len()
            );
            Err(refused("rule", problem))
        }
    }
}

/// The requested prefix and its mask, each in two words.
fn source(asked: &AskCapture) -> Result<([u64; 2], [u64; 2]), ServiceError> {
    let Some(text) = &asked.source else { return Ok(([0; 2], [0; 2])) };
    let selector = source_text::parse(text)?;
    let prefixes = selector.trie_prefixes();
    let [prefix] = prefixes.as_slice() else {
        let problem = format!("{selector} has every source: leave it out");
        return Err(refused("source", problem));
    };
    let mask = u128::MAX.checked_shl(128_u32.saturating_sub(prefix.length)).unwrap_or(0);
    Ok((bytemuck::cast(prefix.address), bytemuck::cast(mask.to_be_bytes())))
}

/// Lowest level for a share of one in `parts` sources.
fn level(parts: u32) -> Result<u32, ServiceError> {
    if parts.is_power_of_two() && parts.trailing_zeros() < LEVELS {
        return Ok(parts.trailing_zeros());
    }
    let most = 1_u32 << (LEVELS - 1);
    let problem = format!("{parts}: give a power of two, from 1 to {most}");
    Err(refused("share", problem))
}
