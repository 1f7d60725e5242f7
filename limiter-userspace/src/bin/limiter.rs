//! The `limiter` binary: the command line, with the programs for XDP and tc in it.

use std::process::ExitCode;

use limiter_datapath::{Objects, Xdp};

fn main() -> ExitCode {
    limiter_cli::main(&Xdp::new(Objects {
        xdp: limiter_objects::program,
        tc: limiter_objects::tc_program,
    }))
}
