//! Sums of a capture by source, rule and reason.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use limiter_common::source::Source;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::Tally;
use limiter_model::of_growing;

use super::{Decision, MAX_REPORTED};

/// Cause of a verdict: the rule's number, or [`limiter_common::wire::RULE_NONE`], and the reason.
type Cause = (u32, Reason);

/// Packets of sources that are not listed individually.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Number of sources, as far as they were distinguished.
    pub sources: u64,
    /// Packets that passed.
    pub passed: Tally,
    /// Packets that were dropped.
    pub dropped: Tally,
}

impl Others {
    fn add(&mut self, reason: Reason, tally: Tally) {
        match reason.verdict() {
            Verdict::Pass => self.passed.merge(tally),
            Verdict::Drop => self.dropped.merge(tally),
        }
    }
}

/// What one source sent, and the verdicts on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSums {
    /// The source.
    pub source: Source,
    /// Packets that passed.
    pub passed: Tally,
    /// Packets that were dropped.
    pub dropped: Tally,
    /// All of its packets by cause.
    pub causes: BTreeMap<Cause, Tally>,
}

/// Sums by source. Every packet is in exactly one sum, so they add up to all packets.
#[derive(Debug)]
pub struct BySource {
    cells: HashMap<(Source, Cause), Tally>,
    /// Packets without a source: ARP and others that are not IP.
    exempt: Others,
    /// Packets for which there was no more memory to distinguish source and cause.
    beyond: Others,
    /// [`MAX_REPORTED`], except in tests.
    room: usize,
}

impl Default for BySource {
    fn default() -> Self {
        Self {
            cells: HashMap::new(),
            exempt: Others::default(),
            beyond: Others::default(),
            room: MAX_REPORTED,
        }
    }
}

impl BySource {
    /// Counts a packet of `length` bytes.
    pub fn add(&mut self, decision: &Decision, length: u64) {
        let Decision { source, reason, rule, .. } = *decision;
        let tally = Tally { packets: 1, bytes: length };
        let Some(source) = source else {
            return self.exempt.add(reason, tally);
        };
        let key = (source, (rule, reason));
        if let Some(cell) = self.cells.get_mut(&key) {
            cell.merge(tally);
        } else if self.cells.len() < self.room {
            self.cells.insert(key, tally);
        } else {
            self.beyond.add(reason, tally);
        }
    }

    /// Packets without a source.
    pub fn exempt(&self) -> &Others {
        &self.exempt
    }

    /// Packets that were not distinguished by source, because [`MAX_REPORTED`] combinations of
    /// source, rule and reason came before them.
    pub fn beyond(&self) -> &Others {
        &self.beyond
    }

    /// The `most` sources with the most dropped packets, ties broken by passed packets, and the sum
    /// of all others. Neither includes the packets of [`BySource::exempt`] and
    /// [`BySource::beyond`].
    pub fn top(&self, most: usize) -> (Vec<SourceSums>, Others) {
        let mut best: BTreeMap<Place, (usize, usize)> = BTreeMap::new();
        let (cells, mut others) = (self.sorted(), Others::default());
        for (from, to) in parts(&cells) {
            let of = cells.get(from..to).unwrap_or_default();
            let (mut passed, mut dropped) = (Tally::default(), Tally::default());
            for ((_, (_, reason)), tally) in of {
                match reason.verdict() {
                    Verdict::Pass => passed.merge(**tally),
                    Verdict::Drop => dropped.merge(**tally),
                }
            }
            others.sources += 1;
            others.passed.merge(passed);
            others.dropped.merge(dropped);
            best.insert((Reverse(dropped.packets), Reverse(passed.packets), from), (from, to));
            if best.len() > most {
                best.pop_last();
            }
        }
        let top = best.into_values().filter_map(|(from, to)| {
            let of = cells.get(from..to)?;
            let source = of.first()?.0.0;
            let mut sums = SourceSums {
                source,
                passed: Tally::default(),
                dropped: Tally::default(),
                causes: BTreeMap::new(),
            };
            for ((_, cause), tally) in of {
                sums.causes.insert(*cause, **tally);
                match cause.1.verdict() {
                    Verdict::Pass => sums.passed.merge(**tally),
                    Verdict::Drop => sums.dropped.merge(**tally),
                }
            }
            Some(sums)
        });
        let top: Vec<SourceSums> = top.collect();
        for sums in &top {
            others.sources -= 1;
            others.passed = less(others.passed, sums.passed);
            others.dropped = less(others.dropped, sums.dropped);
        }
        (top, others)
    }

