//! Reads one rule of iptables: from words to packets, limit and verdict.

use limiter_rules::model::{Fact, Period};

use super::hashlimit::HashLimit;
use super::matches;
use super::recent::{Recent, Use};
use super::target;
use crate::difference::Difference;
use crate::firewall::{Case, Hook, Limit, Verdict};
use crate::packets::{ALL_BUT, BY_FLAGS, Family, Packets};
use crate::rate;

#[derive(Debug)]
pub(super) struct ReadRule {
    pub(super) cases: Vec<Case>,
    pub(super) comment: Option<String>,
    pub(super) recent: Vec<Use>,
    /// The part of the headers that its target changes.
    pub(super) writes: Option<Fact>,
}

/// Modules whose options are read individually.
const KNOWN: [&str; 23] = [
    "tcp",
    "udp",
    "sctp",
    "dccp",
    "udplite",
    "icmp",
    "icmp6",
    "icmpv6",
    "ipv6-icmp",
    "multiport",
    "conntrack",
    "state",
    "length",
    "ttl",
    "hl",
    "dscp",
    "comment",
    "limit",
    "hashlimit",
    "recent",
    "connlimit",
    "standard",
    "all",
];

/// Modules that limit in their own way, and why they are not translated.
const LIMITING: [(&str, &str); 5] = [
    ("connbytes", "bytes of a connection are not counted"),
    ("quota", rate::QUOTA),
    ("quota2", rate::QUOTA),
    ("rateest", "rates are not estimated"),
    ("statistic", "no packets are picked at random or by turns"),
];

pub(super) struct OptionReader<'a> {
    words: &'a [String],
    at: usize,
    pub(super) family: Family,
    pub(super) packets: Packets,
    /// True if the next option is negated.
    not: bool,
    verdict: Option<Verdict>,
    comment: Option<String>,
    /// Modules in the order in which they were loaded, and whether that was after a limit.
    loaded: Vec<(String, bool)>,
    limit: Option<PlainLimit>,
    hash: Option<HashLimit>,
    recent: Option<Recent>,
    /// True if a module with unknown options was named.
    foreign: bool,
    /// Differences of a limit caused by its conditions.
    differences: Vec<Difference>,
    /// True if packets with a translated destination match as well.
    pub(super) or_translated: bool,
    hook: Option<Hook>,
    /// The part of the headers that its target changes.
    writes: Option<Fact>,
}

/// `-m limit`.
#[derive(Debug)]
struct PlainLimit {
    rate: String,
    burst: Option<String>,
}

/// Reads the words after the chain's name. `hook` is the chain's, if it has one.
pub(super) fn read(words: &[String], family: Family, hook: Option<Hook>) -> ReadRule {
    let mut reading = OptionReader {
        words,
        at: 0,
        family,
        packets: Packets::default(),
        not: false,
        verdict: None,
        comment: None,
        loaded: Vec::new(),
        limit: None,
        hash: None,
        recent: None,
        foreign: false,
        differences: Vec::new(),
        or_translated: false,
        hook,
        writes: None,
    };
    while let Some(word) = reading.next() {
        reading.option(&word);
    }
    reading.finish()
}

