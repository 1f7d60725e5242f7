//! docker and podman: containers that a limiter on the host limits, and limiter in a container.

use anyhow::{Context as _, Result, ensure};
use limiter_tests::command;

use crate::machine::{Machine, until};
use crate::package::debian;
use crate::page::Page;
use crate::partner::{NotRun, tried};

const TRIED: &str = "the pages' lines: containers limited by `veth*` at tc, also after a restart \
                     and with limiter ended; limiter in a container";

/// An image with programs of this machine and their libraries, as `limiter:0.1.0` has them.
const IMAGE: &str = r#"
mkdir -p /run/image && cd /run/image
for program in "$(readlink -f "$(command -v limiter)")" /usr/bin/sleep; do
    install -D --strip "$program" "usr/bin/$(basename "$program")"
    for library in $(ldd "$program" | grep -o '/[^ ]*'); do install -D "$library" ".$library"; done
done
mkdir -p sys/fs/bpf etc/limiter var/lib/limiter run/limiter tmp
tar -c . | "#;

/// Overlays over overlays are not for every kernel.
const STORAGE: &str = "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers/storage\"\n\
                       graphroot = \"/var/lib/containers/storage\"\n";

/// The control groups of the engines, which they leave: no namespace of a machine hides them. Only
/// empty ones can be removed.
struct Groups;

impl Drop for Groups {
    fn drop(&mut self) {
        let ours = "find /sys/fs/cgroup -depth -type d '(' -path '*/limiter-partners*' -o -path \
                    '*/libpod_parent*' ')' -exec rmdir '{}' ';' 2>/dev/null; true";
        if let Err(error) = command::run("sh", ["-c", ours]) {
            eprintln!("control groups are left: {error:#}");
        }
    }
}

struct Engine<'a> {
    name: &'a str,
    machine: &'a Machine,
}

impl Engine<'_> {
    fn run(&self, words: &str) -> Result<String> {
        self.machine.run(&format!("{} {words}", self.name))
    }

    /// How many of 40 pings of a container to the host's end of its cable come back.
    fn pings(&self, container: &str) -> Result<String> {
        let pid = self.run(&format!("inspect --format '{{{{.State.Pid}}}}' {container}"))?;
        let inside = format!("nsenter --target {} --net", pid.trim());
        let gate = format!("$({inside} ip route | sed -n 's/default via \\([^ ]*\\).*/\\1/p')");
        let ping = format!("{inside} ping -q -c 40 -i 0.02 -W 1 {gate} || true");
        let said = self.machine.run(&ping)?;
        let received = said.split(", ").find_map(|part| part.strip_suffix(" received"));
        Ok(received.with_context(|| said.clone())?.to_owned())
    }
}

/// Containers under the rules of the page, which are for docker's addresses.
fn limits(engine: &Engine<'_>, network: &str) -> Result<()> {
    let machine = engine.machine;
    let page = Page::read("docs/containers.md")?;
    let rules = page.file("rules.yaml")?.replace("172.17.0.0/16", network);
    machine.put("/etc/limiter/rules.yaml", &rules)?;
    let run = page.block("```console\n# limiter run ")?.lines().next().unwrap_or_default();
    let run = format!("limiter run {}", run.replace("rules.yaml", "/etc/limiter/rules.yaml"));
    machine.start("limiter", &run)?;
    machine.until("limiter status")?;
    engine.run(&format!("import - limiter:0.1.0 < <({IMAGE} cat)"))?;
    for name in ["web", "db"] {
        let sleeps = format!("run --detach --name {name} limiter:0.1.0 /usr/bin/sleep 1000");
        engine.run(&sleeps).map_err(|error| {
            // Nothing of limiter is in it: control groups, most often.
            let said = format!("{error:#}");
            let last = said.trim().lines().last().unwrap_or_default();
            NotRun(format!("{} starts no container here: {last}", engine.name))
        })?;
    }
    let attached = |number: usize| {
        until("both cables are limited", || {
            let status = machine.run("limiter status")?;
            let ways = status.lines().filter(|line| line.starts_with("interface "));
            ensure!(ways.count() == 2 * number, "{status}");
            Ok(())
        })
    };
    attached(2)?;
    for name in ["web", "db"] {
        let back = engine.pings(name)?;
        ensure!(back == "10", "{back} of 40 come back to {name}");
    }
    // Its bucket goes by its address, which docker keeps at a restart, and podman does not.
    let address = "inspect --format '{{.NetworkSettings.IPAddress}}' web";
    let before = engine.run(address)?;
    engine.run("restart --time 0 web")?;
    attached(2)?;
    let back: u32 = engine.pings("web")?.parse()?;
    let is_new = engine.run(address)? != before;
    ensure!(back < 10 || is_new && back == 10, "{back} of 40 come back after a restart");
    machine.end("limiter", "KILL")?;
    let back: u32 = engine.pings("db")?.parse()?;
    ensure!(back < 10, "{back} of 40 come back without the daemon");
    machine.start("limiter", &run)?;
    machine.until("limiter status")?;
    attached(2)?;
    engine.run("kill web db")?;
    attached(0)?;
    machine.end("limiter", "TERM")?;
    machine.run("limiter detach").map(drop)
}

