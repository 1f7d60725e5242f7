//! `limiter off`, `on` and `detach`: through the daemon, or on the pinned maps themselves.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use limiter_api::bypass::{AskDetach, Bypass, BypassNow, Detached};
use limiter_api::client::Client;
use limiter_datapath::Backend;

use crate::args::defaults::{PIN_DIR, SOCKET};
use crate::args::{Args, Command};
use crate::failure::Failure;
use crate::questions::way::{Notes, PATIENCE, Way, unnamed, way, without_it};

/// Turns on the bypass, or releases it.
pub(crate) fn bypass(
    client: &Client,
    pin_dir: Option<&Path>,
    backend: &dyn Backend,
    wanted: Bypass,
) -> Result<(BypassNow, Notes), Failure> {
    let engaged = wanted.engaged;
    let on_pins = |pin_dir: &Path, mut notes: Notes| {
        backend.set_bypass(pin_dir, engaged).map_err(Failure::Pinned)?;
        if engaged {
            // The maps do not say whether there is one.
            notes.push(
                "if `run --then` named a program, it goes on with what passes, and may drop it"
                    .to_owned(),
            );
        }
        if let Some(session) = wanted.session.filter(|_| !engaged && !wanted.force) {
            notes.push(format!(
                "without a daemon nobody looks whether the limits may drop your own SSH session \
                 from {}: `limiter off` takes them out of force again",
                session.peer
            ));
        }
        Ok((BypassNow { engaged, then: None }, notes))
    };
    if let Way::Pins(pin_dir, notes) = way(client, pin_dir)? {
        return on_pins(&pin_dir, notes);
    }
    let asked = client.within(PATIENCE).put::<BypassNow>("/v1/bypass", &wanted);
    match asked {
        Ok(bypass) => Ok((bypass, Notes::new())),
        Err(error) if error.no_daemon() => on_pins(&unnamed(client, pin_dir)?, Notes::new()),
        Err(error) if error.no_answer() => {
            // The daemon's own maps, if they can be found without its answer.
            let named = pin_dir.map(Path::to_owned).or_else(|| of_listener(client));
            // Nor is it known whose they are where the daemon's queue is full: then the default
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

/// Removes the program, its maps and all limits; reports which interfaces are free now.
pub(crate) fn detach(
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
    match client.post::<Detached>("/v1/detach", &()) {
        Ok(answer) => Ok((answer, Notes::new())),
        Err(error) if error.no_daemon() => Ok((on_pins(&unnamed(client, pin_dir)?)?, Notes::new())),
        Err(error) => Err(error.into()),
    }
}

/// Ends the limits on one interface.
pub(crate) fn free(
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
    let asked = AskDetach { interface: Some(interface.to_owned()) };
    match client.post::<Detached>("/v1/detach", &asked) {
        Ok(answer) => Ok((answer, Notes::new())),
        Err(error) if error.no_daemon() => on_pins(&unnamed(client, pin_dir)?, Notes::new()),
        Err(error) => Err(error.into()),
    }
}

/// A sentence that names the interfaces that are limited though no daemon answers at a socket, if
/// that can be seen: for any socket but the default one, nobody knows where the maps are.
pub(crate) fn still_limited(socket: &Path, backend: &dyn Backend) -> Option<String> {
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

/// The directory of a daemon that does not answer, by the command line that it was started with.
fn of_listener(client: &Client) -> Option<PathBuf> {
    let pid = client.within(PATIENCE).listener()?;
    let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = words.strip_suffix(&[0]).unwrap_or(&words).split(|byte| *byte == 0);
    let args = Args::try_parse_from(words.map(|word| OsString::from_vec(word.to_vec()))).ok()?;
    let Command::Run(run) = &args.command else { return None };
    // The path as the daemon sees it.
    Some(fs::read_link(format!("/proc/{pid}/cwd")).ok()?.join(&run.pin_dir))
}

#[cfg(test)]
mod tests {
    use limiter_datapath::fake::Fake;

    use super::*;

    /// Of a socket whose maps are known, and only while nothing lets all packets pass.
    #[test]
    fn what_is_in_force_without_a_daemon_is_reported_where_it_is_known() {
        let fake = Fake::default();
        let reported = still_limited(Path::new(SOCKET), &fake);
        assert!(reported.is_some_and(|reported| reported.contains("in force on fake0")));
        assert_eq!(still_limited(Path::new("/run/other.sock"), &fake), None);
        fake.set_bypass(Path::new("pinned"), true).unwrap();
        assert_eq!(still_limited(Path::new(SOCKET), &fake), None);
    }
}
