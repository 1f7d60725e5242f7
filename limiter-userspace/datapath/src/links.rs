//! Interfaces that go away, come back, move and are renamed. The kernel ends a link with its
//! interface; one of the same name that comes later has no program. With the interface's name or
//! network namespace the link stays.

use super::interface::Interface;
use super::kernel::Kernel;
use super::own_links::{self, Place};
use super::{Attachment, Datapath as _, DatapathError, Hook, LinkChange, LinkState, attach};

/// Looks at every interface, and attaches to those that came back. Says what changed.
pub(super) fn look_after(kernel: &mut Kernel) -> Vec<LinkChange> {
    // The pins may be another daemon's by now.
    if !kernel.is_pinned() {
        return Vec::new();
    }
    let mut changes = Vec::new();
    for index in 0..kernel.held.attachments.len() {
        changes.extend(kernel.look_after(index));
    }
    for name in kernel.asked.clone() {
        for hook in kernel.hooks.clone() {
            changes.extend(kernel.attach_again(hook, &name));
        }
    }
    kernel.forget_replaced();
    changes
}

impl Kernel {
    fn look_after(&mut self, index: usize) -> Option<LinkChange> {
        let before = self.held.attachments.get(index)?.clone();
        let (state, here) = match self.find(&before) {
            Ok(found) => found,
            // The next look may say so.
            Err(error) => {
                tracing::debug!(%error, interface = before.interface, "not looked at");
                return None;
            }
        };
        let mut now = Attachment { state, ..before.clone() };
        if let Some(here) = here {
            now.ifindex = here.index;
            now.interface = here.name;
        }
        if state == LinkState::Gone {
            // No interface has it: whatever comes back is another one.
            now.ifindex = 0;
            now.interface.clone_from(&now.asked);
        }
        if self.asked.contains(&now.interface) {
            now.asked.clone_from(&now.interface);
        }
        let (was, name) = (before.interface.clone(), now.interface.clone());
        let same = before == now;
        let change = match state {
            _ if same => None,
            LinkState::Attached if was != name => {
                self.rename_pin(&now);
                Some(LinkChange::Renamed { was, name })
            }
            LinkState::Attached => Some(LinkChange::Back(name)),
            _ if before.state == state => None,
            LinkState::Elsewhere => Some(LinkChange::Elsewhere(was)),
            LinkState::Unseen => Some(LinkChange::Unseen(was)),
            LinkState::Detached => Some(LinkChange::Detached(was)),
            LinkState::Gone => Some(LinkChange::Gone(was)),
        };
        if let Some(at) = self.held.attachments.get_mut(index) {
            *at = now;
        }
        change
    }

    /// State of an interface, and the interface if it is here with the program on it.
    fn find(&self, at: &Attachment) -> Result<(LinkState, Option<Interface>), DatapathError> {
        if at.state == LinkState::Gone {
            return Ok((LinkState::Gone, None));
        }
        // An interface may have a second name, and be known by that.
        match Interface::query(&at.interface) {
            Ok(found) if found.index == at.ifindex && found.runs(at.mode.hook(), at.program_id) => {
                return Ok((LinkState::Attached, Some(found)));
            }
            Ok(_) | Err(DatapathError::NoInterface(_) | DatapathError::Framing { .. }) => {}
            Err(error) => return Err(error),
        }
        let Some(link) = own_links::of_id(&self.held.pins, at.link_id)? else {
            // Without a pin there is no link.
            let here = Interface::at(at.ifindex)?.is_some();
            return Ok((if here { LinkState::Detached } else { LinkState::Gone }, None));
        };
        Ok(match (link.place, link.here) {
            (_, Some(here)) => (LinkState::Attached, Some(here)),
            (Place::On(_), None) => (LinkState::Elsewhere, None),
            (Place::Nowhere, None) => (LinkState::Gone, None),
            (Place::Unknown, None) => match Interface::at(at.ifindex)? {
                Some(here) if here.runs(at.mode.hook(), at.program_id) => {
                    (LinkState::Attached, Some(here))
                }
                Some(here) if here.name == at.interface => (LinkState::Detached, None),
                _ => (LinkState::Unseen, None),
            },
        })
    }

    /// Gives the pin of a link the name that its interface has now.
    fn rename_pin(&self, at: &Attachment) {
        let renamed = own_links::of_id(&self.held.pins, at.link_id).and_then(|link| match link {
            Some(link) => own_links::rename(&self.held.pins, &link, &at.interface),
            None => Ok(()),
        });
        // The next start finds it by its interface.
        if let Err(error) = renamed {
            tracing::warn!(%error, "the pin of {} keeps its name", at.interface);
        }
    }

    /// Attaches to an interface that is there, and not under limits by that name.
    fn attach_again(&mut self, hook: Hook, name: &str) -> Option<LinkChange> {
        let is_at_hook = |at: &Attachment| at.mode.hook() == hook;
        let has_it = |at: &Attachment| {
            at.interface == name
                && is_at_hook(at)
                && matches!(at.state, LinkState::Attached | LinkState::Detached)
        };
        if self.held.attachments.iter().any(has_it) {
            return None;
        }
        let found = match Interface::query(name) {
            Ok(found) => found,
            Err(DatapathError::NoInterface(_)) => return None,
            Err(error) => {
                tracing::debug!(%error, interface = name, "not looked at");
                return None;
            }
        };
        // Renamed after this look came to it: the next one sees that.
        let is_it = |at: &Attachment| {
            at.ifindex == found.index && is_at_hook(at) && at.state == LinkState::Attached
        };
        if self.held.attachments.iter().any(is_it) {
            return None;
        }
        let (attachment, frame) = match attach::attach(self, hook, name, self.choice) {
            Ok(attached) => attached,
            Err(error) => return Some(LinkChange::Refused(name.to_owned(), error)),
        };
        self.held.max_frame = self.held.max_frame.max(frame);
        let takes = |at: &&mut Attachment| {
            at.asked == name && is_at_hook(at) && at.state == LinkState::Gone
        };
        match self.held.attachments.iter_mut().find(takes) {
            Some(at) => *at = attachment,
            None => self.held.attachments.push(attachment),
        }
        Some(LinkChange::Back(name.to_owned()))
    }

    /// Forgets interfaces that are gone and have a successor.
    fn forget_replaced(&mut self) {
        let all = self.held.attachments.clone();
        let mut index = 0;
        self.held.attachments.retain(|at| {
            let own = index;
            index += 1;
            at.state != LinkState::Gone
                || !all.iter().enumerate().any(|(other, successor)| {
                    successor.asked == at.asked
                        && successor.mode.hook() == at.mode.hook()
                        && (successor.state != LinkState::Gone && other != own || other < own)
                })
        });
    }
}
