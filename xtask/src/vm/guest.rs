//! One emulated machine: started, listened to, and ended in time.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::console::{Outcome, Transcript};
use super::emulator::Emulator;
use super::package::Kernel;
use crate::arch::Arch;
use crate::process;

/// Two CPUs, which is what races need, and no device but those that are named.
const MACHINE: [&str; 9] = [
    "-accel",
    "tcg,thread=multi",
    "-smp",
    "2",
    "-nodefaults",
    "-no-reboot",
    "-display",
    "none",
    "-serial",
];

/// The machine, its processor, and its first serial line, which is the kernel's own. Signed
/// pointers have a signature that is quick to emulate: the usual one takes half of the time.
const fn board(arch: Arch) -> [&'static str; 3] {
    match arch {
        Arch::Amd64 => ["q35", "max", "ttyS0"],
        Arch::Arm64 => ["virt,gic-version=3", "max,pauth-impdef=on", "ttyAMA0"],
    }
}

/// The serial line of the tests: the second one, or one on the bus where a machine has one alone.
pub(super) const fn serial(arch: Arch) -> &'static str {
    match arch {
        Arch::Amd64 => "ttyS1",
        Arch::Arm64 => "ttyS0",
    }
}

/// Words for the kernel: a panic ends the machine, and a timer that a busy emulator is late with is
/// not taken for broken.
const WORDS: &str = "panic=-1 quiet no_timer_check";

/// Memory of a guest for the kernel, the maps and the tests, in MiB. Three times the archive comes
/// to it: as it is handed over, and unpacked into a file system that has half of the rest.
const MEMORY: u64 = 1024;

/// Begins words of a test that are shown as they come: a test of many devices takes minutes.
const CELL: &str = "limiter-cell";

/// Lines of the kernel's that are shown when the guest did not come to its end.
const KERNEL_LINES: usize = 40;

/// Outcome of a guest.
#[derive(Debug)]
pub struct Report {
    /// Release of the kernel by `uname -r`, or what was asked for.
    pub release: String,
    /// One for every test that was wanted.
    pub outcomes: Vec<Outcome>,
    /// Why it did not come to its end, and the kernel's last lines.
    pub(super) trouble: Option<String>,
    /// From the start of the emulator to its end.
    pub(super) took: Duration,
}

/// Makes the command of an emulator with a network of the one without.
pub type Wiring = Box<dyn Fn(&Command) -> Result<Command> + Sync>;

pub(super) struct Machine<'a> {
    pub(super) emulator: &'a Emulator,
    pub(super) kernel: &'a Kernel,
    /// File system that it starts with.
    pub(super) archive: &'a Path,
    /// Disk, which keeps what is written to it.
    pub(super) disk: Option<&'a Path>,
    /// None has no network.
    pub(super) wiring: Option<&'a Wiring>,
    /// Further words for the kernel.
    pub(super) words: &'a str,
    /// File that the kernel's own lines go to.
    pub(super) log: &'a Path,
}

/// Runs a machine for `limit` at most. `each` is called for every test that ends.
pub(super) fn run(
    machine: &Machine<'_>,
    wanted: &[String],
    limit: Duration,
    mut each: impl FnMut(&Outcome),
) -> Result<Report> {
    let begun = Instant::now();
    let mut command = machine.command()?;
    let mut guest = Guest::start(&mut command)?;
    let lines = guest.lines()?;
    let mut transcript = Transcript::default();
    let mut late = false;
    loop {
        match lines.recv_timeout(limit.saturating_sub(begun.elapsed())) {
            Ok(line) => {
                if let Some(cell) = line.find(CELL).and_then(|at| line.get(at..)) {
                    eprintln!("xtask: {}", cell.trim_end());
                }
                if let Some(outcome) = transcript.line(&line) {
                    each(outcome);
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                late = true;
                break;
            }
        }
    }
    guest.end()?;
    let why = if late {
        format!("the guest did not end within {} s", limit.as_secs())
    } else {
        "the guest ended before its tests did".to_owned()
    };
    let outcomes = transcript.finish(wanted, &why);
    let trouble = (!transcript.done).then(|| {
        let log = fs::read(machine.log).unwrap_or_default();
        let log = tail(&String::from_utf8_lossy(&log), KERNEL_LINES);
        format!("{why}\n{}{log}", transcript.before)
    });
    let release = transcript.release.unwrap_or_else(|| machine.kernel.version.clone());
    Ok(Report { release, outcomes, trouble, took: begun.elapsed() })
}

impl Machine<'_> {
    fn command(&self) -> Result<Command> {
        let Self { emulator, kernel, archive, disk, wiring, words, log } = self;
        let size = fs::metadata(archive).with_context(|| archive.display().to_string())?.len();
        let memory = MEMORY + 3 * size.div_ceil(1 << 20);
        let mut command = emulator.command();
        let [board, processor, console] = board(kernel.arch);
        command.args(["-m", &memory.to_string(), "-M", board, "-cpu", processor]);
        command.args(MACHINE).arg(format!("file:{}", log.display()));
        match kernel.arch {
            Arch::Amd64 => command.args(["-serial", "stdio"]),
            Arch::Arm64 => {
                command.args(["-chardev", "stdio,id=tests", "-device", "pci-serial,chardev=tests"])
            }
        };
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(archive);
        command.args(["-append", format!("console={console} {WORDS} {words}").trim_end()]);
        if let Some(disk) = disk {
            let drive = format!("file={},format=raw,if=virtio,cache=unsafe", disk.display());
            command.args(["-drive", &drive]);
        }
        match wiring {
            Some(wiring) => wiring(&command),
            None => Ok(command),
        }
    }
}

/// The last lines of a text.
pub(super) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    let mut tail = all.get(from..).unwrap_or_default().join("\n");
    if !tail.is_empty() {
        tail.push('\n');
    }
    tail
}

/// The emulator while it runs. Ended on drop.
struct Guest {
    child: Child,
    shown: String,
}

impl Guest {
    fn start(command: &mut Command) -> Result<Self> {
        let shown = process::shown(command);
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{shown} could not be started"))?;
        Ok(Self { child, shown })
    }

    /// Lines of the guest, from a thread of their own, which ends with it.
    fn lines(&mut self) -> Result<mpsc::Receiver<String>> {
        let output = self.child.stdout.take();
        let mut output = BufReader::new(output.context("the emulator has no standard output")?);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            loop {
                let mut line = Vec::new();
                // No line of a test is that long.
                let read = output.by_ref().take(1 << 20).read_until(b'\n', &mut line);
                if !matches!(read, Ok(1..)) {
                    break;
                }
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    break;
                }
            }
        });
        Ok(receiver)
    }

    /// Waits for the end of one that has closed its output, or is to end now.
    fn end(mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(2);
        while Instant::now() < deadline {
            if self.child.try_wait().with_context(|| self.shown.clone())?.is_some() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // One that has ended is only waited for.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a", 2), "a\n");
        assert_eq!(tail("", 2), "");
    }
}
