//! The recipes of docs/containers.md, with network namespaces in the place of containers: what
//! `dist/containers` has does what the page says, as far as that shows without an engine.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::SEEN_WITHIN;
use limiter_tests::command;
use limiter_tests::limiter::Limiter;
use limiter_tests::netns::Netns;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth;
use serde_json::Value;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/containers").join(name)
}

fn documents(name: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file(name))?;
    serde_saphyr::from_multiple(&text).with_context(|| name.to_owned())
}

fn words(list: &Value) -> Result<Vec<String>> {
    let list = list.as_array().with_context(|| format!("no list: {list}"))?;
    list.iter()
        .map(|word| Ok(word.as_str().with_context(|| format!("no word: {word}"))?.to_owned()))
        .collect()
}

/// Starts a daemon as a recipe does, but for its files; each interface that matches is limited, and
/// the rest of the words are options that it has.
fn start_as(bed: &Testbed, recipe: &[String], rules: &str) -> Result<Limiter> {
    let mut options = recipe.iter();
    ensure!(options.next().is_some_and(|word| word == "run"), "{recipe:?}");
    ensure!(options.next().is_some_and(|word| word == "--iface"), "{recipe:?}");
    let pattern = options.next().context("no pattern")?;
    let mut limiter = bed.limiter(rules)?;
    limiter.on(pattern);
    while let Some(word) = options.next() {
        let value = options.next().with_context(|| format!("{word} has no value"))?;
        if word == "--rules" {
            ensure!(value == "/etc/limiter/rules.yaml", "{value}");
        } else {
            limiter.options([word, value]);
        }
    }
    limiter.start()?;
    Ok(limiter)
}

/// Modes in which an interface is attached, and the name of what is behind it.
fn seen(limiter: &Limiter, interface: &str) -> Result<Vec<(String, Option<String>)>> {
    let status = limiter.json(&["status"])?;
    let all = status["interfaces"].as_array().context("no interfaces")?;
    let of = all.iter().filter(|at| at["name"] == interface && at["attached"] == true);
    let text = |value: &Value| value.as_str().map(str::to_owned);
    of.map(|at| Ok((text(&at["mode"]).context("no mode")?, text(&at["label"])))).collect()
}

/// Waits until an interface is attached in these modes, with this name of what is behind it.
fn wait_for(limiter: &Limiter, interface: &str, modes: &[&str], label: &str) -> Result<()> {
    let wanted: Vec<_> =
        modes.iter().map(|mode| ((*mode).to_owned(), Some(label.to_owned()))).collect();
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let found = seen(limiter, interface)?;
        if found == wanted {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{found:?}, not {wanted:?}: {}", limiter.said());
        thread::sleep(Duration::from_millis(10));
    }
}

/// Mounts by name: in the container, and on the host.
fn volumes(service: &Value) -> Result<Vec<(String, String)>> {
    let mounts = words(&service["volumes"])?;
    mounts
        .iter()
        .map(|mount| {
            let mut parts = mount.split(':');
            let host = parts.next().unwrap_or_default().to_owned();
            Ok((parts.next().with_context(|| mount.clone())?.to_owned(), host))
        })
        .collect()
}

/// Directories that the daemon has on the host: its pins and what it keeps, its socket, its rules.
const DIRECTORIES: [&str; 4] = ["/sys/fs/bpf", "/var/lib/limiter", "/run/limiter", "/etc/limiter"];

const CAPABILITIES: [&str; 3] = ["BPF", "NET_ADMIN", "PERFMON"];

const RULES: &str =
    "descriptors:\n  - {key: remote_address, rate_limit: {rate: 5/min, burst: 10}}\n";

#[test]
fn the_compose_file_limits_what_it_says() -> Result<()> {
    require_root();
    let all = documents("compose.yaml")?;
    let service = &all[0]["services"]["limiter"];
    ensure!(service["network_mode"] == "host" && service["restart"] == "unless-stopped");
    ensure!(words(&service["cap_add"])? == CAPABILITIES && words(&service["cap_drop"])? == ["ALL"]);
    let inside: Vec<String> = volumes(service)?.into_iter().map(|(inside, _)| inside).collect();
    for directory in DIRECTORIES {
        ensure!(inside.iter().any(|mount| mount == directory), "{directory} is not mounted");
    }
    let bed = Testbed::create("compose")?;
    let container = Netns::create("web")?;
    let limiter = start_as(&bed, &words(&service["command"])?, RULES)?;
    veth::lay((&container, "eth0"), (&bed.receiver, "veth7"))?;
    wait_for(&limiter, "veth7", &["tc in", "tc out"], container.name())?;
    limiter.close()?;
    bed.close()
}

