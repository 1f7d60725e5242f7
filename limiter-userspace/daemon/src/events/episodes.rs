//! Joins single drops into episodes, so that an operator is notified once, not a million times.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use limiter_common::time::Ticks;
use limiter_common::wire::Event;

use crate::machine::clocks::Clocks;
use crate::views::Title;

/// The key of an episode: source, rule, reason and direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) source: [u8; 16],
    pub(super) rule: u32,
    pub(super) reason: u8,
    pub(super) is_out: bool,
}

impl Key {
    pub(super) const fn of(event: &Event) -> Self {
        let is_out = event.known & Event::OUT != 0;
        Self { source: event.source, rule: event.rule, reason: event.reason, is_out }
    }
}

/// A series of drops without a long pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Open {
    /// The rule when the episode began: its number may later belong to another rule.
    pub(super) rule: Option<Title>,
    pub(super) began: SystemTime,
    first: Ticks,
    reported: Ticks,
    pub(super) sampled: u64,
    pub(super) last: Event,
    /// Drops not yet written to the log.
    pub(super) unkept: Unkept,
}

/// The part of an episode not yet written to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unkept {
    /// Time of the part's first drop.
    pub(super) from: Ticks,
    /// Time of the part's last drop.
    pub(super) to: Ticks,
    pub(super) sampled: u64,
    /// Time at which the previous part was written to the log; `None` before the first.
    kept: Option<Ticks>,
}

impl Unkept {
    fn add(&mut self, time: Ticks) {
        let begins = self.sampled == 0;
        // CPUs report in no particular order.
        self.from = if begins { time } else { self.from.min(time) };
        self.to = if begins { time } else { self.to.max(time) };
        self.sampled += 1;
    }
}

impl Open {
    /// Time from the first drop to the last one.
    pub(super) fn length(&self) -> Duration {
        Duration::from_nanos(Ticks::new(self.last.time).since(self.first).as_nanos())
    }
}

/// A line about an episode that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Still(Key, Open),
    End(Key, Open),
}

/// The episodes under way, at most `capacity`.
#[derive(Debug)]
pub(super) struct Episodes {
    open: HashMap<Key, Open>,
    capacity: usize,
    still: Duration,
    quiet: Duration,
    /// Episodes that were displaced by others.
    pub(super) forgotten: u64,
    /// Displaced and ended episodes that are not completely in the log.
    gone: Vec<(Key, Open)>,
}

impl Episodes {
    /// Reports an episode again every `still`, and ends it after `quiet` without a drop.
    pub(super) fn new(capacity: usize, still: Duration, quiet: Duration) -> Self {
        Self { open: HashMap::new(), capacity, still, quiet, forgotten: 0, gone: Vec::new() }
    }

