//! Live traffic for `limiter tune`: every packet of a share of the sources, or the counters of all.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use limiter_api::client::Client;
use limiter_api::render::{duration, number};
use limiter_api::status::Status;
use limiter_common::source::Source;
use limiter_common::verdict::{Reason, Verdict};
use limiter_common::wire::{EntryKind, LEVELS};
use limiter_datapath::{Backend, Observed, Sweep};
use limiter_replay::tune::{Observation, Tuner};
use limiter_rules::Selector;
use limiter_rules::compile::RuleId;

use super::blocks::{Blocks, Reported, reported};
use super::capture;
use super::observe::{self, Seen};
use super::progress::{INTERRUPTED, Progress};
use super::reading::Read;
use super::ticker::Ticker;
use crate::failure::Failure;
use crate::questions::way::unnamed;

/// Sources that are read with one call.
const BATCH: usize = 4096;

/// Time between two readings of all counters.
const APART: Duration = Duration::from_secs(1);

/// Time between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Observes, as `limiter observe` does, and keeps no file: sources of which a packet was missed are
/// taken out of the tuner at the end. Says one in how many sources is in it.
///
/// # Errors
///
/// When the daemon refuses, or no source was seen whole.
pub(crate) fn observed(
    client: &Client,
    (time, share, budget): (Duration, u32, NonZeroU32),
    tuner: &mut Tuner,
) -> Result<(Read, u32), Failure> {
    let mut read = Read::default();
    let mut seen = Seen::default();
    let mut blocks = Blocks::default();
    let mut progress = Progress::begin(false, "packets");
    let ticker = Ticker::begin(Some(time), true);
    let report = capture::read(client, &observe::asked(time, share, budget), |part| {
        blocks.add(part, |block| {
            let Some(reported) = reported(block) else { return Ok(()) };
            if seen.note(&reported) {
                let Reported { source, nanos, bytes, .. } = reported;
                tuner.observe(&Observation { nanos, source, bytes });
            }
            read.packets += 1;
            ticker.add(1);
            Ok(())
        })
    })?;
    // At Ctrl-C the daemon ends the observation, and says what it still has.
    read.interrupted = !progress.goes_on(0, None);
    drop(ticker);
    let report = report.ok_or(Failure::CutOff)?;
    let whole = report.whole_level.unwrap_or(LEVELS).max(seen.lowest());
    if whole >= LEVELS {
        return Err(Failure::Replay(observe::NONE_WHOLE.to_owned()));
    }
    let cut = seen.below(whole);
    if cut > 0 {
        tuner.retain(|source| seen.has(source, whole));
    }
    if cut > 0 {
        read.notes.push(format!(
            "{} sources were taken out: packets of that part of the sources were missed, or there \
             were more sources than are kept",
            number(cut)
        ));
    }
    if read.interrupted {
        read.notes.push(INTERRUPTED.to_owned());
    }
    Ok((read, 1 << whole))
}

/// Reads the counters of all sources each second, from the pinned maps.
///
/// # Errors
///
/// When the maps cannot be read, or no source has a counter.
pub(crate) fn counted(
    client: &Client,
    backend: &dyn Backend,
    time: Duration,
    tuner: &mut Tuner,
) -> Result<Read, Failure> {
    let pin_dir = match client.get::<Status>("/v1/status") {
        Ok(Status { pin_dir: Some(pin_dir), .. }) => PathBuf::from(pin_dir),
        Ok(_) => unnamed(client, None)?,
        Err(error) if error.no_daemon() => unnamed(client, None)?,
        Err(error) => return Err(error.into()),
    };
    let maps = backend.read(&pin_dir).map_err(Failure::Pinned)?;
    let mut read = Read::default();
    let mut progress = Progress::begin(false, "packets");
    let ticker = Ticker::begin(Some(time), true);
    let mut counters = Counters::default();
    let dropped_before = dropped(&*maps)?;
    let (began, mut longest, mut last) = (Instant::now(), Duration::ZERO, None);
    'all: loop {
        let at = began.elapsed();
        if let Some(last) = last.replace(at) {
            longest = longest.max(at.saturating_sub(last));
        }
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let came = counters.read(&*maps, nanos, tuner)?;
        read.packets += came;
        ticker.add(came);
        if at >= time {
            break;
        }
        let next = (at + APART).min(time);
        while began.elapsed() < next {
            if !progress.goes_on(0, None) {
                read.interrupted = true;
                read.notes.push(INTERRUPTED.to_owned());
                break 'all;
            }
            thread::sleep(LOOK.min(next.saturating_sub(began.elapsed())));
        }
    }
    drop(ticker);
    let dropped = dropped(&*maps)?.saturating_sub(dropped_before);
    if counters.last.is_empty() {
        return Err(Failure::Replay(
            "no source has counters: they are of rules on sources, so put one in force, as with \
             shadow_mode; without --counters none is needed"
                .to_owned(),
        ));
    }
    let elsewhere = dropped.saturating_sub(counters.dropped);
    if elsewhere > 0 {
        read.notes.push(format!(
            "about {} packets more were dropped by other rules, budgets, lists or bans: the \
             counters of sources do not have these; without --counters they are seen",
            number(elsewhere)
        ));
    }
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    read.notes.push(format!(
        "counters were read up to {} apart: what came between two readings counts as if it came at \
         once, so the burst may be larger than is needed, and bursts within that time are not \
         distinguished",
        duration(nanos)
    ));
    Ok(read)
}

