//! `GET /metrics` over the data path in memory, read by somebody else's parser.

use std::collections::{BTreeMap, BTreeSet};

use limiter_api::Counts;
use limiter_common::frame_size::FrameSize;
use limiter_common::verdict::Reason;
use limiter_common::wire::{Admission, EntryKind};
use limiter_datapath::fake::SOURCES;
use prometheus_parse::{Scrape, Value};

use super::*;

/// Packets or bytes.
type Count = fn(&Counts) -> u64;

/// Values by name and labels.
type Samples = BTreeMap<(String, BTreeMap<String, String>), f64>;

fn read(text: &str) -> Samples {
    let lines = text.lines().map(|line| Ok(line.to_owned()));
    let scrape = Scrape::parse(lines).unwrap();
    let mut samples = Samples::new();
    for sample in scrape.samples {
        let value = match sample.value {
            Value::Counter(value) => {
                assert!(sample.metric.ends_with("_total"), "{}", sample.metric);
                value
            }
            Value::Gauge(value) => value,
            other => panic!("{}: {other:?}", sample.metric),
        };
        // An empty label is as good as none.
        let labels = sample.labels.iter().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(k, v)| (k.clone(), v.clone())).collect();
        let before = samples.insert((sample.metric.clone(), labels), value);
        assert!(before.is_none(), "{} has the same labels twice", sample.metric);
    }
    // The parser skips lines that it does not understand.
    let lines = text.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!(samples.len(), lines);
    samples
}

fn scrape(daemon: &Daemon) -> Samples {
    read(&daemon.service.metrics().unwrap())
}

fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> f64 {
    let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let key = (name.to_owned(), labels);
    *samples.get(&key).unwrap_or_else(|| panic!("no {key:?}"))
}

#[expect(clippy::cast_precision_loss, reason = "the counts of a test are small")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[track_caller]
fn same(left: f64, right: f64) {
    assert!((left - right).abs() < 1e-9, "{left} is not {right}");
}

#[test]
fn the_metrics_are_the_statistics() {
    let mut daemon = Daemon::start(&[]);
    daemon.write(
        "descriptors:\n  - {key: remote_address, rate_limit: {unit: second, requests_per_unit: \
         10, burst: 5}}\n  - {key: remote_address, value: 192.0.2.0/24, rate_limit: {unit: \
         second, requests_per_unit: 4, burst: 4}}\n  - {key: interface, value: fake0, budget: \
         b}\nbudgets: [{name: b, rate_limit: {unit: minute, requests_per_unit: 30, burst: 7}}]\n",
    );
    daemon.service.reload().unwrap();
    daemon.write("nonsense");
    daemon.service.reload().unwrap_err();
    daemon.fake.state().now = Ticks::from_nanos(1_000_000_000);
    daemon.fake.send(Source::V4([192, 0, 2, 1]), 9, 100);
    daemon.fake.send(Source::V4([198, 51, 100, 1]), 3, 60);
    {
        let mut state = daemon.fake.state();
        let rule = state.installed().rules[&Selector::Every].limit.rule;
        let counters = state.rules.entry(rule).or_default();
        for reason in [Reason::Shadow, Reason::Shadow, Reason::Marked] {
            counters.add(reason, FrameSize::of_packet(77));
        }
        let admission = Admission {
            tat: 9,
            returned: 9,
            made: 8,
            evicted: 3,
            first_seen: 4,
            over_budget: 2,
            full: 1,
        };
        state.admission.insert(EntryKind::V6, admission);
    }
    let samples = scrape(&daemon);
    let stats = daemon.service.stats().unwrap();
    for of in &stats.reasons {
        let labels = [("reason", of.reason.as_str()), ("verdict", &of.verdict)];
        same(value(&samples, "limiter_packets_total", &labels), float(of.packets));
        same(value(&samples, "limiter_bytes_total", &labels), float(of.bytes));
    }
    let budgets = stats.budgets.iter().map(|of| (format!("budget {}", of.rule), of));
    let rules = stats.rules.iter().map(|of| (of.rule.clone(), of)).chain(budgets);
    let of: [(&str, Count); 2] = [
        ("limiter_rule_packets_total", |counts| counts.packets),
        ("limiter_rule_bytes_total", |counts| counts.bytes),
    ];
    let mut counted = 0;
    for (name, count) in &rules.collect::<Vec<_>>() {
        for (metric, get) in of {
            let verdict =
                |verdict| value(&samples, metric, &[("rule", name), ("verdict", verdict)]);
            let passed = verdict("within") + verdict("shadow") + verdict("near");
            same(passed, float(get(&count.passed)));
            same(verdict("over"), float(get(&count.dropped)));
            same(verdict("shadow"), float(get(&count.shadowed)));
            same(verdict("near"), float(get(&count.marked)));
        }
        counted += count.passed.packets + count.dropped.packets;
    }
    // Twelve packets, seven of which the budget counted, too, and the three that were added.
    assert_eq!(counted, 12 + 7 + 3);
    same(
        value(&samples, "limiter_rule_packets_total", &[("rule", "other"), ("verdict", "over")]),
        0.0,
    );
    let rate = |rule| {
        let labels = [("rule", rule), ("limit", "1"), ("bound", "limit"), ("count", "packets")];
        value(&samples, "limiter_rule_rate_per_second", &labels)
    };
    same(rate("192.0.2.0/24"), 4.0);
    same(rate("budget b"), 0.5);
    let daemon = daemon.service.status().unwrap();
    same(value(&samples, "limiter_generation", &[]), float(daemon.generation));
    same(value(&samples, "limiter_rules", &[]), 3.0);
    same(value(&samples, "limiter_reloads_total", &[("result", "ok")]), 1.0);
    same(value(&samples, "limiter_reloads_total", &[("result", "failed")]), 1.0);
    same(value(&samples, "limiter_last_reload_success", &[]), 0.0);
    assert!(value(&samples, "limiter_last_reload_timestamp_seconds", &[]) > 1e9);
    for (verdict, total) in [("pass", stats.passed), ("drop", stats.dropped)] {
        let labels = [("direction", "in"), ("interface", "fake0"), ("verdict", verdict)];
        let of = |name| value(&samples, name, &labels);
        assert!(total.packets > 0, "{stats:?}");
        same(of("limiter_interface_packets_total"), float(total.packets));
        same(of("limiter_interface_bytes_total"), float(total.bytes));
    }
    let interface = [("interface", "fake0"), ("mode", "native")];
    same(value(&samples, "limiter_interface_info", &interface), 1.0);
    same(value(&samples, "limiter_build_info", &[("version", &daemon.version)]), 1.0);
    let table = [("table", "ipv6_sources")];
    same(value(&samples, "limiter_entries", &table), 5.0);
    same(value(&samples, "limiter_entries_max", &table), f64::from(SOURCES));
    let refused = |why| value(&samples, "limiter_entries_refused_total", &[table[0], ("why", why)]);
    same(refused("budget"), 2.0);
    same(refused("full"), 1.0);
}

