//! `limiter off`, `on` and `detach`: through the daemon, or on the pinned maps themselves. And
//! which maps are meant. A directory that was named wins over the daemon that answers.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser as _;
use limiter_daemon::api::brake::{Brake, Detached};
use limiter_daemon::api::status::Status;
use limiter_daemon::control::Client;
use limiter_datapath::Backend;

use super::args::{Args, Command, PIN_DIR, SOCKET};
use super::explain_now::escaped;
use super::failure::Failure;

/// Time that the daemon has to answer before the maps are changed without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lines for standard error.
pub(super) type Notes = Vec<String>;

/// Engages the brake, or releases it.
pub(super) fn brake(
    client: &Client,
    pin_dir: Option<&Path>,
    backend: &dyn Backend,
    engaged: bool,
) -> Result<(Brake, Notes), Failure> {
    let on_pins = |pin_dir: &Path, notes| {
        backend.set_brake(pin_dir, engaged).map_err(Failure::Pinned)?;
        Ok((Brake { engaged }, notes))
    };
    if let Way::Pins(pin_dir, notes) = way(client, pin_dir)? {
        return on_pins(&pin_dir, notes);
    }
    let asked = client.within(PATIENCE).put::<Brake>("/v1/brake", &Brake { engaged });
    match asked {
        Ok(brake) => Ok((brake, Notes::new())),
        Err(error) if error.no_daemon() => on_pins(&unnamed(client, pin_dir)?, Notes::new()),
        Err(error) if error.no_answer() => {
            // The daemon's own maps, if they can be told without its answer.
            let named = pin_dir.map(Path::to_owned).or_else(|| of_listener(client));
            // Nor can be told whose they are where the daemon's queue is full: then the default
            // place.
            let named = named
                .or_else(|| (client.socket() == Path::new(SOCKET)).then(|| PathBuf::from(PIN_DIR)));
            let Some(pin_dir) = named else { return Err(error.into()) };
            let note = without_it(client, &pin_dir);
            on_pins(&pin_dir, vec![note])
        }
        Err(error) => Err(error.into()),
    }
}

/// Removes the program, its maps and all limits; says which interfaces are free now.
pub(super) fn detach(
    client: &Client,
    pin_dir: Option<&Path>,
    backend: &dyn Backend,
) -> Result<(Detached, Notes), Failure> {
    let on_pins = |pin_dir: &Path| {
        let interfaces = backend.detach(pin_dir).map_err(Failure::Pinned)?;
        Ok::<_, Failure>(Detached { interfaces, others_stay: false })
    };
    if let Way::Pins(pin_dir, notes) = way(client, pin_dir)? {
        return Ok((on_pins(&pin_dir)?, notes));
    }
    match client.post::<Detached>("/v1/detach") {
        Ok(answer) => Ok((answer, Notes::new())),
        Err(error) if error.no_daemon() => Ok((on_pins(&unnamed(client, pin_dir)?)?, Notes::new())),
        Err(error) => Err(error.into()),
    }
}

/// Ends the limits on one interface.
pub(super) fn free(
    client: &Client,
    pin_dir: Option<&Path>,
    backend: &dyn Backend,
    interface: &str,
) -> Result<(Detached, Notes), Failure> {
    let on_pins = |pin_dir: &Path, notes| {
        backend.free(pin_dir, interface).map_err(Failure::Pinned)?;
        let interfaces = vec![interface.to_owned()];
        Ok((Detached { interfaces, others_stay: true }, notes))
    };
    if let Way::Pins(pin_dir, notes) = way(client, pin_dir)? {
        return on_pins(&pin_dir, notes);
    }
    match client.post::<Detached>(&format!("/v1/detach?interface={}", escaped(interface))) {
        Ok(answer) => Ok((answer, Notes::new())),
        Err(error) if error.no_daemon() => on_pins(&unnamed(client, pin_dir)?, Notes::new()),
        Err(error) => Err(error.into()),
    }
}

/// Ways to do something.
pub(super) enum Way {
    /// Through the daemon that answers.
    Daemon,
    /// On the maps in a directory, which was named; and what is to be said of that.
    Pins(PathBuf, Notes),
}

/// The way for a directory that was named, if one was: by the daemon only if the directory is that
/// daemon's.
pub(super) fn way(client: &Client, pin_dir: Option<&Path>) -> Result<Way, Failure> {
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
pub(super) fn unnamed(client: &Client, pin_dir: Option<&Path>) -> Result<PathBuf, Failure> {
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

/// The interfaces that are limited though no daemon answers at a socket, as a sentence, if that can
/// be seen: of another socket than the default one nobody knows where the maps are.
pub(super) fn still_limited(socket: &Path, backend: &dyn Backend) -> Option<String> {
    let limited =
        if socket == Path::new(SOCKET) { backend.limited(Path::new(PIN_DIR)) } else { Vec::new() };
    if limited.is_empty() {
        return None;
    }
    let interfaces = limited.join(", ");
    Some(format!(
        "without a daemon the limits are still in force on {interfaces}; `limiter off` lets every \
         packet pass"
    ))
}

fn without_it(client: &Client, pin_dir: &Path) -> String {
    format!(
        "the daemon at {} did not answer within {} s: done without it, on the maps in {}",
        client.socket().display(),
        PATIENCE.as_secs(),
        pin_dir.display()
    )
}

/// The directory of a daemon that does not answer, by the command line that it was started with.
fn of_listener(client: &Client) -> Option<PathBuf> {
    let pid = client.within(PATIENCE).listener()?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(&[0]).unwrap_or(&words).split(|byte| *byte == 0);
    let args = Args::try_parse_from(words.map(|word| OsString::from_vec(word.to_vec()))).ok()?;
    let Command::Run(run) = &args.command else { return None };
    let pin_dir = run.options(args.socket.clone()).datapath.pin_dir;
    // The path as the daemon sees it.
    Some(fs::read_link(format!("/proc/{pid}/cwd")).ok()?.join(pin_dir))
}

#[cfg(test)]
mod tests {
    use limiter_fake::Fake;

    use super::*;

    /// Of a socket whose maps are known, and only while nothing lets all packets pass.
    #[test]
    fn what_is_in_force_without_a_daemon_is_told_where_it_is_known() {
        let fake = Fake::default();
        let told = still_limited(Path::new(SOCKET), &fake);
        assert!(told.is_some_and(|told| told.contains("in force on fake0")));
        assert_eq!(still_limited(Path::new("/run/other.sock"), &fake), None);
        fake.set_brake(Path::new("pinned"), true).unwrap();
        assert_eq!(still_limited(Path::new(SOCKET), &fake), None);
    }

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
