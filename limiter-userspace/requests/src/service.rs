//! What all threads share: the limiter, the rule files, and counters of the server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use limiter_rules::RuleFileError;

use crate::files;
use crate::limiter::Limiter;

/// Why a request was refused undecided.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    Request,
    Path,
    Method,
    TooLong,
    TooSlow,
}

const WHYS: [(Why, &str); 5] = [
    (Why::Request, "request"),
    (Why::Path, "path"),
    (Why::Method, "method"),
    (Why::TooLong, "too_long"),
    (Why::TooSlow, "too_slow"),
];

/// Counters of the server.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    refused: [AtomicU64; WHYS.len()],
    empty_checks: AtomicU64,
    pub(crate) connections: AtomicUsize,
    pub(crate) evicted: AtomicU64,
    reloads: [AtomicU64; 2],
}

impl Stats {
    pub(crate) fn refuse(&self, why: Why) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let count = |why: Why| self.refused[why as usize].load(Ordering::Relaxed);
        WHYS.into_iter().map(move |(why, name)| (name, count(why)))
    }

    /// A check without a descriptor. The first is worth a word.
    pub(crate) fn empty_check(&self) {
        if self.empty_checks.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                "a check has none of the headers that `check` in the rule file names, and passes: \
                 let the proxy send them; more of them are counted in \
                 limiter_request_empty_checks_total"
            );
        }
    }

    pub(crate) fn empty_checks(&self) -> u64 {
        self.empty_checks.load(Ordering::Relaxed)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    pub(crate) fn reload(&self, good: bool) {
        self.reloads[usize::from(!good)].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reloads(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.reloads[index].load(Ordering::Relaxed))
    }
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) limiter: Limiter,
    pub(crate) stats: Stats,
}

impl Service {
    /// Reads the rule files, and puts them in force if all is right.
    pub(crate) fn load(&self, paths: &[PathBuf]) -> Result<(), Vec<RuleFileError>> {
        let (files, errors) = files::read(paths);
        if !errors.is_empty() {
            return Err(errors);
        }
        let rules = self.limiter.apply(&files).map_err(|error| vec![error])?;
        for (name, file) in &files {
            for note in &file.notes {
                let at = note.place.map_or_else(String::new, |place| format!(":{place}"));
                tracing::info!("{name}{at}: {}", note.text);
            }
        }
        for (name, domain) in rules.domains() {
            let rules = domain.rules().len();
            let s = if rules == 1 { "" } else { "s" };
            tracing::info!("domain {name:?}: {rules} rule{s}");
        }
        Ok(())
    }
}
