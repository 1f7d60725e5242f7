//! `--then`: another XDP program that continues with the packets that pass. limiter's program calls
//! it by a program array of one entry. The array is pinned, so that the call outlives the daemon,
//! and holds the program even if its own pin is removed.

use std::path::{Path, PathBuf};

use aya::maps::{MapData, ProgramArray};
use aya::programs::Xdp;
use aya_obj::generated::bpf_prog_type;
use aya_obj::programs::XdpAttachType;
use limiter_common::wire::map;

use super::then_fault::ThenFault;
use crate::DatapathError;
use crate::maps::MapSource;
use crate::maps::found::removed;
use crate::pins::bpffs::is_bpffs;

/// The program that continues, as the daemon knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Then {
    /// The pin that `--then` named.
    pub pin: PathBuf,
    /// The kernel's id of the program that is called.
    pub program_id: u32,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Why the program called is not the one at the pin now; `None` if it is.
    pub fault: Option<String>,
}

/// Change of the program since the last look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThenChange {
    /// Another program was pinned, and is called from now on.
    Replaced(Then),
    /// The program called is not the one at the pin, for this reason.
    Kept(Then),
    /// The program at the pin is called again.
    Mended(Then),
}

/// The array and its entry.
pub(crate) struct ThenMap {
    array: ProgramArray<MapData>,
    now: Option<Then>,
}

impl ThenMap {
    pub(crate) fn take(source: &mut MapSource<'_>) -> Result<Self, DatapathError> {
        let array = source(map::THEN)?.try_into().map_err(DatapathError::map(map::THEN))?;
        Ok(Self { array, now: None })
    }

    /// Calls the program of a pin from now on: every packet that passes meets the previous program
    /// or this one.
    pub(crate) fn set(&mut self, pin: &Path) -> Result<(), DatapathError> {
        let failed = |fault| DatapathError::Then { pin: pin.to_owned(), fault };
        let opened = Opened::at(pin).map_err(failed)?;
        self.now = Some(self.put(pin, &opened).map_err(failed)?);
        Ok(())
    }

    /// Calls no program from now on.
    pub(crate) fn clear(&mut self) -> Result<(), DatapathError> {
        removed(map::THEN, self.array.clear_index(&0))?;
        self.now = None;
        Ok(())
    }

    pub(crate) const fn now(&self) -> Option<&Then> {
        self.now.as_ref()
    }

    /// Checks the pin. If it holds a new program, it is called from now on. If the pin is gone or
    /// the program is unusable, the previous program stays.
    pub(crate) fn look(&mut self) -> Option<ThenChange> {
        let before = self.now.clone()?;
        let put = |opened: Opened| {
            if opened.id == before.program_id {
                return Ok(Then { fault: None, ..before.clone() });
            }
            self.put(&before.pin, &opened)
        };
        let now = Opened::at(&before.pin)
            .and_then(put)
            .unwrap_or_else(|fault| Then { fault: Some(fault.to_string()), ..before.clone() });
        self.now = Some(now.clone());
        if now.program_id != before.program_id {
            return Some(ThenChange::Replaced(now));
        }
        if now.fault == before.fault {
            return None;
        }
        Some(if now.fault.is_some() { ThenChange::Kept(now) } else { ThenChange::Mended(now) })
    }

    fn put(&mut self, pin: &Path, opened: &Opened) -> Result<Then, ThenFault> {
        let fd = opened.program.fd().map_err(|error| ThenFault::Open(Box::new(error)))?;
        self.array.set(0, fd, 0).map_err(ThenFault::Refused)?;
        let (pin, name) = (pin.to_owned(), opened.name.clone());
        Ok(Then { pin, program_id: opened.id, name, fault: None })
    }
}

/// A pinned XDP program.
struct Opened {
    program: Xdp,
    id: u32,
    name: Option<String>,
}

impl Opened {
    fn at(pin: &Path) -> Result<Self, ThenFault> {
        let failed = |error| ThenFault::Open(Box::new(error));
        let program = Xdp::from_pin(pin, XdpAttachType::Interface).map_err(|error| {
            // The kernel reports a file elsewhere as a lack of permission.
            if pin.exists() && !is_bpffs(pin) { ThenFault::Elsewhere } else { failed(error) }
        })?;
        let info = program.info().map_err(failed)?;
        if info.program_type() != bpf_prog_type::BPF_PROG_TYPE_XDP {
            return Err(ThenFault::NoXdp);
        }
        let name = info.name_as_str().filter(|name| !name.is_empty()).map(str::to_owned);
        let id = info.id();
        Ok(Self { program, id, name })
    }
}
