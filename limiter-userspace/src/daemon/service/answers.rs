//! Answers that are worked out in slices: each is begun, and then goes on between other requests.

use super::Service;
use crate::control::api::Refusal;
use crate::control::server::{Asked, Slices, Step};
use crate::daemon::bans::BansText;
use crate::daemon::error::ServiceError;
use crate::daemon::sources::Reading;
use crate::daemon::views::{Census, LimitsText, ListsText, RulesText, StatsText};

/// How far one has come.
#[derive(Debug)]
pub(super) enum Answer {
    /// `GET /v1/limits`.
    Limits(Box<LimitsText>),
    /// `GET /v1/stats`.
    Stats(Box<StatsText>),
    /// `GET /v1/lists`.
    Lists(ListsText),
    /// `GET /v1/bans`.
    Bans(Box<BansText>),
    /// `GET /v1/sources`.
    Sources(Box<Reading>),
    /// `GET /v1/rules`.
    Rules(Box<RulesText>),
    /// `GET /metrics`.
    Metrics(Census),
    /// All of it was told.
    Told,
}

impl Service {
    pub(super) fn try_begin(&self, asked: &Asked) -> Result<Slices, ServiceError> {
        let (datapath, effective) = (self.datapath()?, &self.effective);
        // What large rule sets make of it is gone afterwards.
        self.leftovers.note();
        Ok(Slices::new(match asked {
            Asked::Limits => Answer::Limits(LimitsText::new(datapath, effective).into()),
            Asked::Stats => Answer::Stats(StatsText::new(datapath, effective).into()),
            Asked::Lists => Answer::Lists(ListsText::default()),
            Asked::Bans => Answer::Bans(BansText::new(datapath, effective)?.into()),
            Asked::Sources(asked) => Answer::Sources(Self::begin_sources(asked)?.into()),
            Asked::Rules(what) => {
                let generation = datapath.generation();
                Answer::Rules(RulesText::new(generation, &self.layers, what.edits)?.into())
            }
            Asked::Metrics => Answer::Metrics(Census::new(datapath, effective)),
        }))
    }

    pub(super) fn try_go_on(&self, slices: &mut Slices) -> Result<Step, Refusal> {
        let Some(answer) = slices.get::<Answer>() else {
            return Err(Refusal::Failed(
                "an answer that nobody began: report this as a bug".into(),
            ));
        };
        Ok(self.step(answer)?)
    }

    fn step(&self, answer: &mut Answer) -> Result<Step, ServiceError> {
        let (datapath, effective) = (self.datapath()?, &self.effective);
        let text = match answer {
            Answer::Limits(text) => return text.step(datapath, effective),
            Answer::Stats(text) => return text.step(datapath, effective),
            Answer::Lists(text) => return text.step(&self.lists, datapath.now()),
            Answer::Bans(text) => return text.step(),
            Answer::Rules(text) => return text.step(datapath.generation(), &self.layers),
            Answer::Told => return Ok(Step::Done),
            Answer::Sources(reading) => match self.read_sources(reading)? {
                Ok(list) => serde_json::to_vec(&list)?,
                Err(step) => return Ok(step),
            },
            Answer::Metrics(census) => {
                if !census.step(datapath, effective)? {
                    return Ok(Step::Again);
                }
                self.try_metrics(census)?.into()
            }
        };
        *answer = Answer::Told;
        Ok(Step::Part(text.into()))
    }
}
