//! Errors of a rule file: the place, the problem, and what to do about it.

use std::fmt;

use ipnet::IpNet;

use super::nearest::{is_none_of, nearest};
use super::place::Place;
use super::placed::At;
use super::shape::elsewhere;
use crate::dialect::Dialect;
use crate::model::key::service;
use crate::model::{Direction, Selector};
use crate::rate_text::RateTextError;
use crate::source_text::SourceTextError;

/// A rule file that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleFileError {
    /// The file, as the user named it.
    pub file: String,
    /// Place of the problem, if it is one place.
    pub place: Option<Place>,
    /// Problem that was found.
    pub problem: Problem,
}

impl RuleFileError {
    /// All of these as one; none of none.
    pub fn joined(mut errors: Vec<Self>) -> Option<Self> {
        if errors.len() < 2 {
            return errors.pop();
        }
        let (file, place) = errors.first().map(|first| (first.file.clone(), first.place))?;
        Some(Self { file, place, problem: Problem::Several(errors) })
    }
}

/// Most mistakes that are named.
const NAMED: usize = 10;

impl fmt::Display for RuleFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Problem::Several(errors) = &self.problem {
            let named: Vec<_> = errors.iter().take(NAMED).map(Self::to_string).collect();
            f.write_str(&named.join("; "))?;
            return match errors.len().saturating_sub(NAMED) {
                0 => Ok(()),
                more => write!(f, "; and {more} more, which `limiter check` names"),
            };
        }
        match self.place {
            Some(place) => write!(f, "{}:{place}: {}", self.file, self.problem),
            None => write!(f, "{}: {}", self.file, self.problem),
        }
    }
}

impl std::error::Error for RuleFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.problem)
    }
}

