//! Captures: packets that the program reports whole, as pcapng to one reader at a time.
//!
//! The program stops by itself at a deadline, which the daemon extends as long as somebody reads.
//! Packets not yet taken by the reader stay in the ring; the program counts those that find no room
//! there.

mod filter;
mod missed;
mod pcapng;

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::body::Bytes;
use limiter_api::capture::{AskCapture, CaptureReport};
use limiter_api::moment;
use limiter_common::time::Ticks;
use limiter_common::verdict::Reason;
use limiter_common::wire::{CaptureBudget, CaptureFilter, LEVELS};
use limiter_datapath::{CapturedPacket, Datapath};
use limiter_rules::model::TriePrefix;
use tokio::sync::mpsc;

use super::error::ServiceError;
use super::rule_sets::effective::EffectiveSet;
use super::views::Shadows;
use missed::Missed;
use pcapng::Writer;

/// Time for which the program continues without a daemon.
const LEASE: Duration = Duration::from_secs(2);

/// Interval at which the deadline is extended and the level adjusted.
const RENEW: Duration = Duration::from_millis(250);

/// Bytes of a part, and the number of parts that may wait for the reader.
const PART: usize = 64 << 10;
const WAITING: usize = 16;

/// The running capture, and the last one that ended.
#[derive(Debug, Default)]
pub(super) struct Captures {
    running: Option<Running>,
    last: Option<CaptureReport>,
}

#[derive(Debug)]
struct Running {
    filter: CaptureFilter,
    user: u32,
    writer: Writer,
    to: mpsc::Sender<Bytes>,
    began: Ticks,
    began_at: String,
    before: CaptureBudget,
    /// End time, if the capture has one.
    until: Option<Ticks>,
    /// Time at which the deadline is next extended.
    renew: Ticks,
    /// Packets still wanted, if the capture has a count.
    left: Option<u64>,
    reported: u64,
    /// Lowest level whose packets are reported now.
    level: u32,
    /// Time at which reporting ended; the rest of the ring is still read.
    ended: Option<Ticks>,
    /// Names of rules by number, and their generation.
    names: (u64, BTreeMap<u32, String>),
    /// Rules in shadow mode in that generation.
    shadows: Shadows,
}

