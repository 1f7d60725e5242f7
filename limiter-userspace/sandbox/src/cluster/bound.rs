//! Checks the bound of a shared limit against the packets that arrived, in every window.
//!
//! A node decides on a packet at a moment that nobody observes, after it was sent and before it
//! arrived. So a packet counts in a window if it was sent and arrived within it. There is no
//! allowance for packets under way, and no packet counts against a window that it may not belong
//! to: the packets that cross an edge, few because the way takes microseconds, count in longer
//! windows only.

/// Nanoseconds of a second; units are counted in parts of this.
const SECOND: u64 = 1_000_000_000;

/// A packet that arrived. Both times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Packet {
    /// Just before it was sent.
    pub sent: u64,
    /// Just after it was received.
    pub arrived: u64,
}

/// Part of a run, with the units that windows touching it may have on top of the bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Begin, in nanoseconds of `CLOCK_MONOTONIC`.
    pub from: u64,
    /// End.
    pub to: u64,
    /// Units a second on top of the bound, while the span lasts.
    pub rate: u64,
    /// Units on top of the bound, once.
    pub burst: u64,
}

/// A shared limit, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Packets a second.
    pub rate: u64,
    /// Packets at once.
    pub burst: u64,
}

impl Bound {
    /// Most packets that may pass in a window as long as the span.
    pub fn of(&self, span: &Span) -> u64 {
        let units = (self.rate + span.rate) * (span.to.saturating_sub(span.from));
        self.burst + span.burst + units / SECOND
    }

    /// Packets by which the worst window of any length exceeds the bound; negative if all windows
    /// are below it. `spans` follow one another without a gap. `None` if no packet is in them.
    pub fn over(&self, spans: &[Span], packets: &[Packet]) -> Option<i64> {
        let spans = joined(spans);
        let mut worst = None;
        for (first, begin) in spans.iter().enumerate() {
            let mut on_top = 0;
            for end in &spans[first..] {
                on_top += end.burst;
                let inside = packets.iter().filter(|p| p.sent >= begin.from && p.arrived <= end.to);
                let allowed = (self.burst + on_top) * SECOND;
                let excess = self.excess(&spans, inside.copied().collect());
                worst = worst.max(excess.map(|excess| excess - allowed.cast_signed()));
            }
        }
        Some(worst?.div_euclid(SECOND.cast_signed()))
    }

    /// Most by which the packets of a window exceed what the rate allows, in parts of a packet.
    fn excess(&self, spans: &[Span], mut packets: Vec<Packet>) -> Option<i64> {
        let origin = spans.first()?.from;
        // Units that the rate has allowed from the origin to a time.
        let allowed = |time: u64| {
            let more = spans
                .iter()
                .map(|span| span.rate * time.min(span.to).saturating_sub(span.from.min(time)));
            (self.rate * (time - origin) + more.sum::<u64>()).cast_signed()
        };
        packets.sort_unstable();
        let mut arrivals: Vec<(u64, usize)> =
            packets.iter().enumerate().map(|(n, packet)| (packet.arrived, n)).collect();
        arrivals.sort_unstable();
        let mut starts = Starts::new(packets.len());
        let mut worst = None;
        for (arrived, n) in arrivals {
            starts.count(n, allowed(packets[n].sent));
            worst = worst.max(Some(starts.best() - allowed(arrived)));
        }
        worst
    }
}

/// Joins neighbouring spans with the same units on top, so that a cut counts once.
fn joined(spans: &[Span]) -> Vec<Span> {
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if (last.rate, last.burst) == (span.rate, span.burst) => last.to = span.to,
            _ => joined.push(*span),
        }
    }
    joined
}

/// Windows by their first packet, in the order of sending. The value of a window is its packets
/// that have arrived, minus what was allowed at its begin. The windows are a tree of maxima; a
/// value added to a whole branch stays at the branch's root.
struct Starts {
    best: Vec<i64>,
    added: Vec<i64>,
    leaves: usize,
}

/// Value of a window whose first packet has not arrived: far below any that has.
const ABSENT: i64 = i64::MIN / 2;

impl Starts {
    fn new(packets: usize) -> Self {
        // One leaf more than there are packets.
        let leaves = (packets + 1).next_power_of_two();
        Self { best: vec![ABSENT; 2 * leaves], added: vec![0; 2 * leaves], leaves }
    }

    /// Counts packet `n`, which has arrived, in all windows that begin with it or before it.
    fn count(&mut self, n: usize, allowed: i64) {
        self.walk(n + self.leaves, allowed - ABSENT, 0);
        self.walk(n + 1 + self.leaves, 0, SECOND.cast_signed());
    }

