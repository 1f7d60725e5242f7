//! Judges whether a limit fits the traffic, with the evidence. docs/tuning.md gives the reasons for
//! the bounds.

use limiter_api::render::number;
use limiter_api::utilization::{Fit, Of, RuleUtilization};

/// Number of sources below which a share says nothing: each source would be more than 5 %.
pub(super) const FEW: u64 = 20;

/// A limit is too tight if more than one in this many sources lost a small part of its packets.
pub(super) const TIGHT_ONE_IN: u64 = 100;

/// Fewest sources that must have lost a small part, whatever the share.
pub(super) const TIGHT_AT_LEAST: u64 = 3;

/// Bound of an attack from few sources: if more than one in this many sources lost most of its
/// packets, they may be attackers or users, which counters cannot tell apart.
pub(super) const MANY_ONE_IN: u64 = 10;

/// Seconds of observation needed before a limit is called fitting or loose.
pub(super) const SOON: u64 = 300;

/// Used share that no source of a loose limit may have exceeded.
pub(super) const HALF: f64 = 0.5;

/// Used share above which a source is near its limit.
pub(super) const NEAR: f64 = 0.8;

/// Judges a rule, with the evidence. `leased` says that nodes share its limit.
pub(super) fn judge(rule: &RuleUtilization, leased: bool) -> (Fit, String) {
    let RuleUtilization { sent, lost, lost_most, window_seconds, .. } = *rule;
    let minutes = minutes(window_seconds);
    let unknown = |why: String| (Fit::NotKnownYet, why);
    let [source, sources] = match rule.of {
        Of::Budget => {
            return unknown(
                "a budget is one bucket for all: whom it hits is not counted; `limiter events` has \
                 a sample"
                    .to_owned(),
            );
        }
        Of::Sources => ["source", "sources"],
        Of::Keys => ["key", "keys"],
    };
    if leased {
        return unknown("nodes share it, and this one sees only its own part".to_owned());
    }
    if rule.shadowed > 0 {
        return unknown(format!(
            "in shadow mode it would drop {} packets in {minutes}; of how many {sources} \
             is not counted: `limiter events` has a sample, `limiter tune --for 10m` a proposal",
            number(rule.shadowed)
        ));
    }
    if rule.marked > 0 {
        return unknown(format!(
            "{} packets were over a limit in {minutes}, and were marked or went another way; of \
             how many {sources} is not counted",
            number(rule.marked)
        ));
    }
    if sent < FEW {
        return unknown(format!(
            "seen to send in {minutes}: {} {}, and {FEW} are needed",
            number(sent),
            if sent == 1 { source } else { sources }
        ));
    }
    let of_all = |part: u64| format!("{} of {} {sources}", number(part), number(sent));
    let little = lost.saturating_sub(lost_most);
    if little >= TIGHT_AT_LEAST && little.saturating_mul(TIGHT_ONE_IN) > sent {
        return (
            Fit::TooTight,
            format!(
                "{} lost packets in {minutes}, but less than half of what they sent, as users do \
                 whose bursts do not fit",
                of_all(little)
            ),
        );
    }
    if lost_most.saturating_mul(MANY_ONE_IN) > sent {
        return unknown(format!(
            "{} lost most of what they sent in {minutes}: attackers, or users of a limit that is \
             far too tight; counters do not show it which, `limiter sources` names them",
            of_all(lost_most)
        ));
    }
    if window_seconds < SOON {
        return unknown(format!(
            "{minutes} were seen, and {} are needed; {} lost packets so far",
            self::minutes(SOON),
            of_all(lost)
        ));
    }
    if lost > 0 {
        return (
            Fit::Fitting,
            format!(
                "{} lost packets in {minutes}, {} of them most of what they sent",
                of_all(lost),
                number(lost_most)
            ),
        );
    }
    if rule.at_most.is_some_and(|at_most| at_most <= HALF) {
        return (
            Fit::Loose,
            format!(
                "none of {} {sources} lost a packet in {minutes}, nor can have used more than {} \
                 of the limit",
                number(sent),
                percent(rule.at_most.unwrap_or(HALF))
            ),
        );
    }
    if rule.above_50 > 0 {
        return (
            Fit::Fitting,
            format!(
                "{} came above half of the limit in {minutes}, and none lost a packet",
                of_all(rule.above_50)
            ),
        );
    }
    unknown(format!(
        "none of {} {sources} lost a packet in {minutes}, nor was seen above half of the limit, \
         but bursts between two readings are not seen: `limiter tune --for 10m` sees them",
        number(sent)
    ))
}

