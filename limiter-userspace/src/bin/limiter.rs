//! The `limiter` binary: the command line, with the XDP program in it.

use std::process::ExitCode;

use limiter_datapath::Xdp;

fn main() -> ExitCode {
    limiter_cli::main(&Xdp::new(limiter_objects::program))
}
