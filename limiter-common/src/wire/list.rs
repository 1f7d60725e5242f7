//! Allow and deny lists: asked before any rule.

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
    /// The instant from which the entry does not count any more, in ticks since boot; 0 for never.
    pub expires: u64,
    /// A [`Listed`].
    pub verdict: u64,
}

impl ListEntry {
    /// An entry that ends at `expires`, or never.
    pub const fn new(verdict: Listed, expires: Option<Ticks>) -> Self {
        let expires = match expires {
            // An end at boot itself has passed.
            Some(expires) if expires.get() == 0 => 1,
            Some(expires) => expires.get(),
            None => 0,
        };
        Self { expires, verdict: verdict as u64 }
    }

    /// The verdict at `now`; none once the entry has expired.
    #[cfg_attr(target_arch = "bpf", inline(always))]
    pub const fn at(&self, now: Ticks) -> Option<Listed> {
        if self.expires != 0 && self.expires <= now.get() {
            return None;
        }
        self.verdict()
    }

    /// The verdict until the entry expires.
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
        if self.expires == 0 { None } else { Some(Ticks::new(self.expires)) }
    }
}
