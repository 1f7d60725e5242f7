//! Actions on the data path without a daemon, on its pins: the brakes.

use std::path::Path;

use limiter_common::wire::Control;

use super::maps::PinnedControl;
use super::own_links::LeftBehind;
use super::{DatapathError, PinDir, own_links};

/// `limiter off` and `on`.
pub fn set_brake(pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
    open(pin_dir)?.set(Control::Brake, u64::from(engaged))
}

/// True if the brake is engaged.
pub fn brake(pin_dir: &Path) -> Result<bool, DatapathError> {
    Ok(open(pin_dir)?.get(Control::Brake)? != 0)
}

/// Removes every pin, and with the links the program. Says which interfaces are free now. A daemon
/// that has these pins ends when it sees that they are gone.
pub fn detach(pin_dir: &Path) -> Result<Vec<String>, DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.has_pins() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    let interfaces = own_links::names(&pins)?;
    pins.remove()?;
    Ok(interfaces)
}

/// Ends the limits on one interface, and keeps everything else.
pub fn free(pin_dir: &Path, interface: &str) -> Result<(), DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.has_pins() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    own_links::free(&pins, interface)
}

/// The interfaces that the pins keep limited: none, if that cannot be seen.
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
