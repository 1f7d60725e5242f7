//! The state of the rule sets.

use std::sync::Arc;
use std::time::SystemTime;

use limiter_api::limits::Origin;
use limiter_api::rules::{Changed, Document, TrialEnd};
use limiter_api::status::{Reload, Reloads, Watching};
use limiter_common::time::Ticks;
use limiter_datapath::Datapath;
use limiter_rules::target_text::words;

use super::machine::Machine;
use crate::rule_sets::effective::EffectiveSet;
use crate::rule_sets::layers::Layers;
use crate::rule_sets::rule_files::{Digest, RuleSource};
use crate::rule_sets::warnings::while_off;
use crate::rule_sets::watch::Watch;
use crate::views::Trials;

/// The rule sets: in force, on trial, and as last read from the files.
pub(crate) struct RuleSets {
    /// Layers of the rules in force.
    pub(crate) layers: Layers,
    pub(crate) effective: Arc<EffectiveSet>,
    /// The rule files and directories.
    pub(crate) source: RuleSource,
    pub(crate) last_reload: Reload,
    pub(crate) reloaded_at: SystemTime,
    pub(crate) reloads: Reloads,
    pub(crate) watch: Option<Watching>,
    /// Digest of the rule files in force, or of those that `limiter apply` replaced.
    pub(crate) taken: Digest,
    /// Message of the start about rule files that differ from those last in force; `None` once
    /// rules have been put in force by a command.
    pub(crate) at_start: Option<String>,
    /// State of the rule files on disk, while they differ from those in force.
    pub(crate) on_disk: Option<OnDisk>,
    /// The rule set on trial.
    pub(super) trial: Option<Trying>,
    pub(crate) last_trial: Option<TrialEnd>,
    /// Numbers of ended trials, by outcome.
    pub(crate) trials: Trials,
    /// True if an interface came back or the number of nodes changed, and the rules in force do not
    /// reflect it yet.
    pub(crate) replan: bool,
    /// True if the entries of the rule files on the lists are not as they should be.
    pub(super) relay: bool,
    /// Packets seen before the rules came into force.
    pub(crate) seen: u64,
    /// Result of the last look at the machine.
    pub(crate) machine: Machine,
    /// Warnings caused by the last rule set, for the client that requested it: each warning is
    /// reported once.
    pub(crate) news: Vec<String>,
    /// Consequences of the last change for sources that have used up a limit.
    pub(super) used: Option<String>,
}

/// A rule set on trial, and the data needed to end the trial.
pub(super) struct Trying {
    /// Layers that were in force before.
    pub(super) layers: Layers,
    pub(super) effective: Arc<EffectiveSet>,
    pub(super) origin: TriedFrom,
    /// The rule files on trial, or those that the trial would replace.
    pub(super) replaces: Digest,
    pub(super) end: Ticks,
}

/// Origin of a rule set on trial.
pub(super) enum TriedFrom {
    Applied(Vec<Document>),
    /// The watched rule files.
    Files,
}

/// Rule files that changed on disk and are not in force.
pub(crate) struct OnDisk {
    pub(crate) digest: Digest,
    /// Reason why they cannot be put in force; `None` if `limiter reload` would accept them.
    pub(crate) error: Option<String>,
}

impl RuleSets {
    /// Starts without rules; `taken` is the digest of the files of `source` that the first rules
    /// come from.
    pub(crate) fn new(source: RuleSource, taken: Digest) -> Self {
        Self {
            layers: Layers::default(),
            effective: Arc::default(),
            source,
            last_reload: Reload { ok: true, error: None },
            reloaded_at: SystemTime::now(),
            reloads: Reloads::default(),
            watch: None,
            taken,
            at_start: None,
            on_disk: None,
            trial: None,
            last_trial: None,
            trials: Trials::default(),
            replan: false,
            relay: false,
            seen: 0,
            machine: Machine::default(),
            news: Vec::new(),
            used: None,
        }
    }

    pub(crate) fn rules(&self) -> usize {
        self.effective.rules.len()
    }

    /// The limits that `limiter set` made before this start, if there are any, and the commands
    /// that remove them.
    pub(crate) fn kept(&self) -> Option<String> {
        const NAMED: usize = 3;
        let set = self.effective.rules.iter().filter(|of| of.origin == Origin::Cli);
        let commands: Vec<_> =
            set.map(|of| Some(format!("`limiter unset {}`", words(&of.rule.path)?))).collect();
        let count = commands.len();
        let named: Option<Vec<_>> = commands.into_iter().take(NAMED).collect();
        let (limits, them) = match count {
            0 => return None,
            1 => ("limit of `limiter set` is".to_owned(), "it"),
            _ => ("limits of `limiter set` are".to_owned(), "them"),
        };
        let commands = match named.filter(|_| count <= NAMED) {
            Some(named) => named.join(", "),
            None => "`limiter unset`: `limiter list` has them".to_owned(),
        };
        Some(format!("{count} {limits} in force again: remove {them} by {commands}"))
    }

    /// Notes how the rule files are watched, for reports.
    pub(crate) fn watched(&mut self, watch: Option<Watch>) {
        self.watch = watch.map(|Watch { every, trial }| Watching {
            every_seconds: every.as_secs(),
            trial_seconds: trial.map(|trial| trial.as_secs()),
        });
    }

    /// The rule files on disk, while they differ from those in force and are not on trial.
    pub(crate) fn changed_on_disk(&self) -> Option<&OnDisk> {
        let tried = self.trial.as_ref().filter(|trial| matches!(trial.origin, TriedFrom::Files));
        self.on_disk
            .as_ref()
            .filter(|on_disk| tried.is_none_or(|trial| trial.replaces != on_disk.digest))
    }

    /// The warning about rule files that changed on disk.
    pub(crate) fn not_in_force(&self) -> Option<String> {
        let files = self.source.names();
        self.changed_on_disk().map(|on_disk| match &on_disk.error {
            None => format!("{files}: changed on disk, not in force: limiter reload"),
            Some(error) => format!("{files}: changed on disk, not in force: refused: {error}"),
        })
    }

    /// The answer to a change.
    pub(super) fn changed(&mut self, datapath: &dyn Datapath) -> Changed {
        let mut warnings = std::mem::take(&mut self.news);
        warnings.extend(while_off(datapath).map(|off| match self.trial {
            Some(_) => format!("{off}, and the trial goes on and shows nothing"),
            None => off,
        }));
        Changed {
            generation: datapath.generation(),
            rules: self.effective.rules.len(),
            warnings,
            done: None,
            used: self.used.take(),
        }
    }
}
