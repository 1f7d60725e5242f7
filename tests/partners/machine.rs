//! A machine for a partner: namespaces of its own for the network, mounts and processes, in which
//! packages are as if they were installed, and another machine at the other end of a cable. All
//! ports, paths and process names of the pages are free there, and all ends with it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::command;
use limiter_tests::limiter::binary;
use limiter_tests::netns::Netns;
use limiter_tests::page::place::PREPARE;
use limiter_tests::veth::{self, End, RECEIVER, SENDER};
use limiter_tests::work_dir::WorkDir;

/// Much longer than anything here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// After those of a page that is followed: packages over `/usr` and `/etc`, and what only a whole
/// machine has. Namespaces keep the control groups that they were made in.
const INSTALL: &str = r#"
set -e
over=
for root in $ROOTS; do
    over="$over$root/usr:"
    [ ! -d "$root/etc" ] || cp -a "$root/etc/." /etc/
done
[ -z "$over" ] || mount -t overlay -o "lowerdir=$over/usr" overlay /usr
mount -t tmpfs tmpfs /var/log
mkdir "$FOLLOWED/top/cgroup"
mount --rbind /sys/fs/cgroup "$FOLLOWED/top/cgroup"
mount -t sysfs sysfs /sys
mount --rbind "$FOLLOWED/top/cgroup" /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mkdir -p /run/limiter /run/lock /run/partners /var/lib/limiter
echo '192.0.2.1 application' >>/etc/hosts
echo installed
while read -r line; do :; done
"#;

/// A machine, taken down on drop: first its processes, with them its mounts.
pub(crate) struct Machine {
    init: Child,
    peer: Arc<Netns>,
    here: Netns,
    dir: WorkDir,
}

impl Machine {
    /// Makes one with packages, in which `limiter` is the binary under test.
    pub(crate) fn create(
        tag: &str,
        packages: impl IntoIterator<Item = Option<PathBuf>>,
    ) -> Result<Self> {
        let dir = WorkDir::create(tag)?;
        let peer = Arc::new(Netns::create(&format!("{tag}-peer"))?);
        let here = Netns::create(&format!("{tag}-here"))?;
        veth::connect_as(&peer, &here, &End { interface: "eth0", ..RECEIVER })?;
        for path in ["bin", "home"] {
            fs::create_dir(dir.path().join(path))?;
        }
        symlink(binary()?, dir.path().join("bin/limiter"))?;
        let roots: Vec<String> = packages
            .into_iter()
            .flatten()
            .map(|root| Ok(root.canonicalize()?.display().to_string()))
            .collect::<io::Result<_>>()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--pid", "--kill-child"]);
        command.args(["--mount-proc", "bash", "--norc", "--noprofile", "-c"]);
        command.arg(format!("{PREPARE}{INSTALL}")).env("ROOTS", roots.join(" "));
        command.env("FOLLOWED", dir.path()).env("PATH", path(&dir)).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let init = here.spawn(&mut command)?;
        let mut machine = Self { init, peer, here, dir };
        let mut said = String::new();
        let mut output = machine.init.stdout.take().context("no output")?;
        let mut byte = [0];
        while !said.ends_with("installed\n") {
            if output.read(&mut byte)? == 0 {
                let mut errors = machine.init.stderr.take().context("no errors")?;
                errors.read_to_string(&mut said)?;
                bail!("the machine is not there: {}", said.trim());
            }
            said.push(char::from(byte[0]));
        }
        Ok(machine)
    }

    fn command(&self, line: &str) -> Command {
        let pid = self.init.id();
        let mut command = Command::new("nsenter");
        command.arg(format!("--mount=/proc/{pid}/ns/mnt"));
        command.arg(format!("--pid=/proc/{pid}/ns/pid_for_children"));
        command.arg(format!("--wdns={}", self.dir.path().join("home").display()));
        command.args(["timeout", "--kill-after=5", "90", "bash", "-o", "pipefail", "-c", line]);
        command.env_clear().env("PATH", path(&self.dir)).env("LC_ALL", "C.UTF-8");
        command.env("HOME", self.dir.path().join("home")).env("TZ", "UTC").stdin(Stdio::null());
        command
    }

