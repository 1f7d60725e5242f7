//! File descriptors for connections. Those of idle clients are not to be those that the daemon needs
//! for its files and its store.

use std::fs;

use rustix::process::{Resource, getrlimit};

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

fn fitting(wanted: usize, limit: usize, open: usize) -> usize {
    wanted.min(limit.saturating_sub(open) / 2).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_for_the_daemon() {
        assert_eq!(fitting(64, 1024, 50), 64);
        assert_eq!(fitting(64, 64, 44), 10);
        // One is always tried.
        assert_eq!(fitting(64, 64, 63), 1);
        assert_eq!(fitting(64, 64, 70), 1);
    }
}
