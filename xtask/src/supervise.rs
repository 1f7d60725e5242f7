//! Running a child that cleans up after itself: signals are passed on, and we wait for it.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitCode, ExitStatus};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::privilege::Privilege;
use crate::process;

/// How often signals and the child are looked at.
const PERIOD: Duration = Duration::from_millis(20);

/// Runs to the end and gives the child's exit code. SIGINT, SIGTERM and SIGHUP do not end this
/// process: it passes them on and waits for the child's clean-up.
pub(crate) fn run(command: &mut Command, privilege: Privilege) -> Result<ExitCode> {
    let shown = process::shown(command);
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signal handlers could not be set")?;
    // sudo must stay in the terminal's group to ask for the password, gets Ctrl-C there, and is
    // root's process, which a user may not signal. A direct child gets a group of its own, so that
    // a signal to our whole group reaches it once and not twice.
    let direct = privilege == Privilege::Root;
    if direct {
        command.process_group(0);
    }
    let mut child = command.spawn().with_context(|| format!("{shown} could not be started"))?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    loop {
        if let Some(status) =
            child.try_wait().with_context(|| format!("{shown}: waiting for it"))?
        {
            return Ok(code_of(status));
        }
        for number in signals.pending() {
            if let (true, Some(pid), Some(signal)) = (direct, pid, Signal::from_named_raw(number)) {
                // The child was there a moment ago and is not reaped, so only a lack of rights can
                // fail.
                kill_process(pid, signal).with_context(|| format!("signalling {shown}"))?;
            }
        }
        thread::sleep(PERIOD);
    }
}

/// The exit code, with the shell's 128 + n for a child ended by signal n.
pub(crate) fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;

    /// Signals are for the whole process: a test that sends one must be alone with its child.
    fn alone() -> MutexGuard<'static, ()> {
        static TURN: Mutex<()> = Mutex::new(());
        TURN.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn exit_codes_are_passed_on() {
        let _turn = alone();
        for (script, code) in [("exit 0", 0), ("exit 7", 7), ("kill -KILL $$", 137)] {
            let mut shell = Command::new("sh");
            let result = run(shell.args(["-c", script]), Privilege::Root).unwrap();
            assert_eq!(result, ExitCode::from(code), "{script}");
        }
    }

    #[test]
    fn a_signal_reaches_the_child_and_its_clean_up_is_waited_for() {
        let _turn = alone();
        // The child signals us, and ends only if we pass that on.
        let own = std::process::id();
        let script = format!(
            "trap 'sleep 0.1; exit 42' TERM; kill -TERM {own}; \
             for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.5; done; exit 1"
        );
        let mut shell = Command::new("sh");
        let result = run(shell.args(["-c", &script]), Privilege::Root).unwrap();
        assert_eq!(result, ExitCode::from(42));
    }
}
