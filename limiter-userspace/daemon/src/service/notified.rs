//! Reports of the service about itself, also to the service manager.

use std::fmt::Write as _;

use limiter_api::render::rules;
use limiter_datapath::LinkState;
use limiter_text::pattern::Pattern;

use super::Service;
use crate::views::mode;

/// Most interfaces that the line names.
const SHOWN: usize = 8;

impl Service {
    /// Summary such as `eth0 native, 3 rules, generation 7`.
    pub(crate) fn summary(&self) -> String {
        let mut line = String::new();
        if let Ok(datapath) = self.datapath() {
            let attachments = datapath.attachments();
            for at in attachments.iter().take(SHOWN) {
                let how = match at.state {
                    LinkState::Attached => mode(at.mode),
                    LinkState::Elsewhere => "in another network namespace",
                    LinkState::Unseen => "not here",
                    LinkState::Detached | LinkState::Gone => "not attached",
                };
                // Writing to a `String` cannot fail.
                let _: std::fmt::Result = write!(line, "{} {how}, ", at.interface);
            }
            if let more @ 1.. = attachments.len().saturating_sub(SHOWN) {
                let _: std::fmt::Result = write!(line, "and {more} more, ");
            }
            let is_matched =
                |pattern: &&Pattern| attachments.iter().any(|at| pattern.matches(&at.interface));
            for pattern in datapath.patterns().iter().filter(|pattern| !is_matched(pattern)) {
                let _: std::fmt::Result = write!(line, "no interface {pattern} yet, ");
            }
            if let refused @ 1.. = datapath.refused().len() {
                let _: std::fmt::Result = write!(line, "{refused} not attached, ");
            }
            let (rules, generation) = (rules(self.rule_sets.rules()), datapath.generation());
            let _: std::fmt::Result = write!(line, "{rules}, generation {generation}");
            // A bypass outlives the daemon that turned it on.
            if matches!(datapath.bypass(), Ok(true)) {
                line.push_str(", but nothing is limited until `limiter on`");
            }
        }
        line
    }

    /// Reports the end of the start or of a reload, whether it was refused or not: the daemon
    /// serves.
    pub(crate) fn notify_ready(&mut self) {
        let summary = self.summary();
        self.notifier.ready(&summary);
    }

    /// Reports changes of the rules, the bypass and the interfaces.
    pub(crate) fn notify_changes(&mut self) {
        let summary = self.summary();
        self.notifier.status(&summary);
    }
}

/// Sends a sign of life if the kernel still answers about the rules in force.
pub(crate) fn alive(service: &Service) {
    match service.status() {
        Ok(_) => service.notifier.alive(),
        Err(error) => tracing::error!(%error, "the daemon does not answer any more"),
    }
}
