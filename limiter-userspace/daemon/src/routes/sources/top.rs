//! The request for sources that stand out while a client looks.

use axum::routing::get;
use limiter_api::sources::top::{AskTop, Top};
use limiter_common::wire::EntryKind;
use limiter_rules::source_text;

use crate::control::{Answer, Asked, Refusal, Routes};
use crate::service::{Call, Service};
use crate::sources::{Known, Wanted, tracked};
use crate::views;

/// Most sources of reported events that every view shows as dropping.
const MOST_DROPPING: usize = 256;

pub(crate) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/top", get(top))
}

/// Sources that stand out, of what was seen while somebody looks
#[utoipa::path(
    get,
    path = "/v1/top",
    params(AskTop),
    responses((status = 200, description = "Done.", body = Top))
)]
pub(crate) async fn top(call: Call, Asked(asked): Asked<AskTop>) -> Answer {
    call.read(|service| view(service, &asked)).await
}

/// Continues a view, and returns the sources that stand out.
pub(crate) fn view(service: &mut Service, asked: &AskTop) -> Result<Top, Refusal> {
    let wanted = Wanted::parse(asked.by, asked.limit, asked.prefix.as_deref())?;
    let watch = asked.watch.as_deref().map(source_text::parse_one).transpose()?;
    let watch = watch.map(views::key);
    // A new event may concern a source that was not seen yet.
    service.take_events();
    let datapath = service.datapath.get()?;
    let now = datapath.now();
    let view = service.gauges.views.of(&wanted, now);
    if let Some(source) = watch {
        view.watch(source, now);
    }
    let (effective, lists, events) =
        (&service.rule_sets.effective, &service.lists, &service.events);
    let known = Known { datapath, effective, lists, events };
    view.look(known, service.events.dropping().take(MOST_DROPPING))?;
    let keyed = view.keyed();
    let (passed, dropped) = views::verdicts(datapath)?;
    let tracked_v4 = tracked(datapath, EntryKind::V4)?.saturating_add(keyed.v4);
    let tracked_v6 = tracked(datapath, EntryKind::V6)?.saturating_add(keyed.v6);
    Ok(Top {
        clock_ns: datapath.now().as_nanos(),
        began_ns: service.began_at.as_nanos(),
        uptime_seconds: service.began.elapsed().as_secs(),
        generation: datapath.generation(),
        bypass: datapath.bypass()?,
        passed: passed.packets,
        dropped: dropped.packets,
        dropped_by: views::dropped_by(datapath)?,
        tracked_v4,
        tracked_v6,
        rounds: view.rounds(tracked_v4.saturating_add(tracked_v6)),
        sources: view.rows(known, &wanted)?,
        lose_nothing: view.lose_nothing(),
        headline: view.headline(known)?,
        watched: watch.map(|source| view.of(known, &source)).transpose()?.unwrap_or_default(),
    })
}
