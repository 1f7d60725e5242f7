//! The request for the sources that stand out among all tracked ones.

pub(crate) mod source;
pub(crate) mod top;

use axum::routing::get;
use limiter_api::sources::{AskSources, SourceList};

use crate::control::{Answer, Asked, JSON, Refusal, Routes, Sliced, Step};
use crate::service::{Call, Service};
use crate::sources::{Next, Reading, Wanted};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/sources", get(sources))
}

/// Sources that stand out, of all that are tracked
#[utoipa::path(
    get,
    path = "/v1/sources",
    params(AskSources),
    responses((status = 200, description = "Done.", body = SourceList))
)]
pub(super) async fn sources(call: Call, Asked(asked): Asked<AskSources>) -> Answer {
    call.sliced(JSON, |service| SourcesText::begin(service, &asked)).await
}

/// The running reading of all sources.
pub(crate) struct SourcesText {
    reading: Reading,
    ended: bool,
}

impl SourcesText {
    pub(crate) fn begin(service: &Service, asked: &AskSources) -> Result<Self, Refusal> {
        service.datapath()?;
        service.heap_trim.note();
        let wanted = Wanted::parse(asked.by, asked.limit, asked.prefix.as_deref())?;
        Ok(Self { reading: Reading::new(wanted), ended: false })
    }
}

impl Sliced<Service> for SourcesText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        if self.ended {
            return Ok(Step::Done);
        }
        Ok(match self.reading.step(service.known()?)? {
            Next::Slice => Step::Again,
            Next::After(time) => Step::After(time),
            Next::Done(list) => {
                self.ended = true;
                Step::Part(serde_json::to_vec(&list)?.into())
            }
        })
    }
}
