//! The pinned links, and the interface that each is on now. A pin's name is the interface's name at
//! the last look; the kernel knows what became of that interface.
//!
//! On kernels without TCX, the pin for tc is a program, and a clsact filter replaces the link:
//! [`clsact`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, LinkError, PinnedLink};
use aya::programs::tc::SchedClassifierLink;
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramInfo, SchedClassifier};

use super::interface::Interface;
use super::left_behind::LeftBehind;
use crate::hooks::clsact;
use crate::hooks::clsact::Filter;
use crate::hooks::programs::HookProgram;
use crate::machine::links;
use crate::{Attachment, DatapathError, Hook, Mode, PinDir};

/// What the kernel reports about this process's descriptors, including links.
const DESCRIPTORS: &str = "/proc/self/fdinfo";

/// Links open at the same time: a process may have 1,024 descriptors by default.
const OPEN_AT_ONCE: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct OwnLink {
    pub(crate) hook: Hook,
    /// The interface's name, as the pin has it.
    pub(crate) called: String,
    pub(crate) pin: PathBuf,
    /// The kernel's id of the link, or [`Filter::id`]; 0 if the filter is gone.
    pub(crate) id: u32,
    pub(crate) program_id: u32,
    pub(crate) place: Place,
    /// The interface, if it is in this network namespace.
    pub(crate) here: Option<Interface>,
    /// The filter used instead of a link.
    filter: Option<Filter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The interface with this index, which may be in another network namespace.
    On(u32),
    /// The interface is gone.
    Nowhere,
    /// The kernel does not report the interface.
    Unknown,
}

impl OwnLink {
    fn open(hook: Hook, called: String, pin: PathBuf) -> Result<Self, DatapathError> {
        let mut opened = open_together(&[(hook, called, pin.clone())]);
        opened.pop().unwrap_or_else(|| Err(DatapathError::NothingPinned(pin)))
    }

    fn index_here(&self) -> Option<u32> {
        self.here.as_ref().map(|found| found.index)
    }

    /// The mode of the attachment; native if it cannot be seen.
    pub(crate) fn mode(&self) -> Mode {
        match self.hook {
            Hook::Xdp => {
                let program = self.here.as_ref().and_then(|here| here.program);
                program.map_or(Mode::Native, |(mode, _)| mode)
            }
            Hook::Tc(direction) => Mode::Tc(direction),
        }
    }

    fn is_of(&self, attached: &[Attachment]) -> bool {
        attached.iter().any(|at| at.link_id == self.id)
    }

    /// True if it is on the interface of one of these attachments.
    fn is_on(&self, attached: &[Attachment]) -> bool {
        attached.iter().any(|at| self.index_here() == Some(at.ifindex))
    }

    /// True if the interface is here, and the pin has its name.
    fn is_named_right(&self) -> bool {
        self.here.as_ref().is_some_and(|found| found.name == self.called)
    }

    /// Ends the link: removes its filter, if it has one, and the pin.
    fn remove(&self) -> Result<(), DatapathError> {
        self.remove_filter()?;
        fs::remove_file(&self.pin).map_err(DatapathError::path("removing", &self.pin))
    }

    fn remove_filter(&self) -> Result<(), DatapathError> {
        if let (Some(filter), Some(here)) = (&self.filter, &self.here) {
            filter.remove(&here.name).map_err(|source| DatapathError::Attach {
                interface: here.name.clone(),
                source: Box::new(source),
            })?;
        }
        Ok(())
    }

    fn left_behind(&self) -> Option<LeftBehind> {
        if self.place == Place::Nowhere {
            return None;
        }
        let here = &self.here;
        let name = here.as_ref().map_or_else(|| self.called.clone(), |found| found.name.clone());
        let was = (name != self.called).then(|| self.called.clone());
        Some(LeftBehind { name, was, here: here.is_some(), pin: self.pin.clone() })
    }
}

