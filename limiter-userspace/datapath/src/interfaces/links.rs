//! Interfaces that disappear, come back, move and are renamed. The kernel ends a link together with
//! its interface; a later interface of the same name has no program. A link survives a change of
//! name or network namespace.

use std::time::Instant;

use super::interface::Interface;
use super::matching::Look;
use super::own_links;
use super::own_links::Place;
use crate::hooks::attach;
use crate::hooks::attachment::once;
use crate::kernel::Kernel;
use crate::{Attachment, Datapath as _, DatapathError, Hook, LinkChange, LinkState};

/// Looks at every interface, and attaches to those that came back or match a pattern. Returns the
/// changes.
pub(crate) fn look_after(kernel: &mut Kernel) -> Vec<LinkChange> {
    // The pins may belong to another daemon now.
    if !kernel.is_pinned() {
        return Vec::new();
    }
    if let Err(error) = kernel.keep_ifb() {
        tracing::debug!(%error, "packets that come in do not wait");
    }
    let mut look = Look::new(kernel);
    let mut changes = Vec::new();
    let mut left = Vec::new();
    for index in 0..kernel.held.attachments.len() {
        let change = kernel.look_after(index, &mut look);
        let Some(now) = kernel.held.attachments.get(index).cloned() else { break };
        if !kernel.is_by_pattern(&now) || kernel.is_still_meant(&now) {
            changes.extend(change);
            continue;
        }
        kernel.let_go(&now, &mut look);
        if !left.contains(&now.interface) {
            left.push(now.interface);
        }
    }
    if !left.is_empty() {
        let attachments = std::mem::take(&mut kernel.held.attachments).into_iter();
        kernel.held.attachments = attachments
            .filter(|at| !kernel.is_by_pattern(at) || kernel.is_still_meant(at))
            .collect();
        changes.extend(left.into_iter().map(LinkChange::Left));
    }
    for name in kernel.wanted.names.clone() {
        for hook in kernel.held.hooks.clone() {
            changes.extend(kernel.attach_again(hook, &name, &mut look));
        }
    }
    changes.extend(kernel.attach_some(&mut look));
    kernel.forget_replaced();
    kernel.keep_members();
    let is_new =
        |change: &LinkChange| matches!(change, LinkChange::Back(_) | LinkChange::Appeared(_));
    if changes.iter().any(is_new) {
        kernel.end_hooks_of_before();
    }
    changes.extend(kernel.retries.news().into_iter().map(LinkChange::Refused));
    once(changes)
}

impl Kernel {
    fn look_after(&mut self, index: usize, look: &mut Look) -> Option<LinkChange> {
        let before = self.held.attachments.get(index)?.clone();
        let (state, here) = match find(&before, look) {
            Ok(found) => found,
            // The next look may find out.
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
            // The interface of this index is gone: whatever comes back is another one.
            now.ifindex = 0;
            now.interface.clone_from(&now.asked);
        }
        let is_by_pattern = self.is_by_pattern(&now);
        let is_meant = is_by_pattern && self.is_still_meant(&now);
        if is_meant || self.wanted.names.contains(&now.interface) {
            now.asked.clone_from(&now.interface);
        }
        let (was, name) = (before.interface.clone(), now.interface.clone());
        let same = before == now;
        let change = match state {
            _ if same => None,
            LinkState::Attached if was != name => {
                // An interface that is let go keeps its pin's name.
                if is_meant || !is_by_pattern {
                    self.rename_pin(&now);
                }
                Some(LinkChange::Renamed { was, name })
            }
            LinkState::Attached => Some(LinkChange::Back(name)),
            _ if before.state == state => None,
            LinkState::Elsewhere => Some(LinkChange::Elsewhere(was)),
            LinkState::Unseen => Some(LinkChange::Unseen(was)),
            LinkState::Detached => {
                Some(LinkChange::Detached { interface: was, hook: before.mode.hook() })
            }
            LinkState::Gone => Some(LinkChange::Gone(was)),
        };
        if let Some(at) = self.held.attachments.get_mut(index) {
            *at = now;
        }
        change
    }

    /// Ends links that an earlier start made at other hooks, on interfaces that could not be
    /// attached to at the start but are attached now.
    fn end_hooks_of_before(&self) {
        let is_other = |(hook, _, _): &(Hook, _, _)| !self.held.hooks.contains(hook);
        let ended = self.held.pins.link_pins().and_then(|pins| {
            if pins.iter().any(is_other) { self.end_other_hooks() } else { Ok(()) }
        });
        if let Err(error) = ended {
            tracing::warn!(%error, "an interface may be limited at hooks of an earlier start, too");
        }
    }

