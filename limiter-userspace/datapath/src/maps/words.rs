//! Words of `CONTROL` that belong to a generation; the next generation uses other words.

use limiter_common::wire::Control;

/// The word that holds a generation's header.
pub(crate) fn header_of(generation: u64) -> Control {
    if generation.is_multiple_of(2) { Control::EvenRuleSet } else { Control::OddRuleSet }
}

/// The words of a generation's budgets of replies and of bans.
pub(crate) fn own_budgets_of(generation: u64) -> [Control; 2] {
    if generation.is_multiple_of(2) {
        [Control::EvenReplies, Control::EvenBans]
    } else {
        [Control::OddReplies, Control::OddBans]
    }
}
