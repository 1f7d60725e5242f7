//! The proposed limit, and its rule file.

use limiter_common::time::Ticks;
use limiter_rules::file::blocks;
use limiter_rules::model::{Limits, Part, SourceMasks};
use limiter_rules::{Path, RateLimit, Rule, RuleSet};
use serde::Serialize;

use super::rates::Rate;
use super::report::Need;
use super::{Observed, Report};

/// Seconds over which limits are compared: of those that spare enough, the one is chosen under
/// which a source can pass least in this time. A tenth of the observed time, if that is shorter.
const HORIZON: f64 = 10.0;

/// The shortest observation for a proposal, in seconds.
pub(super) const SHORTEST: f64 = 1.0;

/// A source that sent fewer packets than this shows nothing about its rate.
pub const FEW_PACKETS: u64 = 4;

/// How many times a proposed burst must refill in the observed time. A slower rate takes longer to
/// return what a source used; the data do not show whether sources come back before that, and all
/// lower rates look the same.
const FILLINGS: u64 = 2;

/// Margin added to the smallest burst, in per cent.
const MARGIN: u64 = 20;

/// A proposed limit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Proposal {
    /// The limit.
    #[serde(skip)]
    pub limit: RateLimit,
    /// The rate in the notation of rules.
    pub rate: String,
    /// The burst.
    pub burst: u64,
    /// Observed sources that lose a packet by it.
    pub sources_hit: u64,
    /// Share of the sources that lose a packet, 0 to 1.
    pub share_hit: f64,
    /// Share of the packets that these sources sent, 0 to 1.
    pub packets_of_hit: f64,
    /// Upper bound, with a confidence of 95 %, of the share of all similar sources that lose a
    /// packet in the same length of time. Excludes sources of fewer than [`FEW_PACKETS`] packets.
    pub share_at_most: f64,
    /// Of the sources that lose a packet, those that sent most.
    pub hit: Vec<String>,
}

/// The index of the last of `all` ordered sources that this share covers; `None` without sources.
pub(super) fn spared(all: usize, share: f64) -> Option<usize> {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a number of sources"
    )]
    // Minus a billionth, so that 99.9 % of 1,000 are 999.
    let spared = (all as f64 * share - 1e-9).ceil().max(1.0) as usize;
    spared.min(all).checked_sub(1)
}

/// The need that this share of the sources does not exceed; `needs` are sorted.
pub(super) fn quantile(needs: &[Need], share: f64) -> Option<u64> {
    needs.get(spared(needs.len(), share)?).map(|(need, _)| *need)
}

/// How much a source could pass within the horizon at this rate with the burst that spares enough,
/// and that burst with its margin; `None` if the data cannot show that it is enough. `need` is the
/// need of the sources to spare, in ticks; `seen` is the observed time.
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
    // A burst for which no rule may have the margin is used without it.
    let burst = if rate.allows(rounded).is_some() { rounded } else { burst };
    Some((score, burst))
}

/// Rounds up to two significant digits.
fn round_up(number: u64) -> u64 {
    let mut size = 1;
    while number / size >= 100 {
        size *= 10;
    }
    number.div_ceil(size).saturating_mul(size)
}

/// A rule file with the proposal in shadow mode, with the reason in a comment; `None` without a
/// proposal.
///
/// # Errors
///
/// If it cannot be written as YAML.
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
    let (look, head) = match report.observed {
        Observed::Packets => ("`limiter stats`", ""),
        Observed::Requests => (
            "its metrics",
            "domain: tuned\ncheck:\n  - [{key: remote_address, header: X-Real-IP}]\n",
        ),
    };
    let mut text = format!(
        "# Proposed by `limiter tune`: {rate}, {burst} at once. It only counts (shadow_mode): \
         look at\n# {look} for a day, and remove that line when it hits only those whom it \
         should.\n# From {packets} {noun} of {sources} sources in {seconds:.1} s: {origin}.\n# \
         There it hits {hits} of {sources} sources, {share:.3} %, which sent {of:.3} % of the \
         {noun};\n# of others like them, in as long a time, at most {bound:.3} %, with a \
         confidence of 95 %.\n{head}descriptors:\n",
        noun = report.observed.noun(),
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
