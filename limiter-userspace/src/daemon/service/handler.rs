//! Requests, each a line: what is done is in the file of its subject.

use std::time::SystemTime;

use super::Service;
use crate::control::Handler;
use crate::control::api::bans::{Bans, Unban, Unbanned};
use crate::control::api::check::{CheckSource, Checked};
use crate::control::api::events as api;
use crate::control::api::explain::{AskExplain, ExplainedNow};
use crate::control::api::lists::{Lists, ListsChanged, SetList, UnsetList};
use crate::control::api::rules::{ApplyRules, CompareRules, ExportRules, Exported, RulesDiff};
use crate::control::api::sources::{AskSources, AskTop, SourceList, Top};
use crate::control::api::{
    Brake, Changed, Detached, Limits, Refusal, Reload, SetLimit, SourceView, Stats, Status,
    UnsetLimit,
};
use crate::control::server::{Lines, Slices, Step};
use crate::daemon::error::ServiceError;
use crate::daemon::{bans, views};
use crate::rules::{Selector, source_text};

impl Handler for Service {
    fn status(&self) -> Result<Status, Refusal> {
        let layers = &self.layers;
        let status = views::status(self.datapath()?, &self.effective)?.with(
            &self.paths,
            layers.edits.len(),
            layers.management.keys().map(ToString::to_string).collect(),
            self.last_reload.clone(),
        );
        let (over_soft_limit, no_room_for) = (self.alarms.raised(), self.floods.raised());
        let (reloads, watch) = (self.reloads, self.watch);
        let applied = layers.applied && self.trial.is_none();
        let (trial, last_trial) = (self.trial(), self.last_trial.clone());
        Ok(Status {
            over_soft_limit,
            no_room_for,
            applied,
            reloads,
            watch,
            trial,
            last_trial,
            ..status
        })
    }

    fn limits(&self) -> Result<Limits, Refusal> {
        self.leftovers.note();
        Ok(views::limits(self.datapath()?, &self.effective)?)
    }

    fn set(&mut self, limit: &SetLimit) -> Result<Changed, Refusal> {
        Ok(self.try_set(limit)?)
    }

    fn unset(&mut self, limit: &UnsetLimit) -> Result<Changed, Refusal> {
        Ok(self.try_unset(limit)?)
    }

    fn stats(&self) -> Result<Stats, Refusal> {
        Ok(views::stats(self.datapath()?, &self.effective)?)
    }

    fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let address = source_text::parse_address(address).map_err(ServiceError::from)?;
        let datapath = self.datapath()?;
        let listed = self.lists.of(&Selector::address(address), datapath.now());
        let view = views::source(datapath, &self.effective, address)?;
        let view = SourceView { listed, ..view };
        Ok(views::with_others(view, datapath, &self.effective, address)?)
    }

    fn sources(&self, asked: &AskSources) -> Result<Slices, Refusal> {
        Ok(self.begin_sources(asked)?)
    }

    fn read_sources(&self, slices: &mut Slices) -> Result<Step<SourceList>, Refusal> {
        self.try_read_sources(slices)
    }

    fn top(&mut self, asked: &AskTop) -> Result<Top, Refusal> {
        Ok(self.try_top(asked)?)
    }

    fn check(&mut self, asked: &CheckSource) -> Result<Checked, Refusal> {
        Ok(self.try_check(asked)?)
    }

    fn explain(&mut self, asked: &AskExplain) -> Result<ExplainedNow, Refusal> {
        Ok(self.try_explain(asked)?)
    }

    fn lists(&self) -> Result<Lists, Refusal> {
        Ok(self.lists.view(self.datapath()?.now()))
    }

    fn list(&mut self, request: &SetList) -> Result<ListsChanged, Refusal> {
        Ok(self.try_list(request)?)
    }

    fn unlist(&mut self, request: &UnsetList) -> Result<ListsChanged, Refusal> {
        Ok(self.try_unlist(request)?)
    }

    fn bans(&self) -> Result<Bans, Refusal> {
        Ok(bans::view(self.datapath()?, &self.effective)?)
    }

    fn unban(&mut self, request: &Unban) -> Result<Unbanned, Refusal> {
        Ok(self.try_unban(request)?)
    }

    fn metrics(&self) -> Result<String, Refusal> {
        Ok(self.try_metrics()?)
    }

    fn events(&self) -> Result<api::Events, Refusal> {
        Ok(self.events.view(self.datapath()?)?)
    }

    fn follow(&mut self, drops: bool) -> Result<Lines, Refusal> {
        Ok(self.events.follow(drops)?)
    }

    fn reload(&mut self) -> Result<Changed, Refusal> {
        self.notifier.reloading();
        let result = self.try_reload();
        let error = result.as_ref().err().map(ToString::to_string);
        if let Some(error) = &error {
            tracing::error!("reload refused, the rules before it stay in force: {error}");
        }
        let count = if error.is_none() { &mut self.reloads.ok } else { &mut self.reloads.failed };
        *count += 1;
        self.reloaded_at = SystemTime::now();
        self.last_reload = Reload { ok: error.is_none(), error };
        self.notify_ready();
        Ok(result?)
    }

    fn compare(&self, rules: &CompareRules) -> Result<RulesDiff, Refusal> {
        Ok(self.try_compare(rules)?)
    }

    fn apply_rules(&mut self, rules: &ApplyRules) -> Result<Changed, Refusal> {
        Ok(self.try_apply(rules)?)
    }

    fn confirm(&mut self) -> Result<Changed, Refusal> {
        Ok(self.try_confirm()?)
    }

    fn revert(&mut self) -> Result<Changed, Refusal> {
        Ok(self.try_revert()?)
    }

    fn export(&self, what: ExportRules) -> Result<Exported, Refusal> {
        Ok(self.try_export(what)?)
    }

    fn brake(&mut self, brake: Brake) -> Result<Brake, Refusal> {
        Ok(self.try_brake(brake)?)
    }

    fn detach(&mut self) -> Result<Detached, Refusal> {
        Ok(self.try_detach()?)
    }
}
