//! `limiter run --limit`: limits in words, written as the rule file that they stand for. The daemon
//! reads that text as it reads any file.

use std::sync::Arc;

use limiter_api::rules::Document;
use limiter_daemon::rule_files::GIVEN;
use limiter_rules::file::ExactFile;
use limiter_rules::model::rule_sentence;
use limiter_rules::model::{Direction, Limits, RuleLimit};
use limiter_rules::{Path, RateText, Rule, RuleSet, Selector, Target, TargetError, Terms, Words};
use limiter_rules::{rate_text, source_text};

use crate::failure::Failure;

/// The rule file that the words of `--limit` stand for.
pub(crate) fn document(
    limits: &[String],
    direction: Direction,
    shadow: bool,
) -> Result<Document, Failure> {
    let mut rules: Vec<Rule> = Vec::new();
    for words in limits {
        add(&mut rules, words, direction, shadow)
            .map_err(|why| Failure::Limit(format!("{GIVEN} '{words}': {why}")))?;
    }
    let rules = rules.into_iter().map(Arc::new).collect();
    let set = RuleSet { rules, ..RuleSet::default() };
    let mut file = ExactFile::begin("A rule file: save it, and start with --rules", None, &set)?;
    for rule in &set.rules {
        file.comment(&rule_sentence(rule, &set));
        file.rule(rule)?;
    }
    Ok(Document { name: GIVEN.to_owned(), text: file.end() })
}

/// Adds a limit: to the rule of the same packets, if there is one.
fn add(
    rules: &mut Vec<Rule>,
    words: &str,
    direction: Direction,
    shadow: bool,
) -> Result<(), String> {
    let (path, terms) = limit(words, direction)?;
    let terms = rate_text::shadowed(terms, shadow).map_err(|error| error.to_string())?;
    let Some(rule) = rules.iter_mut().find(|rule| rule.path == path) else {
        rules.push(Rule { name: None, label: None, path, terms });
        return Ok(());
    };
    match (&mut rule.terms, terms) {
        (Terms::Limits(before), Terms::Limits(more)) => {
            let all: Vec<RuleLimit> = before.limits.iter().chain(more.limits.iter()).collect();
            *before = Limits { limits: all.into(), ..before.clone() };
            Ok(())
        }
        _ => Err("another --limit is for the same packets: of both, keep one".to_owned()),
    }
}

/// The packets of a limit, and its terms. The burst is that of `limiter set` without `--burst`.
fn limit(words: &str, direction: Direction) -> Result<(Path, Terms), String> {
    let mut before: Vec<&str> = words.split_whitespace().collect();
    let last = before.pop().unwrap_or_default();
    let unit = ["syns/", "flows/"].iter().any(|unit| last.starts_with(unit));
    let rate = match before.pop_if(|_| unit) {
        Some(number) => format!("{number} {last}"),
        None => last.to_owned(),
    };
    let read = RateText::parse(&rate).map_err(|error| error.to_string())?;
    let terms = read.terms(None, 0).map_err(|error| error.to_string())?;
    let is_source = |word: &&str| source_text::parse(word).is_ok();
    let (source, port) = match before.as_slice() {
        [] => return Ok((Path::of_source(&Selector::Every).going(direction), terms)),
        [word] if is_source(word) => (Some(*word), None),
        [word] if word.contains('/') || word.parse::<u32>().is_ok() => (None, Some(*word)),
        [word] => match Target::parse(Words { port: Some(word), direction, ..Words::default() }) {
            // What is neither was probably meant as an address.
            Err(TargetError::Port(_)) => (Some(*word), None),
            _ => (None, Some(*word)),
        },
        [source, port] if is_source(source) => (Some(*source), Some(*port)),
        [port, source] if is_source(source) => (Some(*source), Some(*port)),
        _ => {
            return Err("write an address, a port or both, and then one rate, as in \
                        '192.0.2.0/24 udp/27015 128/s'"
                .to_owned());
        }
    };
    let named = Words { source, port, direction, ..Words::default() };
    let target = Target::parse(named).map_err(|error| error.to_string())?;
    target.ask(read, None, &rate).map_err(|error| match error {
        TargetError::Ask { rate, syns, .. } => format!(
            "{rate} of packets would stop open TCP sessions, too: write {syns:?} in the place of \
             {rate} to limit connections, or a rate of packets a second"
        ),
        other => other.to_string(),
    })?;
    Ok((target.path, terms))
}

