//! A start over maps of another version with a different layout. New maps are filled beside the old
//! ones, which stay in force; then the program of each link is replaced, as in any upgrade. So
//! every packet meets either the old rules in the old maps or the new rules in the new maps.

use limiter_common::wire::{Control, map};
use limiter_model::Framing;

use super::predecessor::Predecessor;
use crate::hooks::foreign::foreign;
use crate::hooks::programs;
use crate::interfaces::interface::Interface;
use crate::interfaces::matching;
use crate::interfaces::own_links;
use crate::interfaces::own_links::OwnLink;
use crate::interfaces::retry::Retries;
use crate::kernel::Kernel;
use crate::maps::pod::Wire;
use crate::{Attachment, DatapathError, Hook, LinkState, Mode, ModeChoice, PinDir, Wanted};

impl Kernel {
    /// True if maps of another layout are in force and [`Kernel::succeed`] has not run yet.
    pub(crate) const fn is_successor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Notes the interfaces to take over once the rules are in the new maps, and their current
    /// state.
    pub(crate) fn prepare_succession(
        &mut self,
        wanted: &Wanted,
        hooks: &[Hook],
        choice: ModeChoice,
    ) -> Result<(), DatapathError> {
        let known = own_links::all(&self.held.pins)?;
        let named = wanted.names.iter().map(|name| Ok((Interface::query(name)?, false)));
        let matching = matching::matching(wanted)?.into_iter();
        let matching = matching.filter_map(|link| Some(Ok((link.interface.ok()?, true))));
        let interfaces = named.chain(matching).collect::<Result<Vec<_>, DatapathError>>()?;
        for ((found, by_pattern), hook) in
            interfaces.iter().flat_map(|found| hooks.iter().map(move |hook| (found, *hook)))
        {
            let name = &found.name;
            self.held.max_frame = self.held.max_frame.max(found.max_frame());
            let link = own_links::behind(&self.held.pins, hook, found, Some(&known))?;
            if let (Hook::Xdp, None, Some((_, id))) = (hook, &link, found.program) {
                if *by_pattern {
                    continue;
                }
                return Err(foreign(found, &self.held.pins, id));
            }
            let mode = match hook {
                Hook::Xdp => found.program.map_or(Mode::Native, |(mode, _)| mode),
                Hook::Tc(direction) => Mode::Tc(direction),
            };
            self.held.attachments.push(Attachment {
                interface: name.clone(),
                asked: name.clone(),
                ifindex: found.index,
                mode,
                program_id: link.as_ref().map_or(0, |link| link.program_id),
                link_id: link.as_ref().map_or(0, |link| link.id),
                adopted: link.is_some(),
                state: if link.is_some() { LinkState::Attached } else { LinkState::Detached },
            });
        }
        self.held.hooks = hooks.to_vec();
        if let Some(before) = &mut self.predecessor {
            before.wanted = wanted.clone();
            before.choice = choice;
            before.hooks = hooks.to_vec();
        }
        Ok(())
    }

    /// Carries over the bypass and the bans, puts the new maps in place of the old ones, and
    /// replaces the program of each link. If it fails before a link has the new program, nothing
    /// has changed.
    pub(crate) fn succeed(&mut self) -> Result<(), DatapathError> {
        let Some(mut before) = self.predecessor.take() else { return Ok(()) };
        // Comes before any packet meets the new maps.
        let carried = self.carry(&mut before).and_then(|bans| {
            self.held.pins.exchange()?;
            Ok(bans)
        });
        let bans = match carried {
            Ok(bans) => bans,
            Err(error) => {
                self.predecessor = Some(before);
                return Err(error);
            }
        };
        self.held.pins = PinDir::new(self.held.pins.path());
        self.held.attachments.clear();
        let attached = self.attach_wanted(&before.wanted, &before.hooks, before.choice);
        if let Err(error) = attached {
            if !self.held.attachments.iter().any(|at| at.adopted) {
                self.step_back(before)?;
            }
            return Err(error);
        }
        self.take_left_behind()?;
        // Carries over bans made while the links changed, and a bypass set meanwhile.
        let bans = bans.max(self.carry(&mut before)?);
        before.report(bans);
        drop(before);
        if let Err(error) = self.held.pins.remove_next() {
            tracing::warn!(%error, "old maps are left: the next start removes them");
        }
        self.fresh = false;
        Ok(())
    }

    /// Puts the old maps back in their place.
    fn step_back(&mut self, before: Box<Predecessor>) -> Result<(), DatapathError> {
        for at in std::mem::take(&mut self.held.attachments) {
            own_links::end_named(&self.held.pins, at.mode.hook(), &at.interface)?;
        }
        self.wanted = Wanted::default();
        self.retries = Retries::default();
        self.held.pins.exchange()?;
        self.held.pins = self.held.pins.next();
        self.predecessor = Some(before);
        Ok(())
    }

    /// Copies the bypass, and the bans that are not there yet. Returns the number of sources with a
    /// record.
    fn carry(&mut self, before: &mut Predecessor) -> Result<usize, DatapathError> {
        let bypass = before.control.get(Control::Bypass)?;
        if bypass != before.bypass {
            self.held.maps.set_control(Control::Bypass, bypass)?;
            before.bypass = bypass;
        }
        let bans = before.bans()?;
        for (source, ban) in &bans {
            // The new program's record is newer.
            if self.held.tables.ban(source)?.is_none() {
                let inserted = self.held.tables.bans.insert(source, Wire(*ban), 0);
                inserted.map_err(DatapathError::map(map::BANS))?;
            }
        }
        if !bans.is_empty() {
            self.held.maps.set_control(Control::BansKept, 1)?;
        }
        Ok(bans.len())
    }

    /// Replaces the program of links that an earlier start left on interfaces which this one was
    /// not asked to limit: the bypass could not reach the old program any more.
    fn take_left_behind(&mut self) -> Result<(), DatapathError> {
        let attached: Vec<u32> = self.held.attachments.iter().map(|at| at.link_id).collect();
        for link in own_links::all(&self.held.pins)? {
            if attached.contains(&link.id) || link.place == own_links::Place::Nowhere {
                continue;
            }
            let OwnLink { called, pin, .. } = &link;
            let Some(framing) = framing(&link) else {
                tracing::warn!(
                    "{called} keeps the program and the limits of the version before, which no \
                     command changes: remove its pin {} to end it",
                    pin.display()
                );
                continue;
            };
            own_links::adopt(self.program(link.hook, framing)?, &link, called)?;
        }
        Ok(())
    }
}

/// Header at the beginning of the frames of a link's interface; `None` if it cannot be seen.
fn framing(link: &OwnLink) -> Option<Framing> {
    let here = link.here.as_ref().map(|found| found.framing);
    here.or_else(|| {
        let name = programs::name_of(link.program_id)?;
        Framing::ALL.into_iter().find(|framing| framing.program() == name)
    })
}
