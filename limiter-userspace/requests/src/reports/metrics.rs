//! Metrics for Prometheus.

use std::sync::Arc;

use limiter_cluster::keeping;
use limiter_cluster::queue::{DIED, Moved, Turned};
use limiter_cluster::status::Contact;
use limiter_sharing::OnPartition;
use limiter_text::exposition::{Exposition, Kind};

use crate::doors::under_way::MEMORY;
use crate::queue::rule::InForce;
use crate::reports::counters::{BanBecame, Became, Counts, Unanswered};
use crate::reports::unmet::Counted;
use crate::rules::{Rule, Rules};
use crate::service::Service;

pub(crate) fn page(service: &Service) -> String {
    let Service { limiter, stats, .. } = service;
    let mut page = Exposition::default();
    let rules = limiter.counted();
    let [within, over] = limiter.answers();
    page.metric("limiter_requests_total", Kind::Counter, "Requests, by the answer.")
        .add(&[("code", "ok")], within)
        .add(&[("code", "over_limit")], over);
    of_rules(&mut page, &rules);
    of_cluster(&mut page, service, &rules);
    of_queues(&mut page, limiter.rules().queues());
    let [buckets, assignments] = service.quotas.counts();
    let help = "Buckets that clients of the quota service decide by themselves.";
    page.metric("limiter_request_quota_buckets", Kind::Gauge, help).add(&[], buckets);
    let help = "Assignments of the quota service.";
    page.metric("limiter_request_quota_assignments_total", Kind::Counter, help)
        .add(&[], assignments);
    of_domains(&mut page, &limiter.rules());
    let help = "Requests for a domain without rules, which pass.";
    let unknown = limiter.unknown.all().asked;
    page.metric("limiter_request_unknown_domains_total", Kind::Counter, help).add(&[], unknown);
    let help = "Requests that were refused undecided, by the reason.";
    let mut samples = page.metric("limiter_request_refused_total", Kind::Counter, help);
    for (reason, count) in stats.refused() {
        samples.add(&[("reason", reason)], count);
    }
    let help = "Parts of requests that were not taken as they were, by what they are.";
    let mut samples = page.metric("limiter_request_odd_parts_total", Kind::Counter, help);
    for (part, count) in limiter.odd.counts() {
        samples.add(&[("part", part)], count);
    }
    let [brought, most] = limiter.brought_limits();
    let help = "Different limits that requests bring.";
    page.metric("limiter_request_brought_limits", Kind::Gauge, help).add(&[], brought);
    let help = "Different limits of requests that there is room for at once.";
    page.metric("limiter_request_max_brought_limits", Kind::Gauge, help).add(&[], most);
    let help = "Checks of which no descriptor could be made: a header was missing. They pass.";
    let empty = stats.empty_checks.all().none;
    page.metric("limiter_request_empty_checks_total", Kind::Counter, help).add(&[], empty);
    let help = "Checks that were to wait where the limits cannot say when: answered at once.";
    let no_waits = stats.no_waits.all().asked;
    page.metric("limiter_request_checks_without_wait_total", Kind::Counter, help)
        .add(&[], no_waits);
    page.metric("limiter_request_keys", Kind::Gauge, "Keys that have a bucket.")
        .add(&[], limiter.keys());
    page.metric("limiter_request_max_keys", Kind::Gauge, "Keys that there is room for.")
        .add(&[], limiter.most_keys());
    page.metric("limiter_request_connections", Kind::Gauge, "Connections that are open.")
        .add(&[], stats.connections());
    let [for_newer, for_memory] = stats.evicted();
    let help = "Connections that were ended for newer ones.";
    page.metric("limiter_request_connections_evicted_total", Kind::Counter, help)
        .add(&[], for_newer);
    let help = "Connections that were ended because requests under way held too much memory.";
    page.metric("limiter_request_connections_evicted_for_memory_total", Kind::Counter, help)
        .add(&[], for_memory);
    let help = "Bytes that the requests under way hold: their heads, bodies, and 4 KiB each.";
    let bytes: usize = service.memory.iter().map(|memory| memory.used()).sum();
    page.metric("limiter_request_memory_bytes", Kind::Gauge, help).add(&[], bytes);
    let help = "Bytes that they may hold.";
    page.metric("limiter_request_max_memory_bytes", Kind::Gauge, help)
        .add(&[], service.memory.len() * MEMORY);
    let help = "How late the latest of the threads that answer was when it last looked.";
    page.metric("limiter_request_late_seconds", Kind::Gauge, help)
        .add(&[], service.lateness.worst().as_secs_f64());
    let [good, bad] = stats.reloads();
    let help = "Readings of the rule files. Rules stay in force where one failed.";
    page.metric("limiter_request_reloads_total", Kind::Counter, help)
        .add(&[("result", "ok")], good)
        .add(&[("result", "failed")], bad);
    let [is_taken, is_changed] = service.files.are_taken();
    let help = "1 if the latest reading of the rule files put them in force.";
    page.metric("limiter_request_last_reload_success", Kind::Gauge, help)
        .add(&[], u8::from(is_taken));
    let help = "1 while the rule files on disk are others than those in force.";
    page.metric("limiter_request_rule_files_changed", Kind::Gauge, help)
        .add(&[], u8::from(is_changed));
    let [good, bad] = stats.saves();
    let help = "Snapshots of the buckets. Where one failed, a restart goes on with the one before.";
    page.metric("limiter_request_saves_total", Kind::Counter, help)
        .add(&[("result", "ok")], good)
        .add(&[("result", "failed")], bad);
    page.into_text()
}

