//! Metrics for Prometheus.

use limiter_text::exposition::{Exposition, Kind};

use crate::counters::{BanBecame, Became, Counts};
use crate::limiter::Limiter;
use crate::service::Stats;

/// The page.
pub(crate) fn page(limiter: &Limiter, stats: &Stats) -> String {
    let mut page = Exposition::default();
    let rules = limiter.rules();
    let rules: Vec<_> =
        rules.domains().into_iter().flat_map(|(_, domain)| domain.rules()).collect();
    let [within, over] = limiter.answers();
    page.metric("limiter_requests_total", Kind::Counter, "Requests, by the answer.")
        .add(&[("code", "ok")], within)
        .add(&[("code", "over_limit")], over);
    let help = "Descriptors of requests, by the rule and by what became of them.";
    let mut samples = page.metric("limiter_request_descriptors_total", Kind::Counter, help);
    for rule in &rules {
        let counts: Counts = rule.counters.all();
        for (became, count) in Became::ALL.into_iter().zip(counts) {
            let labels = [
                ("domain", &*rule.domain),
                ("rule", &*rule.path),
                ("name", rule.name.as_deref().unwrap_or_default()),
                ("became", became.name()),
            ];
            samples.add(&labels, count);
        }
    }
    let help = "The same by the values of requests, for rules with detailed_metric or \
                value_to_metric.";
    let mut samples = page.metric("limiter_request_values_total", Kind::Counter, help);
    for rule in rules.iter().filter(|rule| rule.detailed) {
        for (value, counts) in rule.counters.by_value() {
            for (became, count) in Became::ALL.into_iter().zip(counts) {
                if count > 0 {
                    let labels = [
                        ("domain", &*rule.domain),
                        ("rule", &*rule.path),
                        ("value", value.as_str()),
                        ("became", became.name()),
                    ];
                    samples.add(&labels, count);
                }
            }
        }
    }
    let help = "Sources that a rule was to have banned, by what became of that.";
    let mut samples = page.metric("limiter_request_bans_total", Kind::Counter, help);
    for rule in rules.iter().filter(|rule| rule.ban.is_some()) {
        for (became, count) in BanBecame::ALL.into_iter().zip(rule.counters.bans.all()) {
            let labels = [
                ("domain", &*rule.domain),
                ("rule", &*rule.path),
                ("name", rule.name.as_deref().unwrap_or_default()),
                ("became", became.name()),
            ];
            samples.add(&labels, count);
        }
    }
    let help = "Requests for a domain without rules, which pass.";
    let unknown = limiter.unknown_domains();
    page.metric("limiter_request_unknown_domains_total", Kind::Counter, help).add(&[], unknown);
    let help = "Requests that were refused undecided, by the reason.";
    let mut samples = page.metric("limiter_request_refused_total", Kind::Counter, help);
    for (reason, count) in stats.refused() {
        samples.add(&[("reason", reason)], count);
    }
    let help = "Checks of which no descriptor could be made: a header was missing. They pass.";
    let empty = stats.empty_checks();
    page.metric("limiter_request_empty_checks_total", Kind::Counter, help).add(&[], empty);
    page.metric("limiter_request_keys", Kind::Gauge, "Keys that have a bucket.")
        .add(&[], limiter.keys());
    page.metric("limiter_request_max_keys", Kind::Gauge, "Keys that there is room for.")
        .add(&[], limiter.most_keys());
    page.metric("limiter_request_connections", Kind::Gauge, "Connections that are open.")
        .add(&[], stats.connections());
    let help = "Connections that were ended for newer ones.";
    page.metric("limiter_request_connections_evicted_total", Kind::Counter, help)
        .add(&[], stats.evicted());
    let [good, bad] = stats.reloads();
    let help = "Readings of the rule files. Rules stay in force where one failed.";
    page.metric("limiter_request_reloads_total", Kind::Counter, help)
        .add(&[("result", "ok")], good)
        .add(&[("result", "failed")], bad);
    let [good, bad] = stats.saves();
    let help = "Snapshots of the buckets. Where one failed, a restart goes on with the one before.";
    page.metric("limiter_request_saves_total", Kind::Counter, help)
        .add(&[("result", "ok")], good)
        .add(&[("result", "failed")], bad);
    page.into_text()
}