/// The name that the author of a rule gave it is a label of every sample of the rule.
#[test]
fn rules_have_the_names_of_their_authors() {
    let mut daemon = Daemon::start(&[]);
    daemon.write(
        "descriptors:\n  - {key: remote_address, rate_limit: {name: web, rate: 10/s, burst: 5}}\n  \
         - {key: destination_port, rate_limit: {rate: 10/s}}\n",
    );
    daemon.service.reload().unwrap();
    daemon.fake.send(Source::V4([192, 0, 2, 1]), 7, 60);
    let samples = scrape(&daemon);
    let web = [("rule", "every source"), ("rule_name", "web")];
    let over = [web[0], web[1], ("verdict", "over")];
    same(value(&samples, "limiter_rule_packets_total", &over), 2.0);
    same(value(&samples, "limiter_rule_bytes_total", &over), 120.0);
    same(value(&samples, "limiter_rule_shadow", &web), 0.0);
    same(value(&samples, "limiter_rule_too_tight", &web), 0.0);
    for (metric, labels) in samples.keys() {
        let rule = labels.get("rule").map(String::as_str);
        let name = labels.get("rule_name").map(String::as_str);
        assert_eq!(name, (rule == Some("every source")).then_some("web"), "{metric} {labels:?}");
    }
}

#[test]
fn labels_are_bounded_however_many_rules_there_are() {
    use std::fmt::Write as _;
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().capacity = 20_000;
    let mut rules = "descriptors:\n".to_owned();
    for number in 0..10_000 {
        let (high, low) = (number / 256, number % 256);
        writeln!(
            rules,
            "  - {{key: remote_address, value: 198.18.{high}.{low}, rate_limit: {{unit: second, \
             requests_per_unit: 5}}}}"
        )
        .unwrap();
    }
    daemon.write(&rules);
    daemon.service.reload().unwrap();
    daemon.fake.send(Source::V4([198, 18, 39, 15]), 3, 60);
    let text = daemon.service.metrics().unwrap();
    assert!(text.len() < 1 << 20, "{}", text.len());
    let samples = read(&text);
    same(value(&samples, "limiter_rules", &[]), 10_000.0);
    let named: BTreeSet<_> = samples.keys().filter_map(|(_, labels)| labels.get("rule")).collect();
    assert!(named.len() <= 501, "{}", named.len());
    // The last rule has no name of its own, but is counted.
    let other = [("rule", "other"), ("verdict", "within")];
    same(value(&samples, "limiter_rule_packets_total", &other), 3.0);
    // A rule more, and no sample more.
    daemon.set("203.0.113.1", "5/s", None).unwrap();
    assert_eq!(scrape(&daemon).len(), samples.len());
}