/// Requests by their domain, and those that no rule is for.
fn of_domains(page: &mut Exposition, rules: &Rules) {
    let help = "Requests of a domain, by how many of their descriptors met a rule.";
    let mut samples = page.metric("limiter_request_domain_requests_total", Kind::Counter, help);
    for (name, domain) in rules.domains() {
        let Counted { asked, some, none } = domain.met.all();
        let met =
            [("all", asked - some.min(asked)), ("some", some - none.min(some)), ("none", none)];
        for (met, count) in met {
            samples.add(&[("domain", name), ("met", met)], count);
        }
    }
    let help = "Descriptors that no rule is for, which pass.";
    let mut samples = page.metric("limiter_request_unmet_descriptors_total", Kind::Counter, help);
    for (name, domain) in rules.domains() {
        samples.add(&[("domain", name)], domain.met.parts());
    }
}

fn labels(rule: &Rule) -> [(&str, &str); 3] {
    let name = rule.written.name.as_deref().unwrap_or_default();
    [("domain", &rule.domain), ("rule", &rule.path), ("name", name)]
}

/// What became of requests, by rule.
fn of_rules(page: &mut Exposition, rules: &[Arc<Rule>]) {
    let help = "Descriptors of requests, by the rule and by what became of them.";
    let mut samples = page.metric("limiter_request_descriptors_total", Kind::Counter, help);
    for rule in rules {
        let counts: Counts = rule.counters.all();
        let [domain, path, name] = labels(rule);
        for ((_, became), count) in Became::ALL.into_iter().zip(counts) {
            samples.add(&[domain, path, name, ("became", became)], count);
        }
    }
    let help = "The same by the values of requests, for rules with detailed_metric or \
                value_to_metric.";
    let mut samples = page.metric("limiter_request_values_total", Kind::Counter, help);
    for rule in rules.iter().filter(|rule| rule.detailed) {
        let [domain, path, _] = labels(rule);
        for (value, counts) in rule.counters.by_value() {
            let counts = Became::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0);
            for ((_, became), count) in counts {
                samples.add(&[domain, path, ("value", &value), ("became", became)], count);
            }
        }
    }
    let help = "Sources that a rule was to have banned, by what became of that.";
    let mut samples = page.metric("limiter_request_bans_total", Kind::Counter, help);
    for rule in rules.iter().filter(|rule| rule.written.ban.is_some()) {
        let [domain, path, name] = labels(rule);
        for ((_, became), count) in BanBecame::ALL.into_iter().zip(rule.counters.bans.all()) {
            samples.add(&[domain, path, name, ("became", became)], count);
        }
    }
    let help = "Values of remote_address that are no addresses. Each has a bucket of its own.";
    let mut samples = page.metric("limiter_request_no_address_total", Kind::Counter, help);
    for rule in rules.iter().filter(|rule| rule.counters.no_address() > 0) {
        samples.add(&labels(rule), rule.counters.no_address());
    }
}

