//! Requests of access logs, put before rule files for requests.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use limiter_api::render::{self, Render, counted, line, number, push, table};
use limiter_replay::access_log::Logged;
use limiter_requests::{Asked, Descriptor, Detail, Limiter, Moment, Refused, read};
use limiter_rules::file::requests::{Entry, EntryValue};
use limiter_text::plain::clean;
use serde::Serialize;

use super::share;
use crate::answer::Answer;
use crate::failure::Failure;
use crate::output::Output;
use crate::packets::reading::Read;
use crate::packets::reading::access_log::LogArguments;

/// Keys that a candidate has room for.
const KEYS: usize = 1 << 20;

/// Clients that are counted one by one for a candidate, so that memory does not grow with the log.
const CLIENTS: usize = 1 << 18;

/// Clients that are named for a candidate: those that are refused most.
const NAMED: usize = 5;

/// Requests between two sweeps of a part of the keys, and parts.
const SWEEP: u64 = 4096;
const PARTS: usize = 64;

/// A clock of the buckets at the first request: a day after boot, so that none of them is older.
const BEGIN: u64 = 86_400_000_000_000;

/// What a rule file would have done with the requests.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    passed: u64,
    refused: u64,
    /// Requests of `passed` to which no rule applied.
    without_rule: u64,
    /// Clients of which a request was refused.
    clients_hit: u64,
    /// Requests that these clients made, refused or not.
    requests_of_hit: u64,
    /// Requests of clients beyond those that are counted one by one.
    uncounted: u64,
    most_refused: Vec<Hit>,
}

/// A client of which requests were refused.
#[derive(Debug, Serialize)]
struct Hit {
    client: String,
    requests: u64,
    refused: u64,
    /// The rule that refused the first of them.
    rule: String,
}

/// Answer of `simulate --access-log`.
#[derive(Debug, Serialize)]
struct Simulated {
    requests: u64,
    clients: u64,
    candidates: Vec<Row>,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<String>,
}

#[derive(Debug, Default)]
struct Client {
    requests: u64,
    refused: u64,
    rule: Box<str>,
}

/// What becomes of a request.
#[derive(Debug, Default)]
struct Decided {
    over: bool,
    /// The rule that refuses it.
    rule: Box<str>,
    /// True if any rule is for it.
    applies: bool,
}

/// A rule file, with its buckets.
struct Candidate {
    row: Row,
    limiter: Limiter,
    domain: String,
    check: Vec<Vec<Entry>>,
    clients: HashMap<Box<str>, Client>,
    /// True once the buckets found no room for a key.
    is_full: bool,
}

/// Puts the requests before each rule file.
pub(super) fn simulate(
    logs: &LogArguments,
    rules: &[PathBuf],
    output: Output,
) -> Result<Answer, Failure> {
    let simulated = simulated(logs, rules)?;
    let code = if simulated.stopped.is_some() { 2 } else { 0 };
    let text = output.document(&simulated)?.unwrap_or_else(|| render::text(&simulated));
    Ok(Answer { text, errors: simulated.stopped.into_iter().collect(), code })
}

fn simulated(logs: &LogArguments, rules: &[PathBuf]) -> Result<Simulated, Failure> {
    let mut candidates = Vec::new();
    for path in rules {
        candidates.push(Candidate::read(path)?);
    }
    let (mut begin, mut count) = (None, 0u64);
    let Read { notes, stopped, packets: requests, .. } = logs.read(|logged, nanos| {
        let boot = nanos - *begin.get_or_insert(nanos) + BEGIN;
        let moment = Moment::of_nanos(boot, nanos);
        count += 1;
        for candidate in &mut candidates {
            candidate.judge(logged, &moment, count)?;
        }
        Ok(())
    })?;
    let mut simulated = Simulated { requests, clients: 0, candidates: Vec::new(), notes, stopped };
    for candidate in candidates {
        simulated.clients = simulated.clients.max(number_of(candidate.clients.len()));
        let (row, notes) = candidate.finish(requests)?;
        simulated.candidates.push(row);
        simulated.notes.extend(notes);
    }
    Ok(simulated)
}

