//! Interfaces that go away and come back. The kernel ends a link with its interface; one of the same name that
//! comes later has no program.

use super::interface::Interface;
use super::kernel::Kernel;
use super::{DatapathError, attach};

/// What became of an interface.
#[derive(Debug)]
pub enum LinkChange {
    /// There is none of this name any more.
    Gone(String),
    /// There is one again, and it is under limits.
    Back(String),
    /// There is one, and the program is not on it: somebody removed the pin of its link. That is a brake, so it
    /// is not attached again.
    Detached(String),
    /// There is one again, and it cannot be limited; every look tries again.
    Refused(String, DatapathError),
}

impl Kernel {
    /// Looks at every interface, and attaches to those that came back. Says what changed.
    pub fn look_after_links(&mut self) -> Vec<LinkChange> {
        (0..self.attachments.len()).filter_map(|index| self.look_after(index)).collect()
    }

    fn look_after(&mut self, index: usize) -> Option<LinkChange> {
        let at = self.attachments.get(index)?.clone();
        let name = at.interface.clone();
        let change = match Interface::query(&name) {
            Err(DatapathError::NoInterface(_)) if at.ifindex == 0 => return None,
            Err(DatapathError::NoInterface(_)) => LinkChange::Gone(name),
            // The next look may tell.
            Err(error) => {
                tracing::debug!(%error, interface = name, "not looked at");
                return None;
            }
            Ok(found) if found.index == at.ifindex => {
                let attached = found.program.is_some_and(|(_, id)| id == at.program_id);
                if attached == at.attached {
                    return None;
                }
                if let Some(at) = self.attachments.get_mut(index) {
                    at.attached = attached;
                }
                return Some(if attached {
                    LinkChange::Back(name)
                } else {
                    LinkChange::Detached(name)
                });
            }
            Ok(_) => match attach::attach(self, &name, self.choice) {
                Ok((attachment, frame)) => {
                    self.max_frame = self.max_frame.max(frame);
                    if let Some(at) = self.attachments.get_mut(index) {
                        *at = attachment;
                    }
                    return Some(LinkChange::Back(name));
                }
                Err(error) => LinkChange::Refused(name, error),
            },
        };
        if let Some(at) = self.attachments.get_mut(index) {
            at.attached = false;
            // No interface has it: whatever comes back is another one.
            at.ifindex = 0;
        }
        Some(change)
    }
}