/// Problem of a rule file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Several of them.
    #[error("{} mistakes", .0.len())]
    Several(Vec<RuleFileError>),
    /// The operating system refused.
    #[error("cannot read the rule file: {reason}: {remedy}")]
    Read {
        /// The system's words.
        reason: String,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// Over [`super::MAX_BYTES`].
    #[error("the file is larger than 16 MiB: use prefixes instead of single addresses")]
    TooLong,
    /// Over [`super::MAX_BYTES`] with the files before it.
    #[error(
        "with this file the rule files are larger than 16 MiB: use prefixes instead of single \
         addresses"
    )]
    TooLongTogether,
    /// Another encoding.
    #[error("byte {offset} is not UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// Counted from 0.
        offset: usize,
    },
    /// Not YAML, or not the types that a rule file has.
    #[error("{0}")]
    Yaml(String),
    /// An unknown field.
    #[error("unknown field {field:?}: {}", nearest(field, expected))]
    UnknownField {
        /// Field of the rule file, as it is written there.
        field: String,
        /// Fields that may stand there.
        expected: Vec<&'static str>,
    },
    /// A field or key that the file format has, but this version does not.
    #[error("{what:?} is not supported: {reason}")]
    NotSupported {
        /// The field or key.
        what: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// A word where fields belong.
    #[error("{field}: {text:?} is not enough: write its fields, as in {like}")]
    NotFields {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// How it is written.
        like: &'static str,
    },
    /// An action by its name alone.
    #[error("action: {name} needs more than its name: write it as in `action: {like}`")]
    NeedsMore {
        /// The action.
        name: &'static str,
        /// How it is written.
        like: &'static str,
    },
    /// A word that is not among those allowed.
    #[error("{field}: {word:?} {}: {}", is_none_of(field), nearest(word, expected))]
    UnknownWord {
        /// Field of the word.
        field: &'static str,
        /// Word that is not known there.
        word: String,
        /// Words that may stand there.
        expected: Vec<&'static str>,
    },
    /// A required field.
    #[error("{field} is missing: {remedy}")]
    Missing {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// A field without a value.
    #[error("{field} has no value: {remedy}")]
    Empty {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// Text with more in it than can be seen.
    #[error("{field}: {text:?} has U+{:04X}, {}: remove it", u32::from(*.found), unseen(*.found))]
    NotPlain {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// The first such character.
        found: char,
    },
    /// Text that is no number, or a number out of range.
    #[error("{field}: {text:?} {wrong}: give a whole number from 1 to 18446744073709551615")]
    Number {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// Fault of the text.
        wrong: &'static str,
    },
    /// A whole rate where its number belongs.
    #[error(
        "requests_per_unit: {text:?} is a rate: write `rate: {text}` in place of `unit` and \
         `requests_per_unit`"
    )]
    IsRate {
        /// Text that stands there.
        text: String,
    },
    /// A number outside of its range.
    #[error("{field}: {text:?} does not fit: give a whole number from {low} to {high}")]
    Range {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// The least that fits.
        low: u64,
        /// The most.
        high: u64,
    },
    /// Neither a number nor a range of numbers.
    #[error("{field}: {text:?} does not fit: {}", ranges(text, *high))]
    NoRange {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// The highest that fits.
        high: u16,
    },
    /// Text that is no length of time, or one out of range.
    #[error("{field}: {text:?} {wrong}: write one like 5s, 1min, 2h or 1day")]
    Time {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
        /// Fault of the text.
        wrong: &'static str,
    },
    /// Text that is no rate or burst.
    #[error("{field}: {error}")]
    RateText {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Error of the text. In a box: it is large.
        error: Box<RateTextError>,
    },
    /// Text that is no part of a whole.
    #[error("{field}: {text:?} is no part of 0% to 100%: write one like 25% or 2.5%")]
    Share {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Text that stands there.
        text: String,
    },
    /// An entry of a list that stands for no source.
    #[error("{list}: {error}")]
    Listed {
        /// `allow` or `deny`.
        list: &'static str,
        /// Why the text is no address or prefix.
        error: SourceTextError,
    },
    /// An entry of a list that is for nearly everybody.
    #[error(
        "{list}: {selector} is a large part of all addresses: write the prefixes that are meant"
    )]
    Everybody {
        /// `allow` or `deny`.
        list: &'static str,
        /// Prefix of the entry.
        selector: Selector,
    },
    /// Text that is no time.
    #[error(
        "until: {text:?} is no time: write a day like 2026-12-31, or 2026-12-31T18:00:00Z, in UTC"
    )]
    Until {
        /// Text that stands there.
        text: String,
    },
    /// A text with too many characters.
    #[error("{field} is longer than {most} characters: shorten it")]
    LongText {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Characters that it may have.
        most: usize,
    },
    /// More entries on the lists than there is room for.
    #[error("the lists have room for {room} {what}: remove some, or list wider prefixes")]
    ListsFull {
        /// Sort of the entries.
        what: &'static str,
        /// Entries that there is room for.
        room: usize,
    },
    /// `value` names no source.
    #[error("value: {0}")]
    Value(SourceTextError),
    /// `value` does not fit its key.
    #[error("value: {0}")]
    KeyValue(KeyValueError),
    /// Two fields that exclude each other.
    #[error("{0} beside {1}: remove one of the two")]
    Beside(&'static str, &'static str),
    /// A field that stands alone.
    #[error("{field} without {needs}: {remedy}")]
    Without {
        /// Field of the rule file, as it is written there.
        field: &'static str,
        /// Thing that the field belongs to.
        needs: &'static str,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// A direction that is not the one of the descriptor around it.
    #[error(
        "direction: {} inside a descriptor with `direction: {}`{}: a rule has one direction; write \
         it at the outermost key, or take this descriptor out of the other",
        .own.name(), .outer.name(),
        if *.outer == Direction::default() { " (the default)" } else { "" }
    )]
    OtherDirection {
        /// Direction of the descriptor.
        own: Direction,
        /// Direction of the one around it.
        outer: Direction,
    },
    /// A key that rules of a direction do not have.
    #[error("{key} is no key of a rule with `direction: {}`: {remedy}", .direction.name())]
    KeyOfDirection {
        /// The key.
        key: &'static str,
        /// Direction of the rule.
        direction: Direction,
        /// Advice to the user.
        remedy: &'static str,
    },
    /// A key that an outer descriptor has already.
    #[error("{0} stands in this path already: a path has each key once")]
    KeyTwice(&'static str),
    /// A list that takes part of nothing.
    #[error("no source and destination of these are of one family: no packet could match")]
    NoFamily,
    /// Lists inside lists.
    #[error("the lists of values make more than {0} rules: use prefixes, or leave a value out")]
    TooManyRules(usize),
    /// A name that the program uses itself.
    #[error("{0:?} is a name of limiter's own: use another")]
    ReservedName(String),
    /// `unlimited: true` beside a rate.
    #[error("{0} beside unlimited: remove one of the two")]
    UnlimitedWith(&'static str),
    /// A second definition of a thing that may be defined once.
    #[error("a second {subject}, the first is in line {first}: {}", keep_one(subject))]
    Duplicate {
        /// Name of the thing.
        subject: String,
        /// Line of the first.
        first: u64,
    },
    /// One rule in two files.
    #[error("a second {subject}, the first is in {first}: {}", keep_one(subject))]
    Elsewhere {
        /// Name of the rule.
        subject: String,
        /// Place of the first.
        first: String,
    },
    /// Settings that may stand in several files, but not in different words.
    #[error("{subject} is another one than in {first}: write it once, or the same in both")]
    Differs {
        /// Name of the thing.
        subject: String,
        /// Place of the first.
        first: String,
    },
    /// A directory of rules without any.
    #[error(
        "no rule file is in this directory: add one that ends in .yaml or .yml, or name a file"
    )]
    NoFiles,
    /// No content, without a statement that none is meant.
    #[error(
        "no rules are in the file, and so nobody would be limited: write them, or \
         `descriptors: []` if none are meant"
    )]
    NoRules,
    /// More than the data path can hold.
    #[error("{0}")]
    Limit(String),
}

