//! Findings of a tuning.

use std::cmp::Reverse;

use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::Count;
use limiter_rules::compile::display_rate;
use limiter_rules::model::SourceMasks;
use serde::Serialize;

use super::proposal::{self, FEW_PACKETS, Proposal, SHORTEST};
use super::rates::{RATES, Rate};
use super::{Kept, KeptPackets, Observed, TriePrefix, Tuner, chance};

/// Shares of the sources for [`AtRate::bursts`].
pub const SHARES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// Bursts for [`AtRate::hits`]: numbers of packets, or of frames of the largest size.
const BURSTS: [u64; 5] = [1, 10, 100, 1000, 10_000];

/// A source whose average exceeds this percentage of a rate is limited by it sooner or later, with
/// any burst.
const AVERAGE: u128 = 101;

/// Findings of a tuning.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was observed: where it is requests, `packets` are those.
    #[serde(skip)]
    pub observed: Observed,
    /// Observed packets, without excluded ones.
    pub packets: u64,
    /// Bytes of these packets, on the wire.
    pub bytes: u64,
    /// Packets that were excluded.
    pub excluded: u64,
    /// Time from the first to the last packet, in seconds.
    pub seconds: f64,
    /// Observed part of this time, in seconds: a pause without packets counts for at most ten.
    pub seen_seconds: f64,
    /// Examined sources.
    pub sources: u64,
    /// One of so many sources was examined, chosen by a hash: 1 for all.
    pub one_of: u64,
    /// Counted unit: `packets`, `bytes` or `requests`.
    pub count: &'static str,
    /// Needs at each rate.
    pub rates: Vec<AtRate>,
    /// The sources that sent most.
    pub top: Vec<TopSource>,
    /// Sources of fewer than [`super::FEW_PACKETS`] packets.
    pub seldom: Seldom,
    /// The proposed limit; `None` if the observation is not sufficient.
    pub proposal: Option<Proposal>,
    /// The reason if there is no proposal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_proposal: Option<String>,
}

/// Sources with so few packets that they show nothing about a source's rate: forged addresses,
/// occasional visitors, or all sources of a short observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Seldom {
    /// How many examined sources these are.
    pub sources: u64,
    /// The packets that they sent.
    pub packets: u64,
}

/// Needs of the sources at one rate.
#[derive(Clone, Debug, Serialize)]
pub struct AtRate {
    /// The rate in the notation of rules.
    pub rate: String,
    /// The smallest bursts that drop nothing of 50, 90, 99, 99.9 and 100 % of the sources; `None`
    /// if no rule may have such a burst.
    pub bursts: [Option<u64>; SHARES.len()],
    /// Sources that lose a packet, at some bursts.
    pub hits: Vec<Hit>,
}

/// Sources that lose a packet at a rate and a burst.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hit {
    /// Burst in units of the limit.
    pub burst: u64,
    /// Share of the sources, 0 to 1.
    pub sources: f64,
    /// Share of the packets that these sources sent, 0 to 1. Not all of these packets are dropped.
    pub packets: f64,
}

/// One of the sources that sent most.
#[derive(Clone, Debug, Serialize)]
pub struct TopSource {
    /// The source.
    pub source: String,
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets, on the wire.
    pub bytes: u64,
    /// The most units in 10 ms, 1 s, 1 min and 1 h that begin at multiples of their length.
    pub most: [u64; 4],
    /// The smallest burst at the proposed rate that drops nothing.
    pub burst: Option<u64>,
    /// Smallest bursts at each of [`Report::rates`]: the sigma-rho curve of the source; `None` if
    /// no rule may have such a burst.
    pub bursts: Vec<Option<u64>>,
    /// True if the proposal drops any of its packets.
    pub hit: bool,
}

/// A source's need at a rate, and its number of packets.
pub(super) type Need = (u64, u64);

