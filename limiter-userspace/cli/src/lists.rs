//! `limiter allow`, `deny`, `unlist` and `lists`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use limiter_daemon::api::lists::{ListName, Lists, ListsChanged, SetList};
use limiter_daemon::api::rules::Session;
use limiter_daemon::control::Client;
use limiter_daemon::ssh;
use limiter_rules::{Selector, source_text};

use super::args::lists::{Listing, Whom};
use super::failure::Failure;
use super::hand;

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
    for (_, own) in &mut sources {
        *own = own.or(seconds);
    }
    let session = ssh::own_session();
    let own = |source: &str| source_text::parse(source).is_ok_and(|at| is_around(&at, session));
    // Sources that may be refused come first, because then nothing is changed.
    sources.sort_by_key(|(source, seconds)| (!own(source), *seconds));
    let force = listing.whom.force;
    let listed: BTreeSet<Selector> = match &listing.whom.file {
        Some(_) => held(client, list)?,
        None => BTreeSet::new(),
    };
    let mut changed = ListsChanged::default();
    let of_one_time = sources.chunk_by(|(_, one), (_, other)| one == other);
    for batch in of_one_time.flat_map(|group| group.chunks(BATCH)) {
        let seconds = batch.first().and_then(|(_, seconds)| *seconds);
        let sources = batch.iter().map(|(source, _)| source.clone()).collect();
        let reason = listing.reason.clone();
        let request = SetList { list, sources, seconds, reason, force, session };
        let mut done = std::mem::take(&mut changed.done);
        changed = client.put::<ListsChanged>("/v1/lists", &request)?;
        done.append(&mut changed.done);
        changed.done = done;
    }
    if listing.replace {
        let kept: BTreeSet<Selector> = sources
            .iter()
            .map(|(source, _)| source_text::parse(source))
            .collect::<Result<_, _>>()?;
        changed = take_off_others(client, list, &kept, force)?.unwrap_or(changed);
    }
    if listing.whom.file.is_none() {
        return Ok(changed);
    }
    // Of a file the sums are told, and not each of its sources.
    let named: BTreeSet<Selector> =
        sources.iter().map(|(source, _)| source_text::parse(source)).collect::<Result<_, _>>()?;
    let before = named.intersection(&listed).count();
    let mut sums = format!(
        "{} named: {} new on the {} list, {before} on it before",
        named.len(),
        named.len() - before,
        list.name()
    );
    if listing.replace {
        let off = listed.difference(&named).count();
        // A string takes everything.
        let _: std::fmt::Result = write!(sums, "; {off} others taken off");
    }
    Ok(ListsChanged { done: vec![sums], ..changed })
}

/// Sources on a list now.
fn held(client: &Client, list: ListName) -> Result<BTreeSet<Selector>, Failure> {
    let Lists { entries } = client.get("/v1/lists")?;
    let entries = entries.iter().filter(|entry| entry.list == list);
    Ok(entries.map(|entry| source_text::parse(&entry.source)).collect::<Result<_, _>>()?)
}

/// Takes off a list all but some sources. They come last, so that nobody is on it in between who is
/// to stay; none if there are no others.
fn take_off_others(
    client: &Client,
    list: ListName,
    kept: &BTreeSet<Selector>,
    force: bool,
) -> Result<Option<ListsChanged>, Failure> {
    let held = held(client, list)?;
    let others: Vec<String> = held.difference(kept).map(ToString::to_string).collect();
    let hand = hand::query(force);
    let mut changed = None;
    for batch in others.chunks(BATCH) {
        let path = format!("/v1/lists?sources={}{hand}", batch.join(","));
        // Some may have expired meanwhile: they are off the list as well.
        let off = client.delete::<ListsChanged>(&path)?;
        changed = Some(ListsChanged { not_listed: 0, ..off });
    }
    Ok(changed)
}

/// Takes sources off their lists, as [`set`] puts them there.
pub(super) fn unset(client: &Client, whom: &Whom) -> Result<ListsChanged, Failure> {
    let sources = named(whom)?;
    let parsed = sources.iter().map(|(source, _)| source_text::parse(source));
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
    if whom.file.is_some() {
        // Of a file the sums are told, and not each of its sources.
        let off = names.len().saturating_sub(changed.not_listed);
        changed.done = vec![format!("{} named: {off} taken off", names.len())];
    }
    Ok(changed)
}

/// True if the session in which the command is typed falls under a source.
fn is_around(source: &Selector, session: Option<Session>) -> bool {
    session.is_some_and(|session| source.contains(&Selector::address(session.peer)))
}

/// All that are named, checked, each with the seconds that its line in the file has.
fn named(whom: &Whom) -> Result<Vec<(String, Option<u64>)>, Failure> {
    let mut sources: Vec<(String, Option<u64>)> =
        whom.sources.iter().map(|source| (source.clone(), None)).collect();
    for (source, _) in &sources {
        source_text::parse(source)?;
    }
    if let Some(path) = &whom.file {
        let name = path.display();
        let text = if path == Path::new("-") {
            io::read_to_string(io::stdin().lock())
        } else {
            fs::read_to_string(path)
        };
        let text = text.map_err(|error| {
            Failure::ListFile(format!("{name}: {error}: give a text file with a source a line"))
        })?;
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let wrong = |error: String| Failure::ListFile(format!("{name}:{}: {error}", index + 1));
            let (source, time) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            source_text::parse(source).map_err(|error| wrong(error.to_string()))?;
            let seconds = seconds(time.trim()).map_err(wrong)?;
            sources.push((source.to_owned(), seconds));
        }
    }
    if sources.is_empty() {
        return Err(Failure::ListFile("no source is named: the file has none".to_owned()));
    }
    Ok(sources)
}

/// Whole seconds of the time behind a source.
fn seconds(time: &str) -> Result<Option<u64>, String> {
    if time.is_empty() {
        return Ok(None);
    }
    match humantime::parse_duration(time) {
        Ok(time) => Ok(Some(time.as_secs() + u64::from(time.subsec_nanos() > 0))),
        Err(_) => Err(format!(
            "{time:?} is no length of time: write a source a line, and behind it, if you want, for \
             how long, as in `192.0.2.7 10min`"
        )),
    }
}
