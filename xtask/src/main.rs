//! `cargo xtask`: see the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    xtask::main()
}
