//! Questions that the pinned maps answer where no daemon does.

use std::path::Path;

use limiter_api::client::Client;
use limiter_api::render;
use limiter_daemon::control::Refusal;
use limiter_daemon::from_maps;
use limiter_datapath::{Backend, DatapathError, LinkState, Observed, interfaces_of};
use serde::de::DeserializeOwned;

use super::way::{Notes, Way, unnamed, way};
use crate::failure::Failure;

pub(crate) struct Asked<'a> {
    pub(crate) client: &'a Client,
    pub(crate) pin_dir: Option<&'a Path>,
    pub(crate) backend: &'a dyn Backend,
}

impl Asked<'_> {
    /// The answer of the daemon; without one, that of the maps that it left pinned, with notes
    /// about that.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        by_maps: impl Fn(&dyn Observed) -> Result<T, Refusal>,
    ) -> Result<(T, Notes), Failure> {
        let Self { client, pin_dir, backend } = *self;
        if let Way::Pins(pin_dir, mut notes) = way(client, pin_dir)? {
            let maps = backend.read(&pin_dir).map_err(Failure::Pinned)?;
            notes
                .extend(notes_on(&*maps, &format!("read from the maps in {}", pin_dir.display()))?);
            return Ok((by_maps(&*maps)?, notes));
        }
        let daemon = match client.get::<T>(path) {
            Ok(answer) => return Ok((answer, Notes::new())),
            Err(error) if error.no_daemon() => error,
            Err(error) => return Err(error.into()),
        };
        // Of another socket than the default one nobody knows where the maps are.
        let Ok(pin_dir) = unnamed(client, pin_dir) else { return Err(daemon.into()) };
        let maps = match backend.read(&pin_dir) {
            Ok(maps) => maps,
            Err(DatapathError::NothingPinned(_)) => return Err(daemon.into()),
            Err(error) => {
                return Err(Failure::Unread { daemon, maps: Box::new(Failure::Pinned(error)) });
            }
        };
        let (socket, pin_dir) = (client.socket().display(), pin_dir.display());
        let first = format!("no daemon at {socket}: read from the maps in {pin_dir}");
        let notes = notes_on(&*maps, &first)?;
        Ok((by_maps(&*maps)?, notes))
    }
}

/// Notes on an answer from the maps, and on what it lacks: `first`, and what is in force.
fn notes_on(maps: &dyn Observed, first: &str) -> Result<Notes, Failure> {
    let bypass = maps.bypass().map_err(Failure::Pinned)?;
    let limited = maps
        .attachments()
        .iter()
        .filter(|at| at.state.is_attached() || at.state == LinkState::Unseen);
    let names = interfaces_of(limited);
    let in_force = match (names.as_slice(), bypass) {
        ([], _) => "the program is on no interface".to_owned(),
        (_, true) => "the bypass lets every packet pass".to_owned(),
        (names, false) => format!("the limits are in force on {}", names.join(", ")),
    };
    let mut notes = vec![format!("{first}; {in_force}")];
    if let Some(left) = from_maps::trial_left(maps)? {
        notes.push(format!(
            "these rules are on trial: in {} the previous rules return",
            render::seconds(left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0)))
        ));
    }
    if from_maps::daemon_lost(maps)? {
        notes.push(
            "rules with `on_daemon_loss: shadow` only count by now: no daemon runs".to_owned(),
        );
    }
    notes.push(format!("the maps do not hold {}", from_maps::unknown().join("; nor ")));
    Ok(notes)
}
