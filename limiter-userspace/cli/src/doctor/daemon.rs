//! A daemon, if one answers: its interfaces, rules and tables.

use std::path::Path;

use limiter_api::client::ClientError;
use limiter_api::render;
use limiter_api::status::Status;

use super::command::to_daemon;
use super::finding::Finding;

/// Judges the answer of the daemon.
pub(super) fn daemon(socket: &Path, status: &Result<Status, ClientError>) -> Vec<Finding> {
    let check = "daemon";
    let status = match status {
        Ok(status) => status,
        Err(error) if error.no_daemon() => {
            let socket = socket.display();
            let seen = format!("no daemon answers at {socket}: what is pinned holds without one");
            return vec![Finding::note(check, seen)];
        }
        Err(error) if error.no_answer() => return vec![Finding::problem(check, error.to_string())],
        Err(error) => return vec![Finding::unknown(check, error.to_string())],
    };
    let mut findings = Vec::new();
    for (name, modes, error) in status.not_attached() {
        let modes = modes.join(" and ");
        let (seen, remedy) = match error {
            None => (
                format!("the program is not on it ({modes}): packets pass"),
                "start the daemon again, once the interface is there",
            ),
            Some(error) => (
                format!("the program is not on it ({modes}), and packets pass: {error}"),
                "remove the cause: the daemon tries again by itself",
            ),
        };
        findings.push(Finding::problem("attached", seen).remedy(remedy).on(name));
    }
    if let Some(error) = &status.last_reload.error {
        findings.push(
            Finding::problem("reload", format!("the last reload was refused: {error}"))
                .remedy("mend the rules; those before are in force"),
        );
    }
    if status.trial.is_some() {
        findings.push(
            Finding::note("trial", "rules are on trial, and are taken back if nobody confirms")
                .remedy("keep them")
                .command(format!("{} confirm", to_daemon(socket))),
        );
    }
    findings.extend(status.warnings.iter().map(|text| Finding::warning("rules", text)));
    for rule in &status.over_soft_limit {
        findings.push(Finding::note("soft-limit", format!("over its soft limit now: {rule}")));
    }
    for table in &status.no_room_for {
        findings.push(
            Finding::warning(
                "table-fill",
                format!("there is no room for new {table}: a flood, or too small a table"),
            )
            .remedy("`limiter detach`, and a start with a larger --max-sources or --max-keys"),
        );
    }
    if status.no_room_for.is_empty() {
        findings.push(Finding::ok("table-fill", "new sources and keys find room"));
    }
    let Status { pid, version, rules, .. } = status;
    let rules = render::rules(*rules);
    let seen = format!("the daemon, {version} with pid {pid}, answers: {rules} in force");
    findings.push(Finding::ok(check, seen));
    findings
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::finding::Level;
    use super::*;

    /// A status without a fault, with these changes.
    pub(in super::super) fn status(change: &serde_json::Value) -> Status {
        let mut status = json!({
            "version": "0.1.0", "pid": 7, "generation": 1, "rules": 3, "bypass": false,
            "interfaces": [{"name": "eth0", "mode": "native", "ifindex": 2, "program_id": 5,
                "adopted": false, "attached": true}],
            "sources": {"max_v4": 1, "max_v6": 1}, "rules_files": ["r.yaml"], "edits": 0,
            "management": [], "warnings": [], "over_soft_limit": [], "no_room_for": [],
            "last_reload": {"ok": true, "error": null},
        });
        for (key, value) in change.as_object().unwrap() {
            status[key] = value.clone();
        }
        serde_json::from_value(status).unwrap()
    }

    fn levels(change: &serde_json::Value) -> Vec<(&'static str, Level)> {
        let found = daemon(Path::new("/s"), &Ok(status(change)));
        found.iter().map(|finding| (finding.check, finding.level)).collect()
    }

    #[test]
    fn a_daemon_without_a_fault_is_good() {
        assert_eq!(levels(&json!({})), [("table-fill", Level::Ok), ("daemon", Level::Ok)]);
    }

    #[test]
    fn each_fault_is_reported() {
        let detached = json!({"interfaces": [{"name": "eth0", "mode": "native", "ifindex": 2,
            "program_id": 5, "adopted": false, "attached": false}]});
        assert_eq!(levels(&detached)[0], ("attached", Level::Problem));
        // Two hooks of one interface: one finding that names both.
        let off = |mode: &str| {
            json!({"name": "eth0", "mode": mode, "ifindex": 2, "program_id": 5, "adopted": false,
                "attached": false})
        };
        let detached = status(&json!({"interfaces": [off("native"), off("tc out")]}));
        let found = daemon(Path::new("/s"), &Ok(detached));
        let of_check: Vec<_> = found.iter().filter(|it| it.check == "attached").collect();
        assert_eq!(of_check.len(), 1, "{found:?}");
        assert!(of_check[0].seen.contains("(native and tc out)"), "{found:?}");
        let refused = json!({"last_reload": {"ok": false, "error": "r.yaml:1:1: no"}});
        assert_eq!(levels(&refused)[0], ("reload", Level::Problem));
        assert_eq!(levels(&json!({"warnings": ["a"]}))[0], ("rules", Level::Warning));
        assert_eq!(levels(&json!({"over_soft_limit": ["a"]}))[0], ("soft-limit", Level::Note));
        let full = levels(&json!({"no_room_for": ["IPv4 sources"]}));
        assert_eq!(full, [("table-fill", Level::Warning), ("daemon", Level::Ok)]);
    }

    #[test]
    fn no_daemon_is_no_problem_and_one_that_hangs_is() {
        let of = |error| daemon(Path::new("/s"), &Err(error))[0].level;
        assert_eq!(of(ClientError::Missing("/s".into())), Level::Note);
        assert_eq!(of(ClientError::Permission("/s".into())), Level::Unknown);
        let hangs = ClientError::Timeout { socket: "/s".into(), seconds: 2 };
        assert_eq!(of(hangs), Level::Problem);
    }
}
