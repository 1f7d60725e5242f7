//! The remedy for a second daemon on one machine. Three places have to be its own: a
//! start that is refused for one of them names all.

/// Remedies where a second daemon uses a place of the first one.
pub const SECOND_DAEMON: &str = "stop it, or give it this interface as well, with --iface once \
    more, or give this one a --state-dir, a --pin-dir and a --socket of its own";
