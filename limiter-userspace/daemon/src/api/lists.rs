//! Allow and deny lists.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_cluster::{Change, List};
use limiter_rules::{Selector, source_text};
use limiter_text::plain::clean;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::rules::Session;
use super::{Shared, words};
use crate::control::parts::Parts;
use crate::control::{
    Answer, Asked, JSON, JsonBody, Peer, Refusal, Routes, Sliced, Step, change, sliced,
};
use crate::error::ServiceError;
use crate::guard::{self, Hand, Scene};
use crate::lists::{self, Changes};
use crate::render::{Render, line, push, table};
use crate::service::{Service, told_prefix};

/// One of the two lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ListName {
    /// Packets pass, whatever the rules say.
    #[default]
    Allow,
    /// Packets are dropped.
    Deny,
}

impl ListName {
    /// Name of the list in output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
        }
    }
}

/// `PUT /v1/lists`: puts sources on a list, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetList {
    /// List that they are put on.
    pub list: ListName,
    /// Addresses and prefixes. A source is on one list at most: the last word counts.
    #[schema(value_type = Vec<words::Prefix>)]
    pub sources: Vec<String>,
    /// Seconds until they expire; never when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(examples(1, 60, 86400))]
    pub seconds: Option<u64>,
    /// The reason for it, which is shown with the entries: up to 128 characters. It is this node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::Reason>)]
    pub reason: Option<String>,
    /// True if it may lock out whoever asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of whoever asks, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// The query of `DELETE /v1/lists`: one of the first two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct UnsetList {
    /// An address or a prefix. That it is on no list is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Prefix>)]
    pub source: Option<String>,
    /// Addresses and prefixes with commas between them, all or none. Those on no list are passed
    /// over, and counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<words::Prefixes>)]
    pub sources: Option<String>,
    /// True if it may lock out whoever asks.
    pub force: bool,
    /// The client's address of the SSH session of whoever asks, if it is one.
    #[param(value_type = Option<words::Address>)]
    pub peer: Option<IpAddr>,
    /// The port that its server listens at.
    #[param(maximum = 65_535)]
    pub port: Option<u16>,
}

/// The answer to a change of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListsChanged {
    /// Entries on the allow list.
    pub allowed: usize,
    /// Entries on the deny list.
    pub denied: usize,
    /// Sources that were on no list, of several that were to be taken off.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schema(default = 0)]
    pub not_listed: usize,
    /// How each of the sources stands now and stood before, if they are at most ten.
    #[serde(default)]
    pub done: Vec<String>,
}

/// Sources of one request whose standing is told, at most.
const MOST_TOLD: usize = 10;

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `GET /v1/lists`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Lists {
    /// All entries that have not expired.
    pub entries: Vec<ListedSource>,
}

/// An entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = ListEntry)]
pub struct ListedSource {
    /// An address or a prefix.
    pub source: String,
    /// List that the source is on.
    pub list: ListName,
    /// Whole seconds until it expires, rounded up; none for never.
    pub expires_in_seconds: Option<u64>,
    /// The reason that was given for it; none if none was.
    #[serde(default)]
    pub reason: Option<String>,
}

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/lists", get(all).put(list).delete(unlist))
}

/// Allowed and denied sources
#[utoipa::path(
    get,
    path = "/v1/lists",
    responses((status = 200, description = "Done.", body = Lists))
)]
pub(super) async fn all(State(service): State<Shared>, Extension(peer): Extension<Peer>) -> Answer {
    sliced(service, peer, JSON, ListsText::begin).await
}

