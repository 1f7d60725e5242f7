//! Hooks that could not be attached to, and when to retry them: when their interface changes, and
//! after a growing delay. Retrying all with every look would cost more the more interfaces there
//! are.

use std::time::{Duration, Instant};

use crate::{DatapathError, Hook, Interface, Mode, Refused};

/// Time until the second attempt.
const FIRST: Duration = Duration::from_secs(1);

/// The longest time between two attempts.
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Debug)]
struct Retry {
    refused: Refused,
    /// The interface at the last attempt; `None` if its frames cannot be read.
    found: Option<Interface>,
    at: Instant,
    /// Time from the last attempt to the next one.
    wait: Duration,
    is_reported: bool,
}

impl Retry {
    fn is(&self, interface: &str, hook: Hook) -> bool {
        self.refused.mode.hook() == hook && self.refused.interface == interface
    }
}

#[derive(Debug, Default)]
pub(crate) struct Retries(Vec<Retry>);

impl Retries {
    /// True if a hook should be tried now, for the first time or again.
    pub(crate) fn is_due(
        &self,
        interface: &str,
        hook: Hook,
        found: Option<&Interface>,
        now: Instant,
    ) -> bool {
        let tried = self.0.iter().find(|retry| retry.is(interface, hook));
        tried.is_none_or(|retry| retry.found.as_ref() != found || now >= retry.at)
    }

    pub(crate) fn failed(
        &mut self,
        interface: &str,
        mode: Mode,
        found: Option<&Interface>,
        error: &DatapathError,
        now: Instant,
    ) {
        let refused = Refused { interface: interface.to_owned(), mode, error: error.to_string() };
        let found = found.cloned();
        let before = self.0.iter().position(|retry| retry.is(interface, mode.hook()));
        let before = before.map(|at| self.0.swap_remove(at));
        let wait = match &before {
            Some(before) if before.found == found => (before.wait * 2).min(LONGEST),
            _ => FIRST,
        };
        let is_reported =
            before.is_some_and(|before| before.is_reported && before.refused == refused);
        self.0.push(Retry { refused, found, at: now + wait, wait, is_reported });
    }

    /// Forgets a hook, because it is attached or its interface is gone.
    pub(crate) fn forget(&mut self, interface: &str, hook: Hook) {
        self.0.retain(|retry| !retry.is(interface, hook));
    }

    /// Forgets the hooks of interfaces for which `is_kept` is false.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|retry| is_kept(&retry.refused.interface));
    }

    /// Takes the failures whose reason has not been reported yet.
    pub(crate) fn news(&mut self) -> Vec<Refused> {
        let news = self.0.iter_mut().filter(|retry| !retry.is_reported);
        news.map(|retry| {
            retry.is_reported = true;
            retry.refused.clone()
        })
        .collect()
    }

    /// All failures, ordered by the interface's name and the hook.
    pub(crate) fn all(&self) -> Vec<Refused> {
        let mut all: Vec<Refused> = self.0.iter().map(|retry| retry.refused.clone()).collect();
        all.sort_by(|one, other| {
            (&one.interface, one.mode.hook()).cmp(&(&other.interface, other.mode.hook()))
        });
        all
    }
}

#[cfg(test)]
mod tests {
    use limiter_model::Framing;

    use super::*;

    fn found(mtu: u32) -> Interface {
        let name = "veth0".to_owned();
        Interface { name, index: 7, mtu, framing: Framing::Ethernet, program: None }
    }

    fn error(name: &str) -> DatapathError {
        DatapathError::NoInterface(name.to_owned())
    }

    #[test]
    fn an_interface_is_tried_less_and_less_often() {
        let (mut retries, start, found) = (Retries::default(), Instant::now(), found(1500));
        let mut now = start;
        assert!(retries.is_due("veth0", Hook::Xdp, Some(&found), now));
        let mut waits = Vec::new();
        for _ in 0..9 {
            retries.failed("veth0", Mode::Native, Some(&found), &error("veth0"), now);
            let since = now;
            while !retries.is_due("veth0", Hook::Xdp, Some(&found), now) {
                now += Duration::from_secs(1);
            }
            waits.push((now - since).as_secs());
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // Other hooks and other interfaces are independent of it.
        retries.failed("veth0", Mode::Native, Some(&found), &error("veth0"), now);
        assert!(retries.is_due("veth1", Hook::Xdp, Some(&found), now));
        let out = Hook::Tc(limiter_common::header::Direction::Out);
        assert!(retries.is_due("veth0", out, Some(&found), now));
    }

    #[test]
    fn an_interface_that_changed_is_tried_at_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        for _ in 0..4 {
            retries.failed("veth0", Mode::Native, Some(&found(9000)), &error("veth0"), now);
        }
        assert!(!retries.is_due("veth0", Hook::Xdp, Some(&found(9000)), now));
        assert!(retries.is_due("veth0", Hook::Xdp, Some(&found(1500)), now));
        retries.failed("veth0", Mode::Native, Some(&found(1500)), &error("veth0"), now);
        assert!(retries.is_due("veth0", Hook::Xdp, Some(&found(1500)), now + FIRST));
        retries.forget("veth0", Hook::Xdp);
        assert!(retries.is_due("veth0", Hook::Xdp, Some(&found(1500)), now));
    }

    #[test]
    fn a_reason_is_reported_once() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let mut news_after = |name: &str| {
            retries.failed("veth0", Mode::Native, None, &error(name), now);
            retries.news().len()
        };
        assert_eq!([news_after("a"), news_after("a"), news_after("b")], [1, 0, 1]);
        assert_eq!(retries.all().len(), 1);
        retries.keep(|name| name != "veth0");
        assert!(retries.all().is_empty());
    }
}