/// Formats whole minutes, or seconds below two minutes.
fn minutes(seconds: u64) -> String {
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds / 60) }
}

fn percent(share: f64) -> String {
    format!("{:.0} %", (share * 100.0).ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(sent: u64, lost: u64, lost_most: u64) -> RuleUtilization {
        let at_most = Some(if lost > 0 { 1.0 } else { 0.9 });
        RuleUtilization {
            sent,
            lost,
            lost_most,
            above_50: lost,
            at_most,
            window_seconds: 1800,
            ..RuleUtilization::default()
        }
    }

    fn fit(rule: &RuleUtilization) -> Fit {
        judge(rule, false).0
    }

    #[test]
    fn many_that_lose_a_little_make_it_too_tight() {
        assert_eq!(fit(&rule(200, 34, 0)), Fit::TooTight);
        let (_, why) = judge(&rule(1200, 34, 10), false);
        assert_eq!(
            why,
            "24 of 1,200 sources lost packets in 30 min, but less than half of what they sent, as \
             users do whose bursts do not fit"
        );
        // One in a hundred, and at least three.
        assert_eq!(fit(&rule(1000, 10, 0)), Fit::Fitting);
        assert_eq!(fit(&rule(1000, 11, 0)), Fit::TooTight);
        assert_eq!(fit(&rule(20, 2, 0)), Fit::Fitting);
        // A short observation is enough: these sources were hit.
        assert_eq!(fit(&RuleUtilization { window_seconds: 5, ..rule(200, 34, 0) }), Fit::TooTight);
    }

    #[test]
    fn few_that_lose_most_are_an_attack() {
        assert_eq!(fit(&rule(200, 3, 3)), Fit::Fitting);
        // Many sources may be attackers or users.
        assert_eq!(fit(&rule(200, 20, 20)), Fit::Fitting);
        assert_eq!(fit(&rule(200, 21, 21)), Fit::NotKnownYet);
    }

    #[test]
    fn loose_takes_a_bound_and_not_only_no_sight() {
        let calm = rule(200, 0, 0);
        assert_eq!(fit(&calm), Fit::NotKnownYet);
        assert_eq!(fit(&RuleUtilization { at_most: Some(0.41), ..calm.clone() }), Fit::Loose);
        assert_eq!(fit(&RuleUtilization { at_most: None, ..calm.clone() }), Fit::NotKnownYet);
        assert_eq!(fit(&RuleUtilization { above_50: 7, ..calm.clone() }), Fit::Fitting);
        let soon = RuleUtilization { at_most: Some(0.41), window_seconds: SOON - 1, ..calm };
        assert_eq!(fit(&soon), Fit::NotKnownYet);
    }

    #[test]
    fn nothing_is_said_where_counters_say_nothing() {
        let tight = rule(200, 34, 0);
        assert_eq!(judge(&tight, true).0, Fit::NotKnownYet);
        for unknown in [
            rule(FEW - 1, 10, 0),
            RuleUtilization { shadowed: 1, ..tight.clone() },
            RuleUtilization { marked: 1, ..tight.clone() },
            RuleUtilization { of: Of::Budget, ..tight },
        ] {
            assert_eq!(fit(&unknown), Fit::NotKnownYet, "{unknown:?}");
        }
    }
}
