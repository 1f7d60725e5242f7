//! Sources that stand out of what was seen so far, while somebody looks.

use axum::extract::{Extension, State};
use axum::routing::get;
use limiter_common::wire::EntryKind;
use limiter_rules::source_text;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::sources::{By, DroppedBy, OtherDrops, SourceRow};
use super::{Shared, words};
use crate::control::{Answer, Asked, Peer, Refusal, Routes, read};
use crate::error::ServiceError;
use crate::service::Service;
use crate::sources::{Known, Wanted, tracked};
use crate::views;

/// Sources that an event told of, and that are shown to every view as dropping.
const MOST_DROPPING: usize = 256;

/// The query of `GET /v1/top`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AskTop {
    /// Measure that ranks the sources: the first has the most of it.
    #[serde(default)]
    pub by: By,
    /// Number of sources; [`SOURCES`](super::sources::SOURCES) when left out.
    #[serde(default)]
    #[param(value_type = Option<words::SourceCount>)]
    pub limit: Option<u32>,
    /// Prefix of the sources; all when left out.
    #[serde(default)]
    #[param(value_type = Option<words::Within>)]
    pub prefix: Option<String>,
    /// An address whose source is told of in any case.
    #[serde(default)]
    #[param(value_type = Option<words::Address>)]
    pub watch: Option<String>,
}

/// `GET /v1/top`: those that stand out of what was seen so far, while somebody looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Top {
    /// The time of the numbers, in nanoseconds of the machine's monotonic clock.
    pub clock_ns: u64,
    /// Since when the daemon runs, in seconds.
    pub uptime_seconds: u64,
    /// The rule set in force.
    pub generation: u64,
    /// True if every packet passes: `limiter off`.
    pub brake: bool,
    /// Packets that went on, since the maps were made.
    pub passed: u64,
    /// Packets that did not.
    pub dropped: u64,
    /// Packets that were dropped, by what dropped them.
    #[serde(default)]
    pub dropped_by: DroppedBy,
    /// IPv4 sources that have a bucket.
    pub tracked_v4: u64,
    /// IPv6 sources that have a bucket.
    pub tracked_v6: u64,
    /// How often all sources were gone through since somebody looks, with the share of the round
    /// under way.
    pub rounds: f64,
    /// The first of those that stand out.
    pub sources: Vec<SourceRow>,
    /// Sources of which rules on other keys, budgets, lists or bans dropped most lately: by events,
    /// which are a sample.
    #[serde(default)]
    pub by_other_rules: Vec<OtherDrops>,
    /// The source that was asked about, if one was.
    pub watched: Option<SourceRow>,
}

pub(super) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/top", get(top))
}

/// Sources that stand out, of what was seen while somebody looks
#[utoipa::path(
    get,
    path = "/v1/top",
    params(AskTop),
    responses((status = 200, description = "Done.", body = Top))
)]
pub(super) async fn top(
    State(service): State<Shared>,
    Extension(peer): Extension<Peer>,
    Asked(asked): Asked<AskTop>,
) -> Answer {
    read(&service, &peer, |service| service.top(&asked)).await
}

impl Service {
    /// Looks on, and tells of those that stand out.
    pub(crate) fn top(&mut self, asked: &AskTop) -> Result<Top, Refusal> {
        let wanted = Wanted::parse(asked.by, asked.limit, asked.prefix.as_deref())?;
        let watch = asked.watch.as_deref().map(source_text::parse_one).transpose()?;
        let watch = watch.map(views::key);
        // A new event may be about a source that was not seen yet.
        self.take_events();
        let datapath = self.datapath.as_deref().ok_or(ServiceError::Detached)?;
        let now = datapath.now();
        let view = self.views.of(&wanted, now);
        if let Some(source) = watch {
            view.watch(source, now);
        }
        let (effective, lists, events) = (&self.effective, &self.lists, &self.events);
        let known = Known { datapath, effective, lists, events };
        view.look(known, self.events.dropping().take(MOST_DROPPING))?;
        let keyed = view.keyed();
        let (passed, dropped) = views::verdicts(datapath)?;
        let tracked_v4 = tracked(datapath, EntryKind::V4)?.saturating_add(keyed.v4);
        let tracked_v6 = tracked(datapath, EntryKind::V6)?.saturating_add(keyed.v6);
        Ok(Top {
            clock_ns: datapath.now().as_nanos(),
            uptime_seconds: self.began.elapsed().as_secs(),
            generation: datapath.generation(),
            brake: datapath.brake()?,
            passed: passed.packets,
            dropped: dropped.packets,
            dropped_by: views::dropped_by(datapath)?,
            tracked_v4,
            tracked_v6,
            rounds: view.rounds(tracked_v4.saturating_add(tracked_v6)),
            sources: view.rows(known, &wanted)?,
            by_other_rules: wanted.others(known),
            watched: watch.map(|source| view.row(known, &source)).transpose()?,
        })
    }
}
