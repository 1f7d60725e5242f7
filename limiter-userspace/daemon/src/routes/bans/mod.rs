//! Requests about bans: listing banned sources, banning by hand, and forgetting bans.

pub(crate) mod request_bans;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use axum::routing::get;
use limiter_api::bans::{BannedSource, Bans, SetBan, Unban, Unbanned};
use limiter_api::lists::ListName;
use limiter_cluster::Change;
use limiter_common::time::Ticks;
use limiter_common::wire::Ban;
use limiter_rules::model::{TriePrefix, crowd_hit};
use limiter_rules::{Selector, SourceTextError, source_text};

use crate::cluster::reported_prefix;
use crate::control::parts::Parts;
use crate::control::{Answer, Asked, JSON, JsonBody, Refusal, Routes, Sliced, Step};
use crate::error::ServiceError;
use crate::lists::bans::{self, BY_HAND};
use crate::lists::request_bans::RequestRules;
use crate::rule_sets::guard::Caller;
use crate::rule_sets::warnings::{cut, while_off};
use crate::service::lists::hazard_of_ban;
use crate::service::{Call, Service};
use crate::views::{self, Title};

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/bans", get(list).put(ban).delete(unban))
}

/// Banned sources
#[utoipa::path(
    get,
    path = "/v1/bans",
    responses((status = 200, description = "Done.", body = Bans))
)]
pub(super) async fn list(call: Call) -> Answer {
    call.sliced(JSON, |service| BansText::begin(service)).await
}

/// Bans a source
#[utoipa::path(
    put,
    path = "/v1/bans",
    request_body = SetBan,
    responses(
        (status = 200, description = "Done.", body = BannedSource),
        (status = 409, description = "It would not be dropped, or it is the client's own session.")
    )
)]
pub(super) async fn ban(call: Call, JsonBody(asked): JsonBody<SetBan>) -> Answer {
    call.change(|service| put(service, &asked))
}

