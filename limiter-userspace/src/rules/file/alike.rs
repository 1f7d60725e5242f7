//! Items that are alike but for their addresses and names.
//!
//! Files with thousands of rules are written by programs, and their items differ in little but the address. So the first
//! of such items is read as YAML, and the others are that one with another address. It is taken for that only if nothing
//! can hide in it: its characters are those of plain words, numbers and braces, it has addresses in one place, and
//! read by itself it is one rule, whose source is that address. Then the address is a scalar of its own there,
//! and stays one whatever address it is. So is a name, if it is the only one and no word that YAML takes for more.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::RuleFile;
use super::error::Place;
use super::items::{HEAD, Item};
use super::placed::Places;
use super::read::piece;
use crate::rules::model::{KeyedRule, Part, Path, Rule, SOURCE_MASKS, Selector, Subject};
use crate::rules::source_text;

/// The most forms that are remembered: a file whose items are all of other forms is read faster as it is.
const MOST_FORMS: usize = 256;

/// The form of items: what stands before their addresses, and behind them. With a name, what stands before the first
/// of the two, between them, and behind the second one.
type Form<'a> = (&'a str, &'a str, Option<&'a str>);

/// The forms so far; `None` for one that must be read each time.
#[derive(Debug, Default)]
pub(super) struct Forms<'a>(HashMap<Form<'a>, Option<Example>>);

/// An item without its addresses and its name.
#[derive(Debug, PartialEq, Eq)]
struct Cut<'a> {
    form: Form<'a>,
    name: Option<&'a str>,
    /// The addresses, and what stands between them.
    region: &'a str,
    /// What that is; empty for a single address.
    separator: &'a str,
}

/// What the first item of a form says.
#[derive(Debug)]
struct Example {
    rule: Either,
    /// Where the rule begins, had the item no addresses and the file no lines before it.
    place: Place,
    /// Whether that is on the line of the addresses and behind them.
    behind: bool,
    /// Whether it is on a later line.
    below: bool,
}

#[derive(Clone, Debug)]
enum Either {
    Source(Rule),
    Keyed(KeyedRule),
}

/// An item of a form that is known.
#[derive(Debug)]
pub(super) struct Alike<'a> {
    example: &'a Example,
    place: Place,
    sources: Vec<Selector>,
    name: Option<&'a str>,
}

impl<'a> Forms<'a> {
    /// What an item says, if its form is known or can be.
    pub(super) fn alike(&mut self, item: Item<'a>, max_frame: u64) -> Option<Alike<'_>> {
        let cut = Cut::of(item.text)?;
        let full = self.0.len() >= MOST_FORMS;
        let example = match self.0.entry(cut.form) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(_) if full => return None,
            Entry::Vacant(new) => new.insert(Example::of(&cut, max_frame)),
        };
        let example = example.as_ref()?;
        let place = example.place_of(&cut, item.line);
        Some(Alike { example, place, sources: cut.sources()?, name: cut.name })
    }
}

impl Alike<'_> {
    /// Adds its rules; says whether the file had none of them.
    pub(super) fn add_to(&self, file: &mut RuleFile) -> bool {
        self.sources.iter().all(|source| {
            let subject = match self.example.rule.with(*source, self.name) {
                Either::Source(rule) => {
                    let subject = Subject::Source(rule.selector);
                    file.rules.rules.push(rule);
                    subject
                }
                Either::Keyed(rule) => {
                    let subject = Subject::Keyed(rule.path.clone());
                    file.rules.keyed.push(rule);
                    subject
                }
            };
            file.places.insert(subject, self.place).is_none()
        })
    }
}

