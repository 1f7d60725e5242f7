//! Requests, each a line: what is done is in the file of its subject.

use std::time::SystemTime;

use super::Service;
use crate::control::Handler;
use crate::control::api::bans::{Unban, Unbanned};
use crate::control::api::check::{CheckSource, Checked};
use crate::control::api::events as api;
use crate::control::api::explain::{AskExplain, ExplainedNow};
use crate::control::api::lists::{ListsChanged, SetList, UnsetList};
use crate::control::api::rules::{ApplyRules, CompareRules, ReloadRules, RulesDiff};
use crate::control::api::sources::{AskTop, Top};
use crate::control::api::{
    Brake, Changed, Detached, Refusal, Reload, SetLimit, SourceView, Status, UnsetLimit,
};
use crate::control::server::{Asked, Lines, Slices, Step};
use crate::daemon::error::ServiceError;
use crate::daemon::{views, warnings};
use crate::rules::{Selector, source_text};

impl Handler for Service {
    fn status(&self) -> Result<Status, Refusal> {
        let layers = &self.layers;
        let mut status = views::status(self.datapath()?, &self.effective)?.with(
            &self.paths,
            layers.edits.len(),
            layers.management.keys().map(ToString::to_string).collect(),
            self.last_reload.clone(),
        );
        status.warnings.extend(self.not_ip.warning());
        status.warnings.extend(warnings::of_management(layers));
        let (over_soft_limit, no_room_for) = (self.alarms.raised(), self.floods.raised());
        let (reloads, watch) = (self.reloads, self.watch);
        let applied = layers.applied && self.trial.is_none();
        let (trial, last_trial) = (self.trial(), self.last_trial.clone());
        let pin_dir = self.pin_dir.as_ref().map(|path| path.display().to_string());
        Ok(Status {
            pin_dir,
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

    fn begin(&self, asked: &Asked) -> Result<Slices, Refusal> {
        Ok(self.try_begin(asked)?)
    }

    fn go_on(&self, slices: &mut Slices) -> Result<Step, Refusal> {
        self.try_go_on(slices)
    }

    fn set(&mut self, limit: &SetLimit) -> Result<Changed, Refusal> {
        Ok(self.try_set(limit)?)
    }

    fn unset(&mut self, limit: &UnsetLimit) -> Result<Changed, Refusal> {
        Ok(self.try_unset(limit)?)
    }

    fn source(&self, address: &str) -> Result<SourceView, Refusal> {
        let address = source_text::parse_one(address).map_err(ServiceError::from)?;
        let datapath = self.datapath()?;
        let listed = self.lists.of(&Selector::address(address), datapath.now());
        let view = views::source(datapath, &self.effective, address)?;
        let view = SourceView { listed, ..view };
        Ok(views::with_others(view, datapath, &self.effective, address)?)
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

    fn list(&mut self, request: &SetList) -> Result<ListsChanged, Refusal> {
        let changed = self.try_list(request)?;
        self.store_lists();
        Ok(changed)
    }

    fn unlist(&mut self, request: &UnsetList) -> Result<ListsChanged, Refusal> {
        let changed = self.try_unlist(request)?;
        self.store_lists();
        Ok(changed)
    }

    fn unban(&mut self, request: &Unban) -> Result<Unbanned, Refusal> {
        Ok(self.try_unban(request)?)
    }

    fn events(&self) -> Result<api::Events, Refusal> {
        Ok(self.events.view(self.datapath()?)?)
    }

    fn follow(&mut self, drops: bool, user: u32, first: bool) -> Result<Lines, Refusal> {
        Ok(self.events.follow(drops, user, first)?)
    }

    fn reload_rules(&mut self, asked: ReloadRules) -> Result<Changed, Refusal> {
        self.notifier.reloading();
        let result = self.try_reload(asked);
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

    fn brake(&mut self, brake: Brake) -> Result<Brake, Refusal> {
        Ok(self.try_brake(brake)?)
    }

    fn detach(&mut self) -> Result<Detached, Refusal> {
        Ok(self.try_detach()?)
    }
}