/// limiter in a container of the host's network, by the command of the page. `replace` says which
/// options of it another engine has.
fn in_a_container(engine: &Engine<'_>, replace: &[(&str, &str)]) -> Result<()> {
    let machine = engine.machine;
    let page = Page::read("docs/packages.md")?;
    let line = page.block("docker run ")?;
    let (mut line, exec) = line.split_once("docker exec ").context("no exec")?;
    let mut options = line.to_owned();
    for (from, to) in replace {
        ensure!(options.contains(from), "the page has no {from}");
        options = options.replace(from, to);
    }
    // A sandbox may not raise it; no kernel since 5.11 asks for it.
    if machine.run("ulimit -l unlimited").is_err() {
        options = options.replace(" --ulimit memlock=-1", "");
    }
    line = options.trim();
    // The image has no entry point: `docker import` makes none.
    let line = line.replace("limiter:0.1.0 run", "limiter:0.1.0 limiter run");
    let rules = "descriptors:\n  - {key: remote_address, rate_limit: {rate: 5/week, burst: 5}}\n";
    machine.put("/etc/limiter/rules.yaml", rules)?;
    let line = line.replace("192.0.2.0/24", "198.51.100.0/24");
    engine.run(&format!("run {line}"))?;
    let answers = || {
        let answers = machine.until(&format!("{} exec {}", engine.name, exec.trim()));
        answers.with_context(|| engine.run("logs --tail 3 limiter 2>&1").unwrap_or_default())
    };
    answers()?;
    let some = || (0..10).filter(|_| machine.pings("192.0.2.1")).count();
    let back = some();
    ensure!(back == 5, "{back} of 10 pings come back");
    engine.run("stop --time 5 limiter")?;
    let back = some();
    ensure!(back == 0, "{back} of 10 pings come back while the container is stopped");
    engine.run("start limiter")?;
    answers()?;
    let back = some();
    ensure!(back == 0, "{back} of 10 pings come back after a restart");
    engine.run("rm --force limiter")?;
    machine.run("limiter detach").map(drop)
}

fn docker(version: &mut String) -> Result<()> {
    let _groups = Groups;
    let machine = Machine::create("docker", [debian("docker.io")?])?;
    *version = machine.run("dockerd --version | sed 's/[^0-9]*\\([^,]*\\),.*/\\1/'")?;
    let options = "--storage-driver vfs --cgroup-parent /limiter-partners";
    let daemon = || machine.start("dockerd", &format!("dockerd {options}"));
    daemon()?;
    if let Err(error) = machine.until("docker version") {
        let said = machine.said("dockerd")?;
        let last = said.lines().last().unwrap_or_default().to_owned();
        return Err(NotRun(format!("dockerd does not start: {last}: {error}")).into());
    }
    let engine = Engine { name: "docker", machine: &machine };
    limits(&engine, "172.17.0.0/16")?;
    in_a_container(
        &engine,
        &[(
            "--cap-add BPF --cap-add NET_ADMIN --cap-add PERFMON",
            "--cap-add SYS_ADMIN --cap-add NET_ADMIN",
        )],
    )
}

/// Sets up podman, with more lines of its configuration.
fn set_up_podman(machine: &Machine, more: &str) -> Result<()> {
    // crun takes version 1 of control groups or version 2, not both.
    machine.run("umount /sys/fs/cgroup/unified 2>/dev/null || true")?;
    let engine = format!("[engine]\ncgroup_manager = \"cgroupfs\"\n{more}");
    machine.put("/etc/containers/containers.conf", &engine)?;
    machine.put("/etc/containers/storage.conf", STORAGE)
}

fn podman(version: &mut String) -> Result<()> {
    let _groups = Groups;
    let machine = Machine::create("podman", [debian("podman")?])?;
    *version = machine.run("podman --version | sed 's/.* //'")?;
    set_up_podman(&machine, "")?;
    let engine = Engine { name: "podman", machine: &machine };
    limits(&engine, "10.88.0.0/16")?;
    // The page's advice where the profile does not let CAP_BPF call bpf(2).
    let network = "--network host";
    let unconfined = format!("--security-opt seccomp=unconfined {network}");
    in_a_container(&engine, &[(network, &unconfined)])
}