    /// Renames the pin of a link after its interface.
    fn rename_pin(&self, at: &Attachment) {
        let renamed = own_links::of_id(&self.held.pins, at.link_id).and_then(|link| match link {
            Some(mut link) => own_links::rename(&self.held.pins, &mut link, &at.interface),
            None => Ok(()),
        });
        // The next start finds the link by its interface.
        if let Err(error) = renamed {
            tracing::warn!(%error, "the pin of {} keeps its name", at.interface);
        }
    }

    /// Attaches to an existing interface that is not limited under that name.
    fn attach_again(&mut self, hook: Hook, name: &str, look: &mut Look) -> Option<LinkChange> {
        if self.has_it(hook, name) {
            return None;
        }
        let found = match Interface::query(name) {
            Ok(found) => found,
            Err(DatapathError::NoInterface(_)) => {
                self.retries.forget(name, hook);
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, interface = name, "not looked at");
                return None;
            }
        };
        self.attach_found(hook, &found, look).then(|| LinkChange::Back(name.to_owned()))
    }

    /// True if an interface is known under this name, with or without the program at the hook.
    fn has_it(&self, hook: Hook, name: &str) -> bool {
        self.held.attachments.iter().any(|at| {
            at.interface == name
                && at.mode.hook() == hook
                && matches!(at.state, LinkState::Attached | LinkState::Detached)
        })
    }

    /// Attaches to a hook of a found interface, unless it is already known or must be retried
    /// later. Returns whether it is limited now.
    pub(crate) fn attach_found(&mut self, hook: Hook, found: &Interface, look: &mut Look) -> bool {
        let (name, now) = (found.name.as_str(), Instant::now());
        if self.has_it(hook, name) || !self.retries.is_due(name, hook, Some(found), now) {
            return false;
        }
        let is_at_hook = |at: &Attachment| at.mode.hook() == hook;
        // It was renamed after this look had passed it: the next look handles that.
        let is_it = |at: &Attachment| {
            at.ifindex == found.index && is_at_hook(at) && at.state == LinkState::Attached
        };
        if self.held.attachments.iter().any(is_it) {
            return false;
        }
        // Only an interface with a program can have one of our links.
        let known = if found.may_have_program(hook) { look.links().ok() } else { None };
        let (attachment, frame) = match attach::attach(self, hook, name, known) {
            Ok(attached) => attached,
            Err(error) => {
                // No retry for an interface that is gone.
                if matches!(Interface::at(found.index), Ok(Some(_))) {
                    self.retries.failed(name, self.tried(hook), Some(found), &error, now);
                }
                return false;
            }
        };
        self.retries.forget(name, hook);
        self.held.max_frame = self.held.max_frame.max(frame);
        let takes = |at: &&mut Attachment| {
            at.asked == name && is_at_hook(at) && at.state == LinkState::Gone
        };
        match self.held.attachments.iter_mut().find(takes) {
            Some(at) => *at = attachment,
            None => self.held.attachments.push(attachment),
        }
        true
    }

    /// Forgets interfaces that are gone and have been replaced.
    fn forget_replaced(&mut self) {
        if !self.held.attachments.iter().any(|at| at.state == LinkState::Gone) {
            return;
        }
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

/// State of an interface. Also returns the interface if it is here with the program on it.
fn find(at: &Attachment, look: &mut Look) -> Result<(LinkState, Option<Interface>), DatapathError> {
    if at.state == LinkState::Gone {
        return Ok((LinkState::Gone, None));
    }
    let runs = |found: &Interface| found.runs(at.mode.hook(), at.program_id);
    if let Some(found) = look.here(at.ifindex)
        && found.name == at.interface
        && runs(found)
    {
        return Ok((LinkState::Attached, Some(found.clone())));
    }
    // An alternative name of an interface also finds it.
    match Interface::query(&at.interface) {
        Ok(found) if found.index == at.ifindex && runs(&found) => {
            return Ok((LinkState::Attached, Some(found)));
        }
        Ok(_) | Err(DatapathError::NoInterface(_) | DatapathError::Framing { .. }) => {}
        Err(error) => return Err(error),
    }
    let Some(link) = look.link_of(at.link_id)? else {
        // Without a pin there is no link.
        let here = Interface::at(at.ifindex)?.is_some();
        return Ok((if here { LinkState::Detached } else { LinkState::Gone }, None));
    };
    Ok(match (link.place, link.here) {
        (_, Some(here)) => (LinkState::Attached, Some(here)),
        (Place::On(_), None) => (LinkState::Elsewhere, None),
        (Place::Nowhere, None) => (LinkState::Gone, None),
        (Place::Unknown, None) => match Interface::at(at.ifindex)? {
            Some(here) if runs(&here) => (LinkState::Attached, Some(here)),
            Some(here) if here.name == at.interface => (LinkState::Detached, None),
            _ => (LinkState::Unseen, None),
        },
    })
}
