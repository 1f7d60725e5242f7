//! The counters of the last minutes and the changes in that time, so that charts do not begin
//! empty.

use std::collections::{BTreeMap, VecDeque};

use limiter_api::Counts;
use limiter_api::status::history::{AskHistory, History, Mark, MarkKind, Point, Rates};
use limiter_common::header::Direction;
use limiter_common::wire::InterfaceCounters;
use limiter_datapath::{Datapath, LinkState};

use crate::error::ServiceError;
use crate::views;

/// Name of the step of housekeeping that reads the counters of all packets and interfaces.
pub(crate) const NOTE_RECENT: &str = "read the counters of all packets";

/// Number of kept readings: one a second for ten minutes, 24 kB.
const POINTS: usize = 601;

/// Number of kept changes: the newest, if there are more in ten minutes.
const MARKS: usize = 100;

/// Number of kept readings of an interface: its rate is the mean over the last ten seconds.
const READINGS: usize = 10;

/// State of the rules at a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Scene {
    pub(crate) generation: u64,
    pub(crate) bypass: bool,
    pub(crate) on_trial: bool,
    /// True if the last ended trial was confirmed.
    pub(crate) confirmed: bool,
}

impl Scene {
    /// Changes since an earlier reading.
    fn since(self, before: Self) -> Vec<MarkKind> {
        let mut changes = Vec::new();
        match (before.on_trial, self.on_trial) {
            (false, true) => changes.push(MarkKind::Trial),
            (true, false) if self.confirmed => changes.push(MarkKind::Confirmed),
            (true, false) => changes.push(MarkKind::Reverted),
            _ if self.generation != before.generation => changes.push(MarkKind::Rules),
            _ => {}
        }
        match (before.bypass, self.bypass) {
            (false, true) => changes.push(MarkKind::Off),
            (true, false) => changes.push(MarkKind::On),
            _ => {}
        }
        changes
    }
}

/// The counters of an interface, with the time of the reading.
type Reading = (u64, [Counts; 2]);

/// Readings of the last minutes.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    points: VecDeque<Point>,
    marks: VecDeque<Mark>,
    scene: Option<Scene>,
    /// Readings by index and direction of the interface.
    interfaces: BTreeMap<(u32, Direction), VecDeque<Reading>>,
}

impl Recent {
    /// Reads all counters once more.
    pub(crate) fn look(
        &mut self,
        datapath: &dyn Datapath,
        scene: Scene,
    ) -> Result<(), ServiceError> {
        let clock_ns = datapath.now().as_nanos();
        let (passed, dropped) = views::verdicts(datapath)?;
        push(
            &mut self.points,
            Point { clock_ns, passed: passed.into(), dropped: dropped.into() },
            POINTS,
        );
        let changes = match self.scene.replace(scene) {
            Some(before) => scene.since(before),
            None => vec![MarkKind::Started],
        };
        for change in changes {
            let mark = Mark { clock_ns, change, generation: scene.generation };
            push(&mut self.marks, mark, MARKS);
        }
        let oldest = self.points.front().map_or(0, |point| point.clock_ns);
        self.marks.retain(|mark| mark.clock_ns >= oldest);
        self.look_at_interfaces(datapath, clock_ns)
    }

    fn look_at_interfaces(
        &mut self,
        datapath: &dyn Datapath,
        clock_ns: u64,
    ) -> Result<(), ServiceError> {
        // An interface in another network namespace has another index there.
        let here = datapath.attachments().iter().filter(|at| at.state == LinkState::Attached);
        let here: Vec<_> = here.map(|at| (at.ifindex, at.mode.hook().direction())).collect();
        self.interfaces.retain(|at, _| here.contains(at));
        for at in &here {
            let place = |(index, direction)| InterfaceCounters::place(index, direction);
            // Interfaces that are counted together have no separate rates.
            if here.iter().any(|other| other != at && place(*other) == place(*at)) {
                self.interfaces.remove(at);
                continue;
            }
            let reading = (clock_ns, counts(datapath, *at)?);
            push(self.interfaces.entry(*at).or_default(), reading, READINGS);
        }
        Ok(())
    }

    /// Rates of an interface in a direction over the last seconds, up to now; `None` if it was not
    /// read before.
    pub(crate) fn rates(
        &self,
        datapath: &dyn Datapath,
        at: (u32, Direction),
    ) -> Result<Option<Rates>, ServiceError> {
        let readings = self.interfaces.get(&at);
        let Some((read_at, before)) = readings.and_then(VecDeque::front) else { return Ok(None) };
        let nanos = datapath.now().as_nanos().saturating_sub(*read_at);
        Ok(Rates::between(*before, counts(datapath, at)?, nanos))
    }

    /// The kept readings and changes that the request asks for.
    pub(crate) fn history(&self, asked: AskHistory, clock_ns: u64, began_ns: u64) -> History {
        let wanted = |at: u64| asked.after.is_none_or(|after| at > after);
        History {
            clock_ns,
            began_ns,
            points: self.points.iter().filter(|point| wanted(point.clock_ns)).copied().collect(),
            marks: self.marks.iter().filter(|mark| wanted(mark.clock_ns)).copied().collect(),
        }
    }
}

/// Passed and dropped packets of an interface in a direction.
fn counts(
    datapath: &dyn Datapath,
    (index, direction): (u32, Direction),
) -> Result<[Counts; 2], ServiceError> {
    let InterfaceCounters { passed, dropped } = datapath.interface_counters(index, direction)?;
    Ok([passed.into(), dropped.into()])
}

/// Appends the newest value, and removes the oldest if there are more than `most`.
fn push<T>(kept: &mut VecDeque<T>, newest: T, most: usize) {
    while kept.len() >= most {
        kept.pop_front();
    }
    kept.push_back(newest);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each kind of change has its own mark, and an unchanged state has none.
    #[test]
    fn changes_are_distinguished() {
        let calm = Scene { generation: 3, ..Scene::default() };
        let trial = Scene { generation: 4, on_trial: true, ..calm };
        for (before, now, changes) in [
            (calm, calm, vec![]),
            (calm, Scene { generation: 4, ..calm }, vec![MarkKind::Rules]),
            (calm, trial, vec![MarkKind::Trial]),
            (trial, Scene { confirmed: true, ..calm }, vec![MarkKind::Confirmed]),
            (trial, Scene { generation: 5, ..calm }, vec![MarkKind::Reverted]),
            (trial, trial, vec![]),
            (calm, Scene { bypass: true, ..calm }, vec![MarkKind::Off]),
            (Scene { bypass: true, ..calm }, trial, vec![MarkKind::Trial, MarkKind::On]),
        ] {
            assert_eq!(now.since(before), changes, "{before:?} {now:?}");
        }
    }
}
