//! Members of bonds.

use limiter_common::wire::{Control, MAX_MEMBERS, Member};

use super::definitions::CONTROL;

/// The index of the bond of which an interface is a member, otherwise its own. A subprogram,
/// because few machines have bonds.
#[inline(always)]
pub(crate) fn bond_of(index: u32) -> u32 {
    for place in 1..=MAX_MEMBERS {
        let Some(word) = CONTROL.get_ptr(Control::Members.index() + place) else { break };
        // SAFETY: a value of the array, alive as long as the program; the daemon may store to it
        // meanwhile, so the read is volatile.
        if let Some(bond) = Member::from_raw(unsafe { word.read_volatile() }).bond_of(index) {
            return bond;
        }
    }
    index
}
