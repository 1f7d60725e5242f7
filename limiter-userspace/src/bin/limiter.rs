//! The `limiter` binary: the command line, with the XDP program in it.

use std::process::ExitCode;

use limiter_datapath::{SourceTable, Xdp};

fn object(table: SourceTable) -> Vec<u8> {
    match table {
        SourceTable::Hash => limiter_objects::hash(),
        SourceTable::Lines => limiter_objects::lines(),
    }
}

fn main() -> ExitCode {
    limiter_cli::main(&Xdp::new(object))
}
