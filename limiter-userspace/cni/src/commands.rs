//! What the plugin does when it is called.

use std::path::PathBuf;

use limiter_api::client::ClientError;
use limiter_api::limits::LimitEntry;
use limiter_datapath::Interface;
use limiter_rules::RateText;
use serde_json::{Value, json};

use crate::call::{Attachment, Call};
use crate::config::{Config, VERSIONS, Wanted, version_of};
use crate::daemon::{Daemon, Kept, unlimited};
use crate::failure::{Failure, code};

/// Carries out a call. What it answers is for standard output.
pub(crate) fn answer(call: &Call, input: &[u8]) -> Result<Option<Value>, Failure> {
    match call {
        Call::Version => {
            let answer = json!({ "cniVersion": version_of(input), "supportedVersions": VERSIONS });
            return Ok(Some(answer));
        }
        Call::Add(at, namespace) => {
            let config = Config::read(input, true)?;
            add(&config, at, namespace)?;
            return config.result().cloned().map(Some);
        }
        Call::Check(at, namespace) => check(&Config::read(input, true)?, at, namespace)?,
        Call::Del(at) => del(&Config::read(input, false)?, at)?,
        Call::Gc => gc(&Config::read(input, false)?)?,
        Call::Status => status(&Config::read(input, true)?)?,
    }
    Ok(None)
}

/// A line for the log of the runtime.
fn log(text: &str) {
    eprintln!("limiter-cni: {text}");
}

fn add(config: &Config, at: &Attachment, namespace: &PathBuf) -> Result<(), Failure> {
    config.result()?;
    let wanted = config.wanted()?;
    let daemon = Daemon::of(config);
    let name = daemon.name(at);
    if wanted.is_empty() {
        // A limit that another container left on a cable of this name must not be this one's.
        return match (at.cable(namespace), daemon.kept()) {
            (Ok(cable), Ok(kept)) => Ok(daemon.remove(&kept, |kept| kept.interface == cable.name)?),
            // Without a daemon there is nothing to remove, and nothing is limited.
            _ => Ok(()),
        };
    }
    let cable = at.cable(namespace)?;
    match limit(&daemon, &cable, &name, &wanted) {
        Err(error) if daemon.may_go_without(&error) => {
            log(&format!("{name} goes without limits, as `daemonAway` says: {error}"));
            Ok(())
        }
        Err(error) => Err(error.into()),
        Ok(limited) => limited,
    }
}

/// Limits a cable in all directions, or in none.
fn limit(
    daemon: &Daemon<'_>,
    cable: &Interface,
    name: &str,
    wanted: &[Wanted],
) -> Result<Result<(), Failure>, ClientError> {
    if let Err(failure) = daemon.wait_for(cable, wanted)? {
        return Ok(Err(failure));
    }
    let kept = daemon.kept()?;
    // Also those of this container's other directions, if it is added again.
    let is_wanted =
        |kept: &Kept| wanted.iter().any(|of| kept.entry.direction.as_deref() == Some(of.direction));
    daemon
        .remove(&kept, |kept| kept.is_left(cable, name) || kept.name == name && !is_wanted(kept))?;
    for of in wanted {
        match daemon.set(cable, name, *of) {
            Ok(done) => log(&format!("{name}: {done}")),
            Err(error) => {
                let ours = daemon.kept()?;
                daemon.remove(&ours, |kept| kept.name == name)?;
                return Err(Daemon::in_bits(error, *of));
            }
        }
    }
    Ok(Ok(()))
}

fn check(config: &Config, at: &Attachment, namespace: &PathBuf) -> Result<(), Failure> {
    config.result()?;
    let wanted = config.wanted()?;
    if wanted.is_empty() {
        return Ok(());
    }
    let cable = at.cable(namespace)?;
    let daemon = Daemon::of(config);
    if let Some(missing) = unlimited(&daemon.status()?, &cable.name, &wanted) {
        return Err(Failure::new(code::NOT_LIMITED, missing.text));
    }
    let (kept, name) = (daemon.kept()?, daemon.name(at));
    let is_in_force = |of: &Wanted| {
        let ours = kept.iter().filter(|kept| kept.name == name && kept.interface == cable.name);
        ours.into_iter().any(|kept| has(&kept.entry, *of))
    };
    match wanted.iter().find(|of| !is_in_force(of)) {
        None => Ok(()),
        Some(of) => {
            let does = if of.direction == "out" { "gets" } else { "sends" };
            let text = format!(
                "{} is not in force on {} for what {name} {does}: `limiter list` shows what is; \
                 add the container again",
                of.rate(),
                cable.name
            );
            Err(Failure::new(code::NOT_LIMITED, text))
        }
    }
}

/// True if an entry limits what is wanted, whether packets over the limit wait or not.
fn has(entry: &LimitEntry, wanted: Wanted) -> bool {
    entry.direction.as_deref() == Some(wanted.direction)
        && RateText::parse(&entry.limit) == RateText::parse(&wanted.rate())
        && [true, false].map(|waits| Some(wanted.burst(waits))).contains(&entry.burst)
}

/// The limits of a container that leaves. While there is no daemon they stay with it, for a cable
/// that is going: the next ADD or GC removes them.
fn del(config: &Config, at: &Attachment) -> Result<(), Failure> {
    let daemon = Daemon::of(config);
    let name = daemon.name(at);
    let kept = daemon.kept();
    let removed = kept.and_then(|kept| daemon.remove(&kept, |kept| kept.name == name));
    match removed {
        Err(error) if error.no_daemon() => {
            log(&format!("the limits of {name} stay until the next ADD or GC: {error}"));
            Ok(())
        }
        removed => Ok(removed?),
    }
}

fn gc(config: &Config) -> Result<(), Failure> {
    let valid = config.valid()?;
    let daemon = Daemon::of(config);
    let kept = daemon.kept()?;
    Ok(daemon.remove(&kept, |kept| daemon.is_garbage(kept, &valid))?)
}

/// Whether containers can be added.
fn status(config: &Config) -> Result<(), Failure> {
    let daemon = Daemon::of(config);
    match daemon.status() {
        Err(error) if !daemon.may_go_without(&error) => {
            Err(Failure { code: code::NOT_AVAILABLE, ..error.into() })
        }
        _ => Ok(()),
    }
}