impl Tuner {
    /// Findings so far.
    #[expect(clippy::cast_precision_loss, reason = "for display")]
    pub fn report(&self) -> Report {
        let seconds = (self.last - self.first) as f64 / 1e9;
        let mut rates = Vec::with_capacity(RATES);
        let mut found: Option<(f64, usize, u64)> = None;
        let (seldom, all) = self.seldom();
        let sources = u64::try_from(self.kept.len()).unwrap_or(u64::MAX);
        // Such senders are forged, or show nothing about users.
        let is_flood = seldom.packets > all / 2 || seldom.sources == sources;
        let seen = Ticks::from_nanos(self.seen);
        for (place, rate) in self.rates.iter().enumerate() {
            let mut needs = self.needs(place);
            needs.sort_unstable();
            rates.push(self.at_rate(rate, &needs));
            drop(needs);
            if !is_flood
                && let Some(need) = self.lasting_need(rate, place)
                && let Some((score, burst)) = proposal::score(rate, need, seen)
                && found.is_none_or(|(best, ..)| score < best)
            {
                found = Some((score, place, burst));
            }
        }
        let limit = found
            .and_then(|(_, place, burst)| self.rates.get(place).map(|rate| (place, *rate, burst)));
        let proposal = limit.as_ref().and_then(|(place, rate, burst)| {
            let allowed = rate.allows(*burst)?;
            let mut hit: Vec<_> = self
                .kept
                .iter()
                .filter(|(_, kept)| self.need(kept, *place) > allowed)
                .map(|(source, kept)| (Reverse(kept.packets), *source))
                .collect();
            hit.sort_unstable();
            let hits = u64::try_from(hit.len()).unwrap_or(u64::MAX);
            let often = |packets: u64| packets >= FEW_PACKETS;
            let hits_often = hit.iter().filter(|(Reverse(packets), _)| often(*packets)).count();
            let hits_often = u64::try_from(hits_often).unwrap_or(u64::MAX);
            let packets: u64 = self.kept.values().map(|kept| kept.packets).sum();
            let of_hit: u64 = hit.iter().map(|(Reverse(packets), _)| packets).sum();
            Some(Proposal {
                limit: rate.with_burst(*burst),
                rate: display_rate(&rate.with_burst(*burst)),
                burst: *burst,
                sources_hit: hits,
                share_hit: hits as f64 / sources.max(1) as f64,
                packets_of_hit: of_hit as f64 / packets.max(1) as f64,
                share_at_most: chance::at_most(hits_often, sources.saturating_sub(seldom.sources)),
                hit: hit
                    .iter()
                    .take(self.settings.named)
                    .map(|(_, source)| self.text(*source))
                    .collect(),
            })
        });
        let mut top: Vec<_> = self.kept.iter().collect();
        let bytes = self.settings.count == Count::Bytes;
        let order = |(source, kept): &(&Source, &Kept)| {
            (Reverse(if bytes { kept.bytes } else { kept.packets }), **source)
        };
        let named = self.settings.named;
        if top.len() > named {
            top.select_nth_unstable_by_key(named, order);
            top.truncate(named);
        }
        top.sort_unstable_by_key(order);
        let top = top.into_iter().map(|(source, kept)| {
            let units = if bytes { kept.bytes } else { kept.packets };
            let most = match &kept.state {
                KeptPackets::One(_) => [units; 4],
                KeptPackets::More(curve) => curve.most(),
            };
            let need = limit.as_ref().map(|(place, rate, burst)| {
                let need = self.need(kept, *place);
                (rate.burst(need), rate.allows(*burst).is_none_or(|allowed| need > allowed))
            });
            let (burst, hit) = need.unwrap_or_default();
            let bursts = (0..).zip(&self.rates);
            let bursts = bursts.map(|(place, rate)| rate.burst(self.need(kept, place))).collect();
            let Kept { packets, bytes, .. } = *kept;
            TopSource { source: self.text(*source), packets, bytes, most, burst, bursts, hit }
        });
        Report {
            observed: self.settings.observed,
            packets: self.packets,
            bytes: self.bytes,
            excluded: self.excluded,
            seconds,
            seen_seconds: self.seen as f64 / 1e9,
            sources,
            one_of: 1 << self.level,
            count: match self.settings.observed {
                Observed::Packets => self.settings.count.name(),
                Observed::Requests => Observed::Requests.noun(),
            },
            rates,
            top: top.collect(),
            seldom,
            no_proposal: proposal.is_none().then(|| self.why_not(seldom, is_flood)),
            proposal,
        }
    }

    /// Sources with few packets, and the packets of all examined sources.
    fn seldom(&self) -> (Seldom, u64) {
        let (mut seldom, mut all) = (Seldom::default(), 0u64);
        for kept in self.kept.values() {
            all = all.saturating_add(kept.packets);
            if kept.packets < FEW_PACKETS {
                seldom.sources += 1;
                seldom.packets += kept.packets;
            }
        }
        (seldom, all)
    }