    /// Counts a drop to its episode. Returns the episode if the drop began it.
    pub(super) fn record(
        &mut self,
        event: Event,
        clocks: &Clocks,
        rule: impl FnOnce() -> Option<Title>,
    ) -> Option<Open> {
        let (key, time) = (Key::of(&event), Ticks::new(event.time));
        if let Some(open) = self.open.get_mut(&key) {
            open.sampled += 1;
            open.unkept.add(time);
            // CPUs report in no particular order.
            if event.time >= open.last.time {
                open.last = event;
            }
            return None;
        }
        if self.open.len() >= self.capacity {
            // The episode whose last drop is the oldest.
            let oldest = self.open.iter().min_by_key(|(key, open)| (open.last.time, **key));
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                let gone = self.open.remove_entry(&oldest);
                self.gone.extend(gone.filter(|(_, open)| open.unkept.sampled > 0));
                self.forgotten += 1;
            }
        }
        let open = Open {
            rule: rule(),
            began: clocks.at(time),
            first: time,
            reported: time,
            sampled: 1,
            last: event,
            unkept: Unkept { from: time, to: time, sampled: 1, kept: None },
        };
        self.open.insert(key, open.clone());
        Some(open)
    }

    /// Reports that are due at `now`, the longest episode first.
    pub(super) fn due(&mut self, now: Ticks) -> Vec<Due> {
        let passed = |since: Ticks| Duration::from_nanos(now.since(since).as_nanos());
        let mut due = Vec::new();
        for (key, open) in &mut self.open {
            if passed(Ticks::new(open.last.time)) >= self.quiet {
                due.push(Due::End(*key, open.clone()));
            } else if passed(open.reported) >= self.still {
                open.reported = now;
                due.push(Due::Still(*key, open.clone()));
            }
        }
        due.sort_by_key(|due| match due {
            Due::Still(key, open) | Due::End(key, open) => (open.first, *key),
        });
        for ended in &due {
            if let Due::End(key, _) = ended {
                let ended = self.open.remove_entry(key);
                self.gone.extend(ended.filter(|(_, open)| open.unkept.sampled > 0));
            }
        }
        due
    }

    /// Parts of episodes for the log: new ones, those whose previous part is `every` old, and those
    /// that ended or were displaced. With `all`, every part that the log does not have.
    pub(super) fn parts(&mut self, now: Ticks, every: Duration, all: bool) -> Vec<(Key, Open)> {
        let is_due = |kept: Option<Ticks>| {
            kept.is_none_or(|kept| Duration::from_nanos(now.since(kept).as_nanos()) >= every)
        };
        let mut parts = std::mem::take(&mut self.gone);
        for (key, open) in &mut self.open {
            if open.unkept.sampled > 0 && (all || is_due(open.unkept.kept)) {
                parts.push((*key, open.clone()));
                (open.unkept.sampled, open.unkept.kept) = (0, Some(now));
            }
        }
        parts
    }

    /// Episodes under way, the most recent first.
    pub(super) fn open(&self) -> Vec<(Key, &Open)> {
        let mut open: Vec<_> = self.open.iter().map(|(key, open)| (*key, open)).collect();
        open.sort_by_key(|(key, open)| (std::cmp::Reverse(open.last.time), *key));
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Ticks {
        Ticks::from_nanos(seconds * 1_000_000_000)
    }

    fn drop_of(last: u8, seconds: u64) -> Event {
        let mut source = [0; 16];
        source[15] = last;
        Event { source, time: at(seconds).get(), ..Event::default() }
    }

    const CLOCKS: Clocks = Clocks { now: Ticks::ZERO, wall: SystemTime::UNIX_EPOCH };

    fn episodes(capacity: usize) -> Episodes {
        Episodes::new(capacity, Duration::from_mins(1), Duration::from_mins(1))
    }

    fn reported(due: &[Due]) -> Vec<(&'static str, u64)> {
        due.iter()
            .map(|due| match due {
                Due::Still(_, open) => ("still", open.sampled),
                Due::End(_, open) => ("end", open.sampled),
            })
            .collect()
    }

    #[test]
    fn a_flood_is_reported_at_its_start_once_a_minute_and_at_its_end() {
        let mut episodes = episodes(8);
        let mut lines = Vec::new();
        for second in 100..250 {
            for _ in 0..1_000 {
                lines.extend(
                    episodes.record(drop_of(1, second), &CLOCKS, || None).map(|_| ("start", 1)),
                );
            }
            lines.extend(reported(&episodes.due(at(second))));
        }
        for second in 250..400 {
            lines.extend(reported(&episodes.due(at(second))));
        }
        let expected = [
            ("start", 1),
            ("still", 61_000),
            ("still", 121_000),
            ("still", 150_000),
            ("end", 150_000),
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn source_rule_reason_and_direction_are_apart() {
        let mut episodes = episodes(8);
        let one = drop_of(1, 5);
        let out = Event { known: Event::OUT, ..one };
        let other = [drop_of(2, 5), Event { rule: 7, ..one }, Event { reason: 3, ..one }, out];
        for event in [one].into_iter().chain(other) {
            assert!(episodes.record(event, &CLOCKS, || None).is_some(), "{event:?}");
            assert!(episodes.record(event, &CLOCKS, || None).is_none(), "{event:?}");
        }
        assert_eq!(episodes.open().len(), 5);
    }

    #[test]
    fn the_one_seen_longest_ago_makes_room() {
        let mut episodes = episodes(2);
        for event in [drop_of(1, 1), drop_of(2, 2), drop_of(1, 3), drop_of(3, 4)] {
            episodes.record(event, &CLOCKS, || None);
        }
        assert_eq!(episodes.forgotten, 1);
        let sources: Vec<_> = episodes.open().iter().map(|(key, _)| key.source[15]).collect();
        assert_eq!(sources, [3, 1]);
    }

    /// Each drop is in exactly one part: written soon after the first drop, then each minute, at
    /// the end, and when an episode is displaced.
    #[test]
    fn each_drop_is_in_one_part_for_the_log() {
        let mut episodes = episodes(2);
        let mut kept: Vec<(u64, u8, u64)> = Vec::new();
        let mut keep = |second: u64, parts: Vec<(Key, Open)>| {
            let mut parts: Vec<_> = parts
                .into_iter()
                .map(|(key, open)| (second, key.source[15], open.unkept.sampled))
                .collect();
            parts.sort_unstable();
            kept.extend(parts);
        };
        let minute = Duration::from_mins(1);
        for second in 0..150 {
            episodes.record(drop_of(1, second), &CLOCKS, || None);
            keep(second, episodes.parts(at(second), minute, false));
        }
        for last in [2, 3, 4] {
            episodes.record(drop_of(last, 150), &CLOCKS, || None);
        }
        keep(150, episodes.parts(at(150), minute, false));
        keep(151, episodes.parts(at(151), minute, true));
        let expected = [
            (0, 1, 1),
            (60, 1, 60),
            (120, 1, 60),
            (150, 1, 29),
            (150, 2, 1),
            (150, 3, 1),
            (150, 4, 1),
        ];
        assert_eq!(kept, expected);
    }
}