/// Opens pinned links to inspect them. Opens them together, because the kernel reports a link's
/// interface by its descriptor, and reading all descriptors takes longer than opening one.
fn open_together(pins: &[(Hook, String, PathBuf)]) -> Vec<Result<OwnLink, DatapathError>> {
    let (at_tc, links): (Vec<_>, Vec<_>) =
        pins.iter().cloned().partition(|(hook, _, _)| *hook != Hook::Xdp && clsact::is_used());
    let mut opened = open_links(&links);
    if !at_tc.is_empty() {
        opened.extend(open_programs(&at_tc));
    }
    opened
}

fn open_links(pins: &[(Hook, String, PathBuf)]) -> Vec<Result<OwnLink, DatapathError>> {
    let open = |pin: &PathBuf| {
        let failed = |error: LinkError| DatapathError::pin(pin, error);
        let link = FdLink::from(PinnedLink::from_pin(pin).map_err(failed)?);
        let info = link.info().map_err(failed)?;
        Ok((link, info.id(), info.program_id()))
    };
    let opened: Vec<Result<_, DatapathError>> = pins.iter().map(|(_, _, pin)| open(pin)).collect();
    let places = places().unwrap_or_else(|error| {
        tracing::debug!(%error, "not known where the links are");
        BTreeMap::new()
    });
    let looked_at = |(opened, (hook, called, pin)): (Result<_, _>, &(Hook, String, PathBuf))| {
        let (_open, id, program_id): (FdLink, _, _) = opened?;
        let place = places.get(&id).copied().unwrap_or(Place::Unknown);
        let here = match place {
            Place::On(index) => Interface::at(index)?.filter(|found| found.runs(*hook, program_id)),
            Place::Nowhere | Place::Unknown => None,
        };
        let (hook, called, pin) = (*hook, called.clone(), pin.clone());
        Ok(OwnLink { hook, called, pin, id, program_id, place, here, filter: None })
    };
    opened.into_iter().zip(pins).map(looked_at).collect()
}

/// Opens pinned programs and finds their filters at all interfaces: first by the name of the pin,
/// then, for renamed interfaces, among the filters that no other pin has.
fn open_programs(pins: &[(Hook, String, PathBuf)]) -> Vec<Result<OwnLink, DatapathError>> {
    let mut running = running().unwrap_or_else(|error| {
        tracing::debug!(%error, "not known where the filters are");
        Vec::new()
    });
    let open = |pin: &PathBuf| {
        let info = ProgramInfo::from_pin(pin);
        info.map(|info| info.id()).map_err(|error| DatapathError::pin(pin, error))
    };
    let ids: Vec<Result<u32, DatapathError>> = pins.iter().map(|(_, _, pin)| open(pin)).collect();
    let mut found: Vec<Option<(Interface, Filter)>> = pins.iter().map(|_| None).collect();
    for by_name in [true, false] {
        for ((found, id), (hook, called, _)) in found.iter_mut().zip(&ids).zip(pins) {
            let is_it = |(at, here, filter): &(Hook, Interface, Filter)| {
                at == hook
                    && id.as_ref().is_ok_and(|id| *id == filter.program_id)
                    && (here.name == *called || !by_name)
            };
            if found.is_none()
                && let Some(place) = running.iter().position(is_it)
            {
                let (_, here, filter) = running.swap_remove(place);
                *found = Some((here, filter));
            }
        }
    }
    let looked_at = ids.into_iter().zip(found).zip(pins);
    let looked_at = looked_at.map(|((id, found), (hook, called, pin))| {
        let (hook, called, pin, program_id) = (*hook, called.clone(), pin.clone(), id?);
        let (here, filter) = found.unzip();
        let place = here.as_ref().map_or(Place::Nowhere, |here| Place::On(here.index));
        let id = filter.as_ref().map_or(0, Filter::id);
        Ok(OwnLink { hook, called, pin, id, program_id, place, here, filter })
    });
    looked_at.collect()
}

