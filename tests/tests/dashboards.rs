//! The alerts and the dashboard in `dist`, read by Prometheus' own tool. That their metrics are
//! those of a daemon is tested where its metrics are:
//! `limiter-userspace/daemon/src/tests/dashboards.rs`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::command::checked;
use limiter_tests::work_dir::WorkDir;
use serde_json::Value;

fn of_dist(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist").join(path)
}

fn promtool(arguments: [&str; 2], file: &Path) -> Result<String> {
    checked(Command::new("promtool").args(arguments).arg(file))
}

#[test]
fn the_alerts_are_raised_when_they_should_and_not_else() -> Result<()> {
    promtool(["check", "rules"], &of_dist("prometheus/limiter.rules.yml"))?;
    promtool(["test", "rules"], &of_dist("prometheus/limiter.test.yml"))?;

    // Their tests can fail: each alert has one that names it once none is ever raised.
    let dir = WorkDir::create("alerts")?;
    let rules = fs::read_to_string(of_dist("prometheus/limiter.rules.yml"))?;
    let tests = fs::read(of_dist("prometheus/limiter.test.yml"))?;
    let tests = dir.write("limiter.test.yml", tests)?;
    dir.write("limiter.rules.yml", rules.replace("- alert: ", "- alert: Not"))?;
    let mut command = Command::new("promtool");
    let output = command.args(["test", "rules"]).arg(&tests).output()?;
    ensure!(!output.status.success(), "tests pass without alerts");
    let failed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    ensure!(alerts.len() > 6, "{} alerts", alerts.len());
    for alert in alerts {
        let named = format!("alertname: {alert},");
        ensure!(failed.contains(&named), "{alert} has no test that fails without it");
    }
    Ok(())
}

#[test]
fn the_queries_of_the_dashboard_can_be_read() -> Result<()> {
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(of_dist("grafana/limiter.json"))?)?;
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    let mut queries = 0;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let marks = dashboard["annotations"]["list"].as_array().context("no marks")?;
    for target in targets.chain(marks) {
        let query = target["expr"].as_str().context("a target without a query")?;
        let query = query.replace("$__rate_interval", "5m");
        queries += 1;
        let query = serde_json::to_string(&query)?;
        writeln!(rules, "      - {{record: \"a:{queries}\", expr: {query}}}")?;
    }
    ensure!(queries > 25, "{queries} queries");
    let dir = WorkDir::create("dashboard")?;
    promtool(["check", "rules"], &dir.write("rules.yml", &rules)?)?;
    let broken = dir.write("broken.yml", rules.replacen("sum by (", "sum by ", 1))?;
    ensure!(promtool(["check", "rules"], &broken).is_err(), "a broken query is taken");
    Ok(())
}