fn number_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

impl Candidate {
    fn read(path: &Path) -> Result<Self, Failure> {
        let name = clean(&path.display().to_string());
        let failed = |why: &dyn std::fmt::Display| Failure::Replay(format!("{name}: {why}"));
        let (files, errors) = read(&[path.to_owned()]);
        if let Some(error) = errors.into_iter().next() {
            return Err(Failure::Replay(error.to_string()));
        }
        let mut with_check = files.iter().filter(|(_, file)| !file.check.is_empty());
        let (domain, check) = match (with_check.next(), with_check.next()) {
            (Some((_, file)), None) => (file.domain.clone(), file.check.clone()),
            (None, _) => {
                return Err(failed(
                    &"it has no `check`, which says what a request is asked about: give it one, as \
                      in docs/requests.md#from-a-proxy",
                ));
            }
            (Some(_), Some(_)) => {
                return Err(failed(&"several domains have a `check`: name the file of one"));
            }
        };
        let limiter = Limiter::new(KEYS).map_err(|error| failed(&error))?;
        // Without other nodes, a limit that nodes share is one of this node.
        limiter.apply(&files, &Moment::of_nanos(BEGIN, BEGIN)).map_err(|error| failed(&error))?;
        let row = Row {
            name,
            passed: 0,
            refused: 0,
            without_rule: 0,
            clients_hit: 0,
            requests_of_hit: 0,
            uncounted: 0,
            most_refused: Vec::new(),
        };
        let clients = HashMap::new();
        Ok(Self { row, limiter, domain, check, clients, is_full: false })
    }

    fn judge(&mut self, logged: &Logged<'_>, moment: &Moment, count: u64) -> Result<(), Failure> {
        let Decided { over, rule, applies } = self.decide(logged, moment)?;
        self.row.passed += u64::from(!over);
        self.row.refused += u64::from(over);
        self.row.without_rule += u64::from(!over && !applies);
        self.count(logged, over, rule);
        if count.is_multiple_of(SWEEP) {
            let round = usize::try_from(count / SWEEP).unwrap_or_default() % PARTS;
            self.limiter.sweep(round, PARTS, moment);
        }
        self.is_full |= self.limiter.keys() >= self.limiter.most_keys();
        Ok(())
    }

    fn decide(&self, logged: &Logged<'_>, moment: &Moment) -> Result<Decided, Failure> {
        let entry = |entry: &Entry| {
            let value = match &entry.value {
                EntryValue::Fixed(value) => Cow::Owned(value.to_string()),
                EntryValue::Header(name) => logged.get(name)?,
            };
            Some((entry.key.to_string(), value))
        };
        let made: Vec<Vec<_>> =
            self.check.iter().filter_map(|entries| entries.iter().map(entry).collect()).collect();
        let descriptors = made.iter().map(|entries| Descriptor {
            entries: entries.iter().map(|(key, value)| (&**key, &**value)).collect(),
            ..Descriptor::default()
        });
        let asked = Asked { domain: &self.domain, descriptors: descriptors.collect(), hits: 1 };
        let rules = self.limiter.rules();
        match self.limiter.decide(&rules, &asked, moment, Detail::Decision) {
            Ok(answer) => {
                let over = answer.statuses.iter().find(|status| status.over);
                let rule = over.and_then(|status| status.rule.as_ref());
                Ok(Decided {
                    over: answer.over,
                    rule: rule.map(|rule| rule.shown().into()).unwrap_or_default(),
                    applies: answer.statuses.iter().any(|status| status.rule.is_some()),
                })
            }
            // No header of any descriptor is in the log.
            Err(Refused::NoDescriptors) => Ok(Decided::default()),
            Err(error) => Err(Failure::Replay(format!("{}: {error}", self.row.name))),
        }
    }

