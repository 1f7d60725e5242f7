//! The choice of a source store for a rule set, and the check that it fits the rules.

use std::time::Duration;

use limiter_common::entries::SECOND;
use limiter_common::wire::Limit;

use crate::datapath::Datapath;
use crate::datapath::SourceTable;
use crate::rules::{Installed, Selector};

/// A limit is short if a source owes for no longer than this.
pub(super) const SHORT: Duration = Duration::from_mins(1);

/// True if lines are chosen without being asked for: not on CPUs that reorder plain loads, because
/// lines are not guarded against that.
const LINES_BY_THEMSELVES: bool = cfg!(target_arch = "x86_64");

/// The source store for a rule set: lines, if it has limits by source and all of them are short. A
/// line is full when seven sources in it owe at the same time, and a table of lines is made for as
/// many that owe as it is said to hold. Of limits that come later nothing is known.
pub(super) fn of(installed: &Installed) -> SourceTable {
    match longest(installed) {
        Some((_, owes)) if owes <= SHORT && LINES_BY_THEMSELVES => SourceTable::Lines,
        _ => SourceTable::Hash,
    }
}

/// Warning about a rule set that is put in force where sources have their buckets in lines.
pub(super) fn warning(installed: &Installed, datapath: &dyn Datapath) -> Option<String> {
    let (selector, owes) = longest(installed)?;
    if datapath.source_table() != SourceTable::Lines || owes <= SHORT {
        return None;
    }
    let seconds = owes.as_secs();
    Some(format!(
        "sources may owe for {seconds} s by the limit for {selector}, and have their buckets in lines, which seven that owe \
         fill: more of them than usual may share buckets; for long limits run `limiter detach` and start with \
         --source-table hash"
    ))
}

/// The limit by source under which one owes the longest, and for how long.
fn longest(installed: &Installed) -> Option<(Selector, Duration)> {
    let rules = installed.rules.iter().map(|(selector, rule)| (*selector, owes(&rule.limit)));
    rules.max_by_key(|(_, owes)| *owes)
}

/// The longest time that a source can owe: what it may, and one frame.
fn owes(limit: &Limit) -> Duration {
    if limit.is_unlimited() {
        return Duration::ZERO;
    }
    let frame = u128::from(limit.increment) * u128::from(limit.max_units());
    let ticks = u128::from(limit.tolerance) + frame.checked_shr(limit.shift.into()).unwrap_or(0);
    let nanos = ticks.saturating_mul(1_000_000_000) / u128::from(SECOND);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Environment, RuleFile};

    fn installed(yaml: &str) -> Installed {
        let rules = RuleFile::parse("r.yaml", yaml.as_bytes(), 1522).unwrap().rules;
        let machine =
            Environment { max_frame: 1522, interface_index: &|_| None, cpus: 1, cluster: None };
        Installed::default().plan(&rules, 1, 64, &machine).unwrap().installed
    }

    #[test]
    fn short_limits_get_lines_and_long_ones_hash_maps() {
        let of_rate = |unit: &str, count: u32, burst: u32| {
            of(&installed(&format!(
                "descriptors: [{{key: remote_address, rate_limit: {{unit: {unit}, requests_per_unit: {count}, \
                 burst: {burst}}}}}, {{key: remote_address, value: 192.0.2.0/24, rate_limit: {{unlimited: true}}}}]"
            )))
        };
        assert_eq!(of_rate("second", 1_000, 100), SourceTable::Lines);
        // 58 packets at once and the one that is over: 59 s. With one more it is a minute, which is no more than that.
        assert_eq!(of_rate("second", 1, 58), SourceTable::Lines);
        assert_eq!(of_rate("second", 1, 59), SourceTable::Lines);
        assert_eq!(of_rate("second", 1, 60), SourceTable::Hash);
        assert_eq!(of_rate("day", 1_000, 10), SourceTable::Hash);
        assert_eq!(of(&installed("descriptors: []")), SourceTable::Hash);
    }
}
