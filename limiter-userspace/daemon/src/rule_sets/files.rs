//! Puts whole rule sets from rule files in force.

use std::time::{Duration, SystemTime};

use limiter_api::rules::{
    ApplyRules, Changed, ChangedRule, CompareRules, Document, ReloadRules, RuleLine, RulesDiff,
};
use limiter_api::status::Reload;
use limiter_rules::{RuleFileError, Subject};

use super::ground::Ground;
use super::planned::Planned;
use super::state::{OnDisk, RuleSets, TriedFrom};
use crate::control::Refusal;
use crate::disk::state_dir::{APPLIED, Applied, StateDir};
use crate::error::ServiceError;
use crate::lists::ListStore;
use crate::machine::attached::Attached;
use crate::machine::memory::HeapTrim;
use crate::rule_sets::guard::{self, Caller, Scene};
use crate::rule_sets::rule_files::{self, Digest, RuleSource};
use crate::rule_sets::taken;

/// Longest trial in seconds: a day.
const MAX_TRIAL: u32 = 86_400;

impl RuleSets {
    /// Reads the rule files again, and notes the result.
    pub(crate) fn reload(
        &mut self,
        ground: &mut Ground<'_>,
        asked: ReloadRules,
    ) -> Result<Changed, ServiceError> {
        let result = self.try_reload(ground, asked);
        let error = result.as_ref().err().map(ToString::to_string);
        if let Some(error) = &error {
            tracing::error!("reload refused, the previous rules stay in force: {error}");
        }
        self.note_reload(error);
        result
    }

    fn note_reload(&mut self, error: Option<String>) {
        let count = if error.is_none() { &mut self.reloads.ok } else { &mut self.reloads.failed };
        *count += 1;
        self.reloaded_at = SystemTime::now();
        self.last_reload = Reload { ok: error.is_none(), error };
    }

    /// Notes that the rule files of a digest are in force, or were replaced by `limiter apply`.
    pub(super) fn took(&mut self, state: &StateDir, files: Digest) {
        if files != self.taken {
            taken::note(state, &self.source, files);
        }
        self.taken = files;
        self.at_start = None;
        self.on_disk = None;
    }

    /// Reads the rule files again.
    fn try_reload(
        &mut self,
        ground: &mut Ground<'_>,
        asked: ReloadRules,
    ) -> Result<Changed, ServiceError> {
        self.not_on_trial(ground)?;
        let read = self.source.read();
        let digest = Digest::of(&read);
        let done = self.planned_files(ground, read, asked.force).and_then(|planned| {
            let caller = Caller { session: asked.session(), force: asked.force };
            let before = ground.scene(&self.layers, &self.effective, None)?;
            let (layers, effective) = (&planned.layers, &planned.effective);
            let after = Scene { layers, effective, laid: Some(&planned.laid), ..before };
            caller.authorize(guard::objection_to_edit(before, after, caller.session.as_ref()))?;
            if self.layers.applied {
                let forgotten = ground.state.removal(APPLIED);
                self.apply_and_keep(ground, planned, forgotten)
            } else {
                self.put_in_force(ground, planned, None).map(drop)
            }
        });
        match done {
            Ok(()) => {
                self.took(ground.state, digest);
                if let RuleSource::Given(document) = &self.source {
                    self.news.push(format!(
                        "the rules are those of {}, and no file was read: `limiter apply FILE` \
                         puts a file in force, and a start with --rules keeps it",
                        document.name
                    ));
                }
            }
            Err(error) => {
                // After this the watch has nothing to add.
                let differs = digest != self.taken;
                let reported = Some(error.to_string());
                self.on_disk = differs.then_some(OnDisk { digest, error: reported });
                return Err(error);
            }
        }
        Ok(self.changed(ground.datapath.get()?))
    }

    fn planned_files(
        &self,
        ground: &Ground<'_>,
        read: Result<Vec<Document>, RuleFileError>,
        force: bool,
    ) -> Result<Planned, ServiceError> {
        ground.heap_trim.note();
        let max_frame = ground.datapath.get()?.max_frame();
        let file = rule_files::taken(read?, max_frame)?;
        let planned = Planned::new(
            ground.datapath,
            ground.heap_trim,
            ground.lists,
            self.layers.with_file(file, false),
        )?;
        let lifts_all =
            self.layers.file.rules.limits_anybody() && !planned.layers.file.rules.limits_anybody();
        if lifts_all && !force {
            return Err(ServiceError::LiftsAll { files: self.source.names() });
        }
        Ok(planned)
    }

