//! The part of `limiter check` about requests.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use humantime::format_duration;
use limiter_api::render::{Render, line};
use limiter_daemon::check::Mistake;
use limiter_requests::{Limiter, Moment};
use limiter_rules::file::requests::{
    For, Level, Queue, ReadyLimit, RequestAggregate, RequestFile, RequestLimit, RequestRule,
    RequestTerms, whom_for,
};
use limiter_rules::model::{Over, RuleLimit, limit_text, over_text};
use limiter_text::plain::clean;
use serde::Serialize;

/// Sentences that anybody reads.
const MOST_SENTENCES: usize = 100;

/// Files by what their rules are for. One for both is in both.
pub(crate) struct Divided {
    /// Files for packets; none if all are for requests.
    pub(crate) packets: Option<Vec<PathBuf>>,
    /// What those for requests mean; none if there are none.
    pub(crate) requests: Option<CheckedRequests>,
}

impl Divided {
    /// Divides files; all are for requests if `requests` says so.
    pub(crate) fn of(paths: &[PathBuf], requests: bool) -> Self {
        if requests {
            return Self { packets: None, requests: Some(CheckedRequests::of(paths)) };
        }
        let (mut of_packets, mut of_requests) = (Vec::new(), Vec::new());
        for path in paths {
            // What cannot be read is reported by the check of packets.
            let files = limiter_requests::files(path).unwrap_or_else(|_| vec![path.clone()]);
            let kind = |file: &PathBuf| {
                // A pipe would wait for somebody who writes.
                let is_readable = fs::metadata(file).is_ok_and(|metadata| {
                    metadata.is_file() && metadata.len() <= limiter_rules::file::MAX_BYTES
                });
                let text = is_readable.then(|| fs::read_to_string(file).ok()).flatten();
                text.map_or(For::Packets, |text| whom_for(&text))
            };
            let kinds: Vec<For> = files.iter().map(kind).collect();
            if kinds.iter().all(|kind| *kind == For::Packets) {
                of_packets.push(path.clone());
                continue;
            }
            for (file, kind) in files.into_iter().zip(kinds) {
                if kind != For::Requests {
                    of_packets.push(file.clone());
                }
                if kind != For::Packets {
                    of_requests.push(file);
                }
            }
        }
        Self {
            packets: (!of_packets.is_empty()).then_some(of_packets),
            requests: (!of_requests.is_empty()).then(|| CheckedRequests::of(&of_requests)),
        }
    }
}

/// What rule files for requests mean.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CheckedRequests {
    /// The files that were read.
    files: Vec<String>,
    /// Number of rules.
    rules: usize,
    /// The domains by which requests ask.
    domains: Vec<String>,
    /// A sentence for each rule, up to [`MOST_SENTENCES`].
    sentences: Vec<String>,
    /// A sentence for each queue.
    queues: Vec<String>,
    /// Differences from what an author may expect.
    notes: Vec<String>,
    /// All that is wrong.
    #[serde(skip)]
    pub(crate) errors: Vec<Mistake>,
}

impl CheckedRequests {
    fn of(paths: &[PathBuf]) -> Self {
        let mut checked = Self::default();
        let (files, errors) = limiter_requests::read(paths);
        checked.errors.extend(errors.iter().map(Mistake::from));
        for (name, file) in &files {
            checked.files.push(name.clone());
            checked.domains.push(file.domain.clone());
            let rules = file.rules();
            checked.rules += rules.len();
            let room = MOST_SENTENCES.saturating_sub(checked.sentences.len());
            let sentences = rules.iter().take(room).map(|(path, rule)| sentence(file, path, rule));
            checked.sentences.extend(sentences);
            checked.queues.extend(file.queues.iter().map(queue_sentence));
            checked.notes.extend(file.notes.iter().map(|note| {
                let at = note.place.map_or_else(String::new, |place| format!(":{place}"));
                format!("{name}{at}: {}", note.text)
            }));
        }
        let with_check = files.iter().filter(|(_, file)| !file.check.is_empty());
        let names: Vec<String> =
            with_check.map(|(_, file)| format!("/check/{}", file.domain)).collect();
        if let [first, _, ..] = &names[..] {
            checked.notes.push(format!(
                "{} rule files have `check`, so /check without a domain is refused: ask {first}, \
                 and so for the others",
                names.len()
            ));
        }
        if checked.errors.is_empty()
            && let Ok(limiter) = Limiter::new(1)
            && let Err(error) = limiter.apply(&files, &Moment::now())
        {
            checked.errors.push(Mistake::from(&error));
        }
        checked
    }
}