impl Captures {
    /// Begins a capture for a user; returns its number and the receiver of its bytes.
    pub(super) fn begin(
        &mut self,
        datapath: &mut dyn Datapath,
        effective: &EffectiveSet,
        asked: &AskCapture,
        user: u32,
    ) -> Result<(u64, mpsc::Receiver<Bytes>), ServiceError> {
        if self.running.as_ref().is_some_and(|running| running.to.is_closed()) {
            self.finish(datapath)?;
        }
        if let Some(Running { user, began_at, .. }) = &self.running {
            return Err(ServiceError::Capturing { user: *user, since: moment::local(began_at) });
        }
        let names = filter::names(datapath, effective);
        let filter = filter::of(asked, datapath, effective)?;
        let now = datapath.now();
        let wall = datapath.wall();
        let nanos = u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX);
        let (writer, head) = Writer::new(&filter, nanos, now);
        let (to, reader) = mpsc::channel(WAITING);
        // There is room, because nothing was sent yet.
        to.try_send(head.into()).map_err(|_full| ServiceError::Detached)?;
        let before = datapath.capture_counts()?;
        datapath.begin_capture(&filter, later(now, LEASE))?;
        let session = filter.session;
        self.running = Some(Running {
            filter,
            user,
            writer,
            to,
            began: now,
            began_at: humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + wall).to_string(),
            before,
            until: asked.seconds.map(|seconds| later(now, Duration::from_secs(seconds))),
            renew: later(now, RENEW),
            left: asked.count,
            reported: 0,
            level: filter.level,
            ended: None,
            names: (datapath.generation(), names),
            shadows: Shadows::of(datapath, effective),
        });
        tracing::info!(user, session, "a capture began");
        Ok((session, reader))
    }

    /// Takes the packets that the program has reported and passes them on; returns false once no
    /// capture is running.
    pub(super) fn take(
        &mut self,
        datapath: &mut dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<bool, ServiceError> {
        let Some(running) = &mut self.running else { return Ok(false) };
        if running.to.is_closed() || running.step(datapath, effective)? {
            self.finish(datapath)?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Stops reporting in the running capture: its reader gets the rest of the ring, and the end. A
    /// second call ends the capture at once. Returns its report.
    pub(super) fn stop(
        &mut self,
        datapath: &mut dyn Datapath,
    ) -> Result<CaptureReport, ServiceError> {
        let Some(running) = &mut self.running else { return Err(ServiceError::NoCapture) };
        if running.ended.is_some() {
            self.finish(datapath)?;
            return self.last.clone().ok_or(ServiceError::NoCapture);
        }
        running.stop(datapath)?;
        running.report(datapath)
    }

    /// Ends the capture when the daemon ends. The reader gets the remaining packets as far as there
    /// is room for them.
    pub(super) fn end(
        &mut self,
        datapath: &mut dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<(), ServiceError> {
        if let Some(running) = &mut self.running {
            running.stop(datapath)?;
            // The first turn passes on the packets, the second the end.
            for _ in 0..2 {
                if running.step(datapath, effective)? {
                    break;
                }
            }
        }
        self.finish(datapath)
    }

    /// Reports on the running capture and on the last one that ended.
    pub(super) fn view(
        &self,
        datapath: &dyn Datapath,
    ) -> Result<(Option<CaptureReport>, Option<CaptureReport>), ServiceError> {
        let running = self.running.as_ref().map(|running| running.report(datapath)).transpose()?;
        Ok((running, self.last.clone()))
    }

    fn finish(&mut self, datapath: &mut dyn Datapath) -> Result<(), ServiceError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        running.stop(datapath)?;
        let report = running.report(datapath)?;
        tracing::info!(reported = report.reported, "the capture has ended");
        self.last = Some(report);
        Ok(())
    }
}

impl Running {
    /// Passes on the available packets; returns true once all of them and the end are sent.
    fn step(
        &mut self,
        datapath: &mut dyn Datapath,
        effective: &EffectiveSet,
    ) -> Result<bool, ServiceError> {
        let now = datapath.now();
        if self.until.is_some_and(|until| now >= until) {
            self.stop(datapath)?;
        } else if self.ended.is_none() && now >= self.renew {
            self.renew = later(now, RENEW);
            datapath.capture_until(later(now, LEASE))?;
            self.raise_level(datapath)?;
        }
        let generation = datapath.generation();
        if self.names.0 != generation {
            self.names = (generation, filter::names(datapath, effective));
            self.shadows = Shadows::of(datapath, effective);
        }
        // Sends at most as many parts as may wait for the reader; then others have their turn.
        for _ in 0..WAITING {
            let to = self.to.clone();
            let Ok(room) = to.try_reserve() else { return Ok(false) };
            let (part, empty) = self.part(datapath)?;
            if !part.is_empty() {
                room.send(part.into());
            } else if let (true, Some(ended)) = (empty, self.ended) {
                room.send(self.end(datapath, ended)?.into());
                return Ok(true);
            }
            if empty {
                break;
            }
        }
        Ok(false)
    }

    /// Returns the next part, and whether the ring was empty after it.
    fn part(&mut self, datapath: &mut dyn Datapath) -> Result<(Vec<u8>, bool), ServiceError> {
        let mut part = Vec::new();
        while part.len() < PART {
            let Some(packet) = datapath.next_captured() else { return Ok((part, true)) };
            if packet.record.session != self.filter.session || self.left == Some(0) {
                continue;
            }
            self.add(&mut part, &packet, datapath);
            self.reported += 1;
            if let Some(left) = &mut self.left {
                *left -= 1;
                if *left == 0 {
                    self.stop(datapath)?;
                }
            }
        }
        Ok((part, false))
    }

    fn add(&mut self, part: &mut Vec<u8>, packet: &CapturedPacket, datapath: &dyn Datapath) {
        let record = &packet.record;
        let key: [u8; 16] = bytemuck::cast(record.source);
        let source = (record.version != 0).then(|| TriePrefix::of_source(key).selector()).flatten();
        let source = source.map(|source| source.to_string());
        let rule = self.shadows.reported(Reason::from_index(record.reason.into()), record.rule);
        let rule = self.names.1.get(&rule).map(String::as_str);
        let name = |index| {
            let at = datapath.attachments().iter().find(|at| at.ifindex == index);
            at.map(|at| at.interface.clone())
        };
        self.writer.packet(part, packet, rule, source.as_deref(), name);
    }

    /// Leaves out the levels of which packets were missed, because their sources are no longer seen
    /// whole.
    fn raise_level(&mut self, datapath: &mut dyn Datapath) -> Result<(), ServiceError> {
        if self.filter.level == CaptureFilter::EVERY_SOURCE {
            return Ok(());
        }
        let missed = Missed::between(&self.before, &datapath.capture_counts()?);
        let whole = whole_from(self.filter.level, &missed.by_level).min(LEVELS - 1);
        if whole > self.level {
            self.level = whole;
            datapath.set_capture_level(&self.filter, whole)?;
        }
        Ok(())
    }

    /// Makes the program stop reporting.
    fn stop(&mut self, datapath: &mut dyn Datapath) -> Result<(), ServiceError> {
        if self.ended.is_none() {
            datapath.capture_until(Ticks::ZERO)?;
            self.ended = Some(datapath.now());
        }
        Ok(())
    }

    fn end(&mut self, datapath: &dyn Datapath, ended: Ticks) -> Result<Vec<u8>, ServiceError> {
        let missed = Missed::between(&self.before, &datapath.capture_counts()?);
        let first = datapath.attachments().first();
        let first = first.map_or((0, None), |at| (at.ifindex, Some(at.interface.as_str())));
        let mut end = Vec::new();
        self.writer.end(&mut end, (self.began, ended), self.reported, missed, first);
        Ok(end)
    }

    fn report(&self, datapath: &dyn Datapath) -> Result<CaptureReport, ServiceError> {
        let missed = Missed::between(&self.before, &datapath.capture_counts()?);
        let observes = self.filter.level != CaptureFilter::EVERY_SOURCE;
        let ended = self.ended.unwrap_or_else(|| datapath.now());
        Ok(CaptureReport {
            number: self.filter.session,
            user: self.user,
            began: self.began_at.clone(),
            milliseconds: ended.since(self.began).as_nanos() / 1_000_000,
            reported: self.reported,
            over_budget: missed.over_budget,
            lost: missed.lost,
            asked_level: observes.then_some(self.filter.level),
            whole_level: observes.then(|| whole_from(self.filter.level, &missed.by_level)),
        })
    }
}

/// The lowest level, from `lowest` on, above all levels with missed packets; [`LEVELS`] if there is
/// none.
fn whole_from(lowest: u32, missed: &[u64; LEVELS as usize]) -> u32 {
    let last = missed.iter().rposition(|missed| *missed > 0);
    let above = last.and_then(|level| u32::try_from(level + 1).ok()).unwrap_or(0);
    lowest.max(above)
}

fn later(now: Ticks, time: Duration) -> Ticks {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ticks::from_nanos(now.as_nanos().saturating_add(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_whole_above_all_that_was_missed() {
        let mut missed = [0; LEVELS as usize];
        assert_eq!(whole_from(6, &missed), 6);
        missed[7] = 1;
        missed[6] = 20;
        assert_eq!(whole_from(6, &missed), 8);
        missed[15] = 1;
        assert_eq!(whole_from(6, &missed), LEVELS);
    }
}
