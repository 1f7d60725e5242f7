//! What all threads share: the limiter, the rule files, and counters of the server.

use std::io::{Read, Seek};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use limiter_rules::RuleFileError;

use crate::clock::{self, Moment};
use crate::files;
use crate::limiter::Limiter;
use crate::snapshot::{Loaded, Snapshot};
use crate::state::State;

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
    saves: [AtomicU64; 2],
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

    pub(crate) fn saves(&self) -> [u64; 2] {
        std::array::from_fn(|index| self.saves[index].load(Ordering::Relaxed))
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
    /// Goes on with the buckets of a snapshot.
    pub(crate) fn go_on<R: Read + Seek>(&self, state: &State, snapshot: Snapshot<R>) {
        let clock = clock::boot();
        let Loaded { keys, no_room, same_clock } =
            match self.limiter.load(snapshot, &Moment::now(), clock.as_deref()) {
                Ok(loaded) => loaded,
                // It was whole a moment ago.
                Err(why) => return state.set_aside(&why, "buckets behind that begin full"),
            };
        let since = if same_clock {
            "as they were"
        } else {
            "with the time since this boot, for they are of another one"
        };
        tracing::info!("{keys} keys go on {since}");
        if no_room > 0 {
            tracing::warn!(
                "{no_room} more keys found no room and begin full: give a larger --max-keys"
            );
        }
    }

    /// Keeps the buckets; true if that is done.
    pub(crate) fn save(&self, state: &State) -> bool {
        let saved = state.save(&self.limiter);
        self.stats.saves[usize::from(saved.is_err())].fetch_add(1, Ordering::Relaxed);
        match &saved {
            Ok(keys) => tracing::debug!(keys, "buckets are kept"),
            Err(error) => tracing::error!(
                "buckets cannot be kept: {error}: a restart goes on with those that were kept \
                 before; check the state directory"
            ),
        }
        saved.is_ok()
    }

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
