//! What the lists and the bans say of a source: functions of their own, so that their keys take no
//! stack of the others.

use aya_ebpf::btf_maps::lpm_trie::Key;
use limiter_common::clock::SLACK;
use limiter_common::source::Source;
use limiter_common::time::Ticks;
use limiter_common::wire::{Control, LISTS_EXACT, LISTS_PREFIXES, Listed};

use super::kernel::{Clock as _, Kernel, control};
use super::maps::{BANS, LISTED, LISTED_PREFIXES};

/// What the lists say of a source at `now`, where there are any.
#[inline(always)]
pub(crate) fn listed(source: &Source, now: Ticks) -> Option<Listed> {
    let key = source.trie_key();
    let lists = control(Control::Lists);
    if lists & LISTS_EXACT != 0
        // SAFETY: the program never writes to this map, and the kernel frees a removed entry only
        // after the program has run (RCU).
        && let Some(entry) = unsafe { LISTED.get(key) }
        && let Some(listed) = entry.at(now)
    {
        return Some(listed);
    }
    if lists & LISTS_PREFIXES != 0 {
        return LISTED_PREFIXES.get(&Key::new(128, key)).and_then(|entry| entry.at(now));
    }
    None
}

/// Whether a source is banned, once there was a ban.
#[inline(always)]
pub(crate) fn banned(source: &Source, now: Ticks) -> bool {
    // SAFETY: the word is read once; the kernel frees a removed entry only after the program
    // has run (RCU).
    let Some(ban) = (unsafe { BANS.get(source.trie_key()) }) else {
        return false;
    };
    let until = Ticks::new(ban.until);
    until > now.plus(SLACK) || until > now && until > Kernel.now(now)
}
