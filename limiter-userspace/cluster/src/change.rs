//! Changes that reach all nodes: bans, and entries of the allow and deny lists. In the store each
//! is a line of text with an absolute end. Nothing in a line is trusted.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// Longest text of a change in bytes; limiter itself writes shorter ones.
pub const TEXT_MAX: usize = 64;

/// A change of what a node holds besides its rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A source is banned.
    Ban {
        /// Address that a node has banned.
        source: IpAddr,
        /// Remaining time of the ban.
        left: Duration,
    },
    /// Forget the bans and strikes of sources.
    Unban {
        /// Addresses that the change applies to.
        sources: IpNet,
    },
    /// Put sources on a list.
    List {
        /// Allow or deny list.
        list: List,
        /// Addresses that the change applies to.
        sources: IpNet,
        /// Remaining time of the entry; `None` if it does not end.
        left: Option<Duration>,
    },
    /// Remove an entry from its list.
    Unlist {
        /// Sources of the entry.
        sources: IpNet,
    },
}

/// A list of sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// Sources that pass.
    Allow,
    /// Sources that are dropped.
    Deny,
}

/// Subject of a change: a later change of the same subject replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Ban(IpNet),
    Entry(IpNet),
}

impl Change {
    /// Remaining time; `None` if it does not end.
    pub fn left(&self) -> Option<Duration> {
        match self {
            Self::Ban { left, .. } => Some(*left),
            Self::List { left, .. } => *left,
            Self::Unban { .. } | Self::Unlist { .. } => None,
        }
    }

    /// This change after `passed` more time; `None` if it has ended.
    #[must_use]
    pub fn after(mut self, passed: Duration) -> Option<Self> {
        match &mut self {
            Self::Ban { left, .. } | Self::List { left: Some(left), .. } => {
                *left = left.checked_sub(passed).filter(|left| !left.is_zero())?;
            }
            _ => {}
        }
        Some(self)
    }

    /// Limits the remaining time to `most`. A change without an end gets this one, if it can end.
    #[must_use]
    pub(super) fn at_most(mut self, most: Duration) -> Self {
        match &mut self {
            Self::Ban { left, .. } => *left = most.min(*left),
            Self::List { left, .. } => *left = Some(left.map_or(most, |left| left.min(most))),
            Self::Unban { .. } | Self::Unlist { .. } => {}
        }
        self
    }

    /// Reads a line. `left` is the remaining time.
    pub(super) fn parse(text: &str, left: Option<Duration>) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let (word, rest) = text.split_once(' ')?;
        let sources = || rest.parse::<IpNet>().ok().filter(|net| net.trunc() == *net);
        let list = |list| Some(Self::List { list, sources: sources()?, left });
        match word {
            "ban" => Some(Self::Ban { source: rest.parse().ok()?, left: left? }),
            "unban" => Some(Self::Unban { sources: sources()? }),
            "allow" => list(List::Allow),
            "deny" => list(List::Deny),
            "unlist" => Some(Self::Unlist { sources: sources()? }),
            _ => None,
        }
    }

    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Ban { source, .. } => Subject::Ban(IpNet::from(*source)),
            Self::Unban { sources } => Subject::Ban(*sources),
            Self::List { sources, .. } | Self::Unlist { sources } => Subject::Entry(*sources),
        }
    }
}

impl Subject {
    /// True if a later change of `self` completely replaces an earlier one of `other`.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            // Forgetting bans of a network forgets those of all sources in it.
            (Self::Ban(later), Self::Ban(earlier)) => later.contains(earlier),
            (Self::Entry(later), Self::Entry(earlier)) => later == earlier,
            _ => false,
        }
    }
}

impl fmt::Display for Change {
    /// Writes the line for the store, without the end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ban { source, .. } => write!(f, "ban {source}"),
            Self::Unban { sources } => write!(f, "unban {}", sources.trunc()),
            Self::List { list: List::Allow, sources, .. } => write!(f, "allow {}", sources.trunc()),
            Self::List { list: List::Deny, sources, .. } => write!(f, "deny {}", sources.trunc()),
            Self::Unlist { sources } => write!(f, "unlist {}", sources.trunc()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().expect("a prefix")
    }

    #[test]
    fn a_change_is_read_as_it_was_written() {
        let left = Some(Duration::from_mins(1));
        let source = "2001:db8:1234:5678:9abc:def0:1234:5678".parse().expect("an address");
        for change in [
            Change::Ban { source, left: Duration::from_mins(1) },
            Change::Unban { sources: net("192.0.2.0/24") },
            Change::List { list: List::Allow, sources: net("2001:db8::/32"), left },
            Change::List { list: List::Deny, sources: net("192.0.2.7/32"), left: None },
            Change::Unlist { sources: net("2001:db8:ffff:ffff:ffff:ffff:ffff:fff0/124") },
        ] {
            let text = change.to_string();
            assert!(text.len() <= TEXT_MAX, "{text}");
            assert_eq!(Change::parse(&text, change.left()), Some(change));
        }
    }

    #[test]
    fn other_texts_are_no_change() {
        let left = Some(Duration::from_mins(1));
        let long = format!("ban {}", " ".repeat(TEXT_MAX));
        for text in [
            "",
            "ban",
            "ban ",
            "ban x",
            "ban 192.0.2.0/24",
            "ban 192.0.2.7 ",
            "Ban 192.0.2.7",
            "unban 192.0.2.7",
            "deny 192.0.2.7/24",
            "deny 192.0.2.0/33",
            "pass 192.0.2.0/24",
            &long,
        ] {
            assert_eq!(Change::parse(text, left), None, "{text:?}");
        }
        assert_eq!(Change::parse("ban 192.0.2.7", None), None, "a ban without an end");
    }

    #[test]
    fn nothing_is_left_of_what_has_ended() {
        let ban = |left| Change::Ban {
            source: IpAddr::from([192, 0, 2, 7]),
            left: Duration::from_secs(left),
        };
        assert_eq!(ban(60).after(Duration::from_secs(20)), Some(ban(40)));
        assert_eq!(ban(60).after(Duration::from_mins(1)), None);
        let unban = Change::Unban { sources: net("192.0.2.0/24") };
        assert_eq!(unban.clone().after(Duration::MAX), Some(unban));
    }

    #[test]
    fn a_later_change_covers_an_earlier_one_of_the_same_object() {
        let ban = Change::Ban { source: [192, 0, 2, 7].into(), left: Duration::from_secs(1) };
        let unban = Change::Unban { sources: net("192.0.2.0/24") };
        let unlist = Change::Unlist { sources: net("192.0.2.7/32") };
        assert!(unban.subject().covers(&ban.subject()));
        assert!(!ban.subject().covers(&unban.subject()));
        assert!(!unlist.subject().covers(&ban.subject()));
        assert!(unlist.subject().covers(&unlist.subject()));
    }
}
