//! Interfaces under limits, and the programs of others beside them, as `limiter status` has them.

use limiter_api::status::neighbours::{OtherProgram, ThenProgram};
use limiter_api::status::{Interface, InterfaceState};
use limiter_datapath::{Attachment, LinkState, Mode, Neighbour, Refused, Then};

/// `native` or `generic`, or the hook at tc.
pub(crate) const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Native => "native",
        Mode::Generic => "generic",
        Mode::Tc(_) => mode.hook().name(),
    }
}

const fn state(state: LinkState) -> InterfaceState {
    match state {
        LinkState::Attached => InterfaceState::Attached,
        LinkState::Elsewhere => InterfaceState::Elsewhere,
        LinkState::Unseen => InterfaceState::Unseen,
        LinkState::Detached => InterfaceState::Detached,
        LinkState::Gone => InterfaceState::Gone,
    }
}

/// An interface, without its label, its rates and the programs beside it.
pub(crate) fn interface(at: &Attachment) -> Interface {
    Interface {
        name: at.interface.clone(),
        label: None,
        mode: mode(at.mode).to_owned(),
        ifindex: at.ifindex,
        program_id: at.program_id,
        adopted: at.adopted,
        attached: at.state.is_attached(),
        state: state(at.state),
        was: (at.asked != at.interface).then(|| at.asked.clone()),
        rates: None,
        error: None,
        others: Vec::new(),
    }
}

/// An interface that is to be limited and cannot be.
pub(crate) fn refused_interface(refused: &Refused, ifindex: u32) -> Interface {
    Interface {
        name: refused.interface.clone(),
        label: None,
        mode: mode(refused.mode).to_owned(),
        ifindex,
        program_id: 0,
        adopted: false,
        attached: false,
        state: InterfaceState::Refused,
        was: None,
        rates: None,
        error: Some(refused.error.clone()),
        others: Vec::new(),
    }
}

/// A program that is not this limiter's.
pub(crate) fn other_program(neighbour: &Neighbour) -> OtherProgram {
    OtherProgram {
        hook: neighbour.hook.name().to_owned(),
        program_id: neighbour.program_id,
        name: neighbour.name.clone(),
        before: neighbour.is_before,
        limiter: neighbour.is_limiter(),
        pin_dir: neighbour.pins.as_ref().map(|pins| pins.directory.display().to_string()),
    }
}

/// The program of `--then`.
pub(crate) fn then_program(then: &Then) -> ThenProgram {
    ThenProgram {
        pin: then.pin.display().to_string(),
        program_id: then.program_id,
        name: then.name.clone(),
        error: then.fault.clone(),
    }
}
