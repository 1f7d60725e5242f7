//! Who stands out among all sources: `GET /v1/sources` and `GET /v1/top`.

use limiter_common::wire::Lane;

use super::Service;
use crate::control::api::sources::{AskSources, AskTop, SourceList, Top};
use crate::control::server::Step;
use crate::daemon::error::ServiceError;
use crate::daemon::sources::{Known, Next, Reading, Wanted, tracked};
use crate::daemon::views;
use crate::rules::source_text;

/// Told of as dropping, to every view.
const MOST_DROPPING: usize = 256;

impl Service {
    #[cfg(test)]
    pub(in crate::daemon) fn views_are_empty(&self) -> bool {
        self.views.is_empty()
    }

    fn known(&self) -> Result<Known<'_>, ServiceError> {
        let (effective, lists) = (&self.effective, &self.lists);
        Ok(Known { datapath: self.datapath()?, effective, lists })
    }

    pub(super) fn begin_sources(asked: &AskSources) -> Result<Reading, ServiceError> {
        Ok(Reading::new(Wanted::parse(asked.by, asked.limit, asked.prefix.as_deref())?))
    }

    /// A slice of the reading: the answer, or what comes before it.
    pub(super) fn read_sources(
        &self,
        reading: &mut Reading,
    ) -> Result<Result<SourceList, Step>, ServiceError> {
        Ok(match reading.step(self.known()?)? {
            Next::Slice => Err(Step::Again),
            Next::After(time) => Err(Step::After(time)),
            Next::Done(list) => Ok(list),
        })
    }

    pub(super) fn try_top(&mut self, asked: &AskTop) -> Result<Top, ServiceError> {
        let wanted = Wanted::parse(asked.by, asked.limit, asked.prefix.as_deref())?;
        let watch = asked.watch.as_deref().map(source_text::parse_one).transpose()?;
        let watch = watch.map(views::key);
        // What is told anew may be about somebody who was not seen yet.
        self.take_events();
        let datapath = self.datapath.as_deref().ok_or(ServiceError::Detached)?;
        let now = datapath.now();
        let view = self.views.of(&wanted, now);
        if let Some(source) = watch {
            view.watch(source, now);
        }
        let known = Known { datapath, effective: &self.effective, lists: &self.lists };
        view.look(known, self.events.dropping().take(MOST_DROPPING))?;
        let keyed = view.keyed();
        let (passed, dropped) = views::verdicts(datapath)?;
        let tracked_v4 = tracked(datapath, Lane::V4)?.saturating_add(keyed.v4);
        let tracked_v6 = tracked(datapath, Lane::V6)?.saturating_add(keyed.v6);
        Ok(Top {
            clock_ns: datapath.now().as_nanos(),
            uptime_seconds: self.began.elapsed().as_secs(),
            generation: datapath.generation(),
            brake: datapath.brake().map_err(ServiceError::Datapath)?,
            passed: passed.packets,
            dropped: dropped.packets,
            dropped_by: views::dropped_by(datapath)?,
            tracked_v4,
            tracked_v6,
            rounds: view.rounds(tracked_v4.saturating_add(tracked_v6)),
            sources: view.rows(known, &wanted)?,
            watched: watch.map(|source| view.row(known, &source)).transpose()?,
        })
    }
}
