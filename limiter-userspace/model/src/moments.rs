//! The map of moments at which rule sets came into force.

use limiter_common::wire::{CHANGES, Moment};

#[derive(Clone, Debug)]
pub(super) struct Moments([Moment; CHANGES as usize]);

impl Default for Moments {
    fn default() -> Self {
        Self([Moment::UNKNOWN; CHANGES as usize])
    }
}

impl Moments {
    pub(super) fn of(&self, generation: u32) -> Moment {
        let index = usize::try_from(Moment::index(generation)).ok();
        index.and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, generation: u64, moment: Moment) {
        let index = usize::try_from(generation % u64::from(CHANGES)).ok();
        if let Some(place) = index.and_then(|index| self.0.get_mut(index)) {
            *place = moment;
        }
    }
}
