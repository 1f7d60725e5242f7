//! Requests about whole rule sets: reading the rule files again, and replacing them, on trial or
//! not.

use std::time::Instant;

use axum::routing::{get, post};
use limiter_api::rules::{
    ApplyRules, Changed, CompareRules, ConfirmRules, ExportRules, Exported, ReloadRules, RulesDiff,
    Session,
};

use crate::control::{Answer, Asked, JSON, JsonBody, MAX_RULES_BODY, Refusal, Routes};
use crate::control::{Sliced, Step};
use crate::lists::UNCHANGED;
use crate::rule_sets::guard;
use crate::rule_sets::rule_files::request_parts;
use crate::service::{Call, Service};
use crate::views::RulesText;

pub(super) fn routes() -> Routes<Service> {
    Routes::default()
        .at("/v1/reload", post(reload))
        .at_rules("/v1/rules", get(export).put(apply))
        .at_rules("/v1/rules/diff", post(compare))
        .at("/v1/rules/confirm", post(confirm))
        .at("/v1/rules/revert", post(revert))
}

/// Reads the rule files again
#[utoipa::path(
    post,
    path = "/v1/reload",
    params(ReloadRules),
    responses((status = 200, description = "Done.", body = Changed))
)]
pub(super) async fn reload(call: Call, Asked(asked): Asked<ReloadRules>) -> Answer {
    call.change(|service| service.reload_rules(asked))
}

/// The rules in force as a rule file
#[utoipa::path(
    get,
    path = "/v1/rules",
    params(ExportRules),
    responses((status = 200, description = "Done.", body = Exported))
)]
pub(super) async fn export(call: Call, Asked(asked): Asked<ExportRules>) -> Answer {
    call.sliced(JSON, |service| RulesText::begin(service, asked)).await
}

/// Puts rule files in the place of the daemon's
#[utoipa::path(
    put,
    path = "/v1/rules",
    request_body = ApplyRules,
    responses((status = 200, description = "Done.", body = Changed))
)]
pub(super) async fn apply(
    call: Call,
    JsonBody(rules): JsonBody<ApplyRules, MAX_RULES_BODY>,
) -> Answer {
    call.change(|service| replace(service, &rules))
}

/// Says what rule files would change
#[utoipa::path(
    post,
    path = "/v1/rules/diff",
    request_body = CompareRules,
    responses((status = 200, description = "Done.", body = RulesDiff))
)]
pub(super) async fn compare(
    call: Call,
    JsonBody(rules): JsonBody<CompareRules, MAX_RULES_BODY>,
) -> Answer {
    call.change(|service| differences(service, &rules))
}

/// Keeps rules on trial
#[utoipa::path(
    post,
    path = "/v1/rules/confirm",
    params(ConfirmRules),
    responses(
        (status = 200, description = "Done.", body = Changed),
        (status = 409, description = "No rules are on trial, or their time is over.")
    )
)]
pub(super) async fn confirm(call: Call, Asked(asked): Asked<ConfirmRules>) -> Answer {
    call.change(|service| keep(service, asked.session()))
}

/// Takes rules on trial back
#[utoipa::path(
    post,
    path = "/v1/rules/revert",
    responses(
        (status = 200, description = "Done.", body = Changed),
        (status = 409, description = "No rules are on trial, or their time is over.")
    )
)]
pub(super) async fn revert(call: Call) -> Answer {
    call.change(|service| {
        let (rule_sets, mut ground) = service.at_rules();
        rule_sets.revert(&mut ground)
    })
}

impl RulesText {
    /// The beginning of the text of the rules in force, or of those of `limiter set` alone.
    pub(crate) fn begin(service: &Service, asked: ExportRules) -> Result<Self, Refusal> {
        let generation = service.datapath()?.generation();
        service.heap_trim.note();
        Ok(Self::new(generation, asked.edits))
    }
}

impl Sliced<Service> for RulesText {
    fn step(&mut self, service: &Service) -> Result<Step, Refusal> {
        let (datapath, layers) = (service.datapath()?, &service.rule_sets.layers);
        Ok(self.go_on(datapath.generation(), layers, datapath.max_frame())?)
    }
}

/// The differences that other rule files would make.
pub(crate) fn differences(service: &Service, rules: &CompareRules) -> Result<RulesDiff, Refusal> {
    let compared =
        service.rule_sets.compare(&service.datapath, &service.heap_trim, &service.lists, rules);
    let mut diff = compared?;
    let parts = request_parts(&rules.documents);
    diff.requests = service.request_reports.others_than(&parts, Instant::now());
    diff.same &= diff.requests.is_empty();
    Ok(diff)
}

/// Replaces the rule files by other rules.
pub(crate) fn replace(service: &mut Service, rules: &ApplyRules) -> Result<Changed, Refusal> {
    let (rule_sets, mut ground) = service.at_rules();
    let mut changed = rule_sets.apply_rules(&mut ground, rules)?;
    changed.warnings.extend(service.requests_not_in_force());
    Ok(changed)
}

/// Keeps the rules on trial. They are already in force, and the session that confirms them got
/// through: a barrier to its packets is reported, but nothing is refused.
pub(crate) fn keep(service: &mut Service, session: Option<Session>) -> Result<Changed, Refusal> {
    let (rule_sets, mut ground) = service.at_rules();
    let mut changed = rule_sets.confirm(&mut ground)?;
    let scene = service.scene(&UNCHANGED)?;
    changed.warnings.extend(guard::in_the_way(scene, session.as_ref()));
    Ok(changed)
}