#[cfg(test)]
mod tests {
    use limiter_rules::RuleFile;

    use super::*;

    fn written(limits: &[&str], direction: Direction) -> Result<String, String> {
        let limits: Vec<String> = limits.iter().map(|words| (*words).to_owned()).collect();
        document(&limits, direction, false).map(|file| file.text).map_err(|why| why.to_string())
    }

    /// The text is a rule file, and has the rules that a person would write.
    #[test]
    fn limits_stand_for_a_rule_file() {
        for (limits, direction, file) in [
            (&["1000/s"][..], Direction::In, "{key: remote_address, rate_limit: {rate: 1000/s}}"),
            (
                &["20mbit/s"],
                Direction::Out,
                "{direction: out, key: remote_address, rate_limit: {rate: 20mbit/s}}",
            ),
            (
                &["udp/27015 128/s"],
                Direction::In,
                "{key: protocol, value: udp, descriptors: [{key: destination_port, value: 27015, \
                 descriptors: [{key: remote_address, rate_limit: {rate: 128/s}}]}]}",
            ),
            (
                &["192.0.2.0/24 22/tcp 10 syns/min"],
                Direction::In,
                "{key: protocol, value: tcp, descriptors: [{key: destination_port, value: 22, \
                 descriptors: [{key: remote_address, value: 192.0.2.0/24, rate_limit: {rate: 10 \
                 syns/min}}]}]}",
            ),
            (
                &["1000/s", "8mbit/s"],
                Direction::In,
                "{key: remote_address, rate_limits: [{rate: 1000/s}, {rate: 8mbit/s}]}",
            ),
        ] {
            let text = written(limits, direction).unwrap();
            let read = RuleFile::parse(GIVEN, text.as_bytes(), 1522).unwrap();
            let wanted = format!("descriptors: [{file}]\n");
            let wanted = RuleFile::parse("wanted", wanted.as_bytes(), 1522).unwrap();
            assert_eq!(read.rules.lines(), wanted.rules.lines(), "{text}");
        }
    }

    /// The burst stands in the text, in the words of `limiter check`.
    #[test]
    fn the_burst_is_shown() {
        assert_eq!(
            written(&["1000/s"], Direction::In).unwrap(),
            "\
# A rule file: save it, and start with --rules
descriptors:
  # each source: 1000/s, and 1000 more at once (at most 2000 packets in any second); more is dropped
  - key: remote_address
    rate_limit:
      rate: 1000/s
"
        );
    }

    #[test]
    fn wrong_words_are_refused_in_one_line() {
        for (words, why) in [
            ("5", "--limit '5': \"5\" is not a rate: "),
            ("udp/0 1/s", "--limit 'udp/0 1/s': no packet is for port 0: "),
            ("tcp/99999 5/s", "--limit 'tcp/99999 5/s': \"tcp/99999\" is no port: write one like "),
            ("5/fortnight", "\"fortnight\" is not a unit of time: use s, min, "),
            ("ssh 5/s", "write 22/tcp"),
            ("192.0.2.300 5/s", "192.0.2.300"),
            ("22/tcp 10/min", "write \"10 syns/min\" in the place of 10/min"),
            ("a b c 1/s", "an address, a port or both"),
            ("", "is not a rate"),
        ] {
            let said = written(&[words], Direction::In).unwrap_err();
            assert!(said.contains(why) && !said.contains('\n'), "{words}: {said}");
        }
        let twice = written(&["1/s", "unlimited"], Direction::In).unwrap_err();
        assert!(twice.ends_with("of both, keep one"), "{twice}");
    }
}
