//! The limit to try, and the rule file for it.

use limiter_common::time::Ticks;
use limiter_rules::file::blocks;
use limiter_rules::model::{Limits, Part, SourceMasks};
use limiter_rules::{Path, RateLimit, Rule, RuleSet};
use serde::Serialize;

use super::Report;
use super::rates::Rate;
use super::report::Need;

/// Seconds by which limits are compared: the one is taken by which a source can pass least in so
/// long a time, of those that spare as many. A tenth of what was observed, if that is shorter.
const HORIZON: f64 = 10.0;

/// The shortest observation that a limit is proposed from, in seconds.
pub(super) const SHORTEST: f64 = 1.0;

/// A source that sent fewer packets than this says nothing of how fast it sends.
pub const FEW_PACKETS: u64 = 4;

/// How often a burst that is proposed must fit into what was seen. A slower rate gives back later
/// what a source used up: whether sources come again before that is not in the data, and every
/// rate below it looks the same there.
const FILLINGS: u64 = 2;

/// Part of the least burst that is added to it, in hundredths.
const MARGIN: u64 = 20;

/// A limit to try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The limit.
    #[serde(skip)]
    pub limit: RateLimit,
    /// The rate as a rule has it.
    pub rate: String,
    /// The burst.
    pub burst: u64,
    /// Sources that lose a packet by it, of those that were looked at.
    pub sources_hit: u64,
    /// Share of the sources that lose a packet, 0 to 1.
    pub share_hit: f64,
    /// Share of the packets that these sources sent, 0 to 1.
    pub packets_of_hit: f64,
    /// The share of all sources like these that lose a packet in as long a time is at most that,
    /// with a confidence of 95 %. Sources of fewer than [`FEW_PACKETS`] packets are none of these.
    pub share_at_most: f64,
    /// Sources of them that sent most.
    pub hit: Vec<String>,
}

/// The place in order of the last of `all` that this share of them reaches; none of none.
pub(super) fn spared(all: usize, share: f64) -> Option<usize> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number of sources"
    )]
    // Up to a billionth, so that 99.9 % of 1,000 are 999.
    let spared = (all as f64 * share - 1e-9).ceil().max(1.0) as usize;
    spared.min(all).checked_sub(1)
}

/// The need that this share of the sources does not exceed; `needs` are sorted.
pub(super) fn quantile(needs: &[Need], share: f64) -> Option<u64> {
    needs.get(spared(needs.len(), share)?).map(|(need, _)| *need)
}

/// How much a source could pass within the horizon with the burst that spares enough at this rate,
/// and that burst, with its margin; none where the data cannot tell whether it would be enough.
/// `need` is that of the sources to spare, in ticks, and `seen` how long they were seen.
pub(super) fn score(rate: &Rate, need: u64, seen: Ticks) -> Option<(f64, u64)> {
    #[expect(clippy::cast_precision_loss, reason = "for a comparison")]
    let seconds = seen.as_nanos() as f64 / 1e9;
    if seconds < SHORTEST {
        return None;
    }
    if need > seen.get() / FILLINGS {
        return None;
    }
    let burst = rate.burst(need)?.max(rate.burst_for_tcp());
    #[expect(clippy::cast_precision_loss, reason = "for a comparison")]
    let score = rate.per_second().mul_add(HORIZON.min(seconds / 10.0), burst as f64);
    let rounded = round_up(burst.saturating_mul(100 + MARGIN).div_ceil(100));
    // A burst that no rule may have goes without its margin.
    let burst = if rate.allows(rounded).is_some() { rounded } else { burst };
    Some((score, burst))
}

/// The next number of two digits and zeros.
fn round_up(number: u64) -> u64 {
    let mut size = 1;
    while number / size >= 100 {
        size *= 10;
    }
    number.div_ceil(size).saturating_mul(size)
}

/// A rule file with the proposal in shadow mode, and why in a comment; none without a proposal.
///
/// # Errors
///
/// When it cannot be written as YAML.
pub fn rule_file(
    report: &Report,
    masks: SourceMasks,
    origin: &str,
) -> Result<Option<String>, serde_saphyr::SerializeError> {
    let Some(proposal) = &report.proposal else { return Ok(None) };
    let limits = Limits { shadow: true, ..Limits::new(proposal.limit) };
    let mut rule = Rule::new(Path::of([Part::Source(masks, None)]), limits);
    rule.name = Some("tuned".into());
    let blocks = blocks(&RuleSet::of([rule]))?;
    let mut text = format!(
        "# Proposed by `limiter tune`: {rate}, {burst} at once. It only counts (shadow_mode): \
         look at\n# `limiter stats` for a day, and remove that line when it hits only those whom \
         it should.\n# From {packets} packets of {sources} sources in {seconds:.1} s: \
         {origin}.\n# There it hits {hits} of {sources} sources, {share:.3} %, which sent {of:.3} \
         % of the packets;\n# of others like them, in as long a time, at most {bound:.3} %, with a \
         confidence of 95 %.\ndescriptors:\n",
        rate = proposal.rate,
        burst = proposal.burst,
        packets = report.packets,
        sources = report.sources,
        seconds = report.seconds,
        hits = proposal.sources_hit,
        share = proposal.share_hit * 100.0,
        of = proposal.packets_of_hit * 100.0,
        bound = proposal.share_at_most * 100.0,
        origin = limiter_text::plain::clean(origin),
    );
    text.extend(blocks.rules);
    Ok(Some(text))
}
