//! The limit on open files: each connection is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Open files beside connections: rules, snapshots, the store, the daemon, sockets, and a few.
const OTHERS: u64 = 64;

/// Raises the limit of this process to what so many connections need, as far as it may.
pub(crate) fn make_room(connections: usize) {
    let wanted = u64::try_from(connections).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return;
    }
    let raised = maximum.map_or(wanted, |maximum| wanted.min(maximum));
    let outcome = setrlimit(Resource::Nofile, Rlimit { current: Some(raised), maximum });
    let is_raised = outcome.is_ok();
    let most = if is_raised { raised } else { current.unwrap_or(wanted) };
    if most < wanted {
        tracing::warn!(
            "this process may have {most} open files, and {connections} connections need {wanted}: \
             raise the limit (LimitNOFILE of the unit, ulimit -n), or lower --max-connections"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against an attempt to use up open files.
    #[test]
    fn a_start_makes_room_for_its_connections() {
        let before = getrlimit(Resource::Nofile);
        let low = before.current.map_or(300, |current| current.min(300));
        setrlimit(Resource::Nofile, Rlimit { current: Some(low), ..before }).unwrap();
        make_room(700);
        let raised = getrlimit(Resource::Nofile).current;
        let possible = before.maximum.map_or(764, |maximum| maximum.min(764));
        assert_eq!(raised, Some(possible));
        // What is enough stays.
        make_room(10);
        assert_eq!(getrlimit(Resource::Nofile).current, raised);
        setrlimit(Resource::Nofile, before).unwrap();
    }
}
