//! Bans: who is banned, for how long and by which rule; banning by hand, and forgetting it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_common::time::{MAX_TICKS, Ticks};
use limiter_common::wire::Ban;
use limiter_decision::ban::{BanTerms, History, Strike, strike};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::lists::ListName;
use super::rules::Session;
use super::{Shared, words};
use crate::cluster::Change;
use crate::control::parts::Parts;
use crate::control::{
    Answer, Asked, JSON, JsonBody, Peer, Refusal, Routes, Sliced, Step, change, sliced,
};
use crate::daemon::error::ServiceError;
use crate::daemon::guard::Hand;
use crate::daemon::service::{Service, told_prefix};
use crate::daemon::views::{self, Title};
use crate::datapath::BANNED_BEFORE;
use crate::render::{Render, push, table};
use crate::rules::model::TriePrefix;
use crate::rules::{Selector, source_text};

/// [`Ban::rule`] of a ban by hand. Rules have 32-bit numbers, and a record without a ban has 0.
pub(in crate::daemon) const BY_HAND: u64 = u64::MAX;

/// `GET /v1/bans`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Bans {
    /// The bans in force.
    pub entries: Vec<BannedSource>,
    /// Sources with strikes or earlier bans that are not banned now.
    pub watched: usize,
}

/// A banned source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Ban)]
pub struct BannedSource {
    /// An IPv4 address or an IPv6 /64.
    pub source: String,
    /// Whole seconds until the ban ends, rounded up.
    pub ends_in_seconds: u64,
    /// Bans that are not forgotten, with this one.
    pub bans: u64,
    /// The rule that banned it; none when that is not in force any more, not known since an
    /// upgrade, and of a ban by hand.
    pub rule: Option<String>,
    /// The name that the author of the rule gave it.
    #[serde(default)]
    pub rule_name: Option<String>,
    /// True if it was banned by hand.
    pub by_hand: bool,
    /// True if it was banned by a rule before an upgrade that changed the layout of the maps: which
    /// one is not known any more.
    #[serde(default)]
    pub before_upgrade: bool,
}

/// `PUT /v1/bans`: bans a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBan {
    /// An address. An IPv6 source is its /64.
    #[schema(value_type = words::Prefix)]
    pub source: String,
    /// Seconds that the ban lasts. A ban that ends later stays as it is.
    #[schema(minimum = 1, examples(60, 3600, 86400))]
    pub seconds: u64,
    /// True if it may lock out the client.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The SSH session of the client, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// The query of `DELETE /v1/bans`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct Unban {
    /// An address, or a prefix for all sources in it.
    #[param(value_type = words::Prefix)]
    pub source: String,
}

/// The answer to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Unbanned {
    /// Sources that were forgotten: their bans and strikes.
    pub forgotten: usize,
}

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/bans", get(list).put(ban).delete(unban))
}