/// All BPF filters and their interfaces.
fn running() -> Result<Vec<(Hook, Interface, Filter)>, DatapathError> {
    let mut running = Vec::new();
    for here in links()?.into_iter().filter_map(|link| link.interface.ok()) {
        for hook in Hook::ALL.into_iter().filter(|hook| *hook != Hook::Xdp) {
            let filters = clsact::filters(here.index, hook.direction()).map_err(|source| {
                DatapathError::Netlink { interface: here.name.clone(), source }
            })?;
            running.extend(filters.into_iter().map(|filter| (hook, here.clone(), filter)));
        }
    }
    Ok(running)
}

/// All links. A pin that cannot be opened is not one of our links, and is left out.
pub(crate) fn all(pins: &PinDir) -> Result<Vec<OwnLink>, DatapathError> {
    let mut links: Vec<OwnLink> = Vec::new();
    for some in pins.link_pins()?.chunks(OPEN_AT_ONCE) {
        for opened in open_together(some) {
            match opened {
                Ok(link) => links.push(link),
                Err(error) => tracing::debug!(%error, "not a link that can be looked at"),
            }
        }
    }
    // Each network namespace has its own indices: if two links have the same index, the other one
    // is in another namespace.
    links.sort_by_key(|link| !link.is_named_right());
    for at in 1..links.len() {
        let (before, from) = links.split_at_mut(at);
        let Some(link) = from.first_mut() else { break };
        if before
            .iter()
            .filter(|other| other.hook == link.hook)
            .any(|other| other.here.is_some() && other.index_here() == link.index_here())
        {
            link.here = None;
        }
    }
    Ok(links)
}

/// The link of our program at a hook of an interface, whatever its pin is called. Searches `known`,
/// or else all links.
pub(crate) fn behind(
    pins: &PinDir,
    hook: Hook,
    interface: &Interface,
    known: Option<&[OwnLink]>,
) -> Result<Option<OwnLink>, DatapathError> {
    // Looking at all links takes a while if there are many.
    if !interface.may_have_program(hook) {
        return Ok(None);
    }
    let is_behind = |link: &OwnLink| match link.place {
        Place::On(_) => link.index_here() == Some(interface.index),
        Place::Nowhere => false,
        Place::Unknown => {
            link.called == interface.name && interface.runs(link.hook, link.program_id)
        }
    };
    let is_it = |link: &&OwnLink| link.hook == hook && is_behind(link);
    let found = match known {
        Some(known) => known.iter().find(is_it).cloned(),
        None => all(pins)?.iter().find(is_it).cloned(),
    };
    let pin = pins.link(hook, &interface.name);
    if found.is_some() || !is_there(&pin) {
        return Ok(found);
    }
    // If it cannot be opened, report that instead of calling the program foreign.
    Ok(Some(OwnLink::open(hook, interface.name.clone(), pin)?).filter(is_behind))
}

pub(crate) fn of_id(pins: &PinDir, id: u32) -> Result<Option<OwnLink>, DatapathError> {
    Ok(all(pins)?.into_iter().find(|link| link.id == id))
}

pub(crate) fn rename(pins: &PinDir, link: &mut OwnLink, name: &str) -> Result<(), DatapathError> {
    let pin = pins.link(link.hook, name);
    if pin == link.pin {
        return Ok(());
    }
    make_room(pins, link.hook, name)?;
    fs::rename(&link.pin, &pin).map_err(DatapathError::path("renaming the pin", &link.pin))?;
    link.pin = pin;
    Ok(())
}

/// Ends a link that was inspected before, whatever its pin is called now.
pub(crate) fn end(pins: &PinDir, link: &OwnLink) -> Result<(), DatapathError> {
    let is_as_before = OwnLink::open(link.hook, link.called.clone(), link.pin.clone())
        .is_ok_and(|now| now.id == link.id);
    let now = if is_as_before { Some(link.clone()) } else { of_id(pins, link.id)? };
    // Without a pin there is no link.
    now.map_or(Ok(()), |now| now.remove())
}

