//! Requests about the allow and deny lists.

use std::time::Duration;

use axum::routing::get;
use limiter_api::lists::{ListName, Lists, ListsChanged, SetList, UnsetList};
use limiter_api::rules::Session;
use limiter_cluster::{Change, List};
use limiter_common::time::Ticks;
use limiter_rules::model::crowd_hit;
use limiter_rules::{Selector, Subject, source_text};

use crate::cluster::reported_prefix;
use crate::control::parts::Parts;
use crate::control::{
    Answer, Asked, JSON, JsonBody, MAX_RULES_BODY, Refusal, Routes, Sliced, Step,
};
use crate::error::ServiceError;
use crate::lists::{self, Changes, ListStore, Wanted};
use crate::rule_sets::guard::{self, Caller, Scene};
use crate::rule_sets::warnings::{cut, while_off};
use crate::service::{Call, Service};

/// Most sources of one request whose state is reported.
const MOST_REPORTED: usize = 10;

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at_rules("/v1/lists", get(all).put(list).delete(unlist))
}

/// Allowed and denied sources
#[utoipa::path(
    get,
    path = "/v1/lists",
    responses((status = 200, description = "Done.", body = Lists))
)]
pub(super) async fn all(call: Call) -> Answer {
    call.sliced(JSON, |service| ListsText::begin(service)).await
}

/// Puts sources on a list
#[utoipa::path(
    put,
    path = "/v1/lists",
    request_body = SetList,
    responses((status = 200, description = "Done.", body = ListsChanged))
)]
pub(super) async fn list(call: Call, JsonBody(asked): JsonBody<SetList, MAX_RULES_BODY>) -> Answer {
    call.change(|service| put(service, &asked))
}

/// Takes sources off their lists
#[utoipa::path(
    delete,
    path = "/v1/lists",
    params(UnsetList),
    responses(
        (status = 200, description = "Done.", body = ListsChanged),
        (status = 404, description = "There is no such thing.")
    )
)]
pub(super) async fn unlist(call: Call, Asked(asked): Asked<UnsetList>) -> Answer {
    call.change(|service| take_off(service, &asked))
}

/// Puts sources on a list, and stores the change before answering.
pub(crate) fn put(service: &mut Service, request: &SetList) -> Result<ListsChanged, Refusal> {
    let caller = Caller { session: request.session, force: request.force };
    let by = lists::author(request.by.as_deref())?;
    if caller.session.is_some() && !request.force && by.is_none() {
        // The effect on the own session is reported before the effect on others.
        let all = service.at_lists().wanted(&SetList { force: true, ..request.clone() }, None)?;
        authorize(service, &all.changes(), caller)?;
    }
    let wanted = service.at_lists().wanted(request, by.as_ref())?;
    authorize(service, &wanted.changes(), caller)?;
    let now = service.datapath()?.now();
    let before = stand(&service.lists, wanted.put().map(|(selector, _)| *selector), now);
    let reported = reported(request, &wanted, now);
    let denied = wanted.put().filter(|_| request.list == ListName::Deny);
    let crowds = denied.filter_map(|(at, _)| crowd_hit(at)).take(MOST_REPORTED);
    let longest = request.timed.iter().map(|timed| timed.seconds).chain(request.seconds).max();
    let cut = longest.and_then(|seconds| cut(seconds, service.datapath().ok()?));
    let warnings = crowds.chain(cut).chain(while_off(service.datapath()?)).collect();
    let changed = service.at_lists().change(wanted)?;
    service.cluster.publish(reported);
    let done = stand_otherwise(&service.lists, before, service.datapath()?.now());
    Ok(ListsChanged { done, warnings, ..changed })
}

/// Removes sources from their lists, and stores the change before answering.
pub(crate) fn take_off(
    service: &mut Service,
    request: &UnsetList,
) -> Result<ListsChanged, Refusal> {
    let by = lists::author(request.by.as_deref())?;
    let (selectors, skipped) = service.lists.own(&lists::named(request)?, by.as_deref());
    if by.is_none()
        && let (Some(selector), true) =
            (request.source.as_deref().map(source_text::parse).transpose()?, selectors.is_empty())
    {
        return Err(listed_in_file(service, selector).into());
    }
    let session = Session::named(request.peer, request.port);
    let caller = Caller { session, force: request.force };
    let off: Changes = selectors.iter().map(|selector| (*selector, None)).collect();
    authorize(service, &off, caller)?;
    let before = stand(&service.lists, selectors.iter().copied(), service.datapath()?.now());
    let changed = service.at_lists().take_off(&selectors)?;
    if let Some(selector) = selectors.first()
        && request.source.is_some()
        // A program whose entry has already ended has what it wants.
        && by.is_none()
        && changed.not_listed > 0
        && service.cluster.status().is_none()
    {
        // Nothing has changed then. Another node may have an entry that this one does not have.
        let stands = service.lists.reported(selector, service.datapath()?.now());
        return Err(ServiceError::NotListed { selector: *selector, stands }.into());
    }
    let sources = selectors.iter().filter_map(reported_prefix);
    service.cluster.publish(sources.map(|sources| Change::Unlist { sources }));
    let done = stand_otherwise(&service.lists, before, service.datapath()?.now());
    Ok(ListsChanged { skipped, done, ..changed })
}