impl<'a> Cut<'a> {
    /// Cuts an item, if it has addresses in one place and nothing can hide in it.
    fn of(item: &'a str) -> Option<Self> {
        let item = without_comments_behind(item);
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_- \n:,.{}[]/".contains(byte);
        if !item.as_bytes().iter().all(plain) {
            return None;
        }
        let mut found = None;
        for (at, word) in item.match_indices("value:") {
            let rest = item.get(at + word.len()..)?;
            if let Some(separator) = begins(rest) {
                let start = item.len() - rest.len() + separator.len();
                if address_at(item, start).is_some() && found.replace((start, separator)).is_some()
                {
                    return None;
                }
            }
        }
        let (start, opening) = found?;
        let separator = match opening {
            " " => "",
            " [" => ", ",
            dash => dash,
        };
        let mut end = start + address_at(item, start)?.len();
        while !separator.is_empty() && item.get(end..)?.starts_with(separator) {
            end += separator.len();
            end += address_at(item, end)?.len();
        }
        let name = name(item);
        let (before, after) = (item.get(..start)?, item.get(end..)?);
        let form = match name {
            None => (before, after, None),
            Some((from, to)) if to <= start => {
                (item.get(..from)?, item.get(to..start)?, Some(after))
            }
            Some((from, to)) => (before, item.get(end..from)?, Some(item.get(to..)?)),
        };
        // What has other rules for addresses, and a key that is written with a space.
        let odd =
            |text: &str| text.contains(" :") || text.contains("masked") || text.contains("inner");
        if odd(form.0) || odd(form.1) || form.2.is_some_and(odd) {
            return None;
        }
        let name = name.and_then(|(from, to)| item.get(from..to));
        Some(Self { form, name, region: item.get(start..end)?, separator })
    }

    /// An item of this form with one address and one name.
    fn with_one(&self, address: &str) -> String {
        match (self.form, self.name) {
            ((before, between, Some(after)), Some(name)) => {
                let (first, second) =
                    if before.ends_with(NAME) { (name, address) } else { (address, name) };
                format!("{HEAD}{before}{first}{between}{second}{after}\n")
            }
            ((before, after, _), _) => format!("{HEAD}{before}{address}{after}\n"),
        }
    }

    /// Whether a place in [`Cut::with_one`] stands behind the name in its line: then its column is not that of items with
    /// longer names.
    fn is_behind_name(&self, text: &str, place: Place) -> bool {
        self.name.is_some()
            && text.find(NAME).is_some_and(|at| {
                let at = Place::of_offset(text.as_bytes(), at);
                at.line == place.line && at.column < place.column
            })
    }

    /// Where the address stands in [`Cut::with_one`].
    fn place_of_address(&self, text: &str) -> Place {
        let (before, between, after) = self.form;
        let name = match (self.name, after) {
            (Some(name), Some(_)) if before.ends_with(NAME) => name.len() + between.len(),
            _ => 0,
        };
        Place::of_offset(text.as_bytes(), HEAD.len() + before.len() + name)
    }

    fn first(&self) -> Option<&'a str> {
        self.texts().next()
    }

    fn texts(&self) -> impl Iterator<Item = &'a str> {
        let Self { region, separator, .. } = *self;
        // An empty text stands between any two letters.
        region.split(if separator.is_empty() { "\n" } else { separator })
    }

    /// What they select.
    fn sources(&self) -> Option<Vec<Selector>> {
        self.texts().map(source).collect()
    }

    /// Lines that the addresses begin.
    fn lines(&self) -> u64 {
        let lines = self.region.bytes().filter(|byte| *byte == b'\n').count();
        u64::try_from(lines).unwrap_or(u64::MAX)
    }
}

/// An item without lines behind it that say nothing.
fn without_comments_behind(item: &str) -> &str {
    let mut item = item;
    loop {
        item = item.strip_suffix('\n').unwrap_or(item);
        let start = item.rfind('\n').map_or(0, |at| at + 1);
        let line = item.get(start..).unwrap_or_default();
        let words = line.trim_start_matches(' ');
        let printable = words.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if start == 0 || !(words.is_empty() || words.starts_with('#') && printable) {
            return item;
        }
        item = item.get(..start).unwrap_or_default();
    }
}

/// What stands between `value:` and a first address: a space, a bracket, or a new line with a dash.
fn begins(rest: &str) -> Option<&str> {
    if rest.starts_with(" [") {
        return rest.get(..2);
    }
    if rest.starts_with(' ') {
        return rest.get(..1);
    }
    let line = rest.strip_prefix('\n')?.trim_start_matches(' ');
    line.starts_with("- ").then(|| rest.get(..rest.len() - line.len() + 2)).flatten()
}

/// The address that stands there, as far as its characters go.
fn address_at(item: &str, start: usize) -> Option<&str> {
    let rest = item.get(start..)?;
    let part = |byte: u8| byte.is_ascii_hexdigit() || b".:/".contains(&byte);
    let end = rest.bytes().position(|byte| !part(byte)).unwrap_or(rest.len());
    rest.get(..end).filter(|text| source(text).is_some())
}

/// What a name stands behind.
const NAME: &str = "name: ";

