//! A client that shares no code with the server.

use std::path::Path;
use std::process::Command;

use crate::running::running;

/// Packages of `PyPI`, of which the messages are made of Envoy's public `.proto` files.
const PACKAGES: [&str; 4] =
    ["grpcio==1.85.3", "grpcio-reflection==1.85.1", "pyyaml==6.0.4", "xds-protos==1.85.0"];

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{shown}");
}

/// Clients that share no code with it. The configuration for Envoy has the fields of its messages.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn a_client_of_python_is_answered_by_the_public_messages() {
    let running = running(100);
    let environment = running.directory.path().join("python");
    let python = environment.join("bin/python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(&python)
        .arg(here.join("tests/it/oracle.py"))
        .arg(running.address.to_string())
        .arg(here.join("../../docs/behind-a-proxy.md")));
    running.server.stop().unwrap();
}
