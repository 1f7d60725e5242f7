//! `limiter allow`, `deny`, `unlist` and `lists`.

use std::collections::BTreeSet;
use std::fs;

use super::args::{Listing, Whom};
use super::failure::Failure;
use super::hand;
use crate::control::Client;
use crate::daemon::api::lists::{ListName, ListsChanged, SetList};
use crate::daemon::api::rules::Session;
use crate::daemon::ssh;
use crate::rules::{Selector, source_text};

/// Sources in one request: far below the largest body that the daemon takes.
const BATCH: usize = 500;

/// Puts sources on a list. Everything is checked before anything is sent; a long list goes in
/// several requests.
pub(super) fn set(
    client: &Client,
    list: ListName,
    listing: &Listing,
) -> Result<ListsChanged, Failure> {
    let mut sources = named(&listing.whom)?;
    // A part of a second more is no harm; less would be.
    let seconds = listing.time.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    let session = ssh::own_session();
    let own = |source: &str| source_text::parse(source).is_ok_and(|at| is_around(&at, session));
    // Sources that may be refused come first, because then nothing is changed.
    sources.sort_by_key(|source| !own(source));
    let force = listing.whom.force;
    let mut changed = ListsChanged::default();
    for batch in sources.chunks(BATCH) {
        let request = SetList { list, sources: batch.to_vec(), seconds, force, session };
        changed = client.put::<ListsChanged>("/v1/lists", &request)?;
    }
    Ok(changed)
}

/// Takes sources off their lists, as [`set`] puts them there.
pub(super) fn unset(client: &Client, whom: &Whom) -> Result<ListsChanged, Failure> {
    let sources = named(whom)?;
    let parsed = sources.iter().map(|source| source_text::parse(source));
    // The parsed form has nothing in it that a URL would have to escape.
    let selectors: BTreeSet<Selector> = parsed.collect::<Result<_, _>>()?;
    let session = ssh::own_session();
    let (own, others): (Vec<Selector>, Vec<Selector>) =
        selectors.into_iter().partition(|selector| is_around(selector, session));
    let names: Vec<String> = own.iter().chain(&others).map(ToString::to_string).collect();
    let hand = hand::query(whom.force);
    if let ([name], None) = (names.as_slice(), &whom.file) {
        return Ok(client.delete(&format!("/v1/lists?source={name}{hand}"))?);
    }
    let mut changed = ListsChanged::default();
    for batch in names.chunks(BATCH) {
        let not_listed = changed.not_listed;
        changed = client.delete(&format!("/v1/lists?sources={}{hand}", batch.join(",")))?;
        changed.not_listed += not_listed;
    }
    Ok(changed)
}

/// True if the session in which the command is typed falls under a source.
fn is_around(source: &Selector, session: Option<Session>) -> bool {
    session.is_some_and(|session| source.contains(&Selector::address(session.peer)))
}

/// All that are named, checked.
fn named(whom: &Whom) -> Result<Vec<String>, Failure> {
    let mut sources = whom.sources.clone();
    for source in &sources {
        source_text::parse(source)?;
    }
    if let Some(path) = &whom.file {
        let name = path.display();
        let text = fs::read_to_string(path).map_err(|error| {
            Failure::ListFile(format!("{name}: {error}: give a text file with a source a line"))
        })?;
        for (index, line) in text.lines().enumerate() {
            let source = line.split('#').next().unwrap_or_default().trim();
            if source.is_empty() {
                continue;
            }
            source_text::parse(source)
                .map_err(|error| Failure::ListFile(format!("{name}:{}: {error}", index + 1)))?;
            sources.push(source.to_owned());
        }
    }
    if sources.is_empty() {
        return Err(Failure::ListFile("no source is named: the file has none".to_owned()));
    }
    Ok(sources)
}
