//! The request for one source.

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_rules::{Selector, source_text};

use crate::api::source::{AskSource, SourceView};
use crate::api::words;
use crate::control::{
    Answer, Asked, JSON, Named, Peer, Refusal, Routes, Sliced, Step, read, sliced,
};
use crate::service::{Service, Shared};
use crate::sources::ByRule;
use crate::views::{self};

pub(super) fn routes() -> Routes<Service> {
    // An IPv6 source is printed with its length: /v1/sources/2001:db8::/64.
    Routes::default().at("/v1/sources/{*address}", get(source))
}

/// One source, and what is left of its limit
#[utoipa::path(
    get,
    path = "/v1/sources/{address}",
    params(
        ("address" = words::AnySource, Path, description = "An address, or an IPv6 /64."),
        AskSource
    ),
    responses(
        (status = 200, description = "Done.", body = SourceView),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn source(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Named(address): Named,
    Asked(asked): Asked<AskSource>,
) -> Answer {
    if asked.by_rule {
        return sliced(service, peer, JSON, |service| SourceText::begin(service, &address)).await;
    }
    read(&service, &peer, |service| service.source(&address)).await
}

/// A source with its drops by rule: a pass under way.
pub(crate) struct SourceText {
    address: String,
    /// None once it was told.
    by_rule: Option<ByRule>,
}

impl SourceText {
    fn begin(service: &Service, address: &str) -> Result<Self, Refusal> {
        service.datapath()?;
        let by_rule = Some(ByRule::of_address(source_text::parse_one(address)?));
        Ok(Self { address: address.to_owned(), by_rule })
    }
}

impl Sliced<Service> for SourceText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let datapath = service.datapath()?;
        let Some(by_rule) = &mut self.by_rule else { return Ok(Step::Done) };
        if !by_rule.step(datapath)? {
            return Ok(Step::Again);
        }
        let by_rule = self.by_rule.take();
        let by_rule = by_rule.map(|read| {
            views::of_rules(read.drops(
                datapath,
                &service.rule_sets.effective,
                Some(&service.events),
            ))
        });
        let view = SourceView { by_rule, ..service.source(&self.address)? };
        Ok(Step::Part(serde_json::to_vec(&view)?.into()))
    }
}

impl Service {
    /// One source.
    pub(crate) fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let address = source_text::parse_one(address)?;
        let datapath = self.datapath()?;
        let (selector, now) = (Selector::address(address), datapath.now());
        let words = self.lists.words_of(&selector, now);
        let [listed_reason, listed_by] = words.map(|word| word.map(str::to_owned));
        Ok(SourceView {
            listed_reason,
            listed_by,
            listed_beside: self.lists.beside(&selector, now),
            banned_by: self.banned_by(address)?,
            ..views::whole(datapath, &self.rule_sets.effective, address)?
        })
    }
}