/// Forgets bans and strikes
#[utoipa::path(
    delete,
    path = "/v1/bans",
    params(Unban),
    responses(
        (status = 200, description = "Done.", body = Unbanned),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn unban(call: Call, Asked(asked): Asked<Unban>) -> Answer {
    call.change(|service| forget(service, &asked))
}

pub(super) fn one_source(text: &str) -> Result<IpAddr, ServiceError> {
    source_text::parse_one(text).map_err(|error| match error {
        SourceTextError::Several(prefix) => ServiceError::BanSeveral(prefix),
        error => error.into(),
    })
}

/// Bans a source: all of its packets are dropped until the ban ends.
pub(crate) fn put(service: &mut Service, request: &SetBan) -> Result<BannedSource, Refusal> {
    let address = one_source(&request.source)?;
    let selector = Selector::address(address);
    if request.seconds == 0 {
        return Err(Refusal::Invalid("0 seconds are over at once: give at least 1".to_owned()));
    }
    refuse_safe(service, &selector)?;
    let own = request.session.filter(|session| Selector::address(session.peer) == selector);
    Caller { session: request.session, force: request.force }.authorize(own.map(|session| {
        format!(
            "{} is where your own SSH session comes from, and all of it would be dropped: log \
             in from elsewhere to ban it, or use --force",
            session.peer
        )
    }))?;
    if !request.force
        && let Some(why) = hazard_of_ban(&service.datapath, &selector)
    {
        let why = format!("{selector}: {why}: leave it out, or use --force");
        return Err(ServiceError::Objection(why).into());
    }
    let left = Duration::from_secs(request.seconds);
    let ban = bans::put_ban(service.datapath.get_mut()?, address, left, BY_HAND)?;
    service.cluster.publish([Change::Ban { source: address, left }]);
    let names = views::rule_names(service.datapath()?, &service.rule_sets.effective);
    let names = (&names, &service.request_rules);
    let banned = bans::banned_source(selector, ban, names, service.datapath()?.now());
    let warnings = crowd_hit(&selector)
        .into_iter()
        .chain(cut(request.seconds, service.datapath()?))
        .chain(while_off(service.datapath()?));
    let warning = warnings.reduce(|all, one| format!("{all}; {one}"));
    Ok(BannedSource { warning, ..banned })
}

/// Refuses a ban of a source that is never dropped.
pub(crate) fn refuse_safe(service: &Service, selector: &Selector) -> Result<(), Refusal> {
    let selector = *selector;
    if let Some(prefix) = service.rule_sets.layers.managed(&selector) {
        return Err(ServiceError::Management { selector, prefix }.into());
    }
    let now = service.datapath()?.now();
    if service.lists.of(&selector, now) == Some(ListName::Allow) {
        return Err(Refusal::Conflict(format!(
            "{selector} is on the allow list, which comes before bans: take the entry that \
             `limiter lists` shows for it off with `limiter unlist` before"
        )));
    }
    Ok(())
}

/// The author of the ban of a source; `None` if the source is not banned.
pub(crate) fn author(service: &Service, address: IpAddr) -> Result<Option<String>, ServiceError> {
    let (effective, requests) = (&service.rule_sets.effective, &service.request_rules);
    bans::author(service.datapath()?, effective, requests, address)
}

/// Forgets the bans and strikes of a source, or of all sources in a prefix; with a cluster, on
/// all nodes.
pub(crate) fn forget(service: &mut Service, request: &Unban) -> Result<Unbanned, Refusal> {
    let selector = source_text::parse(&request.source)?;
    let forgotten = bans::forget(service.datapath.get_mut()?, selector)?;
    if service.cluster.status().is_some()
        && let Some(sources) = reported_prefix(&selector)
    {
        // Another node may have a ban that this one does not have.
        service.cluster.publish([Change::Unban { sources }]);
    } else if forgotten == 0 {
        return Err(ServiceError::NotBanned(selector).into());
    }
    Ok(Unbanned { forgotten })
}

/// `GET /v1/bans`, sent in parts: the bans in force at the time of the request, the one that ends
/// last first.
#[derive(Debug)]
pub(crate) struct BansText {
    parts: Parts,
    bans: std::vec::IntoIter<(Ticks, Ban, Option<Selector>)>,
    names: BTreeMap<u32, Title>,
    requests: RequestRules,
    watched: usize,
    now: Ticks,
    ended: bool,
}

impl BansText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        let datapath = service.datapath()?;
        service.heap_trim.note();
        let now = datapath.now();
        let mut bans = datapath.bans()?;
        let known = bans.len();
        bans.retain(|(_, ban)| Ticks::new(ban.until) > now);
        let watched = known - bans.len();
        let mut bans: Vec<_> = bans
            .into_iter()
            .map(|(key, ban)| (Ticks::new(ban.until), ban, TriePrefix::of_source(key).selector()))
            .collect();
        bans.sort_unstable_by(|(a, _, source_a), (b, _, source_b)| {
            b.cmp(a).then_with(|| source_a.cmp(source_b))
        });
        let mut parts = Parts::default();
        parts.open_array("entries")?;
        let names = views::rule_names(datapath, &service.rule_sets.effective);
        let requests = service.request_rules.clone();
        Ok(Self { parts, bans: bans.into_iter(), names, requests, watched, now, ended: false })
    }
}

impl Sliced<Service> for BansText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        service.datapath()?;
        if self.ended {
            return Ok(Step::Done);
        }
        while !self.parts.is_part() {
            let Some((_, ban, source)) = self.bans.next() else {
                self.parts.close_array();
                self.parts.member("watched", &self.watched)?;
                self.parts.end();
                self.ended = true;
                break;
            };
            let Some(source) = source else { continue };
            self.parts.item(&bans::banned_source(
                source,
                ban,
                (&self.names, &self.requests),
                self.now,
            ))?;
        }
        Ok(Step::Part(self.parts.take()))
    }
}
