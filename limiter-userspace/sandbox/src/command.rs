//! Runs the machine's tools; errors name the command line and the tool's message.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

/// The command line, for messages.
pub fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs a command to its end and returns its output, whatever its exit code.
///
/// The command gets a process group of its own: Ctrl-C at the terminal must not break off a
/// clean-up.
///
/// # Errors
///
/// When it cannot be started; a missing program is named with the package that has it.
pub fn output(command: &mut Command) -> Result<Output> {
    command.process_group(0).output().map_err(|error| cannot_start(command, &error))
}

/// Runs a command and returns its standard output.
///
/// # Errors
///
/// When it cannot be started or its exit code is not 0.
pub fn checked(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed ({}): {}", line(command), output.status, said.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{}`: not UTF-8", line(command)))
}

/// Runs [`checked`] on a program and its arguments.
///
/// # Errors
///
/// As [`checked`].
pub fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<String> {
    checked(Command::new(program).args(args))
}

/// Runs a program with a text on its standard input, in a process group of its own.
///
/// # Errors
///
/// When it cannot be started or its exit code is not 0.
pub fn feed(program: &str, args: &[&str], text: &str) -> Result<()> {
    use std::io::Write as _;
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| cannot_start(&command, &error))?;
    child.stdin.take().context("no standard input")?.write_all(text.as_bytes())?;
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} refuses {text}: {}", said.trim());
    Ok(())
}

/// The error for a command that could not be started.
pub fn cannot_start(command: &Command, error: &std::io::Error) -> anyhow::Error {
    let program = command.get_program().to_string_lossy();
    if error.kind() == ErrorKind::NotFound {
        let package = match &*program {
            "ip" => "iproute2",
            "nginx" => "nginx-light",
            "ping" => "iputils-ping",
            "setpriv" => "util-linux",
            other => other,
        };
        anyhow!("`{program}` was not found: install it (Debian package {package})")
    } else {
        anyhow!("cannot start `{}`: {error}", line(command))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_names_command_and_message() {
        let error = run("sh", ["-c", "echo broken >&2; exit 3"]).expect_err("exit code 3");
        let text = error.to_string();
        assert!(text.contains("sh -c") && text.contains("broken") && text.contains('3'), "{text}");
    }

    #[test]
    fn missing_program_names_the_remedy() {
        let text = run("no-such-program-at-all", ["x"]).expect_err("missing").to_string();
        assert!(text.contains("install"), "{text}");
    }
}
