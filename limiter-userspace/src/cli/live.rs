//! Live traffic for `limiter tune`: every packet of a share of the sources, or the counters of all.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use limiter_common::source::Source;
use limiter_common::wire::{EntryKind, LEVELS};

use super::capture;
use super::failure::Failure;
use super::observe::{self, Blocks, Told};
use super::pinned::unnamed;
use super::progress::{INTERRUPTED, Progress};
use super::reading::Read;
use crate::control::Client;
use crate::daemon::api::status::Status;
use crate::datapath::{Backend, Observed, Sweep};
use crate::render::{duration, number};
use crate::replay::tune::{Observation, Tuner};
use crate::rules::Selector;
use crate::rules::compile::RuleId;

/// Sources that are read with one call.
const BATCH: usize = 4096;

/// Between two readings of all counters.
const APART: Duration = Duration::from_secs(1);

/// Between two looks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);

/// Observes, as `limiter observe` does, and keeps no file: sources of which a packet was missed are
/// taken out of the tuner at the end. Says one in how many sources is in it.
///
/// # Errors
///
/// When the daemon refuses, or no source was seen whole.
pub(super) fn observed(
    client: &Client,
    (time, share, budget): (Duration, u32, NonZeroU32),
    tuner: &mut Tuner,
) -> Result<(Read, u32), Failure> {
    let mut read = Read::default();
    let mut levels: HashMap<Source, u32> = HashMap::new();
    let mut blocks = Blocks::default();
    let mut progress = Progress::begin(true);
    let began = Instant::now();
    let report = capture::read(client, &observe::asked(time, share, budget), |part| {
        blocks.add(part, |block| {
            let Some(Told { source, level, nanos, bytes }) = observe::told(block) else {
                return Ok(());
            };
            levels.insert(source, level);
            tuner.observe(&Observation { nanos, source, bytes });
            read.packets += 1;
            // At Ctrl-C the daemon ends the observation, and tells what it still has.
            progress.goes_on(read.packets, Some(percent(began.elapsed(), time)));
            Ok(())
        })
    })?;
    read.interrupted = !progress.goes_on(0, None);
    drop(progress);
    let report = report.ok_or(Failure::CutOff)?;
    let Some(whole) = report.whole_level.filter(|level| *level < LEVELS) else {
        return Err(Failure::Replay(observe::NONE_WHOLE.to_owned()));
    };
    let cut = levels.values().filter(|level| **level < whole).count();
    tuner.retain(|source| levels.get(source).is_none_or(|level| *level >= whole));
    if cut > 0 {
        let cut = number(u64::try_from(cut).unwrap_or(u64::MAX));
        read.notes.push(format!(
            "{cut} sources were taken out: packets of that part of the sources were missed"
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
pub(super) fn counted(
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
    let mut progress = Progress::begin(true);
    let mut counters = Counters::default();
    let (began, mut longest, mut last) = (Instant::now(), Duration::ZERO, None);
    'all: loop {
        let at = began.elapsed();
        if let Some(last) = last.replace(at) {
            longest = longest.max(at.saturating_sub(last));
        }
        let nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        read.packets += counters.read(&*maps, nanos, tuner)?;
        if at >= time {
            break;
        }
        let next = (at + APART).min(time);
        while began.elapsed() < next {
            if !progress.goes_on(0, Some(percent(began.elapsed(), time))) {
                read.interrupted = true;
                read.notes.push(INTERRUPTED.to_owned());
                break 'all;
            }
            thread::sleep(LOOK.min(next.saturating_sub(began.elapsed())));
        }
    }
    drop(progress);
    if counters.last.is_empty() {
        return Err(Failure::Replay(
            "no source has counters: they are of rules on sources, so put one in force, as with \
             shadow_mode; without --counters none is needed"
                .to_owned(),
        ));
    }
    let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    read.notes.push(format!(
        "counters were read up to {} apart: what came between two readings counts as if it came at \
         once, so the burst may be larger than is needed, and bursts within that time are not \
         told apart",
        duration(nanos)
    ));
    Ok(read)
}

/// The counters of all sources at the last reading.
#[derive(Debug, Default)]
struct Counters {
    /// Packets that came, by source, and whether its rule is in a keyed table.
    last: HashMap<(Source, bool), u64>,
    /// True once all were read.
    begun: bool,
}

impl Counters {
    /// Reads all, and tells the tuner what came; says how many packets that were.
    fn read(&mut self, maps: &dyn Observed, nanos: u64, tuner: &mut Tuner) -> Result<u64, Failure> {
        let form = RuleId::of_source(&Selector::Every).form;
        let mut sweep = Sweep::with_keyed(maps.installed().tables.ids.get(&form).copied());
        let mut now = HashMap::with_capacity(self.last.len());
        while let Some((kind, _)) = sweep.place() {
            let keyed = kind == EntryKind::Keyed;
            let read = maps.sources(&mut sweep, BATCH).map_err(Failure::Pinned)?;
            let sums = read.into_iter().map(|(source, bucket)| {
                ((source, keyed), bucket.passed.saturating_add(bucket.dropped))
            });
            now.extend(sums);
        }
        Ok(self.take(now, nanos, tuner))
    }

    /// Takes a reading, and tells the tuner what came.
    fn take(&mut self, now: HashMap<(Source, bool), u64>, nanos: u64, tuner: &mut Tuner) -> u64 {
        let mut came = 0u64;
        for (key, sum) in &now {
            let packets = self.came(self.last.get(key).copied(), *sum);
            if packets > 0 {
                tuner.observe_many(nanos, key.0, packets);
                came = came.saturating_add(packets);
            }
        }
        (self.last, self.begun) = (now, true);
        came
    }

    /// Packets since the last reading. A source that was not there has counted from nothing, as has
    /// one that left and came again.
    const fn came(&self, before: Option<u64>, sum: u64) -> u64 {
        match before {
            Some(before) if sum >= before => sum - before,
            None if !self.begun => 0,
            Some(_) | None => sum,
        }
    }
}

/// How much of the time is over.
fn percent(elapsed: Duration, time: Duration) -> u64 {
    let share = elapsed.as_millis().saturating_mul(100) / time.as_millis().max(1);
    u64::try_from(share.min(100)).unwrap_or(100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tune::Settings;

    #[test]
    fn counters_tell_what_came_since_the_last_reading() {
        let source = |last| (Source::V4([192, 0, 2, last]), false);
        let mut tuner = Tuner::new(Settings::default()).unwrap();
        let mut counters = Counters::default();
        let mut take = |second: u64, sums: &[(u8, u64)]| {
            let now = sums.iter().map(|(last, sum)| (source(*last), *sum)).collect();
            counters.take(now, second * 1_000_000_000, &mut tuner)
        };
        assert_eq!(take(0, &[(1, 7)]), 0, "of before");
        assert_eq!(take(1, &[(1, 12), (2, 3)]), 8);
        assert_eq!(take(2, &[(1, 12), (2, 3)]), 0);
        assert_eq!(take(3, &[(1, 12)]), 0);
        assert_eq!(take(4, &[(1, 12), (2, 1)]), 1, "it left and came again");
        let report = tuner.report();
        assert_eq!((report.packets, report.sources), (9, 2));
        // As if they came at once.
        let most = report.top.iter().map(|top| (top.packets, top.most[0]));
        assert_eq!(most.collect::<Vec<_>>(), [(5, 5), (4, 3)]);
    }

    #[test]
    fn a_source_that_came_again_has_counted_from_nothing() {
        let counters = Counters { begun: true, ..Counters::default() };
        assert_eq!([Some(10), Some(3), None].map(|before| counters.came(before, 7)), [7, 4, 7]);
        assert_eq!(Counters::default().came(None, 7), 0);
    }
}