/// podman's containers in a network of the page's list of plugins, with limits in the file: podman
/// 4.3 passes on none.
fn cni(version: &mut String) -> Result<()> {
    let _groups = Groups;
    let packages = [debian("podman")?, debian("containernetworking-plugins")?];
    let machine = Machine::create("cni", packages)?;
    *version = machine.run("podman --version | sed 's/.* //'")?;
    machine.put("/run/cni/limiter-cni", "")?;
    let plugin = limiter_tests::limiter::cni()?;
    machine.run(&format!("install -m 755 '{}' /run/cni/limiter-cni", plugin.display()))?;
    let network = "[network]\nnetwork_backend = \"cni\"\ncni_plugin_dirs = [\"/run/cni\", \
                   \"/usr/lib/cni\"]\n";
    set_up_podman(&machine, network)?;
    let page = Page::read("docs/containers.md")?;
    let list = page.block("```json\n")?;
    let away = "\"daemonAway\": \"fail\"";
    ensure!(list.contains(away), "{list}");
    let put = |name: &str, away_now: &str, burst: u32| {
        let limits = format!(
            "{away_now}, \"ingressRate\": 8, \"ingressBurst\": {burst}, \"egressRate\": 8, \
             \"egressBurst\": {burst}"
        );
        let list = list.replace(away, &limits).replace("\"pods\"", &format!("\"{name}\""));
        machine.put(&format!("/etc/cni/net.d/{name}.conflist"), &list)
    };
    // 30 pings of 98 bytes, on their way out and back.
    put("pods", away, 30 * 98 * 8)?;
    put("loose", "\"daemonAway\": \"unlimited\"", 30 * 98 * 8)?;
    let [rules, run] = [
        page.block("limiter-cni /opt/cni/bin/\necho '")?.split('\'').next(),
        page.block("> none.yaml\nlimiter run ")?.lines().next(),
    ]
    .map(Option::unwrap_or_default);
    machine.put("/etc/limiter/none.yaml", rules)?;
    let run = format!("limiter run {}", run.replace("none.yaml", "/etc/limiter/none.yaml"));
    machine.start("limiter", &run)?;
    machine.until("limiter status")?;
    let engine = Engine { name: "podman", machine: &machine };
    engine.run(&format!("import - limiter:0.1.0 < <({IMAGE} cat)"))?;
    let start = |name: &str, network: &str| {
        format!("run --detach --network {network} --name {name} limiter:0.1.0 /usr/bin/sleep 1000")
    };
    engine.run(&start("web", "pods")).map_err(|error| {
        let said = format!("{error:#}");
        // An error of the plugin is limiter's.
        if said.contains("limiter") {
            return error;
        }
        let last = said.trim().lines().last().unwrap_or_default();
        NotRun(format!("podman starts no container here: {last}")).into()
    })?;
    let limits = |number: usize| -> Result<()> {
        let list = machine.run("limiter list --output json | grep -o '\"cni/[^\"]*' || true")?;
        ensure!(list.lines().count() == number, "{list}");
        Ok(())
    };
    limits(2)?;
    // What IPv6 says on a new cable counts, too.
    let back: u32 = engine.pings("web")?.parse()?;
    ensure!((20..=30).contains(&back), "{back} of 40 come back");
    machine.end("limiter", "KILL")?;
    let refused = machine.fails(&format!("podman {}", start("late", "pods")))?;
    ensure!(refused.contains("limiter: ") && refused.contains("start"), "{refused}");
    engine.run(&start("free", "loose"))?;
    let back = engine.pings("free")?;
    ensure!(back == "40", "{back} of 40 come back without limits");
    machine.start("limiter", &run)?;
    machine.until("limiter status")?;
    limits(2)?;
    let back = engine.pings("web")?;
    ensure!(back == "0", "{back} of 40 come back after a restart of the daemon");
    engine.run("rm --force --time 0 web free late")?;
    limits(0)?;
    machine.end("limiter", "TERM")?;
    machine.run("limiter detach").map(drop)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn containers_of_podman_are_limited_by_cni() -> Result<()> {
    let tried_here = "the page's list of plugins behind `bridge`: a container gets its limits, and \
                      keeps them over a restart of the daemon; without the daemon one is refused \
                      and one goes without; removed";
    tried("podman by CNI", tried_here, cni)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn containers_of_docker_are_limited() -> Result<()> {
    tried("docker", TRIED, docker)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn containers_of_podman_are_limited() -> Result<()> {
    tried("podman", TRIED, podman)
}
