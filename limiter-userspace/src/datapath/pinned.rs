//! What can be done to the data path without a daemon, on its pins: the brakes.

use std::path::Path;

use limiter_common::wire::Control;

use super::maps::Maps;
use super::{DatapathError, PinDir};

/// `limiter off` and `on`.
pub fn set_brake(pin_dir: &Path, engaged: bool) -> Result<(), DatapathError> {
    let mut maps = open(pin_dir)?;
    maps.set_control(Control::Brake, u64::from(engaged))
}

/// Whether the brake is engaged.
pub fn brake(pin_dir: &Path) -> Result<bool, DatapathError> {
    Ok(open(pin_dir)?.control(Control::Brake)? != 0)
}

/// Removes every pin, and with the links the program. Says which interfaces had one.
pub fn detach(pin_dir: &Path) -> Result<Vec<String>, DatapathError> {
    let pins = PinDir::new(pin_dir);
    let interfaces = pins.interfaces()?;
    if interfaces.is_empty() && !pins.path().exists() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    pins.remove()?;
    Ok(interfaces)
}

fn open(pin_dir: &Path) -> Result<Maps, DatapathError> {
    let pins = PinDir::new(pin_dir);
    if !pins.path().exists() {
        return Err(DatapathError::NothingPinned(pin_dir.to_owned()));
    }
    Maps::open(&pins)
}
