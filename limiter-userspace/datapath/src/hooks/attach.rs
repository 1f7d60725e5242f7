//! From a loaded program to a pinned link on an interface.

use std::io;
use std::path::Path;

use aya::programs::links::FdLink;
use aya::programs::tc::{TcAttachOptions, TcAttachType};
use aya::programs::xdp::XdpMode;
use aya::programs::{ProgramError, SchedClassifier, Xdp};
use limiter_common::header::Direction;
use limiter_common::wire::InterfaceCounters;

use super::clsact;
use super::foreign::foreign;
use super::neighbours::at_tc;
use super::programs;
use super::programs::HookProgram;
use super::tc_order::TcOrder;
use crate::interfaces::interface::Interface;
use crate::interfaces::own_links;
use crate::interfaces::own_links::OwnLink;
use crate::kernel::Kernel;
use crate::machine::{driver_of, forgets_program};
use crate::{Attachment, DatapathError, Hook, LinkState, Mode, ModeChoice, PinDir};

impl Kernel {
    /// Attaches to the hooks of an interface and pins the links, or adopts links that are pinned
    /// for them and replaces their program in place, without a packet in between.
    pub fn attach(
        &mut self,
        interface: &str,
        hooks: &[Hook],
        mode: ModeChoice,
    ) -> Result<(), DatapathError> {
        self.choice = mode;
        self.held.hooks = hooks.to_vec();
        for hook in hooks {
            let (attachment, frame) = attach(self, *hook, interface, None)?;
            self.held.max_frame = self.held.max_frame.max(frame);
            if !self.wanted.names.iter().any(|asked| asked == interface) {
                self.wanted.names.push(interface.to_owned());
            }
            self.held.attachments.push(attachment);
        }
        self.keep_members();
        Ok(())
    }
}

/// Attaches to a hook. Returns the attachment and the largest frame. `known` holds links that were
/// read before: with many interfaces it saves reading them again for each.
pub(crate) fn attach(
    kernel: &mut Kernel,
    hook: Hook,
    interface: &str,
    known: Option<&[OwnLink]>,
) -> Result<(Attachment, u64), DatapathError> {
    let choice = kernel.choice;
    let state = Interface::query(interface)?;
    kernel.check_pinned()?;
    let pins = kernel.held.pins.clone();
    let own = own_links::behind(&pins, hook, &state, known)?;
    // Other programs may share a tc hook with limiter, but not XDP.
    if let (Hook::Xdp, None, Some((_, id))) = (hook, &own, state.program) {
        return Err(foreign(&state, &pins, id));
    }
    if own.is_none() {
        check_place(kernel, &state, hook)?;
        begin_counters(kernel, state.index, hook.direction())?;
    }
    let order = order_at(kernel, &state, hook)?;
    if own.is_none() && order != kernel.options.tc_order {
        tracing::info!(
            "--tc-order {} is for the other hook of {interface}, where that program is: at {} \
             limiter is attached first",
            kernel.options.tc_order,
            hook.name()
        );
    }
    let mut program = kernel.program(hook, state.framing)?;
    let program_id = program.id();
    let (mode, link_id, adopted) = if let Some(mut own) = own {
        own_links::rename(&pins, &mut own, interface)?;
        if own.called != interface {
            tracing::warn!(
                "{} is called {interface} now: it stays limited at {}",
                own.called,
                hook.name()
            );
        }
        own_links::adopt(program, &own, interface)?;
        (own.mode(), own.id, true)
    } else {
        own_links::make_room(&pins, hook, interface)?;
        let pin = pins.link(hook, interface);
        let (mode, link_id) = match &mut program {
            HookProgram::Xdp(program) => attach_new(program, &state, choice, &pin)?,
            HookProgram::Tc(program, place) => {
                let direction = hook.direction();
                let id = if clsact::is_used() {
                    attach_by_filter(program, &state, *place, &pin)?;
                    clsact::id(state.index, direction)
                } else {
                    attach_at_tc(program, &state, *place, order, &pin)?
                };
                (Mode::Tc(direction), id)
            }
        };
        (mode, link_id, false)
    };
    let program_id = program_id.map_err(|source| {
        // Without a pin, the next start would not find this link.
        if !adopted && let Err(error) = own_links::end_named(&pins, hook, interface) {
            tracing::warn!(%error, "{interface} may be limited still: run `limiter detach`");
        }
        DatapathError::Attach { interface: interface.to_owned(), source: Box::new(source) }
    })?;
    if adopted && let Hook::Tc(direction) = hook {
        let programs = at_tc(&state, direction)?;
        // The daemon itself warns about programs that run before limiter's.
        if order != TcOrder::First && !order.holds(&programs, program_id) {
            tracing::warn!(
                "--tc-order {order} has no effect on {interface} at {}: the program keeps the \
                 place that it has; `limiter detach --iface {interface}` and a new start give it \
                 another one",
                hook.name()
            );
        }
    }
    let attachment = Attachment {
        interface: interface.to_owned(),
        asked: interface.to_owned(),
        ifindex: state.index,
        mode,
        program_id,
        link_id,
        adopted,
        state: LinkState::Attached,
    };
    Ok((attachment, state.max_frame()))
}

