//! `limiter crowdsec`: a bouncer of CrowdSec. It reads the stream of decisions of the local API and
//! keeps its bans on the deny list, as entries of the author `crowdsec`. `limiter ban` would not
//! do: it bans no ranges, has no reasons, and a ban makes the next one longer.
//!
//! Every failure, of the API or of the daemon, leaves the list as it is. The next round asks for
//! all decisions, which replace the author's entries in one request.

mod held;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use limiter_api::arguments::interval;
use limiter_api::client::{Client, ClientError};
use limiter_api::lists::{ListName, ListsChanged, SetList, Skipped, UnsetList};
use limiter_api::rules::Session;
use limiter_daemon::ssh;
use limiter_daemon::web::WebUrl;
use limiter_rules::{Selector, source_text};

use super::changes::lists;
use super::failure::Failure;
use held::{Held, LeftOut};
use stream::Lapi;

/// Author of the entries.
const AUTHOR: &str = "crowdsec";

/// The variable with the key.
const KEY: &str = "LIMITER_CROWDSEC_KEY";

/// Where a key comes from, for error messages.
const MAKE: &str = "`cscli bouncers add limiter -o raw` makes a key";

/// Longest time that the local API may take for a whole answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// Longest time between two attempts, unless --interval is longer.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// Sources that stay as they are, of which so many are named in a round.
const MOST_LINES: usize = 20;

/// Arguments of `crowdsec`.
#[derive(Debug, clap::Args)]
pub(super) struct Ask {
    /// CrowdSec's local API
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = lapi)]
    url: WebUrl,
    /// A file with the key of this bouncer [default: the variable `LIMITER_CROWDSEC_KEY`]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// How often to ask for new decisions
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval)]
    interval: Duration,
}

fn lapi(text: &str) -> Result<WebUrl, String> {
    let url: WebUrl = text.parse()?;
    match url.uri().query() {
        Some(query) => Err(format!("leave out ?{query}")),
        None => Ok(url),
    }
}

/// The key: from a file, or from the environment.
fn key(file: Option<&Path>) -> Result<String, Failure> {
    let (place, text) = match file {
        Some(file) => (file.display().to_string(), fs::read_to_string(file).map_err(Some)),
        None => (KEY.to_owned(), env::var(KEY).map_err(|_unset| None)),
    };
    let refused = |why: String| Err(Failure::Key(why));
    match text.as_deref().map(str::trim) {
        Ok(key) if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Ok(key.to_owned())
        }
        Ok(_) => refused(format!("{place} is not one word of ASCII: {MAKE}")),
        Err(Some(error)) => refused(format!("{place}: {error}: {MAKE}")),
        Err(None) => {
            refused(format!("no key: name its file with --key-file, or set {KEY}; {MAKE}"))
        }
    }
}

/// Keeps CrowdSec's bans on the deny list until a signal ends the process.
pub(super) fn run(ask: &Ask, client: &Client) -> Result<Infallible, Failure> {
    let lapi = Lapi::new(&ask.url, key(ask.key_file.as_deref())?, PATIENCE);
    let mut bouncer = Bouncer::new(lapi, client, ssh::own_session());
    loop {
        bouncer.turn();
        thread::sleep(pause(ask.interval, bouncer.failures, fastrand::f64()));
    }
}

/// Time until the next attempt: growing while attempts fail, and different for each bouncer of an
/// API. `random` is from 0 to 1.
fn pause(interval: Duration, failures: u32, random: f64) -> Duration {
    let Some(doublings) = failures.checked_sub(1) else { return interval };
    let grown = interval.saturating_mul(2u32.saturating_pow(doublings));
    grown.min(LONGEST_PAUSE.max(interval)).mul_f64(f64::midpoint(1.0, random))
}

/// Reason why a round did nothing, or not all.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("CrowdSec at {0}: {1}")]
    Lapi(String, String),
    #[error(transparent)]
    Daemon(#[from] ClientError),
}

struct Bouncer<'a> {
    lapi: Lapi,
    client: &'a Client,
    /// The session in which the command was typed, if it is one.
    session: Option<Session>,
    held: Held,
    /// True until an answer with all decisions is in force, and again after a failure.
    all: bool,
    failures: u32,
    /// The trouble that was reported last.
    reported: String,
    /// Sources that are banned and not on the list, which were reported.
    skipped: BTreeSet<Selector>,
}