/// Ends what was just pinned for a hook of an interface under that name.
pub(crate) fn end_named(pins: &PinDir, hook: Hook, interface: &str) -> Result<(), DatapathError> {
    OwnLink::open(hook, interface.to_owned(), pins.link(hook, interface))?.remove()
}

/// Removes the filters of all pins, because they do not end with their pins. Links do.
pub(crate) fn end_filters(pins: &PinDir) -> Result<(), DatapathError> {
    if clsact::is_used() { all(pins)?.iter().try_for_each(OwnLink::remove_filter) } else { Ok(()) }
}

/// Replaces the program of a link; every packet meets the old or the new one.
pub(crate) fn adopt(
    program: HookProgram<'_>,
    own: &OwnLink,
    interface: &str,
) -> Result<(), DatapathError> {
    let program = match (program, &own.filter) {
        (HookProgram::Tc(program, _), Some(filter)) => {
            return adopt_filter(program, own, filter, interface);
        }
        (program, _) => program,
    };
    let opened = PinnedLink::from_pin(&own.pin);
    let link = FdLink::from(opened.map_err(|error| DatapathError::pin(&own.pin, error))?);
    let no_link = |source| DatapathError::NoLink { interface: interface.to_owned(), source };
    // Taken out, so that dropping the program closes a descriptor while the pin keeps the link.
    let replaced = match program {
        HookProgram::Xdp(program) => {
            let link = XdpLink::try_from(link).map_err(no_link)?;
            program.attach_to_link(link).and_then(|id| program.take_link(id)).map(drop)
        }
        HookProgram::Tc(program, _) => {
            let link = SchedClassifierLink::try_from(link).map_err(no_link)?;
            program.attach_to_link(link).and_then(|id| program.take_link(id)).map(drop)
        }
    };
    replaced.map_err(|source| DatapathError::Attach {
        interface: interface.to_owned(),
        source: Box::new(source),
    })
}

/// Replaces the program of a filter. The running program always has a pin.
fn adopt_filter(
    program: &mut SchedClassifier,
    own: &OwnLink,
    filter: &Filter,
    interface: &str,
) -> Result<(), DatapathError> {
    let mut next = own.pin.clone().into_os_string();
    next.push(":next");
    let next = PathBuf::from(next);
    if is_there(&next) {
        fs::remove_file(&next).map_err(DatapathError::path("removing", &next))?;
    }
    pin_program(program, &next)?;
    filter.replace(program, interface).map_err(|source| DatapathError::Attach {
        interface: interface.to_owned(),
        source: Box::new(source),
    })?;
    fs::rename(&next, &own.pin).map_err(DatapathError::path("renaming the pin", next))
}

/// Pins a program instead of a link.
pub(crate) fn pin_program(program: &mut SchedClassifier, pin: &Path) -> Result<(), DatapathError> {
    program.pin(pin).map_err(|error| DatapathError::pin(pin, error))?;
    PinDir::restrict(pin).inspect_err(|_| PinDir::drop_pin(pin))
}

/// Frees the pin of an interface's name. If its link is still in force somewhere, the pin gets a
/// name that no interface has.
pub(crate) fn make_room(pins: &PinDir, hook: Hook, name: &str) -> Result<(), DatapathError> {
    let pin = pins.link(hook, name);
    if !is_there(&pin) {
        return Ok(());
    }
    let other = OwnLink::open(hook, name.to_owned(), pin.clone())?;
    if other.place == Place::Nowhere {
        // The pin is left from an interrupted start, or its interface is gone.
        return fs::remove_file(&pin).map_err(DatapathError::path("removing", pin));
    }
    let aside = pins.link(hook, &format!("moved-interface-{}", other.id));
    tracing::warn!(
        "the pin {} is of an interface that has another name now, or is in another network \
         namespace, and is limited: it is kept as {}",
        pin.display(),
        aside.display()
    );
    fs::rename(&pin, aside).map_err(DatapathError::path("renaming the pin", pin))
}

