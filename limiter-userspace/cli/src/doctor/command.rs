//! Commands that a finding names.

use std::path::Path;

use crate::args::defaults::{PIN_DIR, SOCKET};

/// The words that begin a command to the daemon at a socket.
pub(super) fn to_daemon(socket: &Path) -> String {
    if socket == Path::new(SOCKET) {
        "limiter".to_owned()
    } else {
        format!("limiter --socket {}", socket.display())
    }
}

/// The command that says more about a start that failed.
pub(crate) fn command(socket: &Path, interfaces: &[String], pin_dir: &Path) -> String {
    let options = interfaces.iter().map(|name| format!(" --iface {name}"));
    let pins = (pin_dir != Path::new(PIN_DIR)).then(|| format!(" --pin-dir {}", pin_dir.display()));
    let doctor = format!("{} doctor", to_daemon(socket));
    [doctor].into_iter().chain(options).chain(pins).collect()
}