/// The refusal to remove a source that only a rule file lists.
fn listed_in_file(service: &Service, selector: Selector) -> ServiceError {
    let layers = &service.rule_sets.layers;
    let place = layers.file.places.get(&Subject::Listed(selector));
    let place = place.map_or_else(|| "in force".to_owned(), ToString::to_string);
    if layers.applied {
        ServiceError::ListedByApply { selector, place }
    } else {
        ServiceError::ListedByFile { selector, place }
    }
}

/// Refuses changes of the lists that would lock out the person who makes them.
fn authorize(service: &Service, changes: &Changes, caller: Caller) -> Result<(), ServiceError> {
    let unchanged = Changes::new();
    let before = service.scene(&unchanged)?;
    let after = Scene { changes, ..before };
    caller.authorize(guard::objection_to_lists(before, after, caller.session.as_ref()))
}

/// Changes reported to the other nodes when the lists change here.
fn reported(request: &SetList, wanted: &Wanted, now: Ticks) -> Vec<Change> {
    let list = match request.list {
        ListName::Deny => List::Deny,
        ListName::Allow => List::Allow,
    };
    let gone = wanted.gone().filter_map(reported_prefix).map(|sources| Change::Unlist { sources });
    let put = wanted.put().filter_map(|(selector, end)| {
        let left = end.map(|end| Duration::from_nanos(end.since(now).as_nanos()));
        Some(Change::List { list, sources: reported_prefix(selector)?, left })
    });
    gone.chain(put).collect()
}

/// Describes the states of sources on the lists; returns none if there are many sources.
fn stand(
    lists: &ListStore,
    selectors: impl Iterator<Item = Selector>,
    now: Ticks,
) -> Vec<(Selector, String)> {
    let reported = |selector: Selector| (selector, lists.reported(&selector, now));
    let stand: Vec<_> = selectors.take(MOST_REPORTED + 1).map(reported).collect();
    if stand.len() > MOST_REPORTED { Vec::new() } else { stand }
}

/// Describes the present states of sources beside their previous ones.
fn stand_otherwise(lists: &ListStore, before: Vec<(Selector, String)>, now: Ticks) -> Vec<String> {
    let reported = |(selector, was): (Selector, String)| {
        format!("{selector}: {}, was {was}", lists.reported(&selector, now))
    };
    before.into_iter().map(reported).collect()
}

/// Entries examined before others have their turn, when most of them have expired.
const SLICE: usize = 4096;

/// Progress of `GET /v1/lists`. Nothing is copied for it: an entry that stays on a list during the
/// request is reported once, and an entry that is added, removed or changed is reported in its
/// state when its place is reached.
#[derive(Debug, Default)]
pub(crate) struct ListsText {
    parts: Parts,
    begun: bool,
    ended: bool,
    last: Option<Selector>,
}

impl Sliced<Service> for ListsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let (list_store, now) = (&service.lists, service.datapath()?.now());
        if self.ended {
            return Ok(Step::Done);
        }
        if !self.begun {
            self.parts.open_array("entries")?;
            self.begun = true;
        }
        let mut looked = 0;
        let last = self.last;
        for (selector, reported) in list_store.after(last.as_ref(), now) {
            for entry in reported {
                self.parts.item(&entry)?;
            }
            self.last = Some(selector);
            looked += 1;
            if self.parts.is_part() {
                return Ok(Step::Part(self.parts.take()));
            }
            if looked == SLICE {
                return Ok(Step::Again);
            }
        }
        self.parts.close_array();
        self.parts.member("not_saved", &list_store.not_saved())?;
        self.parts.end();
        self.ended = true;
        Ok(Step::Part(self.parts.take()))
    }
}

impl ListsText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        service.datapath()?;
        service.heap_trim.note();
        Ok(Self::default())
    }
}
