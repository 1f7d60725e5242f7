//! The dashboard and the alerts of `dist` against the metrics of a daemon: names, labels and
//! values. `tests/tests/dashboards.rs` asks Prometheus itself whether the queries can be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

const OF_SERVE: [&str; 2] = ["limiter_request", "limiter_queue_"];

const ADDED: [&str; 2] = ["instance", "job"];

/// Values by label, by metric.
type Metrics = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

fn read(page: &str) -> Metrics {
    let lines = page.lines().map(|line| Ok(line.to_owned()));
    let mut metrics = Metrics::new();
    for sample in prometheus_parse::Scrape::parse(lines).unwrap().samples {
        let labels = metrics.entry(sample.metric.clone()).or_default();
        for (label, value) in sample.labels.iter() {
            labels.entry(label.clone()).or_default().insert(value.clone());
        }
    }
    metrics
}

fn of_dist(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Strings under a key, anywhere in a document.
fn strings(value: &Value, key: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == key => found.push(text.clone()),
                    _ => strings(value, key, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| strings(value, key, found)),
        _ => {}
    }
}

/// Queries of the dashboard and of its marks, each with its legend.
fn queries(dashboard: &Value) -> Vec<(String, String)> {
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = |key: &str| target[key].as_str().unwrap().to_owned();
            queries.push((text("expr"), text("legendFormat")));
        }
    }
    for mark in dashboard["annotations"]["list"].as_array().unwrap() {
        let text = |key: &str| mark[key].as_str().unwrap().to_owned();
        queries.push((text("expr"), text("titleFormat")));
    }
    queries
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// Mistakes in a query: metrics, labels and values that the daemon does not have.
fn wrong(query: &str, metrics: &Metrics) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut all: BTreeSet<&str> = ADDED.into_iter().collect();
    let mut rest = query;
    while let Some(at) = rest.find("limiter_") {
        let name = word(&rest[at..]);
        rest = &rest[at + name.len()..];
        // The metrics of `limiter serve` are tested with that program.
        if OF_SERVE.iter().any(|of_serve| name.starts_with(of_serve)) {
            return Vec::new();
        }
        let Some(labels) = metrics.get(name) else {
            wrong.push(format!("{name} is no metric"));
            continue;
        };
        all.extend(labels.keys().map(String::as_str));
        let Some(selector) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            continue;
        };
        for part in selector.0.split(',') {
            let label = word(part);
            let value = part[label.len()..].trim_start_matches(['=', '~', '!']).trim_matches('"');
            match labels.get(label) {
                _ if ADDED.contains(&label) => {}
                None => wrong.push(format!("{name} has no label {label}")),
                Some(values) if !values.contains(value) => {
                    wrong.push(format!("{label} of {name} is never {value}"));
                }
                Some(_) => {}
            }
        }
    }
    // `by (a, b)`, `on (a)`, `{{a}}`, `$labels.a`
    let after = |begin: &'static str| query.split(begin).skip(1);
    let lists = ["by (", "on ("].into_iter().flat_map(after);
    let mut named: Vec<&str> = lists
        .flat_map(|list| list.split(')').next().unwrap_or_default().split(','))
        .map(str::trim)
        .collect();
    named.extend(["{{", "$labels."].into_iter().flat_map(after).map(|text| word(text.trim())));
    named.retain(|label| !label.is_empty());
    for label in named.into_iter().filter(|label| !all.contains(label)) {
        wrong.push(format!("no metric of it has the label {label}"));
    }
    wrong
}

/// Checks the dashboard and the alerts against the metrics of a daemon of a cluster.
pub(super) fn fit(page: &str) {
    let metrics = read(page);
    let dashboard: Value = serde_json::from_str(&of_dist("grafana/limiter.json")).unwrap();
    let mut texts: Vec<String> =
        queries(&dashboard).into_iter().map(|(query, legend)| query + " " + &legend).collect();
    assert!(texts.len() > 25, "{} queries", texts.len());
    strings(&dashboard["templating"], "definition", &mut texts);
    // Each alert with its text.
    let rules = of_dist("prometheus/limiter.rules.yml");
    let alerts = rules.split("- alert: ").skip(1);
    texts.extend(alerts.map(|alert| alert.split_whitespace().collect::<Vec<_>>().join(" ")));
    let mut mistakes = Vec::new();
    for text in &texts {
        mistakes.extend(wrong(text, &metrics).into_iter().map(|what| format!("{what}: {text}")));
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
    for (query, of) in [
        ("sum(rate(limiter_packet_total[1m]))", "is no metric"),
        ("limiter_packets_total{verdict=\"dropped\"}", "never dropped"),
        ("limiter_packets_total{rule=\"x\"}", "no label rule"),
        ("sum by (reasons) (limiter_packets_total)", "the label reasons"),
        ("limiter_packets_total {{cpu}}", "the label cpu"),
    ] {
        let wrong = wrong(query, &metrics);
        assert!(wrong.len() == 1 && wrong[0].contains(of), "{query}: {wrong:?}");
    }
    let documented =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md"))
            .unwrap();
    for name in metrics.keys().filter(|name| !name.starts_with("limiter_cluster")) {
        assert!(documented.contains(&format!("`{name}`")), "docs/metrics.md has no {name}");
    }
    for alert in rules.split("- alert: ").skip(1).map(word) {
        assert!(documented.contains(&format!("| `{alert}` |")), "docs/metrics.md: no {alert}");
    }
}

/// Panels stand beside each other, and each is one.
#[test]
fn the_panels_of_the_dashboard_have_places_of_their_own() {
    let dashboard: Value = serde_json::from_str(&of_dist("grafana/limiter.json")).unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is another's");
        let place = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(place("x") + place("w") <= 24, "{title}: wider than the page");
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{title}: another one is there");
            }
        }
        let is_row = panel["type"] == "row";
        assert_eq!(is_row, panel["targets"].is_null(), "{title}");
        assert!(is_row || panel["description"].as_str().is_some_and(|text| text.len() > 10));
    }
    assert_eq!(dashboard["uid"], "limiter");
    assert!(dashboard["id"].is_null(), "an id is for Grafana to give");
}