    /// Adds to a leaf, and to all leaves before it.
    fn walk(&mut self, leaf: usize, here: i64, before: i64) {
        self.best[leaf] += here;
        let mut at = leaf;
        while at > 1 {
            if at % 2 == 1 {
                self.best[at - 1] += before;
                self.added[at - 1] += before;
            }
            at /= 2;
            self.best[at] = self.best[2 * at].max(self.best[2 * at + 1]) + self.added[at];
        }
    }

    fn best(&self) -> i64 {
        self.best[1]
    }
}

/// Most packets in any window of `length` nanoseconds.
pub fn busiest(packets: &[Packet], length: u64) -> u64 {
    let mut packets = packets.to_vec();
    packets.sort_unstable();
    let counts = packets.iter().enumerate().map(|(n, first)| {
        let end = first.sent + length;
        let sent = packets[n..].iter().take_while(|packet| packet.sent <= end);
        sent.filter(|packet| packet.arrived <= end).count()
    });
    counts.max().unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const BOUND: Bound = Bound { rate: 100, burst: 10 };

    fn packets(times: impl IntoIterator<Item = u64>) -> Vec<Packet> {
        times.into_iter().map(|ms| Packet { sent: ms * MS, arrived: ms * MS }).collect()
    }

    fn all(to: u64) -> Span {
        Span { to: to * MS, ..Span::default() }
    }

    #[test]
    fn a_burst_and_then_the_rate_is_exactly_the_bound() {
        let times = std::iter::repeat_n(0, 10).chain((1..=100).map(|n| n * 10));
        let mut arrived = packets(times);
        assert_eq!(BOUND.over(&[all(1000)], &arrived), Some(0));
        assert_eq!(BOUND.of(&all(1000)), 110);
        arrived.extend(packets([500]));
        assert_eq!(BOUND.over(&[all(1000)], &arrived), Some(1));
        assert_eq!(BOUND.over(&[all(1000)], &[]), None);
    }

    #[test]
    fn a_short_window_in_a_quiet_run_is_found() {
        let arrived = packets((0..50).map(|n| n * 100).chain(std::iter::repeat_n(2000, 12)));
        assert_eq!(BOUND.over(&[all(5000)], &arrived), Some(3));
    }

    #[test]
    fn what_crosses_an_edge_counts_in_longer_windows_only() {
        let late = Packet { sent: 0, arrived: 100 * MS };
        let arrived = vec![late; 20];
        // 20 packets in a tenth of a second, in which the rate allows 10 beside the burst.
        assert_eq!(BOUND.over(&[all(1000)], &arrived), Some(0));
        assert_eq!(busiest(&arrived, 99 * MS), 0);
        assert_eq!(busiest(&arrived, 100 * MS), 20);
    }

    #[test]
    fn a_cut_adds_to_windows_that_touch_it_and_no_others() {
        let spans = [
            Span { from: 0, to: 1000 * MS, rate: 0, burst: 0 },
            Span { from: 1000 * MS, to: 2000 * MS, rate: 20, burst: 5 },
            Span { from: 2000 * MS, to: 3000 * MS, rate: 0, burst: 0 },
        ];
        let during = packets(std::iter::repeat_n(1500, 16));
        assert_eq!(BOUND.over(&spans, &during), Some(1));
        let before = packets(std::iter::repeat_n(500, 16));
        assert_eq!(BOUND.over(&spans, &before), Some(6));
        // During the cut the rate is 120 instead of 100.
        let pace = (1..120).map(|n| 1001 + n * 25 / 3);
        let long = packets(std::iter::repeat_n(1001, 15).chain(pace));
        let over = BOUND.over(&spans, &long).expect("packets");
        assert!((0..=1).contains(&over), "{over}");
        assert_eq!(BOUND.of(&spans[1]), 135);
    }

    /// Compares the tree with a search through every single window.
    #[test]
    fn the_worst_window_is_that_of_trying_all() {
        let mut random = 7_u64;
        let mut draw = |most: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % most
        };
        for _ in 0..50 {
            let arrived: Vec<Packet> = (0..60)
                .map(|_| {
                    let sent = draw(1000) * MS;
                    Packet { sent, arrived: sent + draw(30) * MS }
                })
                .collect();
            let mut worst = i64::MIN;
            for first in &arrived {
                for last in arrived.iter().filter(|last| last.arrived >= first.sent) {
                    let (s, e) = (first.sent, last.arrived);
                    let inside = arrived.iter().filter(|p| p.sent >= s && p.arrived <= e).count();
                    if inside > 0 {
                        let allowed = BOUND.burst * SECOND + BOUND.rate * (e - s);
                        let over = (inside as u64 * SECOND).cast_signed() - allowed.cast_signed();
                        worst = worst.max(over.div_euclid(SECOND.cast_signed()));
                    }
                }
            }
            assert_eq!(BOUND.over(&[all(2000)], &arrived), Some(worst));
        }
    }
}
