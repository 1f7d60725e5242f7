//! Interfaces by patterns of names: limited when they appear, and released when they leave this
//! network namespace or get a name that does not match.
//!
//! An interface that moves to another namespace is released, unlike one that was asked for by name:
//! container runtimes create both ends of a veth pair here and move one end into the container,
//! where the directions are reversed.

use std::collections::HashMap;
use std::time::Instant;

use limiter_model::Framing;

use super::interface::Interface;
use super::own_links;
use super::own_links::OwnLink;
use crate::kernel::Kernel;
use crate::machine::{Link, links};
use crate::{
    Attachment, DatapathError, Hook, LinkChange, LinkState, Mode, ModeChoice, PinDir, Wanted,
};

/// Interfaces attached per look. The kernel takes some milliseconds for each, and the daemon waits
/// meanwhile.
const A_LOOK: usize = 8;

/// The interfaces here whose names match a pattern, except the loopback and those wanted by name.
pub(crate) fn matching(wanted: &Wanted) -> Result<Vec<Link>, DatapathError> {
    if wanted.patterns.is_empty() {
        return Ok(Vec::new());
    }
    let is_meant = |link: &Link| {
        !link.is_loopback && wanted.matches(&link.name) && !wanted.names.contains(&link.name)
    };
    Ok(links()?.into_iter().filter(is_meant).collect())
}

/// Answers of the kernel during one look at all interfaces, so that each question is asked once.
pub(crate) struct Look {
    pins: PinDir,
    /// Interfaces that match a pattern; `None` if the kernel did not answer.
    matching: Option<Vec<Link>>,
    /// Matching interfaces whose frames can be read, by index.
    here: HashMap<u32, Interface>,
    links: Option<Vec<OwnLink>>,
}

impl Look {
    pub(crate) fn new(kernel: &Kernel) -> Self {
        let matching = matching(&kernel.wanted)
            .inspect_err(|error| tracing::debug!(%error, "not known which interfaces match"))
            .ok();
        let readable = matching.iter().flatten().filter_map(|link| link.interface.as_ref().ok());
        let here = readable.map(|found| (found.index, found.clone())).collect();
        Self { pins: kernel.held.pins.clone(), matching, here, links: None }
    }

    /// The interface of an index, if its name matches a pattern.
    pub(crate) fn here(&self, index: u32) -> Option<&Interface> {
        self.here.get(&index)
    }

    pub(crate) fn links(&mut self) -> Result<&[OwnLink], DatapathError> {
        let links = match self.links.take() {
            Some(links) => links,
            None => own_links::all(&self.pins)?,
        };
        Ok(self.links.insert(links))
    }

    pub(crate) fn link_of(&mut self, id: u32) -> Result<Option<OwnLink>, DatapathError> {
        Ok(self.links()?.iter().find(|link| link.id == id).cloned())
    }
}

impl Kernel {
    /// Attaches to the hooks of all wanted interfaces, or adopts their links. If an interface that
    /// matches a pattern fails, its error is kept and it is retried later.
    pub(crate) fn attach_wanted(
        &mut self,
        wanted: &Wanted,
        hooks: &[Hook],
        mode: ModeChoice,
    ) -> Result<(), DatapathError> {
        wanted.names.iter().try_for_each(|name| self.attach(name, hooks, mode))?;
        if wanted.patterns.is_empty() {
            return Ok(());
        }
        self.choice = mode;
        self.held.hooks = hooks.to_vec();
        // If no interface could ever be attached, the start fails, even if no interface matches
        // yet.
        for hook in hooks {
            // Load both kinds now. A matching interface may appear when this process may no longer
            // load programs: Linux before 6.18 needs `CAP_PERFMON` for them.
            for framing in Framing::ALL {
                self.program_id(*hook, framing)?;
            }
        }
        self.wanted.patterns.clone_from(&wanted.patterns);
        let mut look = Look::new(self);
        self.attach_matching(&mut look, usize::MAX);
        self.keep_members();
        Ok(())
    }

    /// Attaches to a limited number of interfaces that match a pattern and are not limited yet.
    /// Returns those that are now.
    pub(crate) fn attach_some(&mut self, look: &mut Look) -> Vec<LinkChange> {
        self.attach_matching(look, A_LOOK)
    }

    fn attach_matching(&mut self, look: &mut Look, most: usize) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        let Some(matching) = look.matching.take() else {
            return changes;
        };
        for link in &matching {
            if changes.len() >= most {
                changes.push(LinkChange::Unfinished);
                break;
            }
            let mut is_new = false;
            for hook in self.held.hooks.clone() {
                match &link.interface {
                    Ok(found) => is_new |= self.attach_found(hook, found, look),
                    Err(error) => {
                        let (mode, now) = (self.tried(hook), Instant::now());
                        self.retries.failed(&link.name, mode, None, error, now);
                    }
                }
            }
            if is_new {
                changes.push(LinkChange::Appeared(link.name.clone()));
            }
        }
        let names = self.wanted.names.clone();
        self.retries.keep(|name| {
            names.iter().any(|named| named == name) || matching.iter().any(|link| link.name == name)
        });
        changes
    }

    /// The mode in which a hook is tried first.
    pub(crate) const fn tried(&self, hook: Hook) -> Mode {
        match (hook, self.choice) {
            (Hook::Xdp, ModeChoice::Generic) => Mode::Generic,
            (Hook::Xdp, _) => Mode::Native,
            (Hook::Tc(direction), _) => Mode::Tc(direction),
        }
    }

    /// True if the interface was asked for only by a pattern.
    pub(crate) fn is_by_pattern(&self, at: &Attachment) -> bool {
        !self.wanted.names.contains(&at.asked)
    }

    /// True if an interface that was asked for by a pattern still matches one.
    pub(crate) fn is_still_meant(&self, at: &Attachment) -> bool {
        matches!(at.state, LinkState::Attached | LinkState::Detached)
            && self.wanted.matches(&at.interface)
    }

    /// Ends the link of an interface that no longer matches a pattern.
    pub(crate) fn let_go(&mut self, at: &Attachment, look: &mut Look) {
        let ended = match look.link_of(at.link_id) {
            Ok(Some(link)) => own_links::end(&self.held.pins, &link),
            // Without a pin there is no link.
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            tracing::warn!(
                %error,
                "{} is not meant by a pattern any more, and may still be limited: the next start \
                 says so, if it is",
                at.interface
            );
        }
    }
}
