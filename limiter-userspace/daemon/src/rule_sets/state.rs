//! The state of the rule sets.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use limiter_common::time::Ticks;
use limiter_datapath::Datapath;

use crate::api::rules::{Changed, Document, TrialEnd};
use crate::api::status::{Reload, Reloads, Watching};
use crate::effective::EffectiveSet;
use crate::layers::Layers;
use crate::rule_files::Digest;
use crate::views::Trials;

/// The rule sets: in force, on trial, and as the files were read last.
pub(crate) struct RuleSets {
    /// Layers of the rules in force.
    pub(crate) layers: Layers,
    pub(crate) effective: Arc<EffectiveSet>,
    /// The rule files and directories.
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) last_reload: Reload,
    pub(crate) reloaded_at: SystemTime,
    pub(crate) reloads: Reloads,
    pub(crate) watch: Option<Watching>,
    /// Digest of the rule files when they were read last.
    pub(crate) seen: Digest,
    /// The rule set on trial.
    pub(super) trial: Option<Trying>,
    /// End of the last trial.
    pub(crate) last_trial: Option<TrialEnd>,
    /// Numbers of ended trials, by how they ended.
    pub(crate) trials: Trials,
    /// True if an interface came back, or the number of nodes is another one, and the rules in
    /// force do not know it yet.
    pub(crate) replan: bool,
    /// Warnings that the last rule set brought, for whoever asked for it: a warning is told once.
    pub(crate) news: Vec<String>,
}

/// A rule set on trial, and what it takes to end that.
pub(super) struct Trying {
    /// Layers that were in force before.
    pub(super) layers: Layers,
    pub(super) effective: Arc<EffectiveSet>,
    /// Rule files that were tried.
    pub(super) documents: Vec<Document>,
    /// The rule files that it would replace.
    pub(super) replaces: Digest,
    pub(super) end: Ticks,
}

impl RuleSets {
    /// No rules yet; `seen` is of the files of `paths` that the first ones are from.
    pub(crate) fn new(paths: Vec<PathBuf>, seen: Digest) -> Self {
        Self {
            layers: Layers::default(),
            effective: Arc::default(),
            paths,
            last_reload: Reload { ok: true, error: None },
            reloaded_at: SystemTime::now(),
            reloads: Reloads::default(),
            watch: None,
            seen,
            trial: None,
            last_trial: None,
            trials: Trials::default(),
            replan: false,
            news: Vec::new(),
        }
    }

    /// Rules in force.
    pub(crate) fn rules(&self) -> usize {
        self.effective.rules.len()
    }

    /// Notes how the rule files are watched, to tell it.
    pub(crate) fn watched(&mut self, every: Option<Duration>) {
        self.watch = every.map(|every| Watching { every_seconds: every.as_secs() });
    }

    /// The answer to a change.
    pub(super) fn changed(&mut self, datapath: &dyn Datapath) -> Changed {
        Changed {
            generation: datapath.generation(),
            rules: self.effective.rules.len(),
            warnings: std::mem::take(&mut self.news),
            done: None,
        }
    }
}
