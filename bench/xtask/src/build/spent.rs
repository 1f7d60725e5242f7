//! Time that a command takes, by the clock and of the processors.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result};
use xtask::process;

/// Ticks of processor time in /proc: `USER_HZ`, which no configuration changes.
const PER_SECOND: f64 = 100.0;

/// Seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spent {
    pub(super) wall: f64,
    /// Of all processors, in user and kernel, by the command and everything it started and waited
    /// for.
    pub(super) processor: f64,
}

/// Runs a command to its end, which has to be a good one.
pub(super) fn timed(command: &mut Command) -> Result<Spent> {
    Ok(around(|| process::run(command))?.1)
}

/// Does something with child processes, and says what it took. Nothing else may wait for children
/// meanwhile.
pub(super) fn around<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Spent)> {
    let (start, before) = (Instant::now(), of_children()?);
    let done = work()?;
    let wall = start.elapsed().as_secs_f64();
    Ok((done, Spent { wall, processor: of_children()? - before }))
}

/// Processor time of all children that were waited for, and of theirs.
fn of_children() -> Result<f64> {
    let path = "/proc/self/stat";
    let stat = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    children_in(&stat).with_context(|| format!("{path} has no times"))
}

/// `cutime` and `cstime`, the fields 16 and 17. The second one is the name in brackets, in which
/// there may be anything.
fn children_in(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let mut seconds = || Some(fields.next()?.parse::<f64>().ok()? / PER_SECOND);
    Some(seconds()? + seconds()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_children_is_read() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 900 0 5 11 12 150 50 20 0 1 0 100 9 9";
        assert_eq!(children_in(stat), Some(2.0));
        assert_eq!(children_in("7 (a) S 1 2"), None);
        assert_eq!(children_in(""), None);
    }

    #[test]
    fn a_grandchild_that_works_is_counted() {
        let work = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut shell = Command::new("sh");
        let spent = timed(shell.args(["-c", &format!("sh -c '{work}'; true")])).unwrap();
        assert!(spent.processor > 0.0, "{spent:?}");
        assert!(spent.wall > 0.0, "{spent:?}");
        assert!(timed(Command::new("sh").args(["-c", "exit 3"])).is_err());
    }
}