impl<'a> Bouncer<'a> {
    fn new(lapi: Lapi, client: &'a Client, session: Option<Session>) -> Self {
        Self {
            lapi,
            client,
            session,
            held: Held::default(),
            all: true,
            failures: 0,
            reported: String::new(),
            skipped: BTreeSet::new(),
        }
    }

    /// One round. Reports a trouble once, and its end.
    fn turn(&mut self) {
        match self.round() {
            Ok(()) => {
                if self.failures > 0 {
                    tracing::info!("it works again after {} failures", self.failures);
                }
                self.failures = 0;
                self.all = false;
                self.reported.clear();
            }
            Err(trouble) => {
                let trouble = trouble.to_string();
                if trouble != self.reported {
                    tracing::warn!(
                        "{trouble}; entries of the deny list stay until their ends; trying again"
                    );
                    self.reported = trouble;
                }
                self.failures = self.failures.saturating_add(1);
                self.all = true;
            }
        }
    }

    fn round(&mut self) -> Result<(), Trouble> {
        let news = self.lapi.read(self.all);
        let news = news.map_err(|error| Trouble::Lapi(self.lapi.base.clone(), error))?;
        let now = Instant::now();
        if self.all {
            self.held = Held::default();
        }
        self.held.forget_ended(now);
        let mut left_out = LeftOut::default();
        let concerned = self.held.take(news, now, &mut left_out);
        let (banned, ended): (Vec<Selector>, Vec<Selector>) =
            concerned.into_iter().partition(|source| self.held.has(source));
        // An answer with all decisions and no ban among them is what a new or a wrong API gives,
        // too. Then only the entries go that it names as deleted.
        if !banned.is_empty() {
            self.put(&banned, now)?;
        } else if self.all {
            tracing::info!(
                "CrowdSec has no bans; entries that it does not name as deleted stay until their \
                 ends"
            );
        }
        if !ended.is_empty() && (!self.all || banned.is_empty()) {
            self.take_off(&ended)?;
        }
        self.skipped.retain(|source| self.held.has(source));
        for (problem, count) in left_out {
            tracing::warn!("{count} decisions deny nobody: {problem}");
        }
        Ok(())
    }

    /// Puts sources on the list; with all decisions, in the place of the author's entries.
    fn put(&mut self, banned: &[Selector], now: Instant) -> Result<(), Trouble> {
        let (own, banned): (Vec<Selector>, Vec<Selector>) =
            banned.iter().copied().partition(|source| lists::is_around(source, self.session));
        let request = SetList {
            list: ListName::Deny,
            timed: banned.iter().filter_map(|source| self.held.entry(source, now)).collect(),
            by: Some(AUTHOR.to_owned()),
            replace: self.all,
            session: self.session,
            ..SetList::default()
        };
        let changed = self.client.put::<ListsChanged>("/v1/lists", &request)?;
        let ListsChanged { new, kept, off, denied, not_saved, mut skipped, .. } = changed;
        let why = "this SSH session comes from it";
        let own = own.iter().map(|source| (source.to_string(), why.to_owned()));
        skipped.extend(own.map(|(source, why)| Skipped { source, why }));
        let skip = skipped.len();
        tracing::info!(new, kept, off, skipped = skip, denied, "bans of CrowdSec are in force");
        if let Some(error) = not_saved {
            tracing::warn!("not saved, so a reboot takes this back: {error}");
        }
        self.report(skipped);
        Ok(())
    }

    fn take_off(&self, ended: &[Selector]) -> Result<(), Trouble> {
        let names: Vec<String> = ended.iter().map(ToString::to_string).collect();
        let asked = UnsetList { by: Some(AUTHOR.to_owned()), ..UnsetList::default() };
        let changed = lists::take_off(self.client, &names, &asked)?;
        // Entries that others have made stay theirs.
        let off = names.len().saturating_sub(changed.not_listed + changed.skipped.len());
        tracing::info!(off, denied = changed.denied, "bans of CrowdSec have ended");
        Ok(())
    }

    /// Reports sources that are not denied, each once.
    fn report(&mut self, skipped: Vec<Skipped>) {
        let mut more = 0;
        for Skipped { source, why } in skipped {
            let Ok(selector) = source_text::parse(&source) else { continue };
            if !self.skipped.insert(selector) {
                continue;
            }
            more += 1;
            if more <= MOST_LINES {
                tracing::warn!("{source} is not denied: {why}");
            }
        }
        if more > MOST_LINES {
            tracing::warn!("{} more sources are not denied", more - MOST_LINES);
        }
    }
}
