//! Calls to the kernel that fail, by strace.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::strace::Strace;

/// Calls that fail, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) names: &'static str,
    /// Errors that the kernel may answer.
    pub(crate) errors: &'static [&'static str],
    /// At most so many calls are left out between two of a sample.
    step: usize,
}

/// Calls to the BPF subsystem.
pub(crate) const BPF: Calls = Calls {
    names: "bpf",
    errors: &["ENOMEM", "EPERM", "E2BIG", "ENOSPC", "EINTR", "EAGAIN"],
    step: 55,
};

/// Calls that open and change files, each for itself: strace counts them so, and one fault at a
/// time is to be undone.
pub(crate) const FILES: [Calls; 9] = [
    OPEN,
    file("fsync"),
    file("rename"),
    file("mkdir"),
    file("flock"),
    file("chmod"),
    file("unlink"),
    file("linkat"),
    file("ftruncate"),
];

const fn file(names: &'static str) -> Calls {
    Calls { names, errors: &["EIO", "ENOSPC", "EROFS", "EACCES"], step: 34 }
}

pub(crate) const OPEN: Calls =
    Calls { names: "openat", errors: &["EMFILE", "EIO", "EACCES"], step: 34 };

/// Calls that write the files of the state directory.
pub(crate) const WRITE: Calls = Calls { names: "write", errors: &["ENOSPC", "EIO"], step: 34 };

/// Calls that make sockets and talk over them.
pub(crate) const SOCKETS: Calls = Calls {
    names: "socket,socketpair,bind,listen,connect,sendto,recvfrom,getsockname",
    errors: &["EMFILE", "ENOBUFS", "EINTR", "ENOMEM"],
    step: 34,
};

pub(crate) fn exhaustive() -> bool {
    std::env::var("LIMITER_FAULTS").is_ok_and(|what| what == "all")
}

impl Calls {
    /// Errors and the calls to fail: the errors in turn, at every call up to `most` or at a sample.
    /// Where there are calls, the first is one of them.
    fn cases(self, most: usize) -> Vec<(usize, &'static str)> {
        let errors = self.errors.iter().copied().cycle();
        if exhaustive() {
            return (1..=most).zip(errors).collect();
        }
        // 1, 2, 3, 5, 8, 13, 21, 34, 47, ...
        let mut pair = (1, 2);
        let numbers = std::iter::from_fn(|| {
            let number = pair.0;
            pair = (pair.1, pair.1 + pair.0.min(self.step));
            Some(number)
        });
        numbers.take_while(|number| *number <= most).zip(errors).collect()
    }

    /// The options of strace that have the call of that number fail.
    fn options(self, number: usize, error: &str, log: &Path) -> Vec<String> {
        let Self { names, .. } = self;
        let state = log.with_file_name("state");
        let inject = format!("inject={names}:error={error}:when={number}");
        let mut options = watching(names, log);
        options.extend(["-e".to_owned(), inject]);
        if names == WRITE.names {
            for name in WRITTEN {
                options.extend(["-P".to_owned(), state.join(name).display().to_string()]);
            }
        }
        options
    }
}

/// The files of the state directory: neither standard error nor pipes and sockets.
const WRITTEN: [&str; 5] =
    ["lock", "edits.json.new", "applied.json.new", "lists.json.new", "lists.journal"];

/// The options of strace that write the calls of these names into a log.
fn watching(names: &str, log: &Path) -> Vec<String> {
    let (log, trace) = (log.display().to_string(), format!("trace={names}"));
    ["-f", "-qq", "-o", &log, "-e", &trace].map(str::to_owned).to_vec()
}

/// As [`watching`], for all of some kinds of calls, with the paths of their files.
fn watching_all(kinds: &[Calls], log: &Path) -> Vec<String> {
    let names: Vec<&str> = kinds.iter().map(|calls| calls.names).collect();
    let mut options = watching(&names.join(","), log);
    options.push("-y".to_owned());
    options
}

