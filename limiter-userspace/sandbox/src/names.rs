//! Names of things made on the machine: `limiter-TAG-PID-N`. The process id in the name says
//! whether the owner is still alive.

use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

const PREFIX: &str = "limiter-";

/// A name that nothing else on this machine has. `tag` says what the name is for.
pub fn unique(tag: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{tag}-{}-{n}", process::id())
}

/// The process id in a name made by [`unique`]; `None` for any other name.
pub fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplit('-');
    parts.next()?.parse::<u32>().ok()?;
    let pid = parts.next()?.parse().ok()?;
    parts.next()?;
    Some(pid)
}

/// Returns true if `name` was made by [`unique`] in a process that has ended.
///
/// A process id that was reused looks alive; the name is kept until that process ends.
pub fn is_orphaned(name: &str) -> bool {
    owner(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_unique_and_alive() {
        let (a, b) = (unique("x-y"), unique("x-y"));
        assert_ne!(a, b);
        assert_eq!(owner(&a), Some(process::id()));
        assert!(!is_orphaned(&a));
    }

    #[test]
    fn foreign_names_have_no_owner() {
        for name in ["", "limiter", "limiter-", "limiter-a", "limiter-1-2", "other-a-1-2"] {
            assert_eq!(owner(name), None, "{name}");
        }
        assert_eq!(owner("limiter-a-b-12-3"), Some(12));
    }

    #[test]
    fn a_dead_owner_is_noticed() {
        // Process ids end at 2^22 (/proc/sys/kernel/pid_max), so this process never exists.
        assert!(is_orphaned("limiter-a-4194305-0"));
    }
}
