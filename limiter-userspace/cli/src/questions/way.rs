//! The maps of a command that works without a daemon. A directory that was named wins over the
//! daemon that answers.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use limiter_api::client::Client;
use limiter_api::status::Status;

use crate::args::defaults::{PIN_DIR, SOCKET};
use crate::failure::Failure;

/// Time that the daemon has to answer before the maps are changed without it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) type Notes = Vec<String>;

pub(crate) enum Way {
    /// Through the daemon that answers.
    Daemon,
    /// On the maps in a directory that was named, with notes about that.
    Pins(PathBuf, Notes),
}

/// The way for a directory, if one was named: through the daemon only if the directory is that
/// daemon's.
pub(crate) fn way(client: &Client, pin_dir: Option<&Path>) -> Result<Way, Failure> {
    let Some(pin_dir) = pin_dir else { return Ok(Way::Daemon) };
    if let Err(error) = fs::metadata(pin_dir) {
        let pin_dir = pin_dir.display();
        return Err(Failure::PinDir(match error.kind() {
            ErrorKind::NotFound => format!(
                "nothing is pinned under {pin_dir}: there is no such directory: name the one of \
                 the daemon that is meant with --pin-dir"
            ),
            ErrorKind::PermissionDenied => {
                format!("{pin_dir}: {error}: run this as root, or as the daemon's user")
            }
            _ => format!("{pin_dir}: {error}: name the daemon's directory with --pin-dir"),
        }));
    }
    let on_pins = |notes| Ok(Way::Pins(pin_dir.to_owned(), notes));
    match client.within(PATIENCE).get::<Status>("/v1/status") {
        Ok(Status { pin_dir: Some(its), .. }) if is_same(pin_dir, Path::new(&its)) => {
            Ok(Way::Daemon)
        }
        // Another daemon's, or nobody's.
        Ok(_) => on_pins(Notes::new()),
        Err(error) if error.no_daemon() => on_pins(Notes::new()),
        Err(error) if error.no_answer() => on_pins(vec![without_it(client, pin_dir)]),
        Err(error) => Err(error.into()),
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path| fs::metadata(path).map(|at| (at.dev(), at.ino())).ok();
    of(one).is_some_and(|one| of(other) == Some(one))
}

/// Directory of the maps, if there is no daemon to ask. Maps at the default place may be another
/// daemon's than the one whose socket was named.
pub(crate) fn unnamed(client: &Client, pin_dir: Option<&Path>) -> Result<PathBuf, Failure> {
    match pin_dir {
        Some(pin_dir) => Ok(pin_dir.to_owned()),
        None if client.socket() == Path::new(SOCKET) => Ok(PathBuf::from(PIN_DIR)),
        None => Err(Failure::PinDir(format!(
            "no daemon at {}, and nobody else knows where its maps are pinned: name the directory \
             with --pin-dir",
            client.socket().display()
        ))),
    }
}

pub(crate) fn without_it(client: &Client, pin_dir: &Path) -> String {
    format!(
        "the daemon at {} did not answer within {} s: done without it, on the maps in {}",
        client.socket().display(),
        PATIENCE.as_secs(),
        pin_dir.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_directory_is_the_same_by_any_name() {
        let directory = tempfile::tempdir().unwrap();
        let (one, other) = (directory.path().join("one"), directory.path().join("other"));
        for path in [&one, &other] {
            fs::create_dir(path).unwrap();
        }
        assert!(is_same(&one, &other.join("../one")));
        assert!(!is_same(&one, &other));
        assert!(!is_same(&one.join("none"), &one.join("none")));
    }
}
