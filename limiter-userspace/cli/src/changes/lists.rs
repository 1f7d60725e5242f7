//! `limiter allow`, `deny`, `unlist` and `lists`.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use limiter_api::client::{Client, ClientError};
use limiter_api::lists::{ListName, ListsChanged, SetList, Timed, UnsetList};
use limiter_api::rules::Session;
use limiter_daemon::ssh;
use limiter_rules::feed::{Bad, Feed};
use limiter_rules::target_text::named_port;
use limiter_rules::{Selector, source_text};

use crate::args::lists::{Listing, Whom};
use crate::failure::Failure;

/// Sources in one request that takes some off: far below the longest path that the daemon takes.
const BATCH: usize = 500;

/// Lines of a list that are reported, at most.
const MOST_LINES: usize = 20;

/// Reads an address or a prefix; some people write a port there.
fn source_named(text: &str) -> Result<Selector, Failure> {
    source_text::parse(text).map_err(|error| match named_port(text) {
        Some(port) => Failure::PortListed { text: text.to_owned(), port },
        None => error.into(),
    })
}

/// Puts sources on a list, all in one request, which is accepted as a whole or not at all. Reports
/// the lines of a file that could not be read.
pub(crate) fn set(
    client: &Client,
    list: ListName,
    listing: &Listing,
) -> Result<(ListsChanged, Vec<String>), Failure> {
    let Listing { whom, replace, strict, seconds, reason } = listing;
    for source in &whom.sources {
        source_named(source)?;
    }
    let mut request = SetList {
        list,
        sources: whom.sources.clone(),
        timed: Vec::new(),
        seconds: *seconds,
        by: whom.author_of_entries()?,
        replace: *replace,
        strict: *strict,
        reason: reason.clone(),
        force: whom.force,
        session: ssh::own_session(),
    };
    let mut notes = Vec::new();
    if let Some(path) = &whom.file {
        let feed = read(path)?;
        notes = unread(path, &feed);
        if *strict && !feed.bad.is_empty() {
            return Err(Failure::ListFile(notes));
        }
        for entry in feed.entries {
            let source = entry.source.to_string();
            match entry.seconds {
                Some(seconds) => request.timed.push(Timed { source, seconds, reason: None }),
                None => request.sources.push(source),
            }
        }
        let empty = request.sources.is_empty() && request.timed.is_empty();
        // An empty list of decisions is one that was read.
        if empty && (!feed.is_decisions || !feed.bad.is_empty()) {
            notes.push("no source is named: the file has none".to_owned());
            return Err(Failure::ListFile(notes));
        }
    }
    let changed = client.put::<ListsChanged>("/v1/lists", &request)?;
    if whom.file.is_none() {
        return Ok((changed, notes));
    }
    // Of a file the sums are reported, and not each of its sources.
    let ListsChanged { new, kept, off, ref skipped, .. } = changed;
    let named = new + kept + skipped.len();
    let mut sums =
        format!("{named} named: {new} new on the {} list, {kept} on it before", list.name());
    // Writing to a `String` cannot fail.
    if !skipped.is_empty() {
        let _: std::fmt::Result = write!(sums, ", {} skipped", skipped.len());
    }
    if *replace {
        let _: std::fmt::Result = write!(sums, "; {off} others taken off");
    }
    Ok((ListsChanged { done: vec![sums], ..changed }, notes))
}

/// Lines of a list that could not be read, or are for nobody's packets.
fn unread(path: &Path, feed: &Feed) -> Vec<String> {
    let name = path.display();
    let reported = |bad: &Bad| format!("{name}:{}: {}", bad.line, bad.problem);
    let mut notes: Vec<String> = feed.bad.iter().take(MOST_LINES).map(reported).collect();
    if feed.bad.len() > MOST_LINES {
        notes.push(format!("{name}: {} more lines cannot be read", feed.bad.len() - MOST_LINES));
    }
    notes.extend(feed.passed_over.iter().take(MOST_LINES).map(reported));
    if feed.passed_over.len() > MOST_LINES {
        let more = feed.passed_over.len() - MOST_LINES;
        notes.push(format!("{name}: {more} more decisions are passed over"));
    }
    notes
}

