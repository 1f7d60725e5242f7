//! The data path without a daemon, by its pins: the bypass, and reading what is in force.

use std::path::Path;

use limiter_common::wire::Control;

use crate::interfaces::own_links;
use crate::interfaces::own_links::{OwnLink, Place};
use crate::machine;
use crate::machine::Pinned;
use crate::maps::open_maps::OpenMaps;
use crate::maps::{PinnedControl, of_pins};
use crate::netlink::ifb;
use crate::sources::source_store::SourceStore;
use crate::{Attachment, DatapathError, LeftBehind, LinkState, Observed, PinDir};

/// Attempts to read the maps if a daemon changes them meanwhile.
const TRIES: u32 = 16;

/// Opens the pinned maps for reading. Loads, locks and writes nothing.
pub fn read(pin_dir: &Path) -> Result<Box<dyn Observed>, DatapathError> {
    match machine::pinned(pin_dir) {
        Pinned::Maps { .. } => {}
        Pinned::Nothing => return Err(DatapathError::NothingPinned(pin_dir.to_owned())),
        Pinned::OtherLayout { found, bypass } => {
            let limited = limited(pin_dir).into_iter().map(|link| link.name).collect();
            let path = pin_dir.to_owned();
            return Err(DatapathError::OtherLayout { path, found, bypass, limited });
        }
        Pinned::Refused(error) => return Err(error),
    }
    let pins = PinDir::new(pin_dir);
    for _ in 0..TRIES {
        let source_store = SourceStore::adopted(&pins)?;
        let mut open = OpenMaps::take(&mut of_pins(&pins), &pins, source_store)?;
        let generation = open.generation_in_force()?;
        let read = open.adopt(generation);
        // A daemon may have started meanwhile and replaced the rule set.
        if open.generation_in_force()? != generation {
            continue;
        }
        read?;
        for link in own_links::all(&pins)? {
            if let Some(here) = &link.here {
                open.max_frame = open.max_frame.max(here.max_frame());
            }
            open.attachments.extend(attachment(&link));
        }
        return Ok(Box::new(open));
    }
    Err(DatapathError::Changing(pin_dir.to_owned()))
}

/// The interface of a link; `None` if it is gone.
fn attachment(link: &OwnLink) -> Option<Attachment> {
    let here = link.here.as_ref();
    let (state, ifindex) = match (here, link.place) {
        (Some(here), _) => (LinkState::Attached, here.index),
        (None, Place::On(index)) => (LinkState::Elsewhere, index),
        (None, Place::Unknown) => (LinkState::Unseen, 0),
        (None, Place::Nowhere) => return None,
    };
    let name = here.map_or_else(|| link.called.clone(), |here| here.name.clone());
    Some(Attachment {
        interface: name,
        asked: link.called.clone(),
        ifindex,
        mode: link.mode(),
        program_id: link.program_id,
        link_id: link.id,
        adopted: true,
        state,
    })
}

/// Sets the bypass: `limiter off` and `on`.
pub fn set_bypass(pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
    open(pin_dir)?.set(Control::Bypass, u64::from(engaged))
}

/// True if the bypass is on.
pub fn bypass(pin_dir: &Path) -> Result<bool, DatapathError> {
    Ok(open(pin_dir)?.get(Control::Bypass)? != 0)
}

/// Removes every pin, and the program together with the links. Returns the interfaces that were
/// freed. A daemon that uses these pins ends when it notices that they are gone.
pub fn detach(pin_dir: &Path) -> Result<Vec<String>, DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.has_pins() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    let interfaces = own_links::names(&pins)?;
    own_links::end_filters(&pins)?;
    pins.remove()?;
    ifb::remove(pin_dir)?;
    Ok(interfaces)
}

/// Ends the limits on one interface and keeps everything else.
pub fn free(pin_dir: &Path, interface: &str) -> Result<(), DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.has_pins() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    own_links::free(&pins, interface)
}

/// The interfaces that the pins keep limited; empty if they cannot be seen.
pub fn limited(pin_dir: &Path) -> Vec<LeftBehind> {
    own_links::limited(&PinDir::new(pin_dir))
}

fn open(pin_dir: &Path) -> Result<PinnedControl, DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.has_pins() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    PinnedControl::open(&pins)
}
