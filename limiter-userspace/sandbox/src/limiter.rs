//! The `limiter` binary under test, driven as a user drives it: the daemon and the command line.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::netns::Netns;
use crate::testbed::Testbed;

/// Loading and verifying the program takes well under a second on an idle machine.
const READY_WITHIN: Duration = Duration::from_mins(2);
const ENDED_WITHIN: Duration = Duration::from_mins(1);
const LOGGED_WITHIN: Duration = Duration::from_secs(20);
const READY: &str = "limiter: ready:";

/// The binary to test: `LIMITER_BIN`, or the development build of this workspace.
///
/// # Errors
///
/// When there is none.
pub fn binary() -> Result<PathBuf> {
    let path = match env::var_os("LIMITER_BIN") {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/limiter"),
    };
    path.canonicalize().with_context(|| {
        format!(
            "no limiter binary at {}: run `cargo xtask build --debug` or name one in LIMITER_BIN",
            path.display()
        )
    })
}

/// The sandbox's program, which is built beside the binary to test.
///
/// # Errors
///
/// When there is none.
pub fn sandbox() -> Result<PathBuf> {
    let path = binary()?.with_file_name("limiter-sandbox");
    path.canonicalize().with_context(|| {
        format!("no sandbox at {}: run `cargo build --bin limiter-sandbox`", path.display())
    })
}

/// The plugin of CNI, which is built beside the binary to test.
///
/// # Errors
///
/// When there is none.
pub fn cni() -> Result<PathBuf> {
    let path = binary()?.with_file_name("limiter-cni");
    path.canonicalize().with_context(|| {
        format!("no plugin at {}: run `cargo build --bin limiter-cni`", path.display())
    })
}

/// One limiter on one interface: the places of its files, and its daemon while that runs.
///
/// On drop the daemon is ended and everything detached.
#[derive(Debug)]
pub struct Limiter {
    binary: PathBuf,
    netns: Arc<Netns>,
    interface: String,
    rules: PathBuf,
    socket: PathBuf,
    pins: PathBuf,
    state: PathBuf,
    options: Vec<String>,
    wrapper: Vec<String>,
    daemon: Option<Daemon>,
}

#[derive(Debug)]
struct Daemon {
    child: Child,
    /// Standard error. A file rather than a pipe, so that a line written by the daemon is there
    /// before its next answer.
    log: File,
}

impl Limiter {
    /// A limiter with all its files in the testbed's directories; not started.
    pub fn new(binary: PathBuf, rules: &Path, interface: &str, testbed: &Testbed) -> Self {
        let (dir, bpffs) = (testbed.dir.path(), testbed.bpffs.path());
        Self::within(&testbed.receiver, binary, rules, interface, dir, bpffs)
    }

    /// A limiter in a namespace, with its files in `dir` and its pins in a BPF file system; not
    /// started.
    pub fn within(
        netns: &Arc<Netns>,
        binary: PathBuf,
        rules: &Path,
        interface: &str,
        dir: &Path,
        bpffs: &Path,
    ) -> Self {
        Self {
            binary,
            netns: Arc::clone(netns),
            interface: interface.to_owned(),
            rules: rules.to_owned(),
            socket: dir.join("limiter.sock"),
            pins: bpffs.join("pins"),
            state: dir.join("state"),
            options: Vec::new(),
            wrapper: Vec::new(),
            daemon: None,
        }
    }

