//! Watches the rule files: changed contents are checked and reported or, if requested, put on
//! trial.
//!
//! The kernel reports changes in the directories (inotify); changes without a report, such as on
//! network file systems, are found by reading the files from time to time. In both cases only
//! different contents count as a change, and only once they stay the same: editors write in several
//! steps.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use limiter_api::render::exact;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::time::{sleep, timeout};

use super::RuleSets;
use super::rule_files::{self, Digest};
use crate::machine::readable::Readable;
use crate::service::{Service, lock};

/// Time from the first event to the reading of the files, in which an editor finishes.
const DEBOUNCE: Duration = Duration::from_millis(200);

/// Time for which contents must stay the same to count as new.
const SETTLE: Duration = Duration::from_millis(200);

/// Most such waits; after that the next event or period tries again.
const MOST_CHANGES: usize = 50;

/// Settings for watching the rule files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Time between two readings, with or without a report by the kernel.
    pub every: Duration,
    /// Length of the trial of changed files; `None` if they are only checked and reported.
    pub trial: Option<Duration>,
}

/// Looks at the files of `paths` when they change. Never returns.
pub(crate) async fn watch(
    service: &Mutex<Service>,
    paths: &[PathBuf],
    Watch { every, trial }: Watch,
) {
    let mut events = match Events::open() {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::warn!(
                "changes of the rule files are only found every {}: the kernel gives no inotify \
                 instance: {error}: raise fs.inotify.max_user_instances",
                exact(every)
            );
            None
        }
    };
    loop {
        if let Some(events) = &mut events {
            events.renew(&directories(paths));
        }
        // Finds a change between two rounds as well, because the directories are watched already.
        look(service, paths, trial).await;
        let changed = async {
            match &mut events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        if timeout(every, changed).await.is_ok() {
            sleep(DEBOUNCE).await;
            if let Some(events) = &events {
                events.drain();
            }
        }
    }
}

/// Informs the service about files whose contents differ from the last look and stay the same.
async fn look(service: &Mutex<Service>, paths: &[PathBuf], trial: Option<Duration>) {
    // A change during a trial is handled after the trial.
    let known = {
        let service = lock(service);
        if service.rule_sets.trial(&service.datapath).is_some() {
            return;
        }
        let RuleSets { taken, on_disk, .. } = &service.rule_sets;
        on_disk.as_ref().map_or(*taken, |on_disk| on_disk.digest)
    };
    let mut content = Digest::of(&rule_files::read(paths));
    for _ in 0..MOST_CHANGES {
        if content == known {
            return;
        }
        sleep(SETTLE).await;
        let read = rule_files::read(paths);
        let again = Digest::of(&read);
        if again == content {
            let mut service = lock(service);
            let (rule_sets, mut ground) = service.at_rules();
            // A request may have been faster.
            if rule_sets.not_on_trial(&mut ground).is_ok() {
                rule_sets.look_at_files(&mut ground, read, trial);
            }
            return;
        }
        content = again;
    }
    tracing::warn!("the rule files do not stop changing: they are not read yet");
}

/// The directories in which a change of `paths` shows: their parent directories, the directories
/// that their links lead to, and directories among `paths`.
fn directories(paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for path in paths {
        let files = rule_files::files(path).unwrap_or_default();
        if path.is_dir() {
            directories.insert(path.clone());
        }
        for path in files.iter().chain([path]) {
            directories.insert(directory_of(path));
            // A file that is missing for a moment is looked for under its name.
            if let Ok(real) = path.canonicalize() {
                directories.insert(directory_of(&real));
            }
        }
    }
    directories
}

fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        Some(_) => PathBuf::from("."),
        None => PathBuf::from("/"),
    }
}

/// The kernel's reports of events in directories.
#[derive(Debug)]
struct Events {
    inotify: Readable,
    watched: BTreeMap<PathBuf, i32>,
}

impl Events {
    fn open() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        Ok(Self { inotify: Readable::new(inotify)?, watched: BTreeMap::new() })
    }

    /// Watches these directories and no others. Directories that cannot be watched are left to the
    /// periodic look.
    fn renew(&mut self, directories: &BTreeSet<PathBuf>) {
        // Without MODIFY, because a file that is being written is not ready.
        let flags = WatchFlags::CREATE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let mut watched = BTreeMap::new();
        for directory in directories {
            // For a directory that is watched already this returns the same number; for a directory
            // that replaced it, a new number.
            match inotify::add_watch(self.inotify.get(), directory, flags) {
                Ok(number) => {
                    watched.insert(directory.clone(), number);
                }
                Err(error) => {
                    tracing::debug!(%error, directory = %directory.display(), "not watched");
                }
            }
        }
        let kept: BTreeSet<i32> = watched.values().copied().collect();
        for number in self.watched.values().filter(|number| !kept.contains(number)) {
            // The watch of a removed directory has ended by itself.
            if let Err(error) = inotify::remove_watch(self.inotify.get(), *number) {
                tracing::debug!(%error, "a watch had ended");
            }
        }
        self.watched = watched;
    }

    async fn next(&mut self) {
        self.inotify.taken(read).await;
    }

    fn drain(&self) {
        while read(self.inotify.get()).is_ok() {}
    }
}

/// Reads and discards events, because only the contents of the files matter. Returns the number of
/// bytes.
fn read(inotify: &OwnedFd) -> io::Result<usize> {
    let mut events = [0; 4096];
    Ok(rustix::io::read(inotify, &mut events)?)
}
