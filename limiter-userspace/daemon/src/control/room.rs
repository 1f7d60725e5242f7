//! File descriptors for connections. Idle clients must not take the descriptors that the daemon
//! needs for its files and its store.

use std::fs::{self, File};

use rustix::process::{Resource, getrlimit};

/// Fewest connections to aim for: if they find no descriptors, one is evicted for the next.
const LEAST: usize = 4;

/// Number of connections with room: `wanted`, but at most half of the descriptors that this process
/// may still open.
pub(super) fn for_connections(wanted: usize) -> usize {
    // An unknown number does not limit anything.
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

/// A descriptor kept in reserve. A connection can have it when there is no other, because that is
/// when somebody asks the daemon what is wrong.
#[derive(Debug)]
pub(super) struct Spare(Option<File>);

impl Spare {
    /// Opens the reserve descriptor, if possible.
    pub(super) fn take() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Gives the descriptor up; returns false if there was none.
    pub(super) fn give_up(&mut self) -> bool {
        self.0.take().is_some()
    }

    /// Opens the reserve descriptor again, if it was given up.
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
        // A few connections are always tried.
        assert_eq!(fitting(64, 64, 63), 4);
        assert_eq!(fitting(64, 64, 70), 4);
        assert_eq!(fitting(2, 64, 63), 2);
    }
}
