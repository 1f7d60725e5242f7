//! Interfaces that went away, came back, moved or were renamed.

use limiter_datapath::LinkChange;

use super::Service;

impl Service {
    /// Attaches to interfaces that came back, and says what changed. Without its pins the daemon
    /// ends.
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
        for change in datapath.look_after_links() {
            match change {
                LinkChange::Gone(name) => {
                    self.refused_links.remove(&name);
                    tracing::warn!("{name} is gone: it is limited again when it is back");
                }
                LinkChange::Back(name) => {
                    self.refused_links.remove(&name);
                    tracing::warn!("{name} is back, and limited");
                    self.rule_sets.replan = true;
                }
                LinkChange::Renamed { was, name } => {
                    self.refused_links.remove(&name);
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
                LinkChange::Detached(name) => tracing::warn!(
                    "{name} is not limited any more: the pin of its link was removed; a restart \
                     of the daemon attaches it again"
                ),
                LinkChange::Refused(name, error) => {
                    let error = error.to_string();
                    // Every look tries again; it is reported once.
                    if self.refused_links.get(&name) != Some(&error) {
                        tracing::error!("{name} is back, and not limited: {error}");
                        self.refused_links.insert(name, error);
                    }
                }
            }
        }
        self.catch_up();
    }

    /// Puts rules in force that know which interfaces and nodes there are.
    pub(super) fn catch_up(&mut self) {
        let (rule_sets, mut ground) = self.at_rules();
        if let Some(learned) = rule_sets.catch_up(&mut ground) {
            self.repeated_errors
                .note("tell the rules in force which interfaces and nodes there are", &learned);
        }
    }
}
