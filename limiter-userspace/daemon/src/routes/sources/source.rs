//! The request for one source.

use std::net::IpAddr;
use std::time::Duration;

use axum::routing::get;
use limiter_api::sources::source::SourceView;
use limiter_api::words;
use limiter_rules::{Selector, source_text};

use crate::control::{Answer, JSON, Named, Refusal, Routes, Sliced, Step};
use crate::error::ServiceError;
use crate::routes::bans;
use crate::service::{Call, Service};
use crate::sources::{Account, Accounts, Ledger, Rules};
use crate::views;

pub(crate) fn routes() -> Routes<Service> {
    // An IPv6 source is printed with its length, so the path contains a slash:
    // /v1/sources/2001:db8::/64.
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
pub(crate) async fn source(call: Call, Named(address): Named) -> Answer {
    call.sliced(JSON, |service| SourceText::begin(service, &address)).await
}

/// Time between the two readings that give a rate.
const APART: Duration = Duration::from_millis(250);

/// The state of a request for a source. All keys are read for its account, and read twice unless a
/// view has just measured its rates.
pub(crate) struct SourceText {
    address: IpAddr,
    /// `None` once it was reported.
    accounts: Option<Accounts>,
    /// The first reading.
    first: Option<Account>,
}

impl SourceText {
    pub(crate) fn begin(service: &Service, address: &str) -> Result<Self, Refusal> {
        service.datapath()?;
        let address = source_text::parse_one(address)?;
        Ok(Self { address, accounts: Some(Self::read(address)), first: None })
    }

    fn read(address: IpAddr) -> Accounts {
        Accounts::of([views::key(address)])
    }

    /// Continues to read; returns the source, or the time after which to continue, or neither.
    pub(crate) fn go_on(&mut self, service: &Service) -> Result<Read, Refusal> {
        let datapath = service.datapath()?;
        let Some(accounts) = &mut self.accounts else { return Ok(Read::Again) };
        if !accounts.step(datapath)? {
            return Ok(Read::Again);
        }
        let (source, now) = (views::key(self.address), datapath.now());
        let ledger = Ledger::open(datapath, &service.rule_sets.effective, Some(&service.events));
        let accounts = self.accounts.take().unwrap_or_default().take(&ledger)?;
        let mut account = accounts.get(&source).cloned().unwrap_or_default();
        match (service.gauges.views.measured(&source, now), self.first.take()) {
            (Some(measured), _) => account.take_rates(measured),
            (None, Some(first)) => account.compare(&first),
            (None, None) if !account.is_empty() => {
                self.first = Some(account);
                self.accounts = Some(Self::read(self.address));
                return Ok(Read::After(APART));
            }
            (None, None) => {}
        }
        Ok(Read::Done(Box::new(self.view(service, &account)?)))
    }

    fn view(&self, service: &Service, account: &Account) -> Result<SourceView, ServiceError> {
        let (datapath, address) = (service.datapath()?, self.address);
        let effective = &service.rule_sets.effective;
        let (selector, now) = (Selector::address(address), datapath.now());
        let words = service.lists.words_of(&selector, now);
        let [listed_reason, listed_by] = words.map(|word| word.map(str::to_owned));
        let rules = Rules::of(datapath, effective);
        let counted = (account.total(), account.by_rule(&rules));
        let view = views::whole(datapath, effective, address, counted)?;
        Ok(SourceView {
            listed_reason,
            listed_by,
            listed_beside: service.lists.beside(&selector, now),
            banned_by: bans::author(service, address)?,
            rows: account.source_rows(&view, &rules),
            ..view
        })
    }
}

/// The step after a slice.
pub(crate) enum Read {
    Again,
    After(Duration),
    Done(Box<SourceView>),
}

impl Sliced<Service> for SourceText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        if self.accounts.is_none() {
            return Ok(Step::Done);
        }
        Ok(match self.go_on(service)? {
            Read::Again => Step::Again,
            Read::After(time) => Step::After(time),
            Read::Done(view) => Step::Part(serde_json::to_vec(&*view)?.into()),
        })
    }
}