    /// Looks at rule files that changed on disk. They are checked and reported; only with `trial`
    /// are they put in force for that time, under the guards of `limiter apply`, and without a
    /// confirmation the program goes back by itself.
    pub(crate) fn look_at_files(
        &mut self,
        ground: &mut Ground<'_>,
        read: Result<Vec<Document>, RuleFileError>,
        trial: Option<Duration>,
    ) {
        let digest = Digest::of(&read);
        if digest == self.taken {
            if self.on_disk.take().is_some() {
                tracing::info!("the rule files are those in force again");
            }
            return;
        }
        if self.on_disk.as_ref().is_some_and(|known| known.digest == digest) {
            return;
        }
        let checked = self.planned_files(ground, read, false).and_then(|planned| {
            let scene = ground.scene(&planned.layers, &planned.effective, Some(&planned.laid))?;
            Caller::default().authorize(guard::objection_to_rules(scene, None))?;
            Ok(planned)
        });
        let error = checked.as_ref().err().map(ToString::to_string);
        self.on_disk = Some(OnDisk { digest, error });
        let Some((planned, time)) = checked.ok().zip(trial) else {
            tracing::warn!("{}", self.not_in_force().unwrap_or_default());
            return;
        };
        tracing::info!("the rule files changed");
        let tried = self.try_out(ground, planned, TriedFrom::Files, digest, time);
        let error = tried.err().map(|error| error.to_string());
        if let Some(error) = &error {
            tracing::error!("the changed rule files are not in force: {error}");
            self.on_disk = Some(OnDisk { digest, error: Some(error.clone()) });
        }
        self.note_reload(error);
    }

    /// The differences that other rule files would make.
    pub(crate) fn compare(
        &self,
        datapath: &Attached,
        heap_trim: &HeapTrim,
        lists: &ListStore,
        rules: &CompareRules,
    ) -> Result<RulesDiff, Refusal> {
        let Planned { layers, .. } =
            self.read_and_planned(datapath, heap_trim, lists, &rules.documents)?;
        let generation = datapath.get()?.generation();
        let edits = self.layers.edits().lines().into_iter().map(line).collect();
        let now = &self.layers.file.rules;
        // A rate in other units of bytes is the same rate.
        let (kept, kept_new) = (now.lines_kept(), layers.file.rules.lines_kept());
        let mut new = layers.file.rules.lines();
        let mut diff = RulesDiff { generation, edits, ..RulesDiff::default() };
        for (subject, old) in now.lines() {
            let subject_text = subject.to_string();
            match new.remove(&subject) {
                None => diff.removed.push(RuleLine { subject: subject_text, text: old }),
                Some(_) if kept.get(&subject) == kept_new.get(&subject) => diff.unchanged += 1,
                Some(new) => diff.changed.push(ChangedRule { subject: subject_text, old, new }),
            }
        }
        diff.added = new.into_iter().map(line).collect();
        diff.same = diff.added.is_empty() && diff.removed.is_empty() && diff.changed.is_empty();
        Ok(diff)
    }

    /// Replaces the rule files by other rules.
    pub(crate) fn apply_rules(
        &mut self,
        ground: &mut Ground<'_>,
        rules: &ApplyRules,
    ) -> Result<Changed, Refusal> {
        self.not_on_trial(ground)?;
        let planned = self.read_and_planned(
            ground.datapath,
            ground.heap_trim,
            ground.lists,
            &rules.documents,
        )?;
        let caller = Caller { session: rules.session, force: rules.force };
        let scene = ground.scene(&planned.layers, &planned.effective, Some(&planned.laid))?;
        caller.authorize(guard::objection_to_rules(scene, rules.session.as_ref()))?;
        // The documents replace the present files: a later change of the files counts as a change.
        let replaces = Digest::of(&self.source.read());
        if let Some(seconds) = rules.confirm_seconds {
            if seconds.get() > MAX_TRIAL {
                return Err(ServiceError::LongTrial.into());
            }
            let time = Duration::from_secs(u64::from(seconds.get()));
            let origin = TriedFrom::Applied(rules.documents.clone());
            return Ok(self.try_out(ground, planned, origin, replaces, time)?);
        }
        let applied =
            Applied { replaces: replaces.to_string(), documents: rules.documents.clone() };
        let prepared = ground.state.prepare(APPLIED, &serde_json::to_string(&applied)?)?;
        self.apply_and_keep(ground, planned, prepared)?;
        self.took(ground.state, replaces);
        Ok(self.changed(ground.datapath.get()?))
    }

    /// The layers with other rule files.
    fn read_and_planned(
        &self,
        datapath: &Attached,
        heap_trim: &HeapTrim,
        lists: &ListStore,
        documents: &[Document],
    ) -> Result<Planned, ServiceError> {
        // Files with a mistake leave memory behind as well, and so do files that are only compared.
        heap_trim.note();
        if documents.is_empty() {
            return Err(ServiceError::NoDocuments);
        }
        let file = rule_files::taken(documents.to_vec(), datapath.get()?.max_frame())?;
        Planned::new(datapath, heap_trim, lists, self.layers.with_file(file, true))
    }
}

fn line((subject, text): (Subject, String)) -> RuleLine {
    RuleLine { subject: subject.to_string(), text }
}
