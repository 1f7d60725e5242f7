//! Actions and interfaces by index: the same content keeps its index, and an index that packets
//! under way may read does not change its content.

use std::collections::BTreeMap;

use limiter_common::wire::{Action, ActionKind, MARK_ECN, MAX_ACTIONS};

use super::PlanError;
use super::environment::Environment;
use super::installed::InstalledTables;
use super::records::MAX_INTERFACES;
use crate::rules::compile::ticks;
use crate::rules::model::{Mark, Over, SubjectRef};

/// The actions of a rule set.
#[derive(Debug)]
pub(super) struct Actions<'a> {
    environment: &'a Environment<'a>,
    /// Those of the generations before.
    known: BTreeMap<u16, Action>,
    by_content: Vec<(Action, u16)>,
    /// Those of this one.
    pub(super) in_force: BTreeMap<u16, Action>,
    /// Those to write.
    pub(super) new: Vec<(u32, Action)>,
    known_interfaces: BTreeMap<u32, u32>,
    pub(super) interfaces: BTreeMap<u32, u32>,
    pub(super) cpus: Vec<u32>,
}

impl<'a> Actions<'a> {
    pub(super) fn new(old: &InstalledTables, environment: &'a Environment<'a>) -> Self {
        let mut known = old.retired.actions.clone();
        known.extend(&old.actions);
        let mut known_interfaces = old.retired.interfaces.clone();
        known_interfaces.extend(&old.interfaces);
        // Their indices are taken, even if the map of interfaces could not be read.
        for action in known.values().filter(|action| action.kind() == ActionKind::Interface) {
            known_interfaces.entry(action.target).or_insert(0);
        }
        Self {
            environment,
            by_content: known.iter().map(|(index, action)| (*action, *index)).collect(),
            known,
            in_force: BTreeMap::new(),
            new: Vec::new(),
            known_interfaces,
            interfaces: BTreeMap::new(),
            cpus: Vec::new(),
        }
    }

    /// The index of what happens over a limit. `class` says the slot of a budget's record.
    pub(super) fn over(
        &mut self,
        over: &Over,
        subject: SubjectRef<'_>,
        class: impl FnOnce(&str) -> Option<u32>,
    ) -> Result<u16, PlanError> {
        let of = |kind: ActionKind| Action { kind: kind as u8, ..Action::default() };
        let action = match over {
            Over::Drop => return Ok(0),
            Over::Reject => of(ActionKind::Reject),
            Over::Mark(mark) => marking(*mark),
            Over::Class(name) => {
                let target = class(name).ok_or_else(|| PlanError::NoBudget {
                    subject: subject.subject(),
                    name: name.clone(),
                })?;
                Action { target, ..of(ActionKind::Class) }
            }
            Over::Interface(name) => {
                let target = self.interface(name, subject)?;
                Action { target, ..of(ActionKind::Interface) }
            }
            Over::Cpu(cpu) => {
                let (cpu, cpus) = (*cpu, self.environment.cpus);
                if cpu >= cpus {
                    return Err(PlanError::NoCpu { subject: subject.subject(), cpu, cpus });
                }
                if !self.cpus.contains(&cpu) {
                    self.cpus.push(cpu);
                }
                Action { target: cpu, ..of(ActionKind::Cpu) }
            }
            Over::Ban(ban) => Action {
                evidence: ban.evidence as u8,
                target: ban.strikes,
                ban_first: ticks(ban.first),
                ban_longest: ticks(ban.longest),
                ban_memory: ticks(ban.memory),
                ..of(ActionKind::Ban)
            },
        };
        self.intern(action, subject)
    }

    /// The index of what happens to packets over a soft limit.
    pub(super) fn soft(
        &mut self,
        mark: Option<Mark>,
        subject: SubjectRef<'_>,
    ) -> Result<u16, PlanError> {
        let pass = Action { kind: ActionKind::Pass as u8, ..Action::default() };
        self.intern(mark.map_or(pass, marking), subject)
    }

    fn intern(&mut self, action: Action, subject: SubjectRef<'_>) -> Result<u16, PlanError> {
        let found = self.by_content.iter().find(|(known, _)| *known == action);
        let index = if let Some((_, index)) = found {
            *index
        } else {
            // Few enough to look for a gap each time.
            let free = (1..MAX_ACTIONS)
                .filter_map(|index| u16::try_from(index).ok())
                .find(|index| !self.known.contains_key(index))
                .ok_or_else(|| PlanError::TooManyActions(subject.subject()))?;
            self.known.insert(free, action);
            self.by_content.push((action, free));
            self.new.push((u32::from(free), action));
            free
        };
        self.in_force.insert(index, action);
        Ok(index)
    }

    fn interface(&mut self, name: &str, subject: SubjectRef<'_>) -> Result<u32, PlanError> {
        let ifindex = (self.environment.interface_index)(name).ok_or_else(|| {
            PlanError::NoInterface { subject: subject.subject(), name: name.to_owned() }
        })?;
        let found = self.known_interfaces.iter().find(|(_, known)| **known == ifindex);
        let index = match found {
            Some((index, _)) => *index,
            None => (0..MAX_INTERFACES)
                .find(|index| !self.known_interfaces.contains_key(index))
                .ok_or_else(|| PlanError::TooManyInterfaces(subject.subject()))?,
        };
        self.known_interfaces.insert(index, ifindex);
        self.interfaces.insert(index, ifindex);
        Ok(index)
    }
}

fn marking(mark: Mark) -> Action {
    let dscp = match mark {
        Mark::Dscp(dscp) => dscp,
        Mark::Ecn => MARK_ECN,
    };
    Action { kind: ActionKind::Mark as u8, dscp, ..Action::default() }
}