    fn count(&mut self, logged: &Logged<'_>, over: bool, rule: Box<str>) {
        let client = logged.get("client").unwrap_or(Cow::Borrowed("-"));
        if !self.clients.contains_key(&*client) && self.clients.len() >= CLIENTS {
            self.row.uncounted += 1;
            return;
        }
        let client = match self.clients.get_mut(&*client) {
            Some(client) => client,
            None => self.clients.entry(client.into()).or_default(),
        };
        client.requests += 1;
        if over && client.refused == 0 {
            client.rule = rule;
        }
        client.refused += u64::from(over);
    }

    fn finish(self, requests: u64) -> Result<(Row, Vec<String>), Failure> {
        let Self { mut row, clients, check, is_full, .. } = self;
        if row.without_rule == requests && requests > 0 {
            let headers = check.iter().flatten().filter_map(|entry| match &entry.value {
                EntryValue::Header(name) => Some(&**name),
                EntryValue::Fixed(_) => None,
            });
            let headers = headers.collect::<Vec<_>>().join(", ");
            return Err(Failure::Replay(format!(
                "{}: no rule applies to any request: `check` takes {headers} from the log; name \
                 the fields that have them, as in `--field {}=FIELD`",
                row.name,
                headers.split(',').next().unwrap_or("NAME"),
            )));
        }
        let mut hit: Vec<_> = clients.into_iter().filter(|(_, of)| of.refused > 0).collect();
        hit.sort_unstable_by(|(one, a), (other, b)| {
            Reverse(a.refused).cmp(&Reverse(b.refused)).then_with(|| one.cmp(other))
        });
        row.clients_hit = number_of(hit.len());
        row.requests_of_hit = hit.iter().map(|(_, of)| of.requests).sum();
        let named = hit.into_iter().take(NAMED);
        row.most_refused = named
            .map(|(client, Client { requests, refused, rule })| Hit {
                client: clean(&client),
                requests,
                refused,
                rule: rule.into(),
            })
            .collect();
        let mut notes = Vec::new();
        if row.uncounted > 0 {
            notes.push(format!(
                "{}: only {} clients are counted one by one: CLIENTS HIT is of those, and {} of \
                 others",
                row.name,
                number(number_of(CLIENTS)),
                counted(row.uncounted, "request is", "requests are")
            ));
        }
        if is_full {
            notes.push(format!(
                "{}: more than {} keys were in use at once: what became of the others is what the \
                 rules say for a full table",
                row.name,
                number(number_of(KEYS))
            ));
        }
        Ok((row, notes))
    }
}

impl Render for Simulated {
    fn render(&self, text: &mut String) {
        let requests = counted(self.requests, "request", "requests");
        let clients = counted(self.clients, "client", "clients");
        let more = self.candidates.iter().any(|row| row.uncounted > 0);
        let more = if more { " or more" } else { "" };
        line(text, format_args!("{requests} of {clients}{more}"));
        text.push('\n');
        let mut rows =
            table(&["RULES", ">PASSED", ">REFUSED", ">NO RULE", ">CLIENTS HIT", ">THEIR REQUESTS"]);
        for row in &self.candidates {
            rows.add_row([
                row.name.clone(),
                number(row.passed),
                number(row.refused),
                number(row.without_rule),
                number(row.clients_hit),
                share(row.requests_of_hit, self.requests),
            ]);
        }
        push(text, &rows);
        for row in self.candidates.iter().filter(|row| !row.most_refused.is_empty()) {
            text.push('\n');
            let mut rows = table(&["MOST REFUSED", ">REQUESTS", ">REFUSED", "RULE"]);
            for hit in &row.most_refused {
                let counts = [hit.requests, hit.refused].map(number);
                rows.add_row(
                    [hit.client.clone()].into_iter().chain(counts).chain([hit.rule.clone()]),
                );
            }
            if self.candidates.len() > 1 {
                line(text, format_args!("{}:", row.name));
            }
            push(text, &rows);
        }
        for note in &self.notes {
            line(text, format_args!("{note}"));
        }
    }
}