    /// Adds options to `limiter run`.
    pub fn options<S: Into<String>>(&mut self, options: impl IntoIterator<Item = S>) -> &mut Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }

    /// Removes all options given so far.
    pub fn without_options(&mut self) -> &mut Self {
        self.options.clear();
        self
    }

    /// Starts the daemon through another program, such as `setpriv` with its options.
    pub fn through<S: Into<String>>(&mut self, words: impl IntoIterator<Item = S>) -> &mut Self {
        self.wrapper = words.into_iter().map(Into::into).collect();
        self
    }

    /// Moves pins, state and socket to other paths, named after `tag` beside the first ones: such a
    /// limiter knows nothing of the first one.
    pub fn apart(&mut self, tag: &str) -> &mut Self {
        for path in [&mut self.pins, &mut self.state, &mut self.socket] {
            // A BPF file system allows no dots in names.
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            path.set_file_name(format!("{tag}-{name}"));
        }
        self
    }

    /// Uses another interface than the cable's end.
    pub fn on(&mut self, interface: &str) -> &mut Self {
        interface.clone_into(&mut self.interface);
        self
    }

    /// Path of the binary that is started.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// The rule file.
    pub fn rules(&self) -> &Path {
        &self.rules
    }

    /// The directory of pins.
    pub fn pins(&self) -> &Path {
        &self.pins
    }

    /// The socket of the daemon.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process id of the daemon, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(|daemon| daemon.child.id())
    }

    fn run_command(&self) -> Command {
        let mut command = match self.wrapper.split_first() {
            Some((program, args)) => {
                let mut command = Command::new(program);
                command.args(args).arg(&self.binary);
                command
            }
            None => Command::new(&self.binary),
        };
        command.args(["run", "--iface", &self.interface]);
        for (option, path) in [
            ("--rules", &self.rules),
            ("--socket", &self.socket),
            ("--pin-dir", &self.pins),
            ("--state-dir", &self.state),
        ] {
            command.arg(option).arg(path);
        }
        command.args(&self.options).stdin(Stdio::null());
        command
    }

    /// Starts the daemon and waits until it is ready; returns the line that says so.
    ///
    /// # Errors
    ///
    /// When it is running already, ends before it is ready (with what it said), or is not ready
    /// within two minutes.
    pub fn start(&mut self) -> Result<String> {
        use std::os::unix::process::CommandExt as _;
        ensure!(self.daemon.is_none(), "the daemon runs already");
        let mut command = self.run_command();
        // The daemon gets its own process group: Ctrl-C at the terminal must reach this process
        // only, which then ends the daemon in order.
        let log = File::from(memfd_create("daemon's log", MemfdFlags::CLOEXEC)?);
        command.stdout(Stdio::null()).stderr(log.try_clone()?).process_group(0);
        self.daemon = Some(Daemon { child: self.netns.spawn(&mut command)?, log });
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let said = self.said();
            if let Some(line) = said.lines().find(|line| line.starts_with(READY)) {
                return Ok(line.to_owned());
            }
            if let Some(status) = self.ended()? {
                let said = self.wait()?;
                bail!("the daemon ended before it was ready ({status}): {}", said.trim());
            }
            if Instant::now() > deadline {
                bail!("the daemon is not ready after {READY_WITHIN:?}; it said: {}", said.trim());
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Uses another directory for pins.
    pub fn pin_in(&mut self, pins: &Path) -> &mut Self {
        pins.clone_into(&mut self.pins);
        self
    }

    /// Uses another directory for the daemon's state.
    pub fn keep_in(&mut self, state: &Path) -> &mut Self {
        state.clone_into(&mut self.state);
        self
    }

    /// Uses another path for the socket.
    pub fn listen_at(&mut self, socket: &Path) -> &mut Self {
        socket.clone_into(&mut self.socket);
        self
    }

    /// Starts the daemon without waiting for it or reading its output; the caller ends it.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn spawn(&self) -> Result<Child> {
        let mut command = self.run_command();
        self.netns.spawn(command.stdout(Stdio::null()))
    }

    /// Runs `limiter run` to its end, for calls that must be refused.
    ///
    /// # Errors
    ///
    /// When it is still running after a minute: it was not refused.
    pub fn run_to_end(&self) -> Result<Output> {
        let mut command = self.run_command();
        let child = self.netns.spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
        let pid = child.id();
        let waiter = thread::spawn(move || child.wait_with_output());
        let deadline = Instant::now() + ENDED_WITHIN;
        let mut in_time = true;
        while !waiter.is_finished() {
            if in_time && Instant::now() > deadline {
                in_time = false;
                send(pid, Signal::KILL)?;
            }
            thread::sleep(Duration::from_millis(10));
        }
        let output = waiter.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        ensure!(in_time, "`limiter run` was not refused: it ran for {ENDED_WITHIN:?}");
        Ok(output)
    }

    /// Standard error of the daemon so far.
    pub fn said(&self) -> String {
        self.daemon.as_ref().map_or_else(String::new, |daemon| read(&daemon.log))
    }

    /// Waits until the log contains `text`; returns the whole log. The daemon may answer a request
    /// before another of its tasks writes a line.
    ///
    /// # Errors
    ///
    /// When the text is not there within 20 seconds.
    pub fn wait_until_logged(&self, text: &str) -> Result<String> {
        let deadline = Instant::now() + LOGGED_WITHIN;
        loop {
            let said = self.said();
            if said.contains(text) {
                return Ok(said);
            }
            ensure!(Instant::now() < deadline, "the daemon did not log {text:?}: {said}");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// The daemon's exit status, when it has ended by itself.
    ///
    /// # Errors
    ///
    /// When the system does not report it.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.daemon {
            Some(daemon) => Ok(daemon.child.try_wait()?),
            None => Ok(None),
        }
    }

    /// Waits until the daemon has ended by itself, and returns all that it said.
    ///
    /// # Errors
    ///
    /// When it is not running, or does not end within a minute.
    pub fn wait_until_ended(&mut self) -> Result<String> {
        let deadline = Instant::now() + ENDED_WITHIN;
        while self.ended()?.is_none() {
            ensure!(Instant::now() < deadline, "the daemon did not end within {ENDED_WITHIN:?}");
            thread::sleep(Duration::from_millis(10));
        }
        self.wait()
    }

    /// Sends the daemon a signal.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        send(self.pid().context("the daemon is not running")?, signal)
    }

    /// Ends the daemon with SIGKILL.
    ///
    /// # Errors
    ///
    /// When it is not running.
    pub fn kill(&mut self) -> Result<()> {
        self.signal(Signal::KILL)?;
        self.wait().map(|_| ())
    }

    /// Ends the daemon with SIGTERM; returns all that it said.
    ///
    /// # Errors
    ///
    /// When it is not running, does not end within a minute, or its exit code is not 0.
    pub fn terminate(&mut self) -> Result<String> {
        self.signal(Signal::TERM)?;
        let deadline = Instant::now() + ENDED_WITHIN;
        loop {
            if let Some(status) = self.ended()? {
                let said = self.wait()?;
                ensure!(status.success(), "the daemon ended with {status} on SIGTERM: {said}");
                return Ok(said);
            }
            if Instant::now() > deadline {
                self.kill()?;
                bail!("the daemon did not end within {ENDED_WITHIN:?} after SIGTERM");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Reaps the daemon, which was asked to end.
    fn wait(&mut self) -> Result<String> {
        let mut daemon = self.daemon.take().context("the daemon is not running")?;
        daemon.child.wait()?;
        Ok(read(&daemon.log))
    }

    /// Runs a command of the command line, such as `["show", "192.0.2.1"]`, whatever its exit code.
    ///
    /// # Errors
    ///
    /// When it cannot be started.
    pub fn cli<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<Output> {
        let mut command = Command::new(&self.binary);
        command.arg("--socket").arg(&self.socket).args(args).stdin(Stdio::null());
        self.netns.output(&mut command)
    }

    /// Runs a command that must succeed; returns its standard output.
    ///
    /// # Errors
    ///
    /// When its exit code is not 0.
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Result<String> {
        let args: Vec<_> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
        let output = self.cli(&args)?;
        ensure!(
            output.status.success(),
            "`limiter {args:?}` failed ({}): {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        String::from_utf8(output.stdout).context("the output is not UTF-8")
    }

    /// Runs a command with `--output json`; returns the parsed document.
    ///
    /// # Errors
    ///
    /// When its exit code is not 0 or the output is not one JSON document.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.ok(args.iter().chain(&["--output", "json"]))?;
        serde_json::from_str(&text)
            .with_context(|| format!("`limiter {}`: not JSON: {text}", args.join(" ")))
    }

    /// Runs a command that works without a daemon: `off`, `on` or `detach`.
    ///
    /// # Errors
    ///
    /// When its exit code is not 0.
    pub fn on_pins(&self, command: &str) -> Result<String> {
        self.ok([OsStr::new(command), OsStr::new("--pin-dir"), self.pins.as_os_str()])
    }

    /// The program on the interface, as `ip -json -details link show` reports it.
    ///
    /// # Errors
    ///
    /// When there is no such interface.
    pub fn xdp(&self) -> Result<Value> {
        Ok(self.netns.link(&self.interface)?["xdp"].clone())
    }

    /// Waits until no program is on the interface: the kernel ends a link a moment after its last
    /// pin.
    ///
    /// # Errors
    ///
    /// When a program stays, or there is no such interface.
    pub fn wait_until_detached(&self) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let xdp = self.xdp()?;
            if xdp.is_null() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("a program is still attached: {xdp}");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the daemon and detaches, as drop does, and reports errors.
    ///
    /// # Errors
    ///
    /// When the daemon does not end in order or the program cannot be detached.
    pub fn close(mut self) -> Result<()> {
        self.clean_up()
    }

    fn clean_up(&mut self) -> Result<()> {
        if self.daemon.is_some() && self.ended()?.is_none() {
            self.terminate()?;
        }
        if fs::exists(&self.pins)? {
            self.on_pins("detach")?;
        }
        Ok(())
    }
}

impl Drop for Limiter {
    fn drop(&mut self) {
        if let Err(error) = self.clean_up() {
            eprintln!("while taking the limiter down: {error:#}");
            if let Some(daemon) = &mut self.daemon {
                // No daemon may outlive this process; an error means that it has ended already.
                let _ended = daemon.child.kill().and_then(|()| daemon.child.wait());
            }
        }
    }
}

fn send(pid: u32, signal: Signal) -> Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).context("not a process id")?;
    kill_process(pid, signal).with_context(|| format!("cannot send {signal:?} to process {pid:?}"))
}

/// Reads the whole file without moving the offset at which the daemon writes.
fn read(log: &File) -> String {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    while let Ok(read @ 1..) = log.read_at(&mut chunk, bytes.len() as u64) {
        bytes.extend(&chunk[..read]);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
