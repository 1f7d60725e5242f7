//! From a loaded program to a pinned link on an interface.

use std::io;
use std::path::Path;

use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::xdp::{XdpLink, XdpMode};
use aya::programs::{ProgramError, Xdp};

use super::interface::Interface;
use super::kernel::Kernel;
use super::programs;
use super::{Attachment, DatapathError, Mode, ModeChoice, PinDir};

/// A frame of the usual MTU with two VLAN tags.
pub(super) const MIN_MAX_FRAME: u64 = 1522;

/// Attaches, and says how and what the largest frame is.
pub(super) fn attach(
    kernel: &mut Kernel,
    interface: &str,
    choice: ModeChoice,
) -> Result<(Attachment, u64), DatapathError> {
    let state = Interface::query(interface)?;
    let pin = kernel.pins.link(interface);
    let program = kernel.program(state.framing)?;
    let (mode, adopted) = if let Some((mode, id)) = state.program {
        let Some(link) = own_link(&pin, id)? else {
            let name = programs::name_of(id);
            return Err(DatapathError::Foreign { interface: interface.to_owned(), name, id });
        };
        adopt(program, link, interface)?;
        (mode, true)
    } else {
        // A link whose interface went away, or a start that was cut short.
        match std::fs::remove_file(&pin) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DatapathError::path("removing", &pin)(error));
            }
            _ => {}
        }
        (attach_new(program, interface, &state, choice, &pin)?, false)
    };
    let program_id = program.info().map(|info| info.id()).map_err(|source| {
        // A link that nobody would remember.
        if !adopted {
            PinDir::drop_pin(&pin);
        }
        DatapathError::Attach { interface: interface.to_owned(), source: Box::new(source) }
    })?;
    let attachment = Attachment {
        interface: interface.to_owned(),
        ifindex: state.index,
        mode,
        program_id,
        adopted,
        attached: true,
    };
    Ok((attachment, state.max_frame()))
}

/// The pinned link, if it is the one behind the program that runs on the interface.
fn own_link(pin: &Path, program_id: u32) -> Result<Option<FdLink>, DatapathError> {
    if !pin.exists() {
        return Ok(None);
    }
    let failed = |error: LinkError| DatapathError::pin(pin, error);
    let link = FdLink::from(PinnedLink::from_pin(pin).map_err(failed)?);
    let info = link.info().map_err(failed)?;
    Ok((info.program_id() == program_id).then_some(link))
}

/// Replaces the program behind a link; every packet meets the old or the new one.
fn adopt(program: &mut Xdp, link: FdLink, interface: &str) -> Result<(), DatapathError> {
    let failed = |source: ProgramError| DatapathError::Attach {
        interface: interface.to_owned(),
        source: Box::new(source),
    };
    let link = XdpLink::try_from(link)
        .map_err(|source| DatapathError::NoLink { interface: interface.to_owned(), source })?;
    let id = program.attach_to_link(link).map_err(failed)?;
    // Taken out, so that dropping the program closes a descriptor and the pin keeps the link.
    let link = program.take_link(id).map_err(failed)?;
    drop(link);
    Ok(())
}

fn attach_new(
    program: &mut Xdp,
    interface: &str,
    state: &Interface,
    choice: ModeChoice,
    pin: &Path,
) -> Result<Mode, DatapathError> {
    let native = || (Mode::Native, XdpMode::Driver);
    let generic = || (Mode::Generic, XdpMode::Skb);
    let (mode, xdp_mode) = match choice {
        ModeChoice::Native | ModeChoice::Auto => native(),
        ModeChoice::Generic => generic(),
    };
    match attach_in(program, interface, state.index, xdp_mode, pin) {
        Ok(()) => Ok(mode),
        Err(DatapathError::NoNative { .. }) if choice == ModeChoice::Auto => {
            let (mode, xdp_mode) = generic();
            attach_in(program, interface, state.index, xdp_mode, pin)?;
            Ok(mode)
        }
        Err(error) => Err(error),
    }
}

fn attach_in(
    program: &mut Xdp,
    interface: &str,
    index: u32,
    mode: XdpMode,
    pin: &Path,
) -> Result<(), DatapathError> {
    let id =
        program.attach_to_if_index(index, mode).map_err(|error| explain(error, interface, mode))?;
    let failed = |source: ProgramError| DatapathError::Attach {
        interface: interface.to_owned(),
        source: Box::new(source),
    };
    let link = program.take_link(id).map_err(failed)?;
    // aya falls back to netlink in silence; that attachment would end with this process.
    let link = FdLink::try_from(link)
        .map_err(|source| DatapathError::NoLink { interface: interface.to_owned(), source })?;
    let pinned = link.pin(pin).map_err(|error| DatapathError::pin(pin, error))?;
    PinDir::restrict(pin).inspect_err(|_| PinDir::drop_pin(pin))?;
    drop(pinned);
    Ok(())
}

fn explain(error: ProgramError, interface: &str, mode: XdpMode) -> DatapathError {
    let interface = interface.to_owned();
    let code = match &error {
        ProgramError::SyscallError(call) => call.io_error.raw_os_error(),
        _ => None,
    };
    match code {
        Some(libc::EPERM | libc::EACCES) => {
            DatapathError::NotPermitted { action: "attach to the interface" }
        }
        // No native mode, not with this MTU, not with these queues.
        Some(code @ (libc::EOPNOTSUPP | libc::ERANGE | libc::EINVAL | libc::ENOSPC))
            if mode == XdpMode::Driver =>
        {
            DatapathError::NoNative { interface, source: io::Error::from_raw_os_error(code) }
        }
        _ => DatapathError::Attach { interface, source: Box::new(error) },
    }
}
