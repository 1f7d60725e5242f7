//! Maps of another layout, and what can be carried over from them.

use std::ops::RangeInclusive;

use aya::maps::{HashMap, Map, MapData};
use limiter_common::wire::{ABI_VERSION, Ban, Control, map};

use crate::hooks::attachment::ModeChoice;
use crate::maps::lists::Lists;
use crate::maps::pod::Wire;
use crate::maps::{PinnedControl, of_pins};
use crate::{DatapathError, Hook, PinDir, Wanted};

/// [`Ban::rule`] of a ban by a rule in maps of another layout, whose rule numbers do not apply
/// here.
pub const BANNED_BEFORE: u64 = u64::MAX - 1;

/// Layouts whose `BANS` and lists are the same as in this one.
const ALIKE: RangeInclusive<u64> = 2..=ABI_VERSION;

/// The first layout whose [`Control::Lists`] can say that entries have authors.
const AUTHORS_SINCE: u64 = 18;

type Bans = HashMap<MapData, [u8; 16], Wire<Ban>>;

/// Maps of another layout, in force until the links have the new program.
pub(crate) struct Predecessor {
    abi: u64,
    pub(crate) control: PinnedControl,
    /// Bans in the old maps; `None` if their layout is unknown.
    bans: Option<Bans>,
    /// Lists in the old maps; `None` if their layout is unknown.
    lists: Option<Lists>,
    /// The last value of the bypass that was carried over.
    pub(crate) bypass: u64,
    /// Interfaces to take over, and the mode for new attachments.
    pub(crate) wanted: Wanted,
    pub(crate) choice: ModeChoice,
    pub(crate) hooks: Vec<Hook>,
}

impl Predecessor {
    /// Opens the parts of the maps at `pins` that can be carried over.
    pub(crate) fn open(pins: &PinDir, abi: u64, control: PinnedControl) -> Self {
        let is_alike = ALIKE.contains(&abi);
        let bans = is_alike.then(|| open_bans(pins)).and_then(|opened| {
            opened.inspect_err(|error| tracing::debug!(%error, "no bans that can be read")).ok()
        });
        let lists = is_alike.then(|| open_lists(pins, abi, &control)).and_then(|opened| {
            opened.inspect_err(|error| tracing::debug!(%error, "no lists that can be read")).ok()
        });
        let (wanted, choice, hooks) = (Wanted::default(), ModeChoice::Native, Vec::new());
        Self { abi, control, bans, lists, bypass: 0, wanted, choice, hooks }
    }

    /// Copies the entries of the lists. Only a daemon changes them, and the new one has the lock.
    pub(crate) fn carry_lists(&self, to: &mut Lists) -> Result<(), DatapathError> {
        let Some(lists) = &self.lists else { return Ok(()) };
        lists.all()?.iter().try_for_each(|(selector, entry)| to.put(selector, *entry))
    }

    /// Bans on record, as [`of_before`] converts them.
    pub(crate) fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        let Some(bans) = &self.bans else { return Ok(Vec::new()) };
        bans.iter()
            .map(|entry| {
                let (source, Wire(ban)) = entry.map_err(DatapathError::map(map::BANS))?;
                Ok((source, of_before(ban)))
            })
            .collect()
    }

    /// Logs what was taken over and what was not.
    pub(crate) fn report(&self, bans: usize) {
        let bans = match (&self.bans, bans) {
            (None, _) => "bans could not be read, and are forgotten".to_owned(),
            (Some(_), 1) => "1 source with bans on record is taken over".to_owned(),
            (Some(_), bans) => format!("{bans} sources with bans on record are taken over"),
        };
        let lists = if self.lists.is_some() {
            "lists and the bypass are as before"
        } else {
            "the bypass is as before, the lists are those of the state directory"
        };
        tracing::warn!(
            "the maps of another version (layout {}, this limiter has {ABI_VERSION}) are replaced \
             in place: {lists}, the rules are those of this start, {bans}; buckets and counters \
             begin anew, so a source may have its burst once more",
            self.abi
        );
    }
}

/// Converts a ban for the new maps: its rule has another number there, or none.
fn of_before(ban: Ban) -> Ban {
    match u32::try_from(ban.rule) {
        Ok(1..) => Ban { rule: BANNED_BEFORE, ..ban },
        // No rule, or a reserved number.
        Ok(0) | Err(_) => ban,
    }
}

fn open_lists(pins: &PinDir, abi: u64, control: &PinnedControl) -> Result<Lists, DatapathError> {
    let word = if abi < AUTHORS_SINCE { 0 } else { control.get(Control::Lists)? };
    Lists::take(&mut of_pins(pins), word)
}

fn open_bans(pins: &PinDir) -> Result<Bans, DatapathError> {
    let failed = || DatapathError::map(map::BANS);
    let data = MapData::from_pin(pins.map(map::BANS)).map_err(failed())?;
    // Checks the sizes of key and value.
    Map::from_map_data(data).map_err(failed())?.try_into().map_err(failed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_keeps_its_end_and_no_number_of_a_rule() {
        let ban = Ban { until: 7, history: 9, rule: 3 };
        assert_eq!(of_before(ban), Ban { rule: BANNED_BEFORE, ..ban });
        for rule in [0, u64::MAX, BANNED_BEFORE] {
            let other = Ban { rule, ..ban };
            assert_eq!(of_before(other), other);
        }
    }
}
