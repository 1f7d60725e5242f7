//! `limiter allow`, `deny` and `lists`.

use std::fmt::Write as _;
use std::fs;

use super::args::Listing;
use super::failure::Failure;
use super::render::{Render, push, table};
use crate::control::Client;
use crate::control::api::lists::{ListName, Lists, ListsChanged, SetList};
use crate::control::api::rules::Session;
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
    let mut sources = listing.sources.clone();
    for source in &sources {
        source_text::parse(source)?;
    }
    if let Some(path) = &listing.file {
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
        return Err(Failure::ListFile("no source to list: the file has none".to_owned()));
    }
    // A part of a second more is no harm; less would be.
    let seconds = listing.time.map(|time| time.as_secs() + u64::from(time.subsec_nanos() > 0));
    let session = ssh::own_session();
    if let Some(Session { peer, .. }) = session {
        // What may be refused comes first, because then nothing is changed.
        let peer = Selector::address(peer);
        let elsewhere =
            |source: &String| !source_text::parse(source).is_ok_and(|at| at.contains(&peer));
        sources.sort_by_key(elsewhere);
    }
    let mut changed = ListsChanged::default();
    for batch in sources.chunks(BATCH) {
        let request =
            SetList { list, sources: batch.to_vec(), seconds, force: listing.force, session };
        changed = client.put::<ListsChanged>("/v1/lists", &request)?;
    }
    Ok(changed)
}

impl Render for ListsChanged {
    fn render(&self, text: &mut String) {
        let Self { allowed, denied } = self;
        let _: std::fmt::Result = writeln!(text, "{allowed} allowed, {denied} denied");
    }
}

impl Render for Lists {
    fn render(&self, text: &mut String) {
        if self.entries.is_empty() {
            text.push_str("the lists are empty\n");
            return;
        }
        let mut table = table(&["SOURCE", "LIST", ">EXPIRES IN"]);
        for entry in &self.entries {
            let expires = entry
                .expires_in_seconds
                .map_or("never".to_owned(), |seconds| format!("{seconds} s"));
            table.add_row([entry.source.clone(), entry.list.name().to_owned(), expires]);
        }
        push(text, &table);
    }
}
