//! State of the daemon, from all of its parts.

use std::time::Instant;

use limiter_api::status::neighbours::OtherProgram;
use limiter_api::status::{ChangedOnDisk, Interface, Sources, Status};
use limiter_datapath::{Attachment, Datapath, LinkState};

use super::Service;
use crate::control::Refusal;
use crate::error::ServiceError;
use crate::rule_sets::warnings;
use crate::views;

/// Index of an interface; 0 if it no longer exists.
fn index_of(datapath: &dyn Datapath, name: &str) -> u32 {
    datapath.interface_index(name).unwrap_or(0)
}

/// Programs of others beside an attachment.
pub(super) fn others(datapath: &dyn Datapath, at: &Attachment) -> Vec<OtherProgram> {
    let found = datapath.neighbours(at).unwrap_or_else(|error| {
        tracing::debug!(%error, interface = at.interface, "not known which programs are there");
        Vec::new()
    });
    found.iter().map(views::other_program).collect()
}

impl Service {
    pub(crate) fn warnings(&self) -> Vec<String> {
        let layers = &self.rule_sets.layers;
        let stands = self.damages.iter().filter(|damage| damage.stands());
        let mut warnings: Vec<String> = stands.map(|damage| damage.warning.clone()).collect();
        warnings.extend(self.rule_sets.effective.warnings.iter().cloned());
        warnings.extend(self.rule_sets.machine.warnings.iter().cloned());
        let left = self.datapath().map(Datapath::left_behind).unwrap_or_default();
        warnings
            .extend(left.iter().map(|left| format!("{left}, by these rules: {}", left.remedy())));
        warnings.extend(self.gauges.not_ip.warning());
        warnings.extend(layers.nobody_is_safe());
        warnings.extend(self.rule_sets.not_in_force());
        warnings.extend(self.repeated_errors.warnings());
        warnings.extend(self.cluster.warnings(layers));
        warnings.extend(self.requests_not_in_force());
        warnings.extend(self.request_reports.warnings(Instant::now()));
        warnings
    }

    pub(crate) fn status(&self) -> Result<Status, Refusal> {
        let (datapath, layers) = (self.datapath()?, &self.rule_sets.layers);
        let trial = self.rule_sets.trial(&self.datapath);
        let rates = |at: &Attachment| {
            self.gauges.recent.rates(datapath, (at.ifindex, at.mode.hook().direction()))
        };
        let labels = datapath.labels();
        let interfaces = datapath.attachments().iter().map(|at| {
            let label = labels.get(&at.ifindex).filter(|_| at.state == LinkState::Attached);
            Ok::<_, ServiceError>(Interface {
                rates: rates(at)?,
                label: label.cloned(),
                others: others(datapath, at),
                ..views::interface(at)
            })
        });
        let mut interfaces = interfaces.collect::<Result<Vec<_>, _>>()?;
        for refused in datapath.refused() {
            let index = index_of(datapath, &refused.interface);
            let entry = views::refused_interface(&refused, index);
            // The interface was there before, and is back.
            let is_it = |at: &&mut Interface| {
                !at.attached && at.name == entry.name && at.mode == entry.mode
            };
            match interfaces.iter_mut().find(is_it) {
                Some(at) => *at = entry,
                None => interfaces.push(entry),
            }
        }
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            generation: datapath.generation(),
            rules: self.rule_sets.effective.rules.len(),
            bypass: datapath.bypass()?,
            interfaces,
            patterns: datapath.patterns().iter().map(ToString::to_string).collect(),
            then: datapath.then().map(views::then_program),
            sources: Sources { max_v4: datapath.max_sources(), max_v6: datapath.max_sources() },
            rules_files: self.rule_sets.source.each_name(),
            pin_dir: self.pin_dir.as_ref().map(|path| path.display().to_string()),
            edits: layers.edits.len(),
            management: layers.management.keys().map(ToString::to_string).collect(),
            warnings: self.warnings(),
            unmet: views::unmet(datapath, &self.rule_sets.effective, self.rule_sets.seen)?,
            delays: warnings::delays(&self.rule_sets.effective),
            over_soft_limit: self.gauges.alarms.raised(),
            no_room_for: self.gauges.floods.raised(),
            too_tight: self
                .gauges
                .utilization
                .borrow()
                .too_tight(datapath, &self.rule_sets.effective)?,
            last_reload: self.rule_sets.last_reload.clone(),
            applied: layers.applied && trial.is_none(),
            reloads: self.rule_sets.reloads,
            changed_on_disk: self
                .rule_sets
                .changed_on_disk()
                .map(|on_disk| ChangedOnDisk { error: on_disk.error.clone() }),
            changed_before_start: self.rule_sets.at_start.clone(),
            watch: self.rule_sets.watch,
            requests: self.request_reports.sum(Instant::now()),
            request_notes: self.request_reports.notes(Instant::now()),
            trial,
            last_trial: self.rule_sets.last_trial.clone(),
        })
    }
}