/// Rejects a place beside a program that is at no hook of the interface, and a place that the
/// kernel does not support.
fn check_place(kernel: &Kernel, interface: &Interface, hook: Hook) -> Result<(), DatapathError> {
    let order = kernel.options.tc_order;
    let Hook::Tc(direction) = hook else {
        return Ok(());
    };
    if order != TcOrder::First && clsact::is_used() {
        return Err(DatapathError::FirstAlone { interface: interface.name.clone(), order });
    }
    let Some(neighbour) = order.neighbour() else {
        return Ok(());
    };
    let there = at_tc(interface, direction)?;
    if there.contains(&neighbour) || order_at(kernel, interface, hook)? != order {
        return Ok(());
    }
    Err(DatapathError::NoSuchPlace {
        interface: interface.name.clone(),
        hook: hook.name(),
        order,
        there: there.into_iter().map(|id| (id, programs::name_of(id))).collect(),
    })
}

/// The place to take at a hook. A neighbour is usually at one hook only: if it is at the
/// interface's other hook, and limiter is there too, this hook takes the default place.
fn order_at(kernel: &Kernel, interface: &Interface, hook: Hook) -> Result<TcOrder, DatapathError> {
    let order = kernel.options.tc_order;
    let (Hook::Tc(direction), Some(neighbour)) = (hook, order.neighbour()) else {
        return Ok(order);
    };
    let other = match direction {
        Direction::In => Direction::Out,
        Direction::Out => Direction::In,
    };
    let is_elsewhere = kernel.held.hooks.contains(&Hook::Tc(other))
        && at_tc(interface, other)?.contains(&neighbour)
        && !at_tc(interface, direction)?.contains(&neighbour);
    Ok(if is_elsewhere { TcOrder::First } else { order })
}

/// Resets the counters of an interface that is not limited yet, because an earlier interface may
/// have had its index. Counters that it shares with a limited interface keep their values.
fn begin_counters(
    kernel: &mut Kernel,
    index: u32,
    direction: Direction,
) -> Result<(), DatapathError> {
    let place = |index| InterfaceCounters::place(index, direction);
    let shares = |at: &Attachment| {
        at.state.is_attached()
            && at.mode.hook().direction() == direction
            && at.ifindex != index
            && place(at.ifindex) == place(index)
    };
    if kernel.held.attachments.iter().any(shares) {
        return Ok(());
    }
    kernel.held.maps.begin_interface(index, direction)
}

