//! File descriptors for connections. Those of idle clients are not to be those that the daemon
//! needs for its files and its store.

use std::fs::{self, File};

use rustix::process::{Resource, getrlimit};

/// Connections that are wanted at least: where they find no descriptors, one is evicted for the
/// next.
const LEAST: usize = 4;

/// Connections that there is room for: as many as are wanted, and at most half of what this process
/// may still open.
pub(super) fn for_connections(wanted: usize) -> usize {
    // A number that is not known bounds nothing.
    let limit = getrlimit(Resource::Nofile).current;
    let open = fs::read_dir("/proc/self/fd").map(Iterator::count);
    let (Some(limit), Ok(open)) = (limit, open) else { return wanted };
    let room = fitting(wanted, usize::try_from(limit).unwrap_or(usize::MAX), open);
    if room < wanted {
        tracing::warn!(
            "of {limit} file descriptors {open} are in use: {room} control connections at once, \
             not {wanted}: raise the limit (LimitNOFILE)"
        );
    }
    room
}

/// A descriptor that nothing is done with. A connection can have it where there is no other: the
/// daemon is asked what is wrong just then.
#[derive(Debug)]
pub(super) struct Spare(Option<File>);

impl Spare {
    /// Takes one, if there is one.
    pub(super) fn take() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Gives it up; false if there was none.
    pub(super) fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Takes one again, if it was given up and there is one.
    pub(super) fn refill(&mut self) {
        if self.0.is_none() {
            *self = Self::take();
        }
    }
}

fn fitting(wanted: usize, limit: usize, open: usize) -> usize {
    wanted.min(limit.saturating_sub(open) / 2).max(LEAST.min(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_daemon() {
        assert_eq!(fitting(64, 1024, 50), 64);
        assert_eq!(fitting(64, 64, 44), 10);
        // A few are always tried.
        assert_eq!(fitting(64, 64, 63), 4);
        assert_eq!(fitting(64, 64, 70), 4);
        assert_eq!(fitting(2, 64, 63), 2);
    }
}
