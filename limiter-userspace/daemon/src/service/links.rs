//! Interfaces that appeared, disappeared, came back, moved or were renamed.

use std::collections::{BTreeMap, BTreeSet};

use limiter_datapath::{LinkChange, Refused, TcOrder, Then, ThenChange};

use super::Service;
use super::status::others;
use crate::machine::attached::Attached;

impl Service {
    /// Attaches to interfaces that came back or match a pattern, and logs changes. Ends the daemon
    /// if its pins were removed.
    pub(crate) fn look_after_links(&mut self) {
        let Ok(datapath) = self.datapath.get_mut() else {
            return;
        };
        if !datapath.is_pinned() {
            tracing::warn!(
                "the pins were removed (by `limiter detach --pin-dir`, say): the daemon can change \
                 nothing there any more, and ends; an interface whose link is still pinned stays \
                 limited until `limiter detach --pin-dir` with the same directory"
            );
            self.stop.notify_one();
            if let Some(datapath) = self.datapath.take() {
                drop(datapath);
            }
            return;
        }
        let frame = datapath.max_frame();
        let mut appeared = BTreeSet::new();
        let mut detached: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        let mut refused: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
        self.has_more_links = false;
        for change in datapath.look_after_links() {
            match change {
                LinkChange::Gone(name) => {
                    tracing::warn!("{name} is gone: it is limited again when it is back");
                }
                LinkChange::Back(name) => {
                    tracing::warn!("{name} is back, and limited");
                    self.rule_sets.replan = true;
                }
                LinkChange::Renamed { was, name } => {
                    tracing::warn!("{was} is called {name} now, and limited as before");
                    self.rule_sets.replan = true;
                }
                LinkChange::Elsewhere(name) => tracing::warn!(
                    "{name} is in another network namespace now, and still limited there"
                ),
                LinkChange::Unseen(name) => tracing::warn!(
                    "{name} is not in this network namespace any more: whether it is limited in \
                     another one cannot be seen"
                ),
                LinkChange::Detached { interface, hook } => {
                    detached.entry(interface).or_default().push(hook.name());
                }
                LinkChange::Appeared(name) => {
                    tracing::info!("{name} matches a pattern, and is limited");
                    appeared.insert(name);
                }
                LinkChange::Unfinished => self.has_more_links = true,
                LinkChange::Left(name) => tracing::info!(
                    "{name} is not here any more by a name that matches, and is not limited"
                ),
                LinkChange::Refused(Refused { interface, mode, error }) => {
                    refused.entry((interface, error)).or_default().push(mode.hook().name());
                }
            }
        }
        for (name, hooks) in detached {
            tracing::warn!(
                "{name} is not limited any more at {}: the pin of its link there was removed, or \
                 before Linux 6.6 its filter, as with the clsact; a restart of the daemon attaches \
                 it again, and `limiter reload` does not",
                hooks.join(" and ")
            );
        }
        for ((name, error), hooks) in refused {
            tracing::error!(
                "{name} is not limited at {}: {error}; it is tried again",
                hooks.join(" and ")
            );
        }
        // Containers come and go; rules not affected by that stay unchanged.
        let is_learned = datapath.max_frame() > frame
            || !appeared.is_empty() && self.rule_sets.effective.depends_on(&appeared);
        self.rule_sets.replan |= is_learned;
        self.catch_up();
    }

    /// Puts rules in force that reflect the present interfaces and nodes.
    pub(super) fn catch_up(&mut self) {
        let (rule_sets, mut ground) = self.at_rules();
        if let Some(learned) = rule_sets.catch_up(&mut ground) {
            self.repeated_errors
                .note("tell the rules in force which interfaces and nodes there are", &learned);
        }
    }
}

/// Reports at the start which programs of others affect the limits.
pub(crate) fn report_neighbours(datapath: &Attached, order: TcOrder) {
    let Ok(datapath) = datapath.get() else {
        return;
    };
    for at in datapath.attachments() {
        for other in others(datapath, at) {
            let (name, Some(text)) = (&at.interface, other.text()) else { continue };
            // A program before limiter does not surprise users who asked for that.
            if other.limiter || order == TcOrder::First {
                tracing::warn!("{name}: {text}");
            } else {
                tracing::info!("{name}: {text}");
            }
        }
    }
}

/// Looks at the next program, which gets the passed packets, and logs changes.
pub(crate) fn look_after_then(datapath: &mut Attached) {
    let Ok(datapath) = datapath.get_mut() else {
        return;
    };
    match datapath.look_after_then() {
        None => {}
        Some(ThenChange::Replaced(now)) => tracing::warn!(
            "another program was pinned at {}: packets that pass go on in that one, program {}",
            now.pin.display(),
            now.program_id
        ),
        Some(ThenChange::Kept(Then { pin, program_id, fault, .. })) => tracing::warn!(
            "packets that pass go on in program {program_id} as before, which is not what is \
             pinned at {} now: {}",
            pin.display(),
            fault.unwrap_or_default()
        ),
        Some(ThenChange::Mended(now)) => tracing::info!(
            "program {} is pinned at {} again, and packets that pass go on in it",
            now.program_id,
            now.pin.display()
        ),
    }
}