/// A rule in one line.
fn sentence(file: &RequestFile, path: &[&Level], rule: &RequestRule) -> String {
    let path: Vec<String> = path.iter().map(ToString::to_string).collect();
    let terms = match &rule.terms {
        RequestTerms::Unlimited => "unlimited".to_owned(),
        RequestTerms::Block(_) => "none pass".to_owned(),
        RequestTerms::Limits(limits) => all_limits(limits),
    };
    let mut also = String::new();
    if let Some(budget) = &rule.budget {
        // Strings take everything.
        let _: std::fmt::Result = write!(also, " of the budget {budget}");
    }
    for RequestAggregate { v4, v6, limits } in &rule.aggregates {
        let masks = [v4, v6].into_iter().flatten().map(|bits| format!("/{bits}"));
        let masks = masks.collect::<Vec<_>>().join(" and ");
        let _: std::fmt::Result = write!(also, "; each {masks}: {}", all_limits(limits));
    }
    if let Some(ban) = rule.ban {
        // Strings take everything.
        let over = over_text(&Over::Ban(Box::new(ban)));
        let _: std::fmt::Result = write!(also, "; {over} of the source");
        if ban.strikes > 1 {
            let _: std::fmt::Result = write!(also, " after {} refused requests", ban.strikes);
        }
    }
    if let Some((queue, _)) = &rule.queue {
        let _: std::fmt::Result = write!(also, "; what is over waits in the queue {queue}");
    }
    for (is_so, what) in [
        (rule.sharing.is_some(), "over all nodes"),
        (rule.shadow, "only counted"),
        (rule.quota, "over only with all others of quota_mode"),
        (rule.afterwards, "charged afterwards"),
        (!rule.replaces.is_empty(), "replaces others"),
    ] {
        if is_so {
            also.push_str("; ");
            also.push_str(what);
        }
    }
    format!("{}: {}: {terms}{also}", file.domain, path.join(" "))
}

/// Limits of which any trips.
fn all_limits(limits: &[ReadyLimit]) -> String {
    let mut text = String::new();
    for (index, limit) in limits.iter().enumerate() {
        let after_soft =
            index > 0 && limits.get(index - 1).is_some_and(|limit| limit.written.is_soft);
        text.push_str(match index {
            0 => "",
            _ if after_soft => ", those over it marked, up to ",
            _ => " and ",
        });
        text.push_str(&one_limit(&limit.written));
    }
    text
}

/// A queue in one line.
fn queue_sentence(queue: &Queue) -> String {
    let Queue { name, depth, age, payload, attempts, visibility, .. } = queue;
    format!(
        "queue {name}: up to {depth} payloads of {payload} bytes wait for at most {}; a worker has \
         {} for one, {attempts} times",
        format_duration(*age),
        format_duration(*visibility),
    )
}

fn one_limit(limit: &RequestLimit) -> String {
    let Some(calendar) = limit.calendar else {
        return limit_text(&RuleLimit::hard(limit.meter));
    };
    let amount = limit.meter.quota().requests_per_unit;
    match calendar.months {
        1 => format!("fixed_window {amount} each month of the calendar"),
        12 => format!("fixed_window {amount} each year of the calendar"),
        months => format!("fixed_window {amount} in {months} months of the calendar"),
    }
}

impl Render for CheckedRequests {
    fn render(&self, text: &mut String) {
        let counted = |number: usize, what: &str| {
            format!("{number} {what}{}", if number == 1 { "" } else { "s" })
        };
        line(
            text,
            format_args!(
                "ok: {} with {} for requests, in {}",
                counted(self.files.len(), "file"),
                counted(self.rules, "rule"),
                counted(self.domains.len(), "domain"),
            ),
        );
        if !self.sentences.is_empty() {
            text.push('\n');
        }
        for sentence in &self.sentences {
            line(text, format_args!("{}", clean(sentence)));
        }
        let more = self.rules.saturating_sub(self.sentences.len());
        if more > 0 {
            line(text, format_args!("and {more} more"));
        }
        for queue in &self.queues {
            line(text, format_args!("{}", clean(queue)));
        }
        for note in &self.notes {
            line(text, format_args!("note: {}", clean(note)));
        }
    }
}