/// Banned sources
#[utoipa::path(
    get,
    path = "/v1/bans",
    responses((status = 200, description = "Done.", body = Bans))
)]
pub(super) async fn list(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
) -> Answer {
    sliced(service, peer, JSON, BansText::begin).await
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
pub(super) async fn ban(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    JsonBody(asked): JsonBody<SetBan>,
) -> Answer {
    change(&service, &peer, |service| service.ban(&asked))
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
pub(super) async fn unban(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<Unban>,
) -> Answer {
    change(&service, &peer, |service| service.unban(&asked))
}

impl Service {
    /// Bans a source: all of its packets are dropped until that ends.
    pub(in crate::daemon) fn ban(&mut self, request: &SetBan) -> Result<BannedSource, Refusal> {
        let address = source_text::parse_one(&request.source)?;
        let selector = Selector::address(address);
        if request.seconds == 0 {
            return Err(Refusal::Invalid("0 seconds are over at once: give at least 1".to_owned()));
        }
        if let Some(prefix) = self.layers.managed(&selector) {
            return Err(ServiceError::Management { selector, prefix }.into());
        }
        let now = self.datapath()?.now();
        if self.lists.of(&selector, now) == Some(ListName::Allow) {
            return Err(Refusal::Conflict(format!(
                "{selector} is on the allow list, which comes before bans: take the entry that \
                 `limiter lists` shows for it off with `limiter unlist` before"
            )));
        }
        let own = request.session.filter(|session| Selector::address(session.peer) == selector);
        Hand { session: request.session, force: request.force }.heed(own.map(|session| {
            format!(
                "{} is where your own SSH session comes from, and all of it would be dropped: log \
                 in from elsewhere to ban it, or use --force",
                session.peer
            )
        }))?;
        let left = Duration::from_secs(request.seconds);
        let ban = self.put_ban(address, left)?;
        self.publish([Change::Ban { source: address, left }]);
        let names = views::rule_names(self.datapath()?, &self.effective);
        Ok(BannedSource::of(selector, ban, &names, self.datapath()?.now()))
    }

    /// Bans a source on this node for `left` from now on; a ban that ends later stays.
    pub(in crate::daemon) fn put_ban(
        &mut self,
        address: IpAddr,
        left: Duration,
    ) -> Result<Ban, ServiceError> {
        let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
        let source = views::key(address);
        let datapath = self.datapath_mut()?;
        let before = datapath.ban(&source)?.unwrap_or_default();
        let ban = lengthened(before, Ticks::from_nanos(nanos), datapath.now());
        datapath.put_ban(&source, ban)?;
        Ok(ban)
    }

    /// Forgets the bans and strikes of a source, or of all sources in a prefix; with a cluster, on
    /// all nodes.
    pub(in crate::daemon) fn unban(&mut self, request: &Unban) -> Result<Unbanned, Refusal> {
        let selector = source_text::parse(&request.source)?;
        let forgotten = self.forget(selector)?;
        if self.cluster_status().is_some()
            && let Some(sources) = told_prefix(&selector)
        {
            // Another node may have a ban where this one has none.
            self.publish([Change::Unban { sources }]);
        } else if forgotten == 0 {
            return Err(ServiceError::NotBanned(selector).into());
        }
        Ok(Unbanned { forgotten })
    }

    /// Forgets a source, or all sources in a prefix, on this node; says how many there were.
    pub(in crate::daemon) fn forget(&mut self, selector: Selector) -> Result<usize, ServiceError> {
        let datapath = self.datapath_mut()?;
        let mut forgotten = 0;
        for (key, _) in datapath.bans()? {
            let source = TriePrefix::of_source(key).selector();
            if source.is_some_and(|at| selector.contains(&at))
                && datapath.unban(&views::of_key(key))?
            {
                forgotten += 1;
            }
        }
        Ok(forgotten)
    }
}

/// `GET /v1/bans`, told in parts: the bans in force when it was asked for, the one that ends last
/// first.
#[derive(Debug)]
pub(in crate::daemon) struct BansText {
    parts: Parts,
    bans: std::vec::IntoIter<(Ticks, Ban, Option<Selector>)>,
    names: BTreeMap<u32, Title>,
    watched: usize,
    now: Ticks,
    ended: bool,
}

impl BansText {
    /// Reads the bans.
    pub(in crate::daemon) fn begin(service: &Service) -> Result<Self, Refusal> {
        let datapath = service.datapath()?;
        service.leftovers.note();
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
        let names = views::rule_names(datapath, &service.effective);
        Ok(Self { parts, bans: bans.into_iter(), names, watched, now, ended: false })
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
            self.parts.item(&BannedSource::of(source, ban, &self.names, self.now))?;
        }
        Ok(Step::Part(self.parts.take()))
    }
}

impl BannedSource {
    /// The answer for a ban at `now`. `names` are those of the rules by their numbers.
    fn of(source: Selector, ban: Ban, names: &BTreeMap<u32, Title>, now: Ticks) -> Self {
        let rule = u32::try_from(ban.rule).ok().and_then(|number| names.get(&number));
        Self {
            source: source.to_string(),
            ends_in_seconds: Ticks::new(ban.until).since(now).as_nanos().div_ceil(1_000_000_000),
            bans: History::from_raw(ban.history).level(),
            rule: rule.map(|title| title.rule.clone()),
            rule_name: rule.and_then(|title| title.name.clone()),
            by_hand: ban.rule == BY_HAND,
            before_upgrade: ban.rule == BANNED_BEFORE,
        }
    }
}

/// A record with a ban by hand of `length` from `now` on, which counts among the bans of the source
/// as one by a rule does. A ban that ends later stays; one that ends earlier is lengthened.
fn lengthened(before: Ban, length: Ticks, now: Ticks) -> Ban {
    let until = now.plus(length);
    if before.until >= until.get() {
        return before;
    }
    // Earlier bans are remembered: which rule would forget them is not known here.
    let [first, longest] = [length.get(); 2];
    let terms = BanTerms { first, longest, memory: MAX_TICKS, strikes: 1 };
    let (end, history) = (Ticks::new(before.until), History::from_raw(before.history));
    let history = match strike(end, history, &terms, now) {
        Strike::Ban { history, .. } => history.raw(),
        Strike::Banned | Strike::Counted(_) => before.history,
    };
    Ban { until: until.get(), history, rule: BY_HAND }
}

impl Render for BannedSource {
    fn render(&self, text: &mut String) {
        let Self { source, ends_in_seconds, .. } = self;
        let _: std::fmt::Result = writeln!(text, "{source} is banned for {ends_in_seconds} s");
    }
}

impl Render for Unbanned {
    fn render(&self, text: &mut String) {
        let sources = if self.forgotten == 1 { "source" } else { "sources" };
        let _: std::fmt::Result = writeln!(text, "{} {sources} forgotten", self.forgotten);
    }
}

impl Render for Bans {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("nobody is banned\n");
        } else {
            let mut table = table(&["SOURCE", ">ENDS IN", ">BANS", "RULE"]);
            for entry in &self.entries {
                table.add_row([
                    entry.source.clone(),
                    format!("{} s", entry.ends_in_seconds),
                    entry.bans.to_string(),
                    entry.rule_name.clone().or_else(|| entry.rule.clone()).unwrap_or_else(|| {
                        let none = match (entry.by_hand, entry.before_upgrade) {
                            (true, _) => "(by hand)",
                            (_, true) => "(before an upgrade)",
                            (false, false) => "(removed rules)",
                        };
                        none.to_owned()
                    }),
                ]);
            }
            push(text, &table);
        }
        if self.watched > 0 {
            let _: std::fmt::Result =
                writeln!(text, "{} more with strikes or earlier bans", self.watched);
        }
    }
}