    /// The number of sources with fewer than `packets` packets, the number of their packets, and
    /// the packets of all sources.
    pub fn seldom(&self, packets: u64) -> (u64, u64, u64) {
        let cells = self.sorted();
        let (mut sources, mut of_few, mut all) = (0, 0, 0);
        for (from, to) in parts(&cells) {
            let of = cells.get(from..to).unwrap_or_default();
            let sent: u64 = of.iter().map(|(_, tally)| tally.packets).sum();
            all += sent;
            if sent < packets {
                sources += 1;
                of_few += sent;
            }
        }
        (sources, of_few, all)
    }

    /// All cells, sorted by source.
    fn sorted(&self) -> Vec<(&(Source, Cause), &Tally)> {
        let mut cells: Vec<_> = self.cells.iter().collect();
        cells.sort_unstable_by_key(|(key, _)| **key);
        cells
    }

    /// Approximate bytes that are kept, including those needed for sorting.
    pub(super) fn bytes(&self) -> usize {
        let cell = size_of::<((Source, Cause), Tally)>();
        of_growing(self.cells.len(), self.cells.capacity(), cell)
            + self.cells.len() * size_of::<(&(), &())>()
    }
}

/// The order of sources: by dropped packets, by passed packets, and by their place.
type Place = (Reverse<u64>, Reverse<u64>, usize);

/// The ranges of cells that belong to one source.
fn parts<'a>(
    cells: &'a [(&(Source, Cause), &Tally)],
) -> impl Iterator<Item = (usize, usize)> + use<'a> {
    let mut from = 0;
    cells.chunk_by(|(a, _), (b, _)| a.0 == b.0).map(move |part| {
        let begin = from;
        from += part.len();
        (begin, from)
    })
}

fn less(all: Tally, part: Tally) -> Tally {
    Tally { packets: all.packets - part.packets, bytes: all.bytes - part.bytes }
}

#[cfg(test)]
mod tests {
    use limiter_common::frame_size::FrameSize;
    use limiter_common::time::Ticks;

    use super::*;

    fn decision(host: u8, reason: Reason, rule: u32) -> Decision {
        let source = (host > 0).then_some(Source::V4([192, 0, 2, host]));
        Decision { source, reason, rule, waits: Ticks::ZERO }
    }

    /// All packets and bytes of a summary, independent of how many sources are listed.
    fn all(by_source: &BySource, most: usize) -> Tally {
        let (top, others) = by_source.top(most);
        let mut sum = Tally::default();
        for tally in top.iter().flat_map(|source| [source.passed, source.dropped]) {
            sum.merge(tally);
        }
        for others in [&others, by_source.exempt(), by_source.beyond()] {
            sum.merge(others.passed);
            sum.merge(others.dropped);
        }
        sum
    }

    /// The counts add up, however many sources are listed and however little memory there is.
    #[test]
    fn counts_add_up() {
        for room in [0, 1, 7, MAX_REPORTED] {
            let mut by_source = BySource { room, ..BySource::default() };
            let mut sum = Tally::default();
            for packet in 0..1000u64 {
                let host = u8::try_from(packet % 50).unwrap();
                let reason = if packet % 3 == 0 { Reason::OverLimit } else { Reason::Conforming };
                by_source.add(&decision(host, reason, host.into()), 60 + packet);
                sum.add(FrameSize::of_packet(60 + packet));
            }
            for most in [0, 1, 20, 1000] {
                assert_eq!(all(&by_source, most), sum, "{room} {most}");
            }
        }
    }

    #[test]
    fn those_who_lost_most_come_first() {
        let mut by_source = BySource::default();
        for (host, drops, passes) in [(1, 0, 9), (2, 5, 0), (3, 7, 1), (4, 0, 10)] {
            for _ in 0..drops {
                by_source.add(&decision(host, Reason::OverLimit, 3), 100);
            }
            for _ in 0..passes {
                by_source.add(&decision(host, Reason::Conforming, 2), 100);
            }
        }
        let (top, others) = by_source.top(3);
        let hosts: Vec<_> = top.iter().map(|sums| sums.source).collect();
        assert_eq!(hosts, [3, 2, 4].map(|host| Source::V4([192, 0, 2, host])));
        assert_eq!(top[0].causes[&(3, Reason::OverLimit)].packets, 7);
        assert_eq!((others.sources, others.passed.packets), (1, 9));
    }
}