/// Packets that were dropped, whatever dropped them.
fn dropped(maps: &dyn Observed) -> Result<u64, Failure> {
    let tallies = maps.reasons().map_err(Failure::Pinned)?;
    let drops = Reason::ALL.into_iter().zip(tallies);
    let drops = drops.filter(|(reason, _)| reason.verdict() == Verdict::Drop);
    Ok(drops.map(|(_, tally)| tally.packets).sum())
}

/// Packets of a source that its rule was asked about, and those of them that it dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    sum: u64,
    dropped: u64,
}

/// The counters of all sources at the last reading.
#[derive(Debug, Default)]
struct Counters {
    /// Packets by source, and whether its rule is in a keyed table.
    last: HashMap<(Source, bool), Counted>,
    /// Packets that came and were dropped, over all readings.
    dropped: u64,
    /// True once all sources were read.
    begun: bool,
}

impl Counters {
    /// Reads all sources, reports to the tuner what came, and returns how many packets that were.
    fn read(&mut self, maps: &dyn Observed, nanos: u64, tuner: &mut Tuner) -> Result<u64, Failure> {
        let form = RuleId::of_source(&Selector::Every).form;
        let mut sweep = Sweep::with_keyed(maps.installed().tables.ids.get(&form).copied());
        let mut now = HashMap::with_capacity(self.last.len());
        while let Some((kind, _)) = sweep.place() {
            let keyed = kind == EntryKind::Keyed;
            let read = maps.sources(&mut sweep, BATCH).map_err(Failure::Pinned)?;
            let sums = read.into_iter().map(|(source, bucket)| {
                let sum = bucket.passed.saturating_add(bucket.dropped);
                ((source, keyed), Counted { sum, dropped: bucket.dropped })
            });
            now.extend(sums);
        }
        Ok(self.take(now, nanos, tuner))
    }

    /// Takes a reading, and reports to the tuner what came.
    fn take(
        &mut self,
        now: HashMap<(Source, bool), Counted>,
        nanos: u64,
        tuner: &mut Tuner,
    ) -> u64 {
        let mut came = 0u64;
        for (key, counted) in &now {
            let Counted { sum: packets, dropped } = self.came(self.last.get(key), *counted);
            self.dropped = self.dropped.saturating_add(dropped);
            if packets > 0 {
                tuner.observe_many(nanos, key.0, packets);
                came = came.saturating_add(packets);
            }
        }
        (self.last, self.begun) = (now, true);
        came
    }

    /// Packets since the last reading. A source that is new, or that left and came again, has
    /// counted from zero.
    const fn came(&self, before: Option<&Counted>, now: Counted) -> Counted {
        match before {
            Some(before) if now.sum >= before.sum && now.dropped >= before.dropped => {
                let (sum, dropped) = (now.sum - before.sum, now.dropped - before.dropped);
                Counted { sum, dropped }
            }
            None if !self.begun => Counted { sum: 0, dropped: 0 },
            Some(_) | None => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use limiter_replay::tune::Settings;

    use super::*;

    #[test]
    fn counters_report_what_came_since_the_last_reading() {
        let source = |last| (Source::V4([192, 0, 2, last]), false);
        let mut tuner = Tuner::new(Settings::default()).unwrap();
        let mut counters = Counters::default();
        let mut take = |second: u64, sums: &[(u8, u64)]| {
            let counted = |sum: u64| Counted { sum, dropped: sum / 3 };
            let now = sums.iter().map(|(last, sum)| (source(*last), counted(*sum))).collect();
            counters.take(now, second * 1_000_000_000, &mut tuner)
        };
        assert_eq!(take(0, &[(1, 7)]), 0, "of before");
        assert_eq!(take(1, &[(1, 12), (2, 3)]), 8);
        assert_eq!(take(2, &[(1, 12), (2, 3)]), 0);
        assert_eq!(take(3, &[(1, 12)]), 0);
        assert_eq!(take(4, &[(1, 12), (2, 1)]), 1, "it left and came again");
        assert_eq!(counters.dropped, 3, "from 2 to 4, and 1 of the second");
        let report = tuner.report();
        assert_eq!((report.packets, report.sources), (9, 2));
        // As if they came at once.
        let most = report.top.iter().map(|top| (top.packets, top.most[0]));
        assert_eq!(most.collect::<Vec<_>>(), [(5, 5), (4, 3)]);
    }

    #[test]
    fn a_source_that_came_again_has_counted_from_nothing() {
        let counters = Counters { begun: true, ..Counters::default() };
        let counted = |sum, dropped| Counted { sum, dropped };
        let came = |sum, dropped| counters.came(Some(&counted(sum, dropped)), counted(7, 2));
        assert_eq!(
            [came(10, 2), came(3, 1), came(5, 4)],
            [counted(7, 2), counted(4, 1), counted(7, 2)]
        );
        assert_eq!(counters.came(None, counted(7, 2)), counted(7, 2));
        assert_eq!(Counters::default().came(None, counted(7, 2)), counted(0, 0));
    }
}