fn read(path: &Path) -> Result<Feed, Failure> {
    let text = if path == Path::new("-") {
        io::read_to_string(io::stdin().lock())
    } else {
        fs::read_to_string(path)
    };
    let text = text.map_err(|error| {
        let name = path.display();
        Failure::ListFile(vec![format!("{name}: {error}: give a text file with a source a line")])
    })?;
    Ok(Feed::parse(&text))
}

/// Takes sources off their lists, as [`set`] puts them there.
pub(crate) fn unset(client: &Client, whom: &Whom) -> Result<ListsChanged, Failure> {
    let parsed = whom.sources.iter().map(|source| source_named(source));
    let mut selectors: BTreeSet<Selector> = parsed.collect::<Result<_, _>>()?;
    if let Some(path) = &whom.file {
        let feed = read(path)?;
        if let Some(bad) = feed.bad.first() {
            let (name, line) = (path.display(), bad.line);
            return Err(Failure::ListFile(vec![format!("{name}:{line}: {}", bad.problem)]));
        }
        selectors.extend(feed.entries.iter().map(|entry| entry.source));
    }
    if selectors.is_empty() {
        return Err(Failure::ListFile(vec!["no source is named: the file has none".to_owned()]));
    }
    let session = ssh::own_session();
    let (own, others): (Vec<Selector>, Vec<Selector>) =
        selectors.into_iter().partition(|selector| is_around(selector, session));
    let names: Vec<String> = own.iter().chain(&others).map(ToString::to_string).collect();
    let (peer, port) = Session::words(session);
    let asked = UnsetList {
        by: whom.author().map(str::to_owned),
        force: whom.force,
        peer,
        port,
        ..UnsetList::default()
    };
    if let ([name], None) = (names.as_slice(), &whom.file) {
        return Ok(client.delete("/v1/lists", &UnsetList { source: Some(name.clone()), ..asked })?);
    }
    let mut changed = take_off(client, &names, &asked)?;
    if whom.file.is_some() {
        // Of a file the sums are reported, and not each of its sources.
        let off = names.len().saturating_sub(changed.not_listed + changed.skipped.len());
        changed.done = vec![format!("{} named: {off} taken off", names.len())];
    }
    Ok(changed)
}

/// Takes sources off their lists, in as many requests as they need. `asked` has the rest of each.
pub(crate) fn take_off(
    client: &Client,
    names: &[String],
    asked: &UnsetList,
) -> Result<ListsChanged, ClientError> {
    let mut changed = ListsChanged::default();
    for batch in names.chunks(BATCH) {
        let ListsChanged { not_listed, skipped, .. } = changed;
        let asked = UnsetList { sources: Some(batch.join(",")), ..asked.clone() };
        changed = client.delete("/v1/lists", &asked)?;
        changed.not_listed += not_listed;
        changed.skipped.extend(skipped);
    }
    Ok(changed)
}

/// True if the session in which the command is typed is within a source.
pub(crate) fn is_around(source: &Selector, session: Option<Session>) -> bool {
    session.is_some_and(|session| source.contains(&Selector::address(session.peer)))
}

impl Whom {
    /// The program that was named as the author; `None` for a person.
    fn author(&self) -> Option<&str> {
        self.by.as_deref().filter(|by| *by != PERSON)
    }

    /// The author of new entries: the one that is named, otherwise the file that they come from.
    fn author_of_entries(&self) -> Result<Option<String>, Failure> {
        match &self.file {
            _ if self.by.is_some() => Ok(self.author().map(str::to_owned)),
            None => Ok(None),
            Some(path) if path == Path::new("-") => Ok(Some("standard input".to_owned())),
            Some(path) => {
                let path = std::path::absolute(path).map_err(|error| {
                    Failure::ListFile(vec![format!(
                        "{}: {error}: name it with --by",
                        path.display()
                    )])
                })?;
                // The end of a long path distinguishes files.
                let text = path.display().to_string();
                let skip = text.chars().count().saturating_sub(MOST_NAME);
                Ok(Some(text.chars().skip(skip).collect()))
            }
        }
    }
}

/// The name of an author that is no program.
const PERSON: &str = "person";

/// Longest name of a program or list, in characters.
const MOST_NAME: usize = 128;