/// Where the name of an item stands: from where, and up to where. `None` if it has none, or more than one, or one that YAML
/// could take for something else than a text.
fn name(item: &str) -> Option<(usize, usize)> {
    let mut found = item.match_indices("name:");
    let (Some((at, _)), None) = (found.next(), found.next()) else {
        return None;
    };
    let word = item.get(at..)?.strip_prefix(NAME)?;
    let part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let length = word.bytes().position(|byte| !part(byte)).unwrap_or(word.len());
    let (word, rest) = word.split_at_checked(length)?;
    // No number begins with a letter, and no word like `yes` has a digit.
    let text = word.starts_with(|first: char| first.is_ascii_alphabetic())
        && word.bytes().any(|byte| byte.is_ascii_digit());
    let ends = rest.is_empty() || rest.starts_with([',', '}', '\n']);
    let from = at + NAME.len();
    (text && ends).then_some((from, from + length))
}

/// What an address selects. A colon at its end would be one of YAML.
fn source(text: &str) -> Option<Selector> {
    let plain = !text.starts_with(':') && !text.ends_with(':');
    if plain { source_text::parse(text).ok() } else { None }
}

impl Example {
    /// Reads an item with the first of its addresses; `None` if it is anything but one rule for that.
    fn of(cut: &Cut<'_>, max_frame: u64) -> Option<Self> {
        let first = cut.first()?;
        let text = cut.with_one(first);
        let RuleFile { domain: None, rules, places, no_rules_meant: _ } =
            piece(&text, Places::NotInRules, max_frame).ok()?
        else {
            return None;
        };
        let rule = match (rules.rules.as_slice(), rules.keyed.as_slice()) {
            ([rule], []) => Either::Source(rule.clone()),
            ([], [rule]) => Either::Keyed(rule.clone()),
            _ => return None,
        };
        let mut places = places.into_values();
        let (Some(mut place), None) = (places.next(), places.next()) else {
            return None;
        };
        let named = cut.name.is_none_or(|name| rule.name() == Some(name));
        if rule.source()? != source(first)? || !named || cut.is_behind_name(&text, place) {
            return None;
        }
        let address = cut.place_of_address(&text);
        let behind = place.line == address.line && place.column > address.column;
        let below = place.line > address.line;
        if behind {
            place.column = place.column.checked_sub(u64::try_from(first.len()).ok()?)?;
        }
        // The line of the list, and that the first line is 1.
        place.line = place.line.checked_sub(2)?;
        Some(Self { rule, place, behind, below })
    }

    /// Where the rules of an item begin that has this form.
    fn place_of(&self, cut: &Cut<'_>, line: u64) -> Place {
        let mut place = self.place;
        place.line += line;
        if self.behind {
            place.column += u64::try_from(cut.region.len()).unwrap_or(u64::MAX);
        }
        if self.below {
            place.line += cut.lines();
        }
        place
    }
}

impl Either {
    /// The source that the rule is for, if it is the only address of it.
    fn source(&self) -> Option<Selector> {
        match self {
            Self::Source(rule) => Some(rule.selector),
            Self::Keyed(rule) => {
                let address = |part: &&Part| {
                    matches!(part, Part::Source(..) | Part::Destination(_) | Part::Inner(_))
                };
                let mut addresses = rule.path.0.iter().filter(address);
                match (addresses.next(), addresses.next()) {
                    (Some(Part::Source(masks, Some(net))), None) if *masks == SOURCE_MASKS => {
                        Some(Selector::Prefix(*net))
                    }
                    _ => None,
                }
            }
        }
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Source(rule) => rule.name.as_deref(),
            Self::Keyed(rule) => rule.name.as_deref(),
        }
    }

    /// The same rule for another source, and with another name if one is given.
    fn with(&self, source: Selector, name: Option<&str>) -> Self {
        let name = name.or(self.name()).map(str::to_owned);
        match (self, source) {
            (Self::Source(rule), selector) => {
                Self::Source(Rule { selector, name, action: rule.action.clone() })
            }
            (Self::Keyed(rule), source) => {
                let net = match source {
                    Selector::Prefix(net) => Some(net),
                    Selector::Every => None,
                };
                let part = |part: &Part| match part {
                    Part::Source(masks, _) => Part::Source(*masks, net),
                    other => other.clone(),
                };
                let path = Path(rule.path.0.iter().map(part).collect());
                let (label, terms) = (rule.label.clone(), rule.terms.clone());
                Self::Keyed(KeyedRule { name, label, path, terms })
            }
        }
    }
}
