//! The thread that alone touches the files of the log: a disk that is slow, full or gone holds up
//! nobody else.

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

/// Jobs that wait for the thread.
const WAITING: usize = 32;

/// Bytes that are held while they cannot be written.
const HELD: usize = 256 << 10;

/// Time that an end waits for the last lines: a disk that hangs does not hold it up.
const LAST: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Lines {
    pub(super) text: String,
    pub(super) count: u64,
    /// The earliest moment that one of them is about.
    pub(super) from: SystemTime,
}

/// An answer of the thread that is under way.
pub(in crate::events) type Answer = oneshot::Receiver<io::Result<Found>>;

enum Job {
    Write(Lines),
    Read(Filter, oneshot::Sender<io::Result<Found>>),
    /// All jobs before are done.
    Done(SyncSender<()>),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Bytes on disk.
    pub(crate) bytes: u64,
    /// Lines that were not written, and never will be.
    pub(crate) lost: u64,
    /// Words about why lines are not written, or what is in their place.
    pub(crate) trouble: Option<String>,
}

/// The thread, and how it does.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: SyncSender<Job>,
    health: Arc<Mutex<Health>>,
}

impl Writer {
    /// Starts the thread, which ends with this.
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

    /// Gives lines to the thread; gives them back if too much waits.
    pub(super) fn write(&self, lines: Lines) -> Result<(), Lines> {
        match self.jobs.try_send(Job::Write(lines)) {
            Err(
                TrySendError::Full(Job::Write(lines))
                | TrySendError::Disconnected(Job::Write(lines)),
            ) => Err(lines),
            _ => Ok(()),
        }
    }

    /// Has the log read; none if too much waits.
    pub(super) fn read(&self, filter: Filter) -> Option<Answer> {
        let (answer, read) = oneshot::channel();
        self.jobs.try_send(Job::Read(filter, answer)).ok().map(|()| read)
    }

    /// Waits until all jobs are done, or the disk has hung for long.
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
    /// Lines that could not be written yet.
    held: Option<Lines>,
    /// Lines that were given up since the last ones that were written.
    gap: Option<Gap>,
}

impl Thread {
    fn work(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            match job {
                Job::Write(lines) => self.write(lines),
                Job::Read(filter, answer) => {
                    let read = self.read(filter, &answer);
                    // One that is gone needs no answer.
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

    /// Adds lines to those that wait, or gives them up.
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
