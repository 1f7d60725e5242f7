//! The `limiter` binary: daemon and command line.

use std::process::ExitCode;

use limiter_userspace::cli;
use limiter_userspace::datapath::Xdp;

fn main() -> ExitCode {
    cli::main(&Xdp)
}