    /// Types a command; what it prints.
    pub(crate) fn run(&self, line: &str) -> Result<String> {
        let output = self.here.output(&mut self.command(line))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{line}` ({}): {said}{errors}", output.status);
        Ok(said)
    }

    /// Types a command that must fail; what it prints on standard error.
    pub(crate) fn fails(&self, line: &str) -> Result<String> {
        let output = self.here.output(&mut self.command(line))?;
        ensure!(!output.status.success(), "`{line}` does not fail");
        Ok(String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Types a command again and again, until it succeeds.
    pub(crate) fn until(&self, line: &str) -> Result<()> {
        until(line, || self.run(line).map(drop))
    }

    /// Writes a file, and the directories to it.
    pub(crate) fn put(&self, path: &str, content: &str) -> Result<()> {
        let from = self.dir.write("put", content)?;
        self.run(&format!("install -D -m 644 '{}' '{path}'", from.display())).map(drop)
    }

    /// Starts a command that stays, under a name.
    pub(crate) fn start(&self, name: &str, line: &str) -> Result<()> {
        let at = format!("/run/partners/{name}");
        self.put(&format!("{at}.sh"), &format!("echo $$ >{at}.pid\nexec {line}\n"))?;
        self.run(&format!("rm -f {at}.pid; setsid bash {at}.sh >>{at}.log 2>&1 </dev/null &"))?;
        self.until(&format!("test -s {at}.pid"))
    }

    /// Sends a signal to a command that stays: `STOP` lets it hang.
    pub(crate) fn signal(&self, name: &str, signal: &str) -> Result<()> {
        self.run(&format!("kill -{signal} $(cat /run/partners/{name}.pid)")).map(drop)
    }

    /// Ends a command that stays, by `TERM` or `KILL`, and waits for its end.
    pub(crate) fn end(&self, name: &str, signal: &str) -> Result<()> {
        self.signal(name, signal)?;
        self.until(&format!("! kill -0 $(cat /run/partners/{name}.pid)"))
    }

    /// What a command that stays has said.
    pub(crate) fn said(&self, name: &str) -> Result<String> {
        self.run(&format!("cat /run/partners/{name}.log"))
    }

    /// Types a command on the machine beside it.
    pub(crate) fn peer(&self, line: &str) -> Result<String> {
        self.peer.run("bash", ["-c", line])
    }

    /// Whether a ping from an address of the machine beside it comes back.
    pub(crate) fn pings(&self, address: &str) -> bool {
        self.peer(&format!("ping -q -c 1 -W 1 -I {address} {}", RECEIVER.ipv4)).is_ok()
    }

    /// Gives the machine beside it an address to come from.
    pub(crate) fn add_peer(&self, address: &str) -> Result<()> {
        veth::add_peer(&self.peer, (&self.here, "eth0"), &format!("{address}/32"))
    }

    /// What port 80 here answers to a client at the other end, which says that it is another one.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Result<String> {
        self.peer.enter(|| -> Result<String> {
            let mut stream = TcpStream::connect((RECEIVER.ipv4, 80))?;
            stream.set_read_timeout(Some(PATIENCE))?;
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: x\r\nX-Real-IP: 203.0.113.9\r\nConnection: \
                 close\r\n{headers}\r\n"
            )?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            let answer = String::from_utf8_lossy(&answer).into_owned();
            ensure!(answer.starts_with("HTTP/1.1 "), "no answer: {answer}");
            Ok(answer)
        })?
    }

    /// An application at the other end: `http://application`. It ends with the process.
    pub(crate) fn application(&self, headers: &'static str) -> Result<()> {
        let listener = self.peer.enter(|| TcpListener::bind((SENDER.ipv4, 80)))??;
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                thread::spawn(move || {
                    // Its client may be gone.
                    let _request = stream.read(&mut [0; 4096]);
                    let _answer = write!(
                        stream,
                        "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nConnection: \
                         close\r\n{headers}\r\napplication"
                    );
                });
            }
        });
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The first process of the namespace ends with it, and all others with that one.
        if let Err(error) = self.init.kill().and_then(|()| self.init.wait()) {
            eprintln!("a machine is left: {error}");
        }
        let gone = || {
            let pids = command::run("ip", ["netns", "pids", self.here.name()])?;
            ensure!(pids.trim().is_empty(), "processes are left: {pids}");
            Ok(())
        };
        if let Err(error) = until("its processes end", gone) {
            eprintln!("{error:#}");
        }
    }
}

fn path(dir: &WorkDir) -> String {
    format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", dir.path().display())
}

/// Tries until it succeeds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> Result<()>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while let Err(error) = holds() {
        if Instant::now() > deadline {
            return Err(error).with_context(|| format!("not within {PATIENCE:?}: {what}"));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Starts the daemon on `eth0` as `limiter`, without rules of its own, and waits until it is ready.
pub(crate) fn start_daemon(machine: &Machine) -> Result<()> {
    machine.put("/etc/limiter/rules.yaml", "descriptors: []\n")?;
    machine.start("limiter", "limiter run --iface eth0 --rules /etc/limiter/rules.yaml")?;
    machine.until("limiter status")
}
