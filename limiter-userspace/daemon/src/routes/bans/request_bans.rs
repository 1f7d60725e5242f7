//! The request of `limiter serve` for bans by rules for requests.

use axum::routing::put;
use ipnet::IpNet;
use limiter_api::bans::{
    RequestBanAnswer, RequestBanBecame, RequestBans, SetRequestBan, SetRequestBans,
};
use limiter_api::lists::ListName;
use limiter_common::time::Ticks;
use limiter_decision::ban::{BanTerms, Strike};
use limiter_rules::Selector;
use limiter_rules::compile::DEFAULT_BANS;

use super::one_source;
use super::refuse_safe;
use crate::control::{Answer, JsonBody, Refusal, Routes};
use crate::lists::bans;
use crate::lists::request_bans;
use crate::rule_sets::guard::{self, LEAST};
use crate::service::lists::own_addresses;
use crate::service::{Call, Service};

/// Most bans in one request.
const AT_ONCE: usize = 32;

/// Shortest ban by a rule for requests, the same as by a rule for packets.
const SHORTEST_MS: u64 = 1000;

pub(crate) fn routes() -> Routes<Service> {
    Routes::default().at("/v1/bans/requests", put(by_requests))
}

/// Bans sources of requests over limits
#[utoipa::path(
    put,
    path = "/v1/bans/requests",
    request_body = SetRequestBans,
    responses((status = 200, description = "What became of each is inside.", body = RequestBans))
)]
pub(crate) async fn by_requests(call: Call, JsonBody(asked): JsonBody<SetRequestBans>) -> Answer {
    call.change(|service| put_all(service, &asked))
}

/// Bans sources by rules for requests, as far as the guards allow each ban.
pub(crate) fn put_all(
    service: &mut Service,
    request: &SetRequestBans,
) -> Result<RequestBans, Refusal> {
    let asked = request.bans.len();
    if asked > AT_ONCE {
        return Err(Refusal::Invalid(format!(
            "{asked} bans are too many for one request: ask for {AT_ONCE} at most"
        )));
    }
    let own = own_addresses(&service.datapath);
    let answers = request.bans.iter().map(|ban| {
        let (became, why) = match put_one(service, ban, &own) {
            Ok(became) => (became, None),
            Err(refusal @ (Refusal::Invalid(_) | Refusal::Conflict(_))) => {
                (RequestBanBecame::Refused, Some(refusal.to_string()))
            }
            Err(failed) => return Err(failed),
        };
        Ok(RequestBanAnswer { became, why })
    });
    Ok(RequestBans { answers: answers.collect::<Result<_, _>>()? })
}

fn put_one(
    service: &mut Service,
    asked: &SetRequestBan,
    own: &[(String, IpNet)],
) -> Result<RequestBanBecame, Refusal> {
    let address = one_source(&asked.source)?;
    let selector = Selector::address(address);
    let SetRequestBan { first_ms, longest_ms, memory_ms, .. } = *asked;
    if first_ms.min(memory_ms) < SHORTEST_MS || longest_ms < first_ms {
        return Err(Refusal::Invalid(format!(
            "{selector}: {first_ms} ms to {longest_ms} ms with a memory of {memory_ms} ms is \
             no ban: each is at least {SHORTEST_MS} ms, and the longest is not the shortest"
        )));
    }
    refuse_safe(service, &selector)?;
    if let Some(why) = guard::hazard(&selector, ListName::Deny, own, LEAST) {
        return Err(Refusal::Conflict(format!("{selector}: {why}")));
    }
    let rule = request_bans::named(&asked.domain, &asked.rule);
    let by = service.request_rules.author(&rule, service.datapath.get()?, &service.state)?;
    let ticks = |millis: u64| Ticks::from_nanos(millis.saturating_mul(1_000_000)).get();
    let terms = BanTerms {
        first: ticks(first_ms),
        longest: ticks(longest_ms),
        memory: ticks(memory_ms),
        strikes: 1,
    };
    let rate = service.rule_sets.effective.bans.unwrap_or(DEFAULT_BANS);
    let budget = &mut service.ban_budget;
    let allowed = |now| budget.spend(rate, now);
    let made = bans::strike_request(service.datapath.get_mut()?, address, &terms, by, allowed)?;
    Ok(match made {
        Ok(_) => RequestBanBecame::Made,
        Err(Strike::Ban { .. }) => RequestBanBecame::OverBudget,
        Err(Strike::Banned | Strike::Counted(_)) => RequestBanBecame::InForce,
    })
}
