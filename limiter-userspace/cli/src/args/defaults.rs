//! Values that stand where no argument says otherwise.

/// Path of the daemon's socket unless `--socket` says otherwise.
pub(crate) const SOCKET: &str = "/run/limiter/limiter.sock";

/// Directory of the pinned maps and links unless `--pin-dir` says otherwise.
pub(crate) const PIN_DIR: &str = "/sys/fs/bpf/limiter";

/// Rules that fit unless `--max-rules` says otherwise.
pub(crate) const MAX_RULES: u32 = 16_384;

/// The least that [`limiter_daemon::Backend::check`] says.
pub(crate) const LEAST_FRAME: u64 = 1522;
