//! Values that a shell offers for an argument: those that the daemon and this machine have now.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Command;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::{CompleteEnv, env};
use limiter_api::bans::Bans;
use limiter_api::client::Client;
use limiter_api::limits::{Limits, Origin};
use limiter_api::lists::Lists;
use limiter_api::sources::SourceList;
use limiter_text::plain::is_plain;

use crate::args::defaults::SOCKET;

/// Variable by which the script of a shell asks for values.
const VARIABLE: &str = "LIMITER_COMPLETE";

/// Time that a daemon has to answer: somebody waits with a finger on the key.
const PATIENCE: Duration = Duration::from_millis(500);

/// Values that are offered, at most: a shell lists them all.
const MOST: usize = 200;

const NAME: &str = "limiter";

/// Answers the script of a shell, if it asks, and ends the process then.
pub(crate) fn answer(arguments: impl Fn() -> Command) {
    CompleteEnv::with_factory(arguments).var(VARIABLE).complete();
}

/// The script of a shell, which asks this binary for the words.
pub(crate) fn script(shell: &dyn env::EnvCompleter) -> String {
    let mut script = Vec::new();
    // Writing to a vector cannot fail.
    let _written = shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script);
    let mut script = String::from_utf8_lossy(&script).into_owned();
    if shell.is("zsh") {
        // zsh loads the file at the first key, and expects it to answer that.
        script.push_str(
            "\n[[ \"$funcstack[1]\" = _limiter ]] && _clap_dynamic_completer_limiter \"$@\"\n",
        );
    }
    script
}

pub(crate) fn interfaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        candidates(entries.map(|entry| entry.file_name().to_string_lossy().into_owned()))
    })
}

pub(crate) fn listed() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let lists: Option<Lists> = ask("/v1/lists");
        let entries = lists.map(|lists| lists.entries).unwrap_or_default();
        candidates(entries.into_iter().map(|entry| entry.source))
    })
}

fn banned() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let bans: Option<Bans> = ask("/v1/bans");
        let bans = bans.map(|bans| bans.entries).unwrap_or_default();
        candidates(bans.into_iter().map(|ban| ban.source))
    })
}

/// Targets of limits that `set` made.
fn set() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let limits: Option<Limits> = ask("/v1/limits");
        let limits = limits.map(|limits| limits.limits).unwrap_or_default();
        let edits = limits.into_iter().filter(|limit| limit.origin == Origin::Cli);
        candidates(edits.map(|limit| limit.source))
    })
}

/// Sources of which most packets were dropped.
pub(crate) fn sources() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let sources: Option<SourceList> = ask("/v1/sources");
        let sources = sources.map(|sources| sources.sources).unwrap_or_default();
        candidates(sources.into_iter().map(|source| source.source))
    })
}

/// Values for arguments that requests define: the command, the argument, and its values.
pub(crate) fn of_requests() -> [(&'static str, &'static str, ArgValueCandidates); 4] {
    [
        ("events", "source", sources()),
        ("explain", "from", sources()),
        ("unban", "source", banned()),
        ("unset", "source", set()),
    ]
}

/// Words that a shell takes as they are.
fn candidates(words: impl Iterator<Item = String>) -> Vec<CompletionCandidate> {
    let is_word = |word: &String| word.chars().all(|c| is_plain(c) && !c.is_whitespace());
    words.filter(is_word).take(MOST).map(CompletionCandidate::new).collect()
}

/// Asks the daemon whose socket the words so far name; without an answer there are no values.
fn ask<T: serde::de::DeserializeOwned>(path: &str) -> Option<T> {
    let words: Vec<_> = std::env::args_os().collect();
    Client::new(socket(&words), PATIENCE).get(path).ok()
}

fn socket(words: &[impl AsRef<OsStr>]) -> PathBuf {
    let mut words = words.iter().map(AsRef::as_ref);
    let named = words.find_map(|word: &OsStr| match word.to_str()?.strip_prefix("--socket")? {
        "" => Some(None),
        value => value.strip_prefix('=').map(|path| Some(PathBuf::from(path))),
    });
    let named = named.and_then(|path| path.or_else(|| words.next().map(PathBuf::from)));
    named.unwrap_or_else(|| PathBuf::from(SOCKET))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_the_one_that_the_words_name() {
        let of = |line: &str| socket(&line.split(' ').collect::<Vec<_>>()).display().to_string();
        assert_eq!(of("limiter unlist"), SOCKET);
        assert_eq!(of("limiter --socket /run/a unlist"), "/run/a");
        assert_eq!(of("limiter unlist --socket=/run/b"), "/run/b");
        assert_eq!(of("limiter unlist --socket"), SOCKET);
    }

    #[test]
    fn words_with_other_characters_are_not_offered() {
        let words = ["192.0.2.7", "a b", "c\u{1b}[2J", "2001:db8::/64"].map(str::to_owned);
        let offered = candidates(words.into_iter());
        let offered: Vec<_> = offered.iter().map(|one| one.get_value().to_owned()).collect();
        assert_eq!(offered, ["192.0.2.7", "2001:db8::/64"]);
    }
}