#[test]
fn the_daemon_set_limits_what_it_says() -> Result<()> {
    require_root();
    let all = documents("daemonset.yaml")?;
    let [rules, set] = &all[..] else { anyhow::bail!("{} documents", all.len()) };
    ensure!(rules["kind"] == "ConfigMap" && set["kind"] == "DaemonSet");
    let labels = &set["spec"]["selector"]["matchLabels"];
    ensure!(set["spec"]["template"]["metadata"]["labels"] == *labels, "it selects no pod of its");
    let pod = &set["spec"]["template"]["spec"];
    ensure!(pod["hostNetwork"] == true);
    let container = &pod["containers"][0];
    let capabilities = &container["securityContext"]["capabilities"];
    ensure!(
        words(&capabilities["add"])? == CAPABILITIES && words(&capabilities["drop"])? == ["ALL"]
    );
    let list = |value: &Value| value.as_array().cloned().context("no list");
    let volumes = list(&pod["volumes"])?;
    let mounts = list(&container["volumeMounts"])?;
    for directory in DIRECTORIES {
        let mount = mounts.iter().find(|mount| mount["mountPath"] == directory);
        let name = &mount.with_context(|| format!("{directory} is not mounted"))?["name"];
        let volume = volumes.iter().find(|volume| volume["name"] == *name);
        let volume = volume.with_context(|| format!("there is no volume {name}"))?;
        if directory == "/etc/limiter" {
            ensure!(volume["configMap"]["name"] == rules["metadata"]["name"]);
        } else {
            ensure!(volume["hostPath"]["path"] == directory, "{volume}");
        }
    }
    let probe = words(&container["readinessProbe"]["exec"]["command"])?;
    ensure!(probe == ["limiter", "status"], "{probe:?}");
    let rules = rules["data"]["rules.yaml"].as_str().context("no rules")?;
    let bed = Testbed::create("daemonset")?;
    let pod = Netns::create("pod")?;
    let limiter = start_as(&bed, &words(&container["args"])?, rules)?;
    veth::lay((&pod, "eth0"), (&bed.receiver, "veth7"))?;
    wait_for(&limiter, "veth7", &["tc in"], pod.name())?;
    let limits = limiter.json(&["list"])?;
    ensure!(limits.to_string().contains("\"sends\""), "{limits}");
    limiter.close()?;
    bed.close()
}

/// A process in a namespace, as the first one of a container.
struct Sleeper(Child);

impl Sleeper {
    fn start(netns: &Netns) -> Result<Self> {
        Ok(Self(netns.spawn(Command::new("sleep").arg("300"))?))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("`sleep` is left: {error}");
        }
    }
}

/// A script answers as `docker` does about two containers, of which the second starts later, and
/// one that has ended.
#[test]
fn the_script_names_the_interfaces_of_docker() -> Result<()> {
    require_root();
    let bed = Testbed::create("namedocker")?;
    let (one, other) = (Netns::create("c-one")?, Netns::create("c-other")?);
    veth::lay((&one, "eth0"), (&bed.receiver, "veth1"))?;
    veth::lay((&other, "eth0"), (&bed.receiver, "veth2"))?;
    let (first, second) = (Sleeper::start(&one)?, Sleeper::start(&other)?);
    let docker = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         'ps --quiet --no-trunc') echo aaa; echo ccc;;\n\
         'events --since '*) echo bbb;;\n\
         'inspect --format {{{{.State.Pid}}}} {{{{.Name}}}} aaa') echo '{} /web';;\n\
         'inspect --format {{{{.State.Pid}}}} {{{{.Name}}}} bbb') echo '{} /shop-db-1';;\n\
         'inspect --format {{{{.State.Pid}}}} {{{{.Name}}}} ccc') echo '0 /ended';;\n\
         *) echo \"unexpected: $*\" >&2; exit 1;;\nesac\n",
        first.0.id(),
        second.0.id()
    );
    let path = bed.dir.write("docker", &docker)?;
    command::run("chmod", ["+x".as_ref(), path.as_os_str()])?;
    let place = path.parent().context("no directory")?.display().to_string();
    let places = format!("{place}:{}", std::env::var("PATH")?);
    let mut script = Command::new(file("name-docker.sh"));
    let output = bed.receiver.output(script.env("PATH", places))?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.success() && said.is_empty(), "{said}");
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("veth*").options(["--hook", "tc"]);
    limiter.start()?;
    wait_for(&limiter, "veth1", &["tc in"], "web")?;
    wait_for(&limiter, "veth2", &["tc in"], "shop-db-1")?;
    limiter.close()?;
    bed.close()
}

/// Of a running guest, in the form that libvirt documents (formatdomain).
const GUEST: &str = "<domain type='kvm' id='3'>
  <name>mail</name>
  <devices>
    <disk type='file' device='disk'>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <mac address='52:54:00:12:34:56'/>
      <source bridge='br0'/>
      <target dev='vnet0'/>
      <model type='virtio'/>
      <alias name='net0'/>
    </interface>
    <interface type='bridge'>
      <target dev=\"vnet1\"/>
    </interface>
  </devices>
</domain>
";

#[test]
fn the_hook_names_the_interfaces_of_a_guest() -> Result<()> {
    require_root();
    let bed = Testbed::create("libvirt")?;
    // Taps of a guest, and an interface with the name of its disk.
    for name in ["vnet0", "vnet1", "vda"] {
        bed.receiver.ip(["tuntap", "add", "dev", name, "mode", "tap"])?;
    }
    let hook = |operation: &str| -> Result<()> {
        let mut command = Command::new(file("libvirt-qemu.sh"));
        command.args(["mail", operation, "begin", "-"]);
        let mut child = bed.receiver.spawn(command.stdin(Stdio::piped()))?;
        let written = child.stdin.take().context("no standard input")?.write_all(GUEST.as_bytes());
        // The hook may end without reading it.
        if let Err(error) = written
            && error.kind() != ErrorKind::BrokenPipe
        {
            return Err(error.into());
        }
        ensure!(child.wait()?.success(), "libvirt would stop the guest");
        Ok(())
    };
    let mut limiter = bed.limiter(RULES)?;
    limiter.on("vnet*").options(["--hook", "tc"]);
    limiter.start()?;
    hook("prepare")?;
    ensure!(seen(&limiter, "vnet0")? == [("tc in".to_owned(), None)]);
    hook("started")?;
    wait_for(&limiter, "vnet0", &["tc in"], "mail")?;
    wait_for(&limiter, "vnet1", &["tc in"], "mail")?;
    ensure!(bed.receiver.link("vda")?["ifalias"].is_null(), "a disk is no interface");
    limiter.close()?;
    bed.close()
}
