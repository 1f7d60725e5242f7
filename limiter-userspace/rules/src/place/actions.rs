//! Actions and interfaces by index: the same content keeps its index, and an index that packets
//! under way may read does not change its content.

use std::collections::BTreeMap;

use limiter_common::wire::{Action, ActionKind, MAX_ACTIONS};

use super::PlaceError;
use super::installed::InstalledTables;
use super::records::MAX_INTERFACES;
use crate::compile::CompiledOver;
use crate::model::Subject;

#[derive(Debug)]
pub(super) struct Actions {
    /// Actions of the generations before.
    known: BTreeMap<u16, Action>,
    by_content: Vec<(Action, u16)>,
    pub(super) in_force: BTreeMap<u16, Action>,
    pub(super) new: Vec<(u32, Action)>,
    known_interfaces: BTreeMap<u32, u32>,
    pub(super) interfaces: BTreeMap<u32, u32>,
    pub(super) cpus: Vec<u32>,
}

impl Actions {
    pub(super) fn new(old: &InstalledTables) -> Self {
        let mut known = old.retired.actions.clone();
        known.extend(&old.actions);
        let mut known_interfaces = old.retired.interfaces.clone();
        known_interfaces.extend(&old.interfaces);
        // Their indices are taken, even if the map of interfaces could not be read.
        for action in known.values().filter(|action| action.kind() == ActionKind::Interface) {
            known_interfaces.entry(action.target).or_insert(0);
        }
        Self {
            by_content: known.iter().map(|(index, action)| (*action, *index)).collect(),
            known,
            in_force: BTreeMap::new(),
            new: Vec::new(),
            known_interfaces,
            interfaces: BTreeMap::new(),
            cpus: Vec::new(),
        }
    }

    /// The index of what happens over a limit; 0 for a drop. `class` gives the slot of a budget's
    /// record.
    pub(super) fn over(
        &mut self,
        over: CompiledOver<'_>,
        subject: &Subject,
        class: impl FnOnce(&str) -> Option<u32>,
    ) -> Result<u16, PlaceError> {
        let of =
            |kind: ActionKind, target| Action { kind: kind as u8, target, ..Action::default() };
        let action = match over {
            CompiledOver::Drop => return Ok(0),
            CompiledOver::Action(action) => {
                if action.kind() == ActionKind::Cpu && !self.cpus.contains(&action.target) {
                    self.cpus.push(action.target);
                }
                action
            }
            // Compiling has found the budget, and budgets have their places first.
            CompiledOver::Class(name) => of(ActionKind::Class, class(name).unwrap_or_default()),
            CompiledOver::Interface(ifindex) => {
                of(ActionKind::Interface, self.interface(ifindex, subject)?)
            }
        };
        self.intern(action, subject)
    }

    /// The index of what happens to packets over a soft limit; 0 if there is none.
    pub(super) fn soft(
        &mut self,
        action: Option<Action>,
        subject: &Subject,
    ) -> Result<u16, PlaceError> {
        action.map_or(Ok(0), |action| self.intern(action, subject))
    }

    fn intern(&mut self, action: Action, subject: &Subject) -> Result<u16, PlaceError> {
        let found = self.by_content.iter().find(|(known, _)| *known == action);
        let index = if let Some((_, index)) = found {
            *index
        } else {
            // Few enough to look for a gap each time.
            let free = (1..MAX_ACTIONS)
                .filter_map(|index| u16::try_from(index).ok())
                .find(|index| !self.known.contains_key(index))
                .ok_or_else(|| PlaceError::TooManyActions(subject.clone()))?;
            self.known.insert(free, action);
            self.by_content.push((action, free));
            self.new.push((u32::from(free), action));
            free
        };
        self.in_force.insert(index, action);
        Ok(index)
    }

    fn interface(&mut self, ifindex: u32, subject: &Subject) -> Result<u32, PlaceError> {
        let found = self.known_interfaces.iter().find(|(_, known)| **known == ifindex);
        let index = match found {
            Some((index, _)) => *index,
            None => (0..MAX_INTERFACES)
                .find(|index| !self.known_interfaces.contains_key(index))
                .ok_or_else(|| PlaceError::TooManyInterfaces(subject.clone()))?,
        };
        self.known_interfaces.insert(index, ifindex);
        self.interfaces.insert(index, ifindex);
        Ok(index)
    }
}