/// Fields that are of all limits of a rule, and often written in one of them.
const OF_ALL_LIMITS: [(&str, &str); 2] = [
    ("scope", "it is of all limits of a rule: write it beside `rate_limit`"),
    ("cluster", "it is of all limits of a rule: write it beside `rate_limit` and `scope: cluster`"),
];

/// Error of the value of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyValueError {
    /// Bits past the prefix length.
    #[error("{0} has host bits set: write {net}", net = .0.trunc())]
    HostBits(IpNet),
    /// An IPv4 address written as IPv6.
    #[error("{0} is an IPv4-mapped address, which no packet carries: write the IPv4 address")]
    Mapped(IpNet),
    /// A prefix inside one bucket.
    #[error(
        "{net} is longer than /{mask}, and a bucket is for a /{mask}: write `{field}: {len}`, or \
         {wider} if all of that is meant",
        len = .net.prefix_len()
    )]
    TooLong {
        /// The prefix.
        net: IpNet,
        /// The table's mask.
        mask: u8,
        /// The prefix of that length.
        wider: IpNet,
        /// The field of the mask.
        field: &'static str,
    },
    /// A prefix inside one bucket of an aggregate.
    #[error(
        "{net} is only a part of the aggregate's /{mask}: write `{field}: {len}` for one limit on \
         all of {net}, or a descriptor of its own for {wider} if all of that is meant",
        len = .net.prefix_len()
    )]
    PartOfAggregate {
        /// The prefix.
        net: IpNet,
        /// The aggregate's mask.
        mask: u8,
        /// The prefix of that length.
        wider: IpNet,
        /// The field of the mask.
        field: &'static str,
    },
    /// A family that the table does not have.
    #[error("{net} is {family}, and {field} is missing: add it, or remove the value")]
    Family {
        /// The prefix.
        net: IpNet,
        /// Family of the prefix.
        family: &'static str,
        /// Field to add.
        field: &'static str,
    },
    /// Not the name of an interface.
    #[error("{0:?} is no name of an interface: write one of at most 15 characters, like eth0")]
    Interface(String),
}