/// Makes a new attachment. Returns its mode and the kernel's id of the link.
fn attach_new(
    program: &mut Xdp,
    interface: &Interface,
    choice: ModeChoice,
    pin: &Path,
) -> Result<(Mode, u32), DatapathError> {
    let native = || (Mode::Native, XdpMode::Driver);
    let generic = || (Mode::Generic, XdpMode::Skb);
    let forgetful = driver_of(interface.index).filter(|driver| forgets_program(driver));
    let (mode, xdp_mode) = match (choice, forgetful) {
        (ModeChoice::Auto, Some(driver)) => {
            tracing::info!(
                "{}: generic mode, because in native mode {driver} forgets the program when the \
                 link goes down",
                interface.name
            );
            generic()
        }
        (ModeChoice::Native, Some(driver)) => {
            tracing::warn!(
                "{}: in native mode {driver} forgets the program when the link goes down, and \
                 every packet passes then: start with --mode auto",
                interface.name
            );
            native()
        }
        (ModeChoice::Auto | ModeChoice::Native, None) => native(),
        (ModeChoice::Generic, _) => generic(),
    };
    match attach_in(program, interface, xdp_mode, pin) {
        Ok(link_id) => Ok((mode, link_id)),
        Err(DatapathError::NoNative { .. }) if choice == ModeChoice::Auto => {
            let (mode, xdp_mode) = generic();
            Ok((mode, attach_in(program, interface, xdp_mode, pin)?))
        }
        Err(error) => Err(error),
    }
}

fn attach_in(
    program: &mut Xdp,
    interface: &Interface,
    mode: XdpMode,
    pin: &Path,
) -> Result<u32, DatapathError> {
    let (index, interface) = (interface.index, interface.name.as_str());
    let id =
        program.attach_to_if_index(index, mode).map_err(|error| explain(error, interface, mode))?;
    let link = program.take_link(id).map_err(attach_error(interface))?;
    // aya silently falls back to netlink, whose attachment would end with this process.
    let link = FdLink::try_from(link)
        .map_err(|source| DatapathError::NoLink { interface: interface.to_owned(), source })?;
    pinned(link, pin)
}

/// Attaches at tc, in a place among the programs that are there. The default is the first place: an
/// earlier program that ends the chain (`TC_ACT_OK`, for example) would let packets pass without a
/// charge.
fn attach_at_tc(
    program: &mut SchedClassifier,
    interface: &Interface,
    place: TcAttachType,
    order: TcOrder,
    pin: &Path,
) -> Result<u32, DatapathError> {
    let name = interface.name.as_str();
    let id = program
        .attach_with_options(name, place, TcAttachOptions::TcxOrder(order.link_order()))
        .map_err(|error| explain(error, name, XdpMode::Skb))?;
    let link = program.take_link(id).map_err(attach_error(name))?;
    let link = FdLink::try_from(link)
        .map_err(|source| DatapathError::NoLink { interface: name.to_owned(), source })?;
    pinned(link, pin)
}

/// Attaches at tc where the kernel has no TCX: [`clsact`]. Pins first, because a filter without a
/// pin would never be removed.
fn attach_by_filter(
    program: &mut SchedClassifier,
    interface: &Interface,
    place: TcAttachType,
    pin: &Path,
) -> Result<(), DatapathError> {
    own_links::pin_program(program, pin)?;
    clsact::add(program, &interface.name, place).map_err(|error| {
        PinDir::drop_pin(pin);
        explain(error, &interface.name, XdpMode::Skb)
    })
}

fn attach_error(interface: &str) -> impl Fn(ProgramError) -> DatapathError {
    move |source| DatapathError::Attach {
        interface: interface.to_owned(),
        source: Box::new(source),
    }
}

/// Pins a link. Returns the kernel's id of it.
fn pinned(link: FdLink, pin: &Path) -> Result<u32, DatapathError> {
    let link_id =
        link.info().map(|info| info.id()).map_err(|error| DatapathError::pin(pin, error))?;
    let pinned = link.pin(pin).map_err(|error| DatapathError::pin(pin, error))?;
    PinDir::restrict(pin).inspect_err(|_| PinDir::drop_pin(pin))?;
    drop(pinned);
    Ok(link_id)
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
        // The driver has no native mode, or none with this MTU or these queues.
        Some(code @ (libc::EOPNOTSUPP | libc::ERANGE | libc::EINVAL | libc::ENOSPC))
            if mode == XdpMode::Driver =>
        {
            DatapathError::NoNative { interface, source: io::Error::from_raw_os_error(code) }
        }
        _ => DatapathError::Attach { interface, source: Box::new(error) },
    }
}
