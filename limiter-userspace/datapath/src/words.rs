//! Words of `CONTROL` that belong to a generation: the one after it has others.

use limiter_common::wire::Control;

/// Word of the header of a generation.
pub(super) fn header_of(generation: u64) -> Control {
    if generation.is_multiple_of(2) { Control::EvenRuleSet } else { Control::OddRuleSet }
}

/// Words of the budgets of replies and of bans of a generation.
pub(super) fn own_budgets_of(generation: u64) -> [Control; 2] {
    if generation.is_multiple_of(2) {
        [Control::EvenReplies, Control::EvenBans]
    } else {
        [Control::OddReplies, Control::OddBans]
    }
}