impl Problem {
    /// Takes over an error of the YAML reader, about a file in the dialect.
    pub fn from_yaml(error: &serde_saphyr::Error, dialect: Dialect) -> (Option<Place>, Self) {
        use serde_saphyr::Error as Yaml;

        let error = error.without_snippet();
        let place = error.location().and_then(|location| At::from(location).place());
        let problem = match error {
            Yaml::SerdeUnknownField { field, expected, .. } => {
                let misplaced = OF_ALL_LIMITS.iter().find(|(name, _)| name == field);
                let misplaced = misplaced.map(|(_, reason)| *reason);
                match elsewhere(field, expected, dialect).or(misplaced) {
                    Some(reason) => Self::NotSupported { what: field.clone(), reason },
                    None => Self::UnknownField { field: field.clone(), expected: expected.clone() },
                }
            }
            Yaml::DuplicateMappingKey { key: Some(key), .. } => {
                Self::Yaml(format!("{key} stands here twice: keep one"))
            }
            Yaml::MultipleDocuments { .. } => {
                Self::Yaml("a second YAML document begins here: keep one".to_owned())
            }
            Yaml::Budget { .. } => Self::Yaml(
                "more nodes, aliases or depth than a rule file needs: simplify it".to_owned(),
            ),
            Yaml::InvalidBooleanStrict { .. } => {
                Self::Yaml("neither true nor false: write one of them".to_owned())
            }
            Yaml::Unexpected { expected: "sequence start", .. } => {
                Self::Yaml("a list is wanted here: begin each of its items with `- `".to_owned())
            }
            Yaml::Unexpected { expected: "mapping start", .. }
                if place == Some(Place { line: 1, column: 1 }) =>
            {
                Self::Yaml("a rule file begins with fields, as in `descriptors:`".to_owned())
            }
            Yaml::Unexpected { expected: "mapping start", .. } => Self::Yaml(
                "fields are wanted here, as in `{FIELD: VALUE}`; of a limit `{rate: 100/s}`"
                    .to_owned(),
            ),
            other => Self::Yaml(plain(other)),
        };
        (place, problem)
    }
}

/// The reader's message in one line, without the place, which stands before it already.
fn plain(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::{MessageFormatter as _, UserMessageFormatter};

    let message = UserMessageFormatter.format_message(error);
    let line: Vec<&str> = message.split_whitespace().collect();
    let line = line.join(" ");
    let known = YAML.iter().find(|(part, _)| line.contains(part));
    known.map_or_else(|| format!("not a rule file: {line}"), |(_, words)| (*words).to_owned())
}

/// What stands in messages of the YAML reader about mistakes that people make, and what to say.
const YAML: [(&str, &str); 11] = [
    ("tab", "a tab stands here: indent with spaces alone"),
    (
        "expected '-' indicator",
        "the indentation of this line fits none before it: begin it in the column of the line that \
         it belongs to",
    ),
    (
        "expected key",
        "the indentation of this line fits none before it: begin it in the column of the line that \
         it belongs to",
    ),
    ("unclosed bracket", "the bracket that begins here is not closed: close it"),
    (
        "mismatched bracket",
        "this bracket does not close the one before it: `[` ends with `]`, `{` with `}`",
    ),
    ("multiline quoted scalar", "the quotes before this are not closed: close them"),
    ("unexpected end of stream", "the quotes that begin here are not closed: close them"),
    ("unexpected character", "no value begins with this character: write the value in quotes"),
    (
        "unknown value",
        "`*` stands for a value that `&` names before, and there is none: write a value that \
         begins with `*` in quotes",
    ),
    (
        "mapping values are not allowed",
        "a second `: ` in one line: write the value in quotes, or begin a new line",
    ),
    ("simple key", "a field wants a `: ` behind its name, on the same line"),
];

/// Advice for a thing that is defined twice: neither of two rules should lose its limit.
fn keep_one(subject: &str) -> &'static str {
    if subject.starts_with("rule for ") {
        "put the limits of both under `rate_limits` of one, or keep one"
    } else {
        "keep one"
    }
}

/// Description of a character that is not plain.
fn unseen(c: char) -> &'static str {
    if c.is_control() {
        "a control character, which terminals and logs obey"
    } else {
        "which is not seen, and hides or turns other text"
    }
}

/// Advice for text that is no number and no range; some people write ranges as iptables does.
fn ranges(text: &str, high: u16) -> String {
    let named = |text: &str| service(text).filter(|_| high == u16::MAX).map(|(port, _)| port);
    let number = |text: &str| {
        let number = text.trim().parse::<u16>().ok().filter(|number| *number <= high);
        number.or_else(|| named(text))
    };
    let parts: Option<Vec<String>> = text
        .split(',')
        .map(|part| match part.split_once([':', '-']) {
            Some((from, to)) => Some(format!("{}-{}", number(from)?, number(to)?)),
            None => Some(number(part)?.to_string()),
        })
        .collect();
    match parts.as_deref() {
        Some([one]) if named(text).is_some() => format!("write its number, {one}"),
        Some([range]) if range.contains('-') && !text.contains('-') => format!("write {range}"),
        Some(parts @ [_, _, ..]) => format!("write a list, [{}]", parts.join(", ")),
        _ => format!("give a whole number from 0 to {high}, or a range as in 80-90"),
    }
}
