//! Allow and deny lists, which are looked up before any rule.

use bytemuck::{Pod, Zeroable};

use crate::time::Ticks;

/// The verdict of a list on a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u64)]
pub enum Listed {
    /// Packets of the source pass, whatever the rules say.
    Allow = 1,
    /// Packets of the source are dropped.
    Deny = 2,
    /// Packets of the source pass, because it is in a management prefix.
    Management = 3,
}

/// The value of the list maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct ListEntry {
    /// The instant at which the entry expires, in ticks since boot; 0 for never. The lowest bit is
    /// set in entries of rule files, for which never is `NEVER`. The program need not distinguish
    /// them; a daemon that adopts the maps does, if they have [`super::LISTS_AUTHORS`].
    pub expires: u64,
    /// The verdict: a [`Listed`].
    pub verdict: u64,
}

/// Bit of [`ListEntry::expires`] in entries of rule files.
const OF_RULE_FILE: u64 = 1;

/// [`ListEntry::expires`] of an entry of a rule file without an end.
const NEVER: u64 = u64::MAX;

impl ListEntry {
    /// An entry that ends at `expires`, or never.
    pub const fn new(verdict: Listed, expires: Option<Ticks>) -> Self {
        let expires = match expires {
            // An end at boot itself has already passed.
            Some(expires) if expires.get() == 0 => 2,
            // Rounded up by a tick to clear the lowest bit.
            Some(expires) => expires.get().saturating_add(1) & !OF_RULE_FILE,
            None => 0,
        };
        Self { expires, verdict: verdict as u64 }
    }

    /// Like [`ListEntry::new`], for an entry of a rule file.
    pub const fn of_rule_file(verdict: Listed, expires: Option<Ticks>) -> Self {
        let expires = match expires {
            // Rounded down by a tick to set the lowest bit: no entry may outlast a trial.
            Some(expires) => expires.get().saturating_sub(1) | OF_RULE_FILE,
            None => NEVER,
        };
        Self { expires, verdict: verdict as u64 }
    }

    /// Converts an entry of maps without [`super::LISTS_AUTHORS`] to the form of
    /// [`ListEntry::new`]: people and programs wrote all of them, with any lowest bit in their
    /// ends.
    #[must_use]
    pub const fn before_authors(self) -> Self {
        Self { expires: self.expires.saturating_add(1) & !OF_RULE_FILE, verdict: self.verdict }
    }

    /// True if the entry is from a rule file.
    pub const fn is_of_rule_file(&self) -> bool {
        self.expires & OF_RULE_FILE != 0
    }

    /// The verdict at `now`; `None` once the entry has expired.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn at(&self, now: Ticks) -> Option<Listed> {
        if self.expires != 0 && self.expires <= now.get() {
            return None;
        }
        self.verdict()
    }

    /// The verdict, until the entry expires.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn verdict(&self) -> Option<Listed> {
        if self.verdict == Listed::Allow as u64 {
            Some(Listed::Allow)
        } else if self.verdict == Listed::Deny as u64 {
            Some(Listed::Deny)
        } else if self.verdict == Listed::Management as u64 {
            Some(Listed::Management)
        } else {
            None
        }
    }

    /// The end of the entry; `None` if it has none.
    pub const fn expires(&self) -> Option<Ticks> {
        match self.expires {
            0 | NEVER => None,
            expires => Some(Ticks::new(expires)),
        }
    }
}
