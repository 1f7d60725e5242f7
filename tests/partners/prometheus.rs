//! Prometheus: what it reads of limiter, the alerts, and the queries of the dashboard. What the
//! alerts do is tested with `promtool` on each change (`tests/dashboards.rs`).

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::machine::{Machine, start_daemon, until};
use crate::package::debian;
use crate::page::Page;
use crate::partner::tried;
use crate::proxy;

const TRIED: &str = "the page's configuration, the alerts and all queries of the dashboard on a \
                     daemon and `limiter serve`: each killed, stopped, restarted; `promtool check` \
                     of rules, configuration and metrics";

/// The alerts that wait or are raised, and the targets that answer.
fn sees(machine: &Machine, up: [&str; 2], alerts: &[&str]) -> Result<()> {
    until("Prometheus sees it", || {
        let ask = |query: &str| -> Result<Value> {
            let url = format!("http://127.0.0.1:9090/api/v1/{query}");
            Ok(serde_json::from_str(&machine.run(&format!("curl -fsS -g '{url}'"))?)?)
        };
        for (job, wanted) in ["limiter", "limiter-serve"].into_iter().zip(up) {
            let answer = ask(&format!("query?query=up{{job=\"{job}\"}}"))?;
            let seen = &answer["data"]["result"][0]["value"][1];
            ensure!(seen == wanted, "{job}: {answer}");
        }
        let answer = ask("alerts")?;
        let seen = answer["data"]["alerts"].as_array().context("no alerts")?;
        let names = seen.iter().filter_map(|alert| alert["labels"]["alertname"].as_str());
        // This machine gives `limiter status` something to warn of.
        let mut names: Vec<&str> = names.filter(|name| *name != "LimiterWarnings").collect();
        names.sort_unstable();
        ensure!(names == alerts, "{answer}");
        Ok(())
    })
}

/// Each query of the dashboard has an answer, be it empty.
fn dashboard(machine: &Machine) -> Result<()> {
    let dashboard: Value = serde_json::from_str(Page::read("dist/grafana/limiter.json")?.text())?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let marks = dashboard["annotations"]["list"].as_array().context("no marks")?;
    let queries = targets.chain(marks).filter_map(|target| target["expr"].as_str());
    let queries: Vec<String> = queries.map(|it| it.replace("$__rate_interval", "1m")).collect();
    ensure!(queries.len() > 25, "{} queries", queries.len());
    machine.put("/run/queries", &queries.join("\n"))?;
    let each = "promtool query instant http://127.0.0.1:9090 \"$query\" >>/run/answers || exit 1";
    machine.run(&format!("while IFS= read -r query; do {each}; done </run/queries"))?;
    machine.run("grep -q limiter-serve /run/answers").map(drop)
}

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("prometheus", [debian("prometheus")?])?;
    let said = machine.run("prometheus --version 2>&1")?;
    said.split(' ').nth(2).context("no version")?.clone_into(version);
    let [page, metrics] = [proxy::page()?, Page::read("docs/metrics.md")?];
    for name in ["limiter.rules.yml", "limiter.test.yml"] {
        let file = Page::read(&format!("dist/prometheus/{name}"))?;
        machine.put(&format!("/etc/limiter-prometheus/{name}"), file.text())?;
    }
    let jobs = metrics.block("limiter, and limiter-serve.\n")?;
    let often = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\n";
    machine.put("/etc/limiter-prometheus/prometheus.yml", &format!("{often}{jobs}"))?;
    machine.run("cd /etc/limiter-prometheus && promtool check config prometheus.yml")?;
    machine.run("cd /etc/limiter-prometheus && promtool test rules limiter.test.yml")?;

    start_daemon(&machine)?;
    machine.end("limiter", "TERM")?;
    let run = "limiter run --iface eth0 --rules /etc/limiter/rules.yaml";
    let daemon = || machine.start("limiter", &format!("{run} --metrics-listen 192.0.2.254:9464"));
    let path = "/etc/limiter/requests.d/auth.yaml";
    machine.put(path, page.file(path)?)?;
    let serve = "limiter serve --rules /etc/limiter/requests.d --listen 192.0.2.254:8081";
    let serve = || machine.start("serve", serve);
    daemon()?;
    serve()?;
    for at in ["9464", "8081"] {
        machine.until(&format!(
            "curl -fsS http://192.0.2.254:{at}/metrics | promtool check metrics"
        ))?;
    }
    let options = "--storage.tsdb.path=/run/tsdb --web.listen-address=127.0.0.1:9090";
    let config = "--config.file=/etc/limiter-prometheus/prometheus.yml";
    machine.start("prometheus", &format!("prometheus {config} {options}"))?;
    sees(&machine, ["1", "1"], &[])?;
    dashboard(&machine)?;
    machine.signal("limiter", "STOP")?;
    sees(&machine, ["0", "1"], &["LimiterDown"])?;
    machine.signal("limiter", "CONT")?;
    machine.signal("serve", "STOP")?;
    sees(&machine, ["1", "0"], &["LimiterServeDown"])?;
    machine.end("limiter", "KILL")?;
    machine.end("serve", "KILL")?;
    sees(&machine, ["0", "0"], &["LimiterDown", "LimiterServeDown"])?;
    daemon()?;
    serve()?;
    sees(&machine, ["1", "1"], &[])
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn prometheus_reads_metrics_alerts_and_queries() -> Result<()> {
    tried("Prometheus", TRIED, try_it)
}
