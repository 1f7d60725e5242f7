//! The only thread that touches the files of the log: a slow, full or missing disk holds up no
//! other task.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use super::files::Files;
use super::found::Found;
use super::record::{Gap, Record};
use super::scan;
use crate::events::filter::Filter;

/// Most jobs that wait for the thread.
const WAITING: usize = 32;

/// Most bytes held while they cannot be written.
const HELD: usize = 256 << 10;

/// Longest wait for the last lines at the end of the daemon, so that a disk that hangs does not
/// hold it up.
const LAST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) text: String,
    pub(super) count: u64,
    /// Earliest moment in the lines.
    pub(super) from: SystemTime,
}

/// A search that the thread is working on.
pub(in crate::events) type Answer = oneshot::Receiver<io::Result<Found>>;

enum Job {
    Write(Lines),
    Read(Filter, oneshot::Sender<io::Result<Found>>),
    /// Reports that all earlier jobs are done.
    Done(SyncSender<()>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Lines that were given up without being written.
    pub(crate) lost: u64,
    /// Reason why lines are not written, or message about what is in their place.
    pub(crate) trouble: Option<String>,
}

/// The thread and its state.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: SyncSender<Job>,
    health: Arc<Mutex<Health>>,
}

impl Writer {
    /// Starts the thread; dropping this ends it.
    pub(super) fn start(files: Files) -> io::Result<Self> {
        let (jobs, waiting) = sync_channel(WAITING);
        let health = Arc::new(Mutex::new(Health::default()));
        let thread = Thread { files, health: Arc::clone(&health), held: None, gap: None };
        Builder::new().name("event log".to_owned()).spawn(move || thread.work(&waiting))?;
        Ok(Self { jobs, health })
    }

    pub(super) fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    /// Passes lines to the thread; returns them if too many jobs wait.
    pub(super) fn write(&self, lines: Lines) -> Result<(), Lines> {
        match self.jobs.try_send(Job::Write(lines)) {
            Err(
                TrySendError::Full(Job::Write(lines))
                | TrySendError::Disconnected(Job::Write(lines)),
            ) => Err(lines),
            _ => Ok(()),
        }
    }

    /// Requests a search of the log; returns `None` if too many jobs wait.
    pub(super) fn read(&self, filter: Filter) -> Option<Answer> {
        let (answer, read) = oneshot::channel();
        self.jobs.try_send(Job::Read(filter, answer)).ok().map(|()| read)
    }

    /// Waits until all jobs are done, but at most [`LAST`].
    pub(super) fn wait(&self) {
        let (done, all) = sync_channel(1);
        let sent = self.jobs.try_send(Job::Done(done));
        if sent.is_err() || all.recv_timeout(LAST).is_err() {
            tracing::warn!("the last lines of the log of events may not be on disk");
        }
    }
}

fn lock(health: &Mutex<Health>) -> MutexGuard<'_, Health> {
    health.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Thread {
    files: Files,
    health: Arc<Mutex<Health>>,
    /// Lines not written yet because of an error.
    held: Option<Lines>,
    /// Lines given up since the last successful write.
    gap: Option<Gap>,
}

impl Thread {
    fn work(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Write(lines) => self.write(lines),
                Job::Read(filter, answer) => {
                    let read = self.read(filter, &answer);
                    // A client that has gone needs no answer.
                    drop(answer.send(read));
                }
                Job::Done(done) => drop(done.send(())),
            }
        }
    }

    fn write(&mut self, lines: Lines) {
        self.hold(lines);
        let mut text = String::new();
        if let Some(gap) = &self.gap {
            let gap = Gap { to: SystemTime::now(), ..gap.clone() };
            text.extend(Record::Gap(gap).line());
        }
        if let Some(held) = &self.held {
            text.push_str(&held.text);
        }
        let written = self.files.append(text.as_bytes());
        let mut health = lock(&self.health);
        match written {
            Ok(bytes) => {
                (self.held, self.gap) = (None, None);
                health.bytes = bytes;
                health.trouble = scan::odd(self.files.odd());
            }
            Err(error) => {
                health.trouble = Some(format!("{}: {error}", self.files.directory().display()));
            }
        }
    }

    /// Adds lines to the held ones, or gives them up.
    fn hold(&mut self, lines: Lines) {
        match &mut self.held {
            None => self.held = Some(lines),
            Some(held) if held.text.len().saturating_add(lines.text.len()) <= HELD => {
                held.text.push_str(&lines.text);
                held.count += lines.count;
                held.from = held.from.min(lines.from);
            }
            Some(_) => {
                let gap =
                    self.gap.get_or_insert(Gap { from: lines.from, to: lines.from, lines: 0 });
                gap.lines += lines.count;
                gap.from = gap.from.min(lines.from);
                let mut health = lock(&self.health);
                health.lost = health.lost.saturating_add(lines.count);
            }
        }
    }

    fn read(
        &self,
        filter: Filter,
        answer: &oneshot::Sender<io::Result<Found>>,
    ) -> io::Result<Found> {
        let mut found = scan::read(self.files.directory(), filter, || answer.is_closed())?;
        let held = self.held.iter().flat_map(|held| held.text.lines());
        for record in held.filter_map(|line| Record::read(line.as_bytes())) {
            found.take(record);
        }
        if let Some(gap) = &self.gap {
            found.take(Record::Gap(Gap { to: SystemTime::now(), ..gap.clone() }));
        }
        Ok(found)
    }
}
