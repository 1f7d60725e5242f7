//! Translates rules of other programs to rule files, for `limiter import`. Pure: from text to text.
//!
//! A reader for each format (`iptables`, `nft`, `tc`) converts the text to one form, `firewall`.
//! `walk` follows the packets through the chains, `judge` decides on each rule, and `paths` and
//! `tables` express the result in keys and tables. `write` writes it, with every difference beside
//! its rule, and every untranslated rule with the reason.

mod barrier;
mod count;
mod detect;
mod difference;
mod elements;
mod error;
mod firewall;
mod imported;
mod iptables;
mod judge;
mod lists;
mod nft;
mod packets;
mod paths;
mod rate;
mod tables;
mod taken;
mod tc;
mod translation;
mod walk;
mod write;

pub use detect::Format;
pub use error::{ImportError, MAX_BYTES, MAX_LIST_BYTES};
pub use imported::{Effect, Entry, Imported, Outcome};

use elements::{crowdsec, fail2ban, ipset};
use firewall::Firewall;
use packets::Family;

/// Options of an import.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The format; `None` to detect it.
    pub format: Option<Format>,
    /// True for rules in shadow mode.
    pub shadow: bool,
    /// The wanted set or jail, if there are several.
    pub set: Option<String>,
}

/// Translates a text.
///
/// # Errors
///
/// The reason why nothing at all can be translated.
pub fn import(bytes: &[u8], options: &Options) -> Result<Imported, ImportError> {
    if bytes.len() > MAX_LIST_BYTES {
        return Err(ImportError::TooLong(MAX_LIST_BYTES));
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
    let is_list = matches!(format, Format::Ipset | Format::Fail2ban);
    if !is_list && bytes.len() > MAX_BYTES {
        return Err(ImportError::TooLong(MAX_BYTES));
    }
    let wanted = options.set.as_deref();
    let firewall = match format {
        Format::Ipset => return Ok(elements::import("ipset", &ipset::read(text, wanted)?)),
        Format::Crowdsec => return Ok(elements::import("CrowdSec", &crowdsec::read(text))),
        Format::Fail2ban => {
            return Ok(elements::import("fail2ban", &fail2ban::read(text, wanted)?));
        }
        _ if wanted.is_some() => return Err(ImportError::SetElsewhere),
        Format::Nft => read_nft(text)?,
        // The headers of saved rules name their family; ufw's chains imply it.
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
