//! The request for one source.

use std::net::IpAddr;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_rules::{Selector, source_text};

use crate::api::source::SourceView;
use crate::api::words;
use crate::control::{Answer, JSON, Named, Peer, Refusal, Routes, Sliced, Step, sliced};
use crate::error::ServiceError;
use crate::service::{Service, Shared};
use crate::sources::{Accounts, Ledger};
use crate::views;

pub(super) fn routes() -> Routes<Service> {
    // An IPv6 source is printed with its length: /v1/sources/2001:db8::/64.
    Routes::default().at("/v1/sources/{*address}", get(source))
}

/// One source: what is left of its limit, and its packets by rule
#[utoipa::path(
    get,
    path = "/v1/sources/{address}",
    params(("address" = words::AnySource, Path, description = "An address, or an IPv6 /64.")),
    responses(
        (status = 200, description = "Done.", body = SourceView),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn source(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Named(address): Named,
) -> Answer {
    sliced(service, peer, JSON, |service| SourceText::begin(service, &address)).await
}

/// A source, for whose account all keys are read: a pass under way.
pub(crate) struct SourceText {
    address: IpAddr,
    /// None once it was reported.
    accounts: Option<Accounts>,
}

impl SourceText {
    pub(crate) fn begin(service: &Service, address: &str) -> Result<Self, Refusal> {
        service.datapath()?;
        let address = source_text::parse_one(address)?;
        Ok(Self { address, accounts: Some(Accounts::of([views::key(address)])) })
    }

    fn view(&self, service: &Service, accounts: Accounts) -> Result<SourceView, ServiceError> {
        let (datapath, address) = (service.datapath()?, self.address);
        let effective = &service.rule_sets.effective;
        let accounts = accounts.take(&Ledger::open(datapath, effective, Some(&service.events)))?;
        let account = accounts.get(&views::key(address)).cloned().unwrap_or_default();
        let (selector, now) = (Selector::address(address), datapath.now());
        let words = service.lists.words_of(&selector, now);
        let [listed_reason, listed_by] = words.map(|word| word.map(str::to_owned));
        let counted = (account.total(), account.by_rule(&views::rule_names(datapath, effective)));
        let view = views::whole(datapath, effective, address, counted)?;
        Ok(SourceView {
            listed_reason,
            listed_by,
            listed_beside: service.lists.beside(&selector, now),
            banned_by: service.banned_by(address)?,
            ..view
        })
    }
}

impl Sliced<Service> for SourceText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let datapath = service.datapath()?;
        let Some(accounts) = &mut self.accounts else { return Ok(Step::Done) };
        if !accounts.step(datapath)? {
            return Ok(Step::Again);
        }
        let view = self.accounts.take().map(|read| self.view(service, read)).transpose()?;
        Ok(Step::Part(serde_json::to_vec(&view)?.into()))
    }
}

#[cfg(test)]
impl Service {
    /// One source, read at once.
    pub(crate) fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let mut text = SourceText::begin(self, address)?;
        loop {
            if let Step::Part(part) = text.step(self)? {
                return Ok(serde_json::from_slice(&part)?);
            }
        }
    }
}
