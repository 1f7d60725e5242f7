//! The place for a page to be followed: a machine whose files are its own, and one beside it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::netns::Netns;
use crate::veth::{self, End, RECEIVER};
use crate::work_dir::WorkDir;

/// The interface that the pages name.
const ETH0: End = End { interface: "eth0", ..RECEIVER };

/// The pages are followed as if logged in from there.
const SESSION: &str = "192.0.2.9 50000 192.0.2.254 22";

/// A command ends, or begins, within this.
const WITHIN: Duration = Duration::from_mins(2);
const ENDED_WITHIN: Duration = Duration::from_mins(1);

/// Commands that the shell begins with. Its mounts are seen by nobody else, and gone with its last
/// process.
pub const PREPARE: &str = r#"
set -e
mkdir "$FOLLOWED/top"
mount -t tmpfs tmpfs "$FOLLOWED/top"
mkdir "$FOLLOWED/top/upper" "$FOLLOWED/top/work"
layers="lowerdir=/etc,upperdir=$FOLLOWED/top/upper,workdir=$FOLLOWED/top/work"
mount -t overlay -o "$layers" overlay /etc
rm -rf /etc/limiter
mkdir /etc/limiter
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
mount -t bpf bpf /sys/fs/bpf
cd "$FOLLOWED/home"
set +e
# Each command that stays is a process group of its own.
set -m
echo ready
"#;

/// A machine for a page.
///
/// Fields are dropped in this order: the shell first, and with it the mounts.
#[derive(Debug)]
pub struct Place {
    shell: Shell,
    peer: Netns,
    here: Netns,
    dir: WorkDir,
    commands: usize,
}

/// A command that runs on.
#[derive(Debug)]
pub struct Staying {
    group: Pid,
    said: PathBuf,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Place {
    /// Makes one, in which `limiter` is `binary`.
    ///
    /// # Errors
    ///
    /// Without root, or when something cannot be made.
    pub fn create(tag: &str, binary: &Path) -> Result<Self> {
        let dir = WorkDir::create(tag)?;
        let peer = Netns::create(&format!("{tag}-peer"))?;
        let here = Netns::create(&format!("{tag}-here"))?;
        veth::connect_as(&peer, &here, &ETH0)?;
        for path in ["bin", "home", "home/target/release", "said"] {
            fs::create_dir_all(dir.path().join(path))?;
        }
        for path in ["bin/limiter", "home/target/release/limiter"] {
            symlink(binary, dir.path().join(path))?;
        }
        let shell = Shell::start(&here, dir.path())?;
        Ok(Self { shell, peer, here, dir, commands: 0 })
    }

    /// Runs a command to its end; what it said, and its exit code.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn run(&mut self, command: &str) -> Result<(String, i32)> {
        let (file, said) = self.write(command)?;
        let line = format!(". '{file}' >'{said}' 2>&1 </dev/null; echo $?", said = said.display());
        let code = self.shell.ask(&line).with_context(|| format!("`{command}`"))?;
        Ok((fs::read_to_string(said)?, code.parse()?))
    }

    /// Starts a command that does not end by itself.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn stay(&mut self, command: &str) -> Result<Staying> {
        let (file, said) = self.write(command)?;
        let line = format!(". '{file}' >'{said}' 2>&1 </dev/null & echo $!", said = said.display());
        let group = self.shell.ask(&line)?.parse().ok().and_then(Pid::from_raw);
        Ok(Staying { group: group.context("no process id")?, said })
    }

    /// Runs a command on the machine beside it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn run_peer(&self, command: &str) -> Result<Output> {
        self.peer.output(Command::new("bash").args(["-c", command]).stdin(Stdio::null()))
    }

    /// Gives the machine beside it one more address to send from.
    ///
    /// # Errors
    ///
    /// When the address cannot be added.
    pub fn add_peer(&self, address: &str) -> Result<()> {
        veth::add_peer(&self.peer, (&self.here, ETH0.interface), address)
    }

    /// Puts a text into a file.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn put(&mut self, path: &str, content: &[u8]) -> Result<()> {
        let from = self.dir.write("put", content)?;
        let command = format!("cp '{}' '{path}'", from.display());
        let (said, code) = self.run(&command)?;
        ensure!(code == 0, "{path}: {said}");
        Ok(())
    }

    fn write(&mut self, command: &str) -> Result<(String, PathBuf)> {
        self.commands += 1;
        let said = self.dir.path().join(format!("said/{}", self.commands));
        let file = self.dir.write(&format!("{}.sh", self.commands), format!("{command}\n"))?;
        Ok((file.display().to_string(), said))
    }
}

impl Staying {
    /// Output of the command so far.
    ///
    /// # Errors
    ///
    /// When that cannot be read.
    pub fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.said)?)
    }

    /// The file with what it said.
    pub fn path(&self) -> String {
        self.said.display().to_string()
    }

    /// True if the command runs.
    pub fn runs(&self) -> bool {
        test_kill_process_group(self.group).is_ok()
    }

    /// Ends it as Ctrl-C does, once more every second: the shell that runs it loses a few of them.
    ///
    /// # Errors
    ///
    /// When it does not end.
    pub fn end(&self) -> Result<()> {
        let deadline = Instant::now() + ENDED_WITHIN;
        let mut again = Instant::now();
        while self.runs() {
            let now = Instant::now();
            if now > deadline {
                let _ended = kill_process_group(self.group, Signal::KILL);
                bail!("a command did not end within {ENDED_WITHIN:?}: {}", self.said()?);
            }
            if now >= again {
                // An error says that it has ended.
                let _ended = kill_process_group(self.group, Signal::INT);
                again = now + Duration::from_secs(1);
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl Shell {
    fn start(netns: &Netns, dir: &Path) -> Result<Self> {
        let mut command = Command::new("unshare");
        let own = ["--mount", "--propagation", "private"];
        // A script that runs the tests in the background has them begin without Ctrl-C, and bash
        // does not give it back.
        command.args(own).args(["env", "--default-signal=INT,QUIT"]);
        command.args(["bash", "--norc", "--noprofile"]);
        let path = format!("{}/bin:/usr/sbin:/usr/bin:/sbin:/bin", dir.display());
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", dir.join("home"))
            .env("LC_ALL", "C.UTF-8")
            // Pages show times without those of a zone beside them.
            .env("TZ", "UTC");
        command.env("FOLLOWED", dir).env("SSH_CONNECTION", SESSION);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = netns.spawn(&mut command)?;
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().context("the shell has no output")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut shell = Self { child, stdin, lines };
        let said = shell.ask(PREPARE)?;
        ensure!(said == "ready", "the shell says {said}");
        Ok(shell)
    }

    /// Types something that prints a line.
    fn ask(&mut self, text: &str) -> Result<String> {
        let stdin = self.stdin.as_mut().context("the shell is gone")?;
        writeln!(stdin, "{text}")?;
        match self.lines.recv_timeout(WITHIN) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => bail!("no end within {WITHIN:?}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the shell has ended"),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // Commands that stay were ended before; the rest after a failure goes with the shell.
        drop(self.stdin.take());
        let deadline = Instant::now() + ENDED_WITHIN;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                // An error says that it has ended.
                let _ended = self.child.kill().and_then(|()| self.child.wait());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}
