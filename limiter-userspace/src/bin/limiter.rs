//! The `limiter` binary: daemon and command line.

use std::process::ExitCode;

use limiter_userspace::cli;
use limiter_userspace::daemon::kernel::Xdp;

fn main() -> ExitCode {
    cli::main(&Xdp)
}