    /// The need at a rate that spares the requested share, of all sources and of the frequent ones;
    /// `None` if it would have grown with more time.
    fn lasting_need(&self, rate: &Rate, place: usize) -> Option<u64> {
        let lasting = |kept: &Kept| {
            let units = if self.settings.count == Count::Bytes { kept.bytes } else { kept.packets };
            // The bucket has not yet made up for the last packet.
            let before = u128::from(units) * u128::from(kept.packets.saturating_sub(1))
                / u128::from(kept.packets.max(1));
            let cost = rate.cost(u64::try_from(before).unwrap_or(u64::MAX)).as_nanos();
            let grows = u128::from(cost) * 100 > u128::from(self.seen) * AVERAGE;
            if grows { u64::MAX } else { self.need(kept, place) }
        };
        let spared = |mut needs: Vec<u64>| {
            let place = proposal::spared(needs.len(), self.settings.spare)?;
            let (_, need, _) = needs.select_nth_unstable(place);
            Some(*need).filter(|need| *need < u64::MAX)
        };
        let often = self.kept.values().filter(|kept| kept.packets >= FEW_PACKETS);
        let often = spared(often.map(lasting).collect())?;
        let all = spared(self.kept.values().map(lasting).collect())?;
        Some(often.max(all))
    }

    fn why_not(&self, seldom: Seldom, is_flood: bool) -> String {
        #[expect(clippy::cast_precision_loss, reason = "for a comparison")]
        let seconds = self.seen as f64 / 1e9;
        let observed = self.settings.observed;
        let (noun, more) = (observed.noun(), observed.more());
        if self.packets == 0 || seconds < SHORTEST {
            return format!(
                "no limit is proposed: at least a second of {noun} with a source is needed"
            );
        }
        if is_flood {
            let (Seldom { sources, packets }, all) = (seldom, self.kept.len());
            let forged = match observed {
                Observed::Packets => {
                    " If they are forged, a limit by source does not hold them: one over all of \
                     them does, as a budget, or a rule on the port alone. If not,"
                }
                Observed::Requests => " To see that,",
            };
            return format!(
                "no limit is proposed: {sources} of {all} sources sent fewer than {FEW_PACKETS} \
                 {noun}, {packets} in all, and most {noun} are theirs: how fast a source sends \
                 is not in that.{forged} {more}"
            );
        }
        format!(
            "no limit is proposed: at no rate does the burst that spares {} % fit twice into the \
             {seconds:.1} s that were seen, so it would have grown with them: {more}, or spare \
             fewer",
            self.settings.spare * 100.0
        )
    }

    /// The need of a source at a rate, in ticks.
    pub(super) fn need(&self, kept: &Kept, place: usize) -> u64 {
        match &kept.state {
            KeptPackets::More(curve) => curve.debts().get(place).copied().unwrap_or_default(),
            KeptPackets::One(_) => {
                let units = if self.settings.count == Count::Bytes { kept.bytes } else { 1 };
                self.rates.get(place).map_or(0, |rate| rate.cost(units).get())
            }
        }
    }

    /// The needs of all sources at a rate, in ticks, and their packets.
    fn needs(&self, place: usize) -> Vec<Need> {
        self.kept.values().map(|kept| (self.need(kept, place), kept.packets)).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "for display")]
    fn at_rate(&self, rate: &Rate, needs: &[Need]) -> AtRate {
        let bursts = SHARES.map(|share| {
            let need = proposal::quantile(needs, share);
            need.and_then(|need| rate.burst(need))
        });
        let unit = if self.settings.count == Count::Bytes { self.settings.max_frame } else { 1 };
        let all: u64 = needs.iter().map(|(_, packets)| packets).sum();
        let hits = BURSTS.iter().filter_map(|burst| {
            let burst = burst * unit;
            let allowed = rate.allows(burst)?;
            let hit = needs.get(needs.partition_point(|(need, _)| *need <= allowed)..)?;
            let packets: u64 = hit.iter().map(|(_, packets)| packets).sum();
            Some(Hit {
                burst,
                sources: hit.len() as f64 / needs.len().max(1) as f64,
                packets: packets as f64 / all.max(1) as f64,
            })
        });
        AtRate { rate: display_rate(&rate.with_burst(1)), bursts, hits: hits.collect() }
    }

    /// A source, or the prefix that is one bucket, as a rule would name it.
    fn text(&self, source: Source) -> String {
        let SourceMasks { v4, v6 } = self.settings.masks;
        let (bits, shift) = match source {
            Source::V4(_) => (v4.unwrap_or(32), 96),
            Source::V6(_) => (v6.unwrap_or(64), 0),
        };
        let prefix = TriePrefix::of_source(source.trie_key()).shortened(shift + u32::from(bits));
        prefix.selector().map_or_else(|| "-".to_owned(), |selector| selector.to_string())
    }
}