/// The interfaces limited by these pins, except those in `attached`. Removes the pins of interfaces
/// that are gone.
pub(crate) fn left_behind(
    pins: &PinDir,
    attached: &[Attachment],
) -> Result<Vec<LeftBehind>, DatapathError> {
    let mut left = Vec::new();
    let is_other = |link: &OwnLink| !link.is_of(attached) && !link.is_on(attached);
    for mut link in all(pins)?.into_iter().filter(is_other) {
        if link.place == Place::Nowhere {
            PinDir::drop_pin(&link.pin);
            tracing::info!("the pin of {}, which is gone, is removed", link.called);
            continue;
        }
        let Some(mut found) = link.left_behind() else { continue };
        if found.here && found.was.is_some() {
            rename(pins, &mut link, &found.name)?;
            found.pin.clone_from(&link.pin);
        }
        left.push(found);
    }
    Ok(left)
}

/// Like [`left_behind`], without changing anything.
pub(crate) fn limited_beside(pins: &PinDir, attached: &[Attachment]) -> Vec<LeftBehind> {
    let links = all(pins).unwrap_or_default();
    let others = links.iter().filter(|link| !link.is_of(attached) && !link.is_on(attached));
    others.filter_map(OwnLink::left_behind).collect()
}

/// Ends the links on attached interfaces at hooks that are not attached.
pub(crate) fn end_other_hooks(pins: &PinDir, attached: &[Attachment]) -> Result<(), DatapathError> {
    for link in all(pins)? {
        if link.is_of(attached) || !link.is_on(attached) {
            continue;
        }
        link.remove()?;
        tracing::warn!(
            "{} is no longer limited at {}, as an earlier start left it: this start was not asked \
             for that",
            link.called,
            link.hook.name()
        );
    }
    Ok(())
}

/// The interfaces known to be limited. Changes nothing.
pub(crate) fn limited(pins: &PinDir) -> Vec<LeftBehind> {
    all(pins).unwrap_or_default().iter().filter_map(OwnLink::left_behind).collect()
}

/// Ends the link on one interface, by its current name.
pub(crate) fn free(pins: &PinDir, name: &str) -> Result<(), DatapathError> {
    let links = all(pins)?;
    let found: Vec<_> =
        links.iter().filter_map(|link| Some((link.left_behind()?.name, link))).collect();
    let of_name = || found.iter().filter(|(limited, _)| limited == name);
    if of_name().next().is_none() {
        let limited = found.into_iter().map(|(limited, _)| limited).collect();
        return Err(DatapathError::NotLimited { name: name.to_owned(), limited });
    }
    of_name().try_for_each(|(_, link)| link.remove())
}

/// The names of the interfaces that removing these pins will free.
pub(crate) fn names(pins: &PinDir) -> Result<Vec<String>, DatapathError> {
    let mut names = Vec::new();
    for (hook, called, pin) in pins.link_pins()? {
        match OwnLink::open(hook, called.clone(), pin) {
            Ok(link) => names.extend(link.left_behind().map(|left| left.name)),
            // A link that cannot be opened is removed as well.
            Err(_) => names.push(called),
        }
    }
    names.sort();
    names.dedup();
    Ok(names)
}

fn is_there(pin: &Path) -> bool {
    !matches!(pin.symlink_metadata(), Err(error) if error.kind() == io::ErrorKind::NotFound)
}

/// Asks the kernel for the interface of each link that this process has open, by the link's id. aya
/// does not offer this.
fn places() -> io::Result<BTreeMap<u32, Place>> {
    let mut places = BTreeMap::new();
    for descriptor in fs::read_dir(DESCRIPTORS)? {
        // A descriptor that was closed meanwhile is not ours.
        let Ok(text) = fs::read_to_string(descriptor?.path()) else { continue };
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.and_then(|value| value.trim().parse::<u32>().ok())
        };
        let Some(id) = field("link_id") else { continue };
        let place = match field("ifindex") {
            Some(0) => Place::Nowhere,
            Some(index) => Place::On(index),
            None => Place::Unknown,
        };
        places.insert(id, place);
    }
    Ok(places)
}
