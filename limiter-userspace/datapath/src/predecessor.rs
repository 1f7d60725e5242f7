//! Maps of another layout, and what can be carried over of them.

use std::ops::RangeInclusive;

use aya::maps::{HashMap, Map, MapData};
use limiter_common::wire::{ABI_VERSION, Ban, map};

use super::attachment::ModeChoice;
use super::maps::PinnedControl;
use super::pod::Wire;
use super::{DatapathError, PinDir};

/// [`Ban::rule`] of a ban by a rule of maps of another layout, which had numbers of its own.
pub const BANNED_BEFORE: u64 = u64::MAX - 1;

/// Layouts whose `BANS` are as those of this one.
const BANS_OF: RangeInclusive<u64> = 2..=ABI_VERSION;

type Bans = HashMap<MapData, [u8; 16], Wire<Ban>>;

/// Maps of another layout, in force until the links have the new program.
pub(super) struct Predecessor {
    /// ABI number of the maps.
    abi: u64,
    pub(super) control: PinnedControl,
    /// Bans in the old maps; none where their layout is not known.
    bans: Option<Bans>,
    /// Value of the brake that was carried over last.
    pub(super) brake: u64,
    /// Interfaces to take over, and the mode for those that are new.
    pub(super) asked: Vec<String>,
    pub(super) choice: ModeChoice,
}

impl Predecessor {
    /// Opens what can be carried over of the maps at `pins`.
    pub(super) fn open(pins: &PinDir, abi: u64, control: PinnedControl) -> Self {
        let bans = BANS_OF.contains(&abi).then(|| open_bans(pins)).and_then(|opened| {
            opened.inspect_err(|error| tracing::debug!(%error, "no bans that can be read")).ok()
        });
        Self { abi, control, bans, brake: 0, asked: Vec::new(), choice: ModeChoice::Native }
    }

    /// Bans on record, with the sign of a rule of other numbers.
    pub(super) fn bans(&self) -> Result<Vec<([u8; 16], Ban)>, DatapathError> {
        let Some(bans) = &self.bans else { return Ok(Vec::new()) };
        bans.iter()
            .map(|entry| {
                let (source, Wire(ban)) = entry.map_err(DatapathError::map(map::BANS))?;
                Ok((source, of_before(ban)))
            })
            .collect()
    }

    /// Says what was taken over and what was not.
    pub(super) fn tell(&self, bans: usize) {
        let bans = match (&self.bans, bans) {
            (None, _) => "bans could not be read, and are forgotten".to_owned(),
            (Some(_), 1) => "1 source with bans on record is taken over".to_owned(),
            (Some(_), bans) => format!("{bans} sources with bans on record are taken over"),
        };
        tracing::warn!(
            "the maps of another version (layout {}, this limiter has {ABI_VERSION}) are replaced \
             in place: lists and the brake are as before, the rules are those of this start, \
             {bans}; buckets and counters begin anew, so a source may have its burst once more",
            self.abi
        );
    }
}

/// A ban as it is carried over: its rule has another number now, or none.
fn of_before(ban: Ban) -> Ban {
    match u32::try_from(ban.rule) {
        Ok(1..) => Ban { rule: BANNED_BEFORE, ..ban },
        // None, or no rule's.
        Ok(0) | Err(_) => ban,
    }
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
