//! Sources that are dropped unconditionally: entries of the deny list, in the file, or for a
//! limited time by `limiter deny`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ipnet::IpNet;
use limiter_rules::Selector;

const IN_A_LINE: usize = 8;

/// Sources that a rule drops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) rule: usize,
    pub(super) sources: Vec<IpNet>,
    /// Seconds for each source; empty if all are denied for ever.
    pub(super) times: Vec<Option<u64>>,
}

/// A prefix in the form of lists: IPv6 prefixes are at most /64.
pub(super) fn listed(net: IpNet) -> Selector {
    Selector::prefix(net).unwrap_or_else(|_| Selector::address(net.addr()))
}

pub(super) fn for_ever(denied: &Denied) -> impl Iterator<Item = Selector> {
    let times = denied.times.iter().copied().chain(std::iter::repeat(None));
    let sources = denied.sources.iter().zip(times).filter(|(_, time)| time.is_none());
    sources.map(|(net, _)| listed(*net))
}

/// Commands that put sources on the deny list, one per line. With `timed`, only sources denied for
/// a time, because the file has the others.
pub(super) fn commands(denied: &Denied, timed: bool) -> Vec<String> {
    let time = |at: usize| denied.times.get(at).copied().flatten();
    let mut by_time: BTreeMap<Option<u64>, BTreeSet<Selector>> = BTreeMap::new();
    for (at, net) in denied.sources.iter().enumerate() {
        if !timed || time(at).is_some() {
            by_time.entry(time(at)).or_default().insert(listed(*net));
        }
    }
    let mut lines = Vec::new();
    for (time, sources) in by_time {
        let sources: Vec<String> = sources.iter().map(ToString::to_string).collect();
        for some in sources.chunks(IN_A_LINE) {
            let mut line = "limiter deny".to_owned();
            if let Some(seconds) = time {
                // Writing to a `String` cannot fail.
                let _: std::fmt::Result = write!(line, " --for {seconds}s");
            }
            line.push(' ');
            line.push_str(&some.join(" "));
            lines.push(line);
        }
    }
    lines
}