/// Puts sources on a list
#[utoipa::path(
    put,
    path = "/v1/lists",
    request_body = SetList,
    responses((status = 200, description = "Done.", body = ListsChanged))
)]
pub(super) async fn list(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(asked): JsonBody<SetList>,
) -> Answer {
    change(&service, &peer, |service| service.list(&asked))
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
pub(super) async fn unlist(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<UnsetList>,
) -> Answer {
    change(&service, &peer, |service| service.unlist(&asked))
}

impl Service {
    /// Puts sources on a list, and stores that before it is answered.
    pub(crate) fn list(&mut self, request: &SetList) -> Result<ListsChanged, Refusal> {
        let hand = Hand { session: request.session, force: request.force };
        let assumed = lists::changes(request, self.datapath()?.now());
        self.heed_lists(&assumed, hand)?;
        let before = self.stand_on_lists(assumed.keys().copied())?;
        let changed = self.put_on_list(request)?;
        self.tell_lists(request);
        Ok(ListsChanged { done: self.stand_otherwise(before)?, ..changed })
    }

    /// Puts sources on a list of this node.
    pub(crate) fn put_on_list(&mut self, request: &SetList) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        let layers = &self.layers;
        let changed = self.lists.set(datapath, request, |selector| layers.managed(selector))?;
        self.store_lists();
        Ok(changed)
    }

    /// Tells the other nodes of sources that were put on a list here.
    fn tell_lists(&self, request: &SetList) {
        let list = match request.list {
            ListName::Deny => List::Deny,
            ListName::Allow => List::Allow,
        };
        let left = request.seconds.map(Duration::from_secs);
        let selectors = request.sources.iter().filter_map(|source| source_text::parse(source).ok());
        let sources = selectors.filter_map(|selector| told_prefix(&selector));
        self.publish(sources.map(|sources| Change::List { list, sources, left }));
    }

    /// Takes sources off the lists of this node.
    pub(crate) fn take_off_lists(
        &mut self,
        selectors: &BTreeSet<Selector>,
    ) -> Result<ListsChanged, ServiceError> {
        let datapath = self.datapath.as_deref_mut().ok_or(ServiceError::Detached)?;
        let layers = &self.layers;
        let changed = self.lists.unset(datapath, selectors, |selector| layers.managed(selector))?;
        self.store_lists();
        Ok(changed)
    }

    /// Takes sources off their lists, and stores that before it is answered.
    pub(crate) fn unlist(&mut self, request: &UnsetList) -> Result<ListsChanged, Refusal> {
        let selectors = lists::named(request)?;
        let session = Session::named(request.peer, request.port);
        let hand = Hand { session, force: request.force };
        let off: Changes = selectors.iter().map(|selector| (*selector, None)).collect();
        self.heed_lists(&off, hand)?;
        let before = self.stand_on_lists(selectors.iter().copied())?;
        let changed = self.take_off_lists(&selectors)?;
        if let Some(selector) = selectors.first()
            && request.source.is_some()
            && changed.not_listed > 0
            && self.cluster_status().is_none()
        {
            // Nothing has changed then. Another node may have an entry where this one has none.
            let stands = self.lists.told(selector, self.datapath()?.now());
            return Err(ServiceError::NotListed { selector: *selector, stands }.into());
        }
        let sources = selectors.iter().filter_map(told_prefix);
        self.publish(sources.map(|sources| Change::Unlist { sources }));
        Ok(ListsChanged { done: self.stand_otherwise(before)?, ..changed })
    }

    /// How sources stand on the lists, in words; of none, if they are many.
    fn stand_on_lists(
        &self,
        selectors: impl Iterator<Item = Selector>,
    ) -> Result<Vec<(Selector, String)>, ServiceError> {
        let now = self.datapath()?.now();
        let told = |selector: Selector| (selector, self.lists.told(&selector, now));
        let stand: Vec<_> = selectors.take(MOST_TOLD + 1).map(told).collect();
        Ok(if stand.len() > MOST_TOLD { Vec::new() } else { stand })
    }

    /// How sources stand now, beside how they stood.
    fn stand_otherwise(
        &self,
        before: Vec<(Selector, String)>,
    ) -> Result<Vec<String>, ServiceError> {
        let now = self.datapath()?.now();
        let told = |(selector, was): (Selector, String)| {
            format!("{selector}: {}, was {was}", self.lists.told(&selector, now))
        };
        Ok(before.into_iter().map(told).collect())
    }

    /// Refuses changes of the lists that would lock out whoever makes them.
    fn heed_lists(&self, changes: &Changes, hand: Hand) -> Result<(), ServiceError> {
        let unchanged = Changes::new();
        let before = self.scene(&self.layers, &self.effective, &unchanged)?;
        let after = Scene { changes, ..before };
        hand.heed(guard::objection_to_lists(before, after, hand.session.as_ref()))
    }
}

/// Entries that are looked at before others have their turn, when most of them have expired.
const SLICE: usize = 4096;

/// How far `GET /v1/lists` has come. Nothing is copied for it: an entry that stays on a list all
/// the while is told once, and one that comes, goes or changes meanwhile as it is when its place is
/// reached.
#[derive(Debug, Default)]
pub(crate) struct ListsText {
    parts: Parts,
    begun: bool,
    ended: bool,
    last: Option<Selector>,
}

impl Sliced<Service> for ListsText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let (book, now) = (&service.lists, service.datapath()?.now());
        if self.ended {
            return Ok(Step::Done);
        }
        if !self.begun {
            self.parts.open_array("entries")?;
            self.begun = true;
        }
        let mut looked = 0;
        let last = self.last;
        for (selector, told) in book.after(last.as_ref(), now) {
            if let Some(entry) = told {
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
        self.parts.end();
        self.ended = true;
        Ok(Step::Part(self.parts.take()))
    }
}

impl ListsText {
    pub(crate) fn begin(service: &Service) -> Result<Self, Refusal> {
        service.datapath()?;
        service.leftovers.note();
        Ok(Self::default())
    }
}

impl Render for ListsChanged {
    fn render(&self, text: &mut String) {
        let Self { allowed, denied, not_listed, done } = self;
        for done in done {
            line(text, format_args!("{done}"));
        }
        let _: std::fmt::Result = writeln!(text, "{allowed} allowed, {denied} denied");
        if *not_listed > 0 {
            let _: std::fmt::Result = writeln!(text, "{not_listed} of those named were on no list");
        }
    }
}

impl Render for Lists {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("the lists are empty\n");
            return;
        }
        let told = self.entries.iter().any(|entry| entry.reason.is_some());
        let columns = ["SOURCE", "LIST", ">EXPIRES IN", "REASON"];
        let mut table = table(columns.get(..if told { 4 } else { 3 }).unwrap_or(&columns));
        for entry in &self.entries {
            let expires = entry
                .expires_in_seconds
                .map_or("never".to_owned(), |seconds| format!("{seconds} s"));
            let mut row = vec![entry.source.clone(), entry.list.name().to_owned(), expires];
            if told {
                row.push(clean(entry.reason.as_deref().unwrap_or_default()));
            }
            table.add_row(row);
        }
        push(text, &table);
    }
}
