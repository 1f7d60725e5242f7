//! What the tests ask of a service: the handlers without their routes.

use std::os::fd::OwnedFd;

use limiter_api::bans::{BannedSource, RequestBans, SetBan, SetRequestBans, Unban, Unbanned};
use limiter_api::bypass::{Bypass, BypassNow, Detached};
use limiter_api::capture::{AskCapture, CaptureReport, Captures};
use limiter_api::check::{CheckSource, Checked};
use limiter_api::cluster::Cluster;
use limiter_api::events::Events;
use limiter_api::explain::{AskExplain, ExplainedNow};
use limiter_api::limits::{SetLimit, UnsetLimit};
use limiter_api::lists::{ListsChanged, SetList, UnsetList};
use limiter_api::rules::{ApplyRules, Changed, CompareRules, RulesDiff, Session};
use limiter_api::sources::source::SourceView;
use limiter_api::sources::top::{AskTop, Top};
use limiter_api::status::history::{AskHistory, History};

use super::*;
use crate::EventOptions;
use crate::control::{Lines, Sliced as _, Step};
use crate::error::ServiceError;
use crate::events::filter::Filter;
use crate::routes::sources::source::SourceText;
use crate::routes::{bans, bypass, capture, check, cluster, explain, lists, rules, sources};
use crate::service;

impl Service {
    pub(super) fn set(&mut self, limit: &SetLimit) -> Result<Changed, Refusal> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.set(&mut ground, limit)
    }

    pub(super) fn unset(&mut self, limit: &UnsetLimit) -> Result<Changed, Refusal> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.unset(&mut ground, limit)
    }

    pub(super) fn compare(&self, rules: &CompareRules) -> Result<RulesDiff, Refusal> {
        rules::differences(self, rules)
    }

    pub(super) fn apply_rules(&mut self, rules: &ApplyRules) -> Result<Changed, Refusal> {
        rules::replace(self, rules)
    }

    pub(super) fn confirm(&mut self) -> Result<Changed, Refusal> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.confirm(&mut ground)
    }

    pub(super) fn confirm_by(&mut self, session: Option<Session>) -> Result<Changed, Refusal> {
        rules::keep(self, session)
    }

    pub(super) fn revert(&mut self) -> Result<Changed, Refusal> {
        let (rule_sets, mut ground) = self.at_rules();
        rule_sets.revert(&mut ground)
    }

    pub(super) fn list(&mut self, request: &SetList) -> Result<ListsChanged, Refusal> {
        lists::put(self, request)
    }

    pub(super) fn unlist(&mut self, request: &UnsetList) -> Result<ListsChanged, Refusal> {
        lists::take_off(self, request)
    }

    pub(super) fn ban(&mut self, request: &SetBan) -> Result<BannedSource, Refusal> {
        bans::put(self, request)
    }

    pub(super) fn unban(&mut self, request: &Unban) -> Result<Unbanned, Refusal> {
        bans::forget(self, request)
    }

    pub(super) fn ban_requests(&mut self, asked: &SetRequestBans) -> Result<RequestBans, Refusal> {
        bans::request_bans::put_all(self, asked)
    }

    pub(super) fn bypass(&mut self, bypass: Bypass) -> Result<BypassNow, Refusal> {
        bypass::set(self, bypass)
    }

    pub(super) fn detach(&mut self) -> Result<Detached, Refusal> {
        bypass::end(self)
    }

    pub(super) fn capture(
        &mut self,
        asked: &AskCapture,
        user: u32,
    ) -> Result<(u64, Lines), Refusal> {
        capture::begin(self, asked, user)
    }

    pub(super) fn captures(&self) -> Result<Captures, Refusal> {
        capture::view(self)
    }

    pub(super) fn stop_capture(&mut self) -> Result<CaptureReport, Refusal> {
        capture::end(self)
    }

    pub(super) fn take_captured(&mut self) -> bool {
        service::capture::take(self)
    }

    pub(super) fn check(&mut self, asked: &CheckSource) -> Result<Checked, Refusal> {
        check::outcome(self, asked)
    }

    pub(super) fn explain(&mut self, asked: &AskExplain) -> Result<ExplainedNow, Refusal> {
        explain::outcome(self, asked)
    }

    pub(super) fn cluster(&self) -> Result<Cluster, Refusal> {
        cluster::view(self)
    }

    /// The answer about a source, read at once.
    pub(super) fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let mut text = SourceText::begin(self, address)?;
        loop {
            if let Step::Part(part) = text.step(self)? {
                return Ok(serde_json::from_slice(&part)?);
            }
        }
    }

    pub(super) fn top(&mut self, asked: &AskTop) -> Result<Top, Refusal> {
        sources::top::view(self, asked)
    }

    pub(super) fn history(&self, asked: AskHistory) -> Result<History, Refusal> {
        let now = self.datapath()?.now().as_nanos();
        Ok(self.gauges.recent.history(asked, now, self.began_at.as_nanos()))
    }

    pub(super) fn events(&self) -> Result<Events, Refusal> {
        Ok(self.events.view(self.datapath()?)?)
    }

    pub(super) fn follow(
        &mut self,
        drops: bool,
        filter: Filter,
        user: u32,
        first: bool,
    ) -> Result<Lines, Refusal> {
        Ok(self.events.follow(drops, filter, user, first)?)
    }

    pub(super) fn report_events(
        &mut self,
        options: &EventOptions,
    ) -> Result<Option<OwnedFd>, ServiceError> {
        service::events::report(self, options)
    }

    pub(super) fn end_event_log(&mut self) {
        service::events::end_log(self);
    }
}
