//! Bans: who is banned, for how long and by which rule; and forgetting it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_common::ban::History;
use limiter_common::time::Ticks;
use limiter_common::wire::Ban;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Shared, words};
use crate::control::parts::Parts;
use crate::control::{Answer, Asked, JSON, Peer, Refusal, Routes, Sliced, Step, change, sliced};
use crate::daemon::error::ServiceError;
use crate::daemon::service::Service;
use crate::daemon::views;
use crate::datapath::Datapath;
use crate::render::{Render, push, table};
use crate::rules::model::TriePrefix;
use crate::rules::{Selector, source_text};

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
    /// The rule that banned it; none when that is not in force any more.
    pub rule: Option<String>,
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
    Routes::default().at("/v1/bans", get(list).delete(unban))
}

/// Who is banned
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
    /// Forgets the bans and strikes of a source, or of all sources in a prefix.
    pub(in crate::daemon) fn unban(&mut self, request: &Unban) -> Result<Unbanned, Refusal> {
        let selector = source_text::parse(&request.source)?;
        Ok(forget(self.datapath_mut()?, selector)?)
    }
}

/// `GET /v1/bans`, told in parts: the bans in force when it was asked for, the one that ends last
/// first.
#[derive(Debug)]
pub(in crate::daemon) struct BansText {
    parts: Parts,
    bans: std::vec::IntoIter<(Ticks, Ban, Option<Selector>)>,
    names: BTreeMap<u32, String>,
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
            let Some((until, ban, source)) = self.bans.next() else {
                self.parts.close_array();
                self.parts.member("watched", &self.watched)?;
                self.parts.end();
                self.ended = true;
                break;
            };
            let Some(source) = source else { continue };
            let rule = u32::try_from(ban.rule).ok().and_then(|number| self.names.get(&number));
            self.parts.item(&BannedSource {
                source: source.to_string(),
                ends_in_seconds: until.since(self.now).as_nanos().div_ceil(1_000_000_000),
                bans: History::from_raw(ban.history).level(),
                rule: rule.cloned(),
            })?;
        }
        Ok(Step::Part(self.parts.take()))
    }
}

/// Forgets a source, or all sources in a prefix.
fn forget(datapath: &mut dyn Datapath, selector: Selector) -> Result<Unbanned, ServiceError> {
    let mut forgotten = 0;
    for (key, _) in datapath.bans()? {
        let inside = TriePrefix::of_source(key).selector().is_some_and(|at| selector.contains(&at));
        if inside && datapath.unban(&views::of_key(key))? {
            forgotten += 1;
        }
    }
    if forgotten == 0 {
        return Err(ServiceError::NotBanned(selector));
    }
    Ok(Unbanned { forgotten })
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
                    entry.rule.clone().unwrap_or_else(|| "(removed rules)".to_owned()),
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
