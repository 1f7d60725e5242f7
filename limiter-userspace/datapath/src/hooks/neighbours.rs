//! Other programs at the hooks of an interface.

use std::fmt;

use limiter_common::header::Direction;

use super::{foreign, hook, programs};
use crate::pins::other_pins::OtherPins;
use crate::{DatapathError, Hook, Interface, PinDir};

/// A program at a hook of an interface that does not belong to this limiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Where it stands.
    pub hook: Hook,
    /// The kernel's id of the program.
    pub program_id: u32,
    /// Its name; `None` if this process may not ask for it (`CAP_SYS_ADMIN`).
    pub name: Option<String>,
    /// True if it runs before this limiter's program at the same hook. limiter does not see the
    /// packets that it decides.
    pub is_before: bool,
    /// The pins that keep the program there, if it belongs to another limiter and they are found.
    pub pins: Option<OtherPins>,
}

impl Neighbour {
    /// True if the program is known to belong to another limiter.
    pub fn is_limiter(&self) -> bool {
        self.pins.is_some() || self.name.as_deref().is_some_and(hook::is_limiter)
    }
}

impl fmt::Display for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}", self.program_id)?;
        match &self.name {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// The programs at the hooks of an interface for a direction that are not among `own`, in the order
/// in which each hook runs them.
pub(crate) fn neighbours(
    interface: &Interface,
    direction: Direction,
    own: &[u32],
    pins: &PinDir,
) -> Result<Vec<Neighbour>, DatapathError> {
    let mut neighbours = Vec::new();
    for hook in Hook::ALL.into_iter().filter(|hook| hook.direction() == direction) {
        let programs = match hook {
            Hook::Xdp => interface.program.iter().map(|(_, id)| *id).collect(),
            Hook::Tc(direction) => at_tc(interface, direction)?,
        };
        let place = programs.iter().position(|id| own.contains(id));
        let others = programs.iter().enumerate().filter(|(_, id)| !own.contains(id));
        neighbours.extend(others.map(|(at, id)| Neighbour {
            hook,
            program_id: *id,
            name: programs::name_of(*id),
            is_before: place.is_some_and(|place| at < place),
            pins: foreign::other_pins(interface, hook, *id, pins),
        }));
    }
    Ok(neighbours)
}

/// The ids of the programs at tc, in the order in which they run.
pub(crate) fn at_tc(
    interface: &Interface,
    direction: Direction,
) -> Result<Vec<u32>, DatapathError> {
    let failed = |source| DatapathError::Netlink { interface: interface.name.clone(), source };
    interface.programs_at_tc(direction).map_err(failed)
}