impl OptionReader<'_> {
    fn next(&mut self) -> Option<String> {
        let word = self.words.get(self.at)?.clone();
        self.at += 1;
        Some(word)
    }

    pub(super) fn value(&mut self, option: &str) -> Option<String> {
        let value = self.next();
        if value.is_none() {
            self.packets.lacks_limit(format!("{option} has no value"));
        }
        value
    }

    /// True if the option was negated. Resets that.
    pub(super) fn negated(&mut self) -> bool {
        std::mem::take(&mut self.not)
    }

    /// Rejects a negated option. Returns false for one, so that the caller ignores its value.
    pub(super) fn plain(&mut self, option: &str) -> bool {
        let not = self.negated();
        if not {
            let way = if matches!(option, "--syn" | "--tcp-flags") { BY_FLAGS } else { ALL_BUT };
            self.packets.lacks(format!("`! {option}`: {way}"));
        }
        !not
    }

    fn option(&mut self, word: &str) {
        match word {
            "!" => {
                if self.not {
                    self.packets.lacks_limit("two `!` in a row");
                }
                self.not = true;
                return;
            }
            "-m" | "--match" => {
                if let Some(name) = self.value(word) {
                    self.module(&name);
                }
            }
            "-j" | "--jump" => {
                if let Some(name) = self.value(word) {
                    self.writes = self.writes.or_else(|| target::writes(&name));
                    let change = target::change(&name, self.hook == Some(Hook::NatLater))
                        .map(Verdict::Translates);
                    self.decide(change.unwrap_or_else(|| target::verdict(&name)));
                }
            }
            "-g" | "--goto" => {
                if let Some(name) = self.value(word) {
                    self.decide(Verdict::Goto(name));
                }
            }
            "-c" | "--set-counters" => {
                for _ in 0..2 {
                    self.value(word);
                }
            }
            "--comment" => self.comment = self.value(word),
            _ if self.is_of_limit(word) || matches::option(self, word) => {}
            _ if self.is_of_translation(word) => {}
            // Options of targets, and of unknown modules.
            _ if word.starts_with("--") && (self.foreign || self.is_of_target(word)) => {
                self.skip_values();
            }
            _ => {
                self.packets.lacks_limit(format!("`{word}` is not known"));
                self.skip_values();
            }
        }
        if word != "!" && self.negated() {
            self.packets.lacks(format!("`! {word}` is not known"));
        }
    }

    /// Reads an option of a target that translates addresses.
    fn is_of_translation(&mut self, word: &str) -> bool {
        let value = self.words.get(self.at).cloned();
        let is_value = |value: &String| !value.starts_with('-') && value != "!";
        let Some(Verdict::Translates(change)) = &mut self.verdict else { return false };
        let read = target::option(change, word, value.filter(is_value).as_deref());
        if read {
            self.skip_values();
        }
        read
    }

    /// True if the option belongs to the target that was named before.
    fn is_of_target(&self, word: &str) -> bool {
        match &self.verdict {
            Some(Verdict::Reject) => word == "--reject-with",
            Some(Verdict::Continue | Verdict::Marks(_) | Verdict::Unknown(_)) => true,
            // Chains have no options.
            _ => false,
        }
    }

    fn skip_values(&mut self) {
        while self.words.get(self.at).is_some_and(|word| !word.starts_with('-') && word != "!") {
            self.at += 1;
        }
    }

    fn decide(&mut self, verdict: Verdict) {
        if self.verdict.replace(verdict).is_some() {
            self.packets.lacks_limit("two targets in one rule");
        }
    }

    fn module(&mut self, name: &str) {
        self.foreign = !KNOWN.contains(&name);
        if name == "connlimit" {
            self.packets.lacks_limit("connlimit: connections that are open are not counted");
        } else if let Some((_, why)) = LIMITING.iter().find(|(module, _)| *module == name) {
            self.packets.lacks_limit(format!("{name}: {why}"));
        } else if name == "set" {
            self.packets.lacks(
                "the elements of its set are not in this text: `ipset save | limiter import \
                 ipset -`",
            );
        } else if self.foreign {
            self.packets.lacks(format!("limiter has no condition as `-m {name}`"));
        }
        let again = self.loaded.iter().any(|(loaded, _)| loaded == name);
        if again && matches!(name, "limit" | "hashlimit" | "recent") {
            self.packets.lacks_limit(format!("`-m {name}` twice in one rule"));
        }
        self.load(name);
        match name {
            "limit" => {
                let rate = "3/hour".to_owned();
                self.limit.get_or_insert(PlainLimit { rate, burst: None });
            }
            "hashlimit" => {
                self.hash.get_or_insert_with(HashLimit::default);
            }
            "recent" => {
                self.recent.get_or_insert_with(Recent::default);
            }
            _ => {}
        }
    }

    /// Records that a module is evaluated at this position.
    pub(super) fn load(&mut self, name: &str) {
        if self.loaded.iter().all(|(loaded, _)| loaded != name) {
            let behind = self.limit.is_some() || self.hash.is_some() || self.recent.is_some();
            self.loaded.push((name.to_owned(), behind));
        }
    }

    /// Reads options of modules that limit.
    fn is_of_limit(&mut self, word: &str) -> bool {
        match word {
            "--limit" | "--limit-burst" => {
                let not = self.negated();
                if not {
                    self.packets.lacks_limit(format!("`! {word}` is not known"));
                }
                let value = self.value(word);
                match (&mut self.limit, value) {
                    (Some(limit), Some(value)) if word == "--limit" => limit.rate = value,
                    (Some(limit), value) => limit.burst = value,
                    (None, _) => self.packets.lacks_limit(format!("{word} without `-m limit`")),
                }
            }
            _ if word.starts_with("--hashlimit") => {
                let not = self.negated();
                let value = if HashLimit::is_flag(word) { None } else { self.value(word) };
                match &mut self.hash {
                    Some(hash) => hash.option(word, value, not, &mut self.packets),
                    None => self.packets.lacks_limit(format!("{word} without `-m hashlimit`")),
                }
            }
            _ if word.starts_with("--connlimit") => {
                self.negated();
                self.skip_values();
            }
            _ if self.recent.is_some() && Recent::has(word) => {
                let not = self.negated();
                let value = if Recent::is_flag(word) { None } else { self.value(word) };
                if let Some(recent) = &mut self.recent {
                    recent.option(word, value, not, &mut self.packets);
                }
            }
            _ => return false,
        }
        true
    }

    /// Records a condition on loopback that always holds.
    pub(super) fn not_loopback(&mut self) {
        self.differences.push(Difference::Loopback);
    }

    fn finish(mut self) -> ReadRule {
        if self.not {
            self.packets.lacks_limit("a `!` stands at the end");
        }
        let limits = [self.limit.is_some(), self.hash.is_some(), self.recent.is_some()];
        if limits.iter().filter(|is| **is).count() > 1 {
            self.packets.lacks_limit("it has several limits, each asked after the one before");
        }
        let never_matters = ["comment", "limit", "hashlimit", "recent", "standard"];
        for (name, behind) in std::mem::take(&mut self.loaded) {
            if behind && !never_matters.contains(&name.as_str()) {
                self.packets.lacks_limit(format!(
                    "`-m {name}` stands behind the limit, which is charged by what it does not \
                     match"
                ));
            }
        }
        if self.packets.settle().is_err() {
            self.packets.lacks("its addresses are of several families");
        }
        let mut limit = match (&self.limit, &self.hash) {
            (Some(plain), None) => plain.limit(&mut self.packets),
            (None, Some(hash)) => hash.limit(self.family, &mut self.packets),
            _ => None,
        };
        if let Some(limit) = &mut limit {
            limit.differences.append(&mut self.differences);
        }
        let verdict = self.verdict.unwrap_or(Verdict::Continue);
        let recent = self.recent.and_then(|recent| recent.used(&mut self.packets));
        let mut translated = None;
        if self.or_translated && limit.is_none() && recent.is_none() {
            let packets = Packets { states: None, translated: true, ..self.packets.clone() };
            translated = Some(Case::new(packets, verdict.clone()));
        } else if self.or_translated {
            self.packets.lacks_limit("`--ctstate DNAT`: limiter does not see translations");
        }
        let case = Case { packets: self.packets, limit, verdict, times: Vec::new() };
        ReadRule {
            cases: [case].into_iter().chain(translated).collect(),
            comment: self.comment,
            recent: recent.into_iter().collect(),
            writes: self.writes,
        }
    }
}

impl PlainLimit {
    fn limit(&self, packets: &mut Packets) -> Option<Limit> {
        let Self { rate, burst } = self;
        let mut differences = vec![Difference::Ticks];
        let burst = match burst {
            None => {
                differences.push(Difference::DefaultBurst);
                Some(5)
            }
            Some(burst) => {
                if burst == "5" {
                    differences.push(Difference::DefaultBurst);
                }
                rate::number(burst)
            }
        };
        let (Some((amount, unit)), Some(burst)) = (rate::packets(rate), burst) else {
            packets.lacks_limit(format!("the rate {rate} or its burst cannot be read"));
            return None;
        };
        let count = limiter_common::wire::Count::Packets;
        let meter = rate::bucket(count, amount, Period::one(unit), burst);
        Some(Limit {
            meter,
            over: false,
            key: vec![],
            memory: None,
            shared: None,
            pair: None,
            differences,
        })
    }
}
