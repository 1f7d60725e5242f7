//! The arguments of commands that work without a daemon, on the pinned maps.

use std::path::PathBuf;

use crate::shell::completion_values;

/// Help of commands that read the maps where no daemon answers.
pub(super) const WITHOUT_DAEMON: &str = "Without a daemon the answer is read from the \
    pinned maps, which takes the rights that starting one takes; nothing is changed. The maps do \
    not hold names, labels and origins of rules, nor names of budgets: standard error says so.";

/// Arguments of commands that work without a daemon.
#[derive(Debug, clap::Args)]
pub(crate) struct Pinned {
    /// The maps that are meant, whatever daemon answers at the socket [default: those of that
    /// daemon; without one, /sys/fs/bpf/limiter]
    #[arg(long, value_name = "DIR")]
    pub(crate) pin_dir: Option<PathBuf>,
}

/// Arguments of `on`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Refused, unless forced, are limits and lists that may drop packets of the \
                        SSH session in which this is typed."
)]
pub(crate) struct On {
    /// Turn it off even if the limits may drop packets of this SSH session
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) pinned: Pinned,
}

/// Arguments of `detach`.
#[derive(Debug, clap::Args)]
pub(crate) struct Detach {
    /// Free only this interface: its packets pass, and everything else stays. A start of the daemon
    /// that names it limits it again
    #[arg(long, value_name = "NAME", add = completion_values::interfaces())]
    pub(crate) iface: Option<String>,
    #[command(flatten)]
    pub(crate) pinned: Pinned,
}
