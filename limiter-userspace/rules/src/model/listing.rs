//! Entries of the allow and the deny list that rule files have.

use std::fmt;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use limiter_common::wire::Listed;

use super::selector::Selector;

/// Characters of a reason, at most.
pub const LONGEST_REASON: usize = 128;

/// The least lengths of prefixes, of IPv4 and of IPv6, that are a part of all addresses, and not
/// all of them or half.
pub const LEAST: [u8; 2] = [3, 4];

/// Room of the kernel's maps (limiter-ebpf, definitions.rs) for entries: single sources, and
/// prefixes.
pub const ROOM: [(&str, usize); 2] = [("single sources", 1 << 20), ("prefixes", 1 << 16)];

/// An entry of a list in a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// True for an entry of the allow list, false for one of the deny list.
    pub allow: bool,
    /// The reason that the file gives for it.
    pub reason: Option<Box<str>>,
    /// The time at which it ends, in seconds since 1970; `None` for never.
    pub until: Option<u64>,
}

impl Listing {
    /// Name of its list in rule files.
    pub const fn list(&self) -> &'static str {
        if self.allow { "allow" } else { "deny" }
    }

    /// The verdict on the sources of the entry.
    pub const fn verdict(&self) -> Listed {
        if self.allow { Listed::Allow } else { Listed::Deny }
    }

    /// True if it has ended, `now` seconds after 1970.
    pub fn is_over(&self, now: u64) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.list())?;
        if let Some(until) = self.until {
            write!(f, " until {}", until_text(until))?;
        }
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// A time as rule files have it.
pub fn until_text(until: u64) -> String {
    let latest = Duration::from_secs(LAST);
    let time = Duration::from_secs(until).min(latest);
    humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + time).to_string()
}

/// The end of the year 9999, which is the last one that can be written.
const LAST: u64 = 253_402_300_799;

/// True for a prefix of nearly all addresses, with the least lengths of [`LEAST`].
pub fn is_nearly_everybody(selector: &Selector, [least_v4, least_v6]: [u8; 2]) -> bool {
    match selector {
        Selector::Every => true,
        Selector::Prefix(IpNet::V4(net)) => net.prefix_len() < least_v4,
        Selector::Prefix(IpNet::V6(net)) => net.prefix_len() < least_v6,
    }
}