/// The cases of several kinds of calls, one after the other.
pub(crate) fn cases(
    kinds: &[Calls],
    counted: &Counted,
) -> impl Iterator<Item = (Calls, (usize, &'static str))> {
    kinds
        .iter()
        .flat_map(|calls| calls.cases(counted.of(*calls)).into_iter().map(|case| (*calls, case)))
}

/// Numbers of calls by their names, without a fault: cases are chosen from what there is.
pub(crate) struct Counted(BTreeMap<String, usize>);

impl Counted {
    /// Reads a log of [`watching_all`].
    fn read(log: &Path) -> Result<Self> {
        let (text, mut counts) = (fs::read_to_string(log)?, BTreeMap::new());
        for line in text.lines() {
            // The number of the thread, and the call; not the end of one that another interrupted.
            let call = line.split_once(' ').map_or("", |(_, call)| call.trim_start());
            let Some((name, arguments)) = call.split_once('(') else { continue };
            let file = arguments.split_once('>').map_or("", |(file, _)| file);
            let is_state = || WRITTEN.iter().any(|name| file.ends_with(&format!("/state/{name}")));
            if name != WRITE.names || is_state() {
                *counts.entry(name.to_owned()).or_default() += 1;
            }
        }
        Ok(Self(counts))
    }

    /// The number of the last call of a kind; 0 if there is none.
    pub(crate) fn of(&self, calls: Calls) -> usize {
        let counts = calls.names.split(',').filter_map(|name| self.0.get(name));
        counts.copied().max().unwrap_or_default()
    }
}

/// Faults that were injected, as strace reports: the calls with their arguments. strace counts each
/// call of a set for itself.
fn injected(log: &Path) -> Vec<String> {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().filter(|line| line.contains("(INJECTED)")).map(str::to_owned).collect()
}

/// What became of a sample of faults.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Runs of which a call failed.
    injected: usize,
    /// Those that ended with an error: some calls only ask what the kernel has, and some are done
    /// another way.
    refused: usize,
}

impl Tally {
    /// One run more.
    pub(crate) fn count(&mut self, injected: bool, refused: bool) {
        self.injected += usize::from(injected);
        self.refused += usize::from(refused);
    }

    /// Checks that there were faults, and errors of them.
    pub(crate) fn ensure_faults(self) -> Result<()> {
        let Self { injected, refused } = self;
        ensure!(injected >= 3, "{injected} runs had a fault: strace did not count the calls");
        ensure!(refused >= 1, "none of {injected} faults was reported");
        Ok(())
    }
}

/// The start of a daemon of which a call fails.
pub(crate) struct FaultyStart {
    /// Calls that failed; none if the start had fewer of them.
    pub(crate) injected: Vec<String>,
    /// Message of the daemon, if it did not start.
    pub(crate) refusal: Option<String>,
}

/// Starts the daemon with a fault.
pub(crate) fn start(
    limiter: &mut Limiter,
    calls: Calls,
    number: usize,
    error: &str,
    log: &Path,
) -> Result<FaultyStart> {
    let started = through(limiter, calls.options(number, error, log), log)?;
    let refusal = started.err().map(|error| error.to_string());
    Ok(FaultyStart { injected: injected(log), refusal })
}

/// Starts the daemon without a fault, and counts its calls.
pub(crate) fn count(limiter: &mut Limiter, kinds: &[Calls], log: &Path) -> Result<Counted> {
    through(limiter, watching_all(kinds, log), log)??;
    Counted::read(log)
}

/// Starts the daemon through strace.
fn through(limiter: &mut Limiter, options: Vec<String>, log: &Path) -> Result<Result<String>> {
    fs::write(log, "")?;
    // With the filter, the daemon stops for the calls that are watched, and for no others.
    let strace = ["strace", "-D", "--seccomp-bpf"].map(str::to_owned).into_iter();
    limiter.through(strace.chain(options));
    let started = limiter.start();
    limiter.through(Vec::<String>::new());
    Ok(started)
}

/// strace at a running daemon.
pub(crate) struct Attached {
    strace: Strace,
    log: PathBuf,
}

/// Has a call of the running daemon fail: the call of that number from now on.
pub(crate) fn attach(
    limiter: &Limiter,
    calls: Calls,
    number: usize,
    error: &str,
    log: &Path,
) -> Result<Attached> {
    attach_with(limiter, calls.options(number, error, log), log)
}

/// Watches the calls of the running daemon from now on, of which none fails.
pub(crate) fn watch(limiter: &Limiter, kinds: &[Calls], log: &Path) -> Result<Attached> {
    attach_with(limiter, watching_all(kinds, log), log)
}

fn attach_with(limiter: &Limiter, options: Vec<String>, log: &Path) -> Result<Attached> {
    fs::write(log, "")?;
    let pid = limiter.pid().context("the daemon is not running")?;
    Ok(Attached { strace: Strace::attach(pid, options)?, log: log.to_owned() })
}

impl Attached {
    /// Lets go of the daemon; says what was injected.
    pub(crate) fn end(self) -> Result<Vec<String>> {
        self.strace.end()?;
        Ok(injected(&self.log))
    }

    /// Lets go of the daemon; says which calls there were.
    pub(crate) fn count(self) -> Result<Counted> {
        self.strace.end()?;
        Counted::read(&self.log)
    }
}