/// What is there about limits that nodes share.
fn of_cluster(page: &mut Exposition, service: &Service, rules: &[Arc<Rule>]) {
    let help = "Descriptors about which on_partition of their rule decided, by the reason.";
    let mut samples = page.metric("limiter_request_on_partition_total", Kind::Counter, help);
    for rule in rules {
        let on_partition = match (&rule.shared, &rule.queue) {
            (Some(shared), _) => shared.on_partition.name(),
            // Nobody knows what waits.
            (None, Some(_)) => OnPartition::Closed.name(),
            (None, None) => continue,
        };
        let [domain, path, name] = labels(rule);
        let on_partition = ("on_partition", on_partition);
        for ((_, reason), count) in Unanswered::ALL.into_iter().zip(rule.counters.unanswered()) {
            samples.add(&[domain, path, name, on_partition, ("reason", reason)], count);
        }
    }
    if let Some(status) = service.node.status() {
        let help = "Requests that wait for the store.";
        page.metric("limiter_request_waiting", Kind::Gauge, help).add(&[], service.patience.now());
        let connected = matches!(status.contact, Contact::Connected(_));
        page.metric("limiter_cluster_connected", Kind::Gauge, "1 with contact to the store.")
            .add(&[], u8::from(connected));
        let help = "Nodes that the shares are divided by.";
        page.metric("limiter_cluster_nodes", Kind::Gauge, help).add(&[], status.count);
        let help = "Calls to the store, by the result.";
        page.metric("limiter_cluster_calls_total", Kind::Counter, help)
            .add(&[("result", "ok")], status.calls.saturating_sub(status.failed))
            .add(&[("result", "failed")], status.failed);
        let help = "Keys of requests that have leases on this node.";
        page.metric("limiter_cluster_keys", Kind::Gauge, help).add(&[], status.keys);
        let help = "Keys that found no lease, because all were in use.";
        page.metric("limiter_cluster_keys_refused_total", Kind::Counter, help)
            .add(&[], status.keys_refused);
        keeping::metrics(page, &status.servers);
    }
}

/// A number of what a queue moved.
type CountOf = fn(&Moved) -> u64;

/// What is there about queues.
fn of_queues(page: &mut Exposition, queues: &[Arc<InForce>]) {
    if queues.is_empty() {
        return;
    }
    let of = |queue: &Arc<InForce>| queue.settings.name.clone();
    let help = "Payloads of a queue: that wait, in the stream of the workers, and dead letters.";
    let mut samples = page.metric("limiter_queue_payloads", Kind::Gauge, help);
    for queue in queues {
        let Turned { waiting, ready, dead, .. } = queue.counters.turned();
        for (place, count) in [("waiting", waiting), ("ready", ready), ("dead", dead)] {
            samples.add(&[("queue", &of(queue)), ("place", place)], count);
        }
    }
    let help = "Seconds for which the first payload of a queue has waited.";
    let mut samples = page.metric("limiter_queue_oldest_seconds", Kind::Gauge, help);
    for queue in queues {
        let Turned { now, oldest, .. } = queue.counters.turned();
        let age = oldest.map_or(0, |oldest| now.saturating_sub(oldest));
        samples.add(&[("queue", &of(queue))], age / 1_000_000);
    }
    let help = "1 while nothing leaves a queue because its workers read nothing.";
    let mut samples = page.metric("limiter_queue_unread", Kind::Gauge, help);
    for queue in queues {
        samples.add(&[("queue", &of(queue))], u8::from(queue.counters.turned().unread));
    }
    let counts: [(&str, &str, CountOf); 6] = [
        (
            "limiter_queue_left_total",
            "Payloads that this process let leave for the workers.",
            |of| of.left,
        ),
        (
            "limiter_queue_back_total",
            "Payloads that came back from workers unacknowledged.",
            |of| of.back,
        ),
        (
            "limiter_queue_dead_dropped_total",
            "Dead letters that were dropped for newer ones.",
            |of| of.dropped,
        ),
        (
            "limiter_queue_taken_over_total",
            "Payloads that workers may have taken with them when they were removed: they come back.",
            |of| of.taken,
        ),
        (
            "limiter_queue_lost_total",
            "Payloads that were gone from the store before anybody acknowledged them.",
            |of| of.lost,
        ),
        (
            "limiter_queue_set_back_total",
            "Times that the store had an older state of a queue, or another group of workers.",
            |of| of.remade,
        ),
    ];
    for (name, help, of_moved) in counts {
        let mut samples = page.metric(name, Kind::Counter, help);
        for queue in queues {
            samples.add(&[("queue", &of(queue))], of_moved(&queue.counters.moved()));
        }
    }
    let help = "Payloads that this process made dead letters, by the reason.";
    let mut samples = page.metric("limiter_queue_dead_total", Kind::Counter, help);
    for queue in queues {
        for (reason, count) in DIED.into_iter().zip(queue.counters.moved().died) {
            samples.add(&[("queue", &of(queue)), ("reason", reason)], count);
        }
    }
    let help = "Payloads that were not queued, by the reason.";
    let mut samples = page.metric("limiter_queue_refused_total", Kind::Counter, help);
    for queue in queues {
        for (reason, count) in queue.counters.refusals() {
            samples.add(&[("queue", &of(queue)), ("reason", reason)], count);
        }
    }
}
