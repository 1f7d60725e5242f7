//! The `limiter` binary: the command line, with the XDP program in it.

use std::process::ExitCode;

use limiter_datapath::{Objects, Xdp};

const OBJECTS: Objects<'static> =
    Objects { hash: limiter_objects::HASH, lines: limiter_objects::LINES };

fn main() -> ExitCode {
    limiter_cli::main(&Xdp::new(OBJECTS))
}
