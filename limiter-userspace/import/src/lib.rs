//! Rules of other programs as rule files: what `limiter import` does. Pure: from text to text.
//!
//! A reader for each format (`iptables`, `nft`, `tc`) brings the text into one form,
//! `firewall`. `walk` follows the packets through the chains, `judge` decides on each rule,
//! and `paths` and `tables` say the same in keys and tables. `write` writes it down, with
//! every difference beside its rule and every other rule with the reason.

mod count;
mod detect;
mod difference;
mod elements;
mod error;
mod fail2ban;
mod firewall;
mod ipset;
mod iptables;
mod judge;
mod lists;
mod nft;
mod packets;
mod paths;
mod rate;
mod tables;
mod tc;
mod walk;
mod words;
mod write;

use serde::Serialize;

pub use detect::Format;
pub use error::ImportError;

use firewall::Firewall;
use packets::Family;

use limiter_rules::Path;

/// Longest text in bytes.
pub const MAX_BYTES: usize = 16 << 20;

/// Wishes of whoever imports.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; none to look for it in the text.
    pub format: Option<Format>,
    /// True for rules in shadow mode.
    pub shadow: bool,
    /// The one of several sets or jails that is wanted.
    pub set: Option<String>,
}

/// Rules of another program, as far as they can be said here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The rule file, or the file of a list.
    pub text: String,
    /// Name of the format.
    pub format: String,
    /// True if the text is for `limiter deny --file`, and no rule file.
    pub is_list: bool,
    /// Number of rules, or of sources of a list, that were translated.
    pub translated: usize,
    /// Things to know of the whole.
    pub remarks: Vec<String>,
    /// The rules in their order, and the entries of a list that were not translated.
    pub rules: Vec<Entry>,
}

/// Rule of the other program, and its fate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Place of it.
    pub place: String,
    /// The rule as it was read.
    pub rule: String,
    /// Fate of the rule.
    pub outcome: Outcome,
    /// Differences of the translation.
    pub differences: Vec<String>,
    /// The reason why it was not translated, or need not be.
    pub reason: Option<String>,
    /// Paths of the rules of the file in which it is.
    #[serde(skip)]
    pub paths: Vec<Path>,
}

/// Fate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// In the text, with its differences.
    Translated,
    /// Not in the text but as a comment, with the reason.
    NotTranslated,
    /// No limit, and no list: the firewall goes on with it.
    Left,
}

impl Imported {
    /// Number of rules with an outcome.
    pub fn count(&self, outcome: Outcome) -> usize {
        match outcome {
            Outcome::Translated => self.translated,
            other => self.rules.iter().filter(|rule| rule.outcome == other).count(),
        }
    }
}

/// Translates a text.
///
/// # Errors
///
/// Why nothing at all can be translated.
pub fn import(bytes: &[u8], options: &Options) -> Result<Imported, ImportError> {
    if bytes.len() > MAX_BYTES {
        return Err(ImportError::TooLong);
    }
    let text = str::from_utf8(bytes).map_err(|error| ImportError::NotUtf8(error.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim().is_empty() {
        return Err(ImportError::Empty);
    }
    let format = match options.format {
        Some(format) => format,
        None => detect::detect(text)?,
    };
    let wanted = options.set.as_deref();
    let firewall = match format {
        Format::Ipset => return Ok(elements::import("ipset", &ipset::read(text, wanted)?)),
        Format::Fail2ban => {
            return Ok(elements::import("fail2ban", &fail2ban::read(text, wanted)?));
        }
        _ if wanted.is_some() => return Err(ImportError::SetElsewhere),
        Format::Nft => read_nft(text)?,
        // The heads of saved rules say of which family they are; ufw's chains do.
        Format::Iptables | Format::Ufw => iptables::read(text, None)?,
        Format::Ip6tables => iptables::read(text, Some(Family::V6))?,
        Format::Tc if text.trim_start().starts_with('[') => tc::read_json(text)?,
        Format::Tc => tc::read_text(text)?,
    };
    write::write(format, &firewall, options.shadow)
}

fn read_nft(text: &str) -> Result<Firewall, ImportError> {
    if detect::is_nft_text(text) { Err(ImportError::NftText) } else { nft::read(text) }
}

#[cfg(test)]
mod tests;
