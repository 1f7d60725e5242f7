//! Child processes: how they are found, named in errors, and kept off standard output.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

use crate::privilege::Privilege;

/// A command with the search path of this module.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("PATH", search_path());
    command
}

/// A command that runs as root, through sudo where this process is not. The variables named in
/// `keep` reach it; sudo drops others and has a search path of its own.
pub(crate) fn as_root(
    privilege: Privilege,
    program: impl AsRef<OsStr>,
    keep: &[(&str, OsString)],
) -> Command {
    if privilege == Privilege::Root {
        let mut plain = command(program);
        plain.envs(keep.iter().map(|(name, value)| (name, value)));
        return plain;
    }
    let mut sudo = command("sudo");
    sudo.arg("env").arg(assignment("PATH", &search_path()));
    for (name, value) in keep {
        sudo.arg(assignment(name, value));
    }
    sudo.arg(program);
    sudo
}

fn assignment(name: &str, value: &OsStr) -> OsString {
    let mut text = OsString::from(name);
    text.push("=");
    text.push(value);
    text
}

/// Runs to the end with standard output sent to standard error, so that a command with `--json`
/// writes nothing else to standard output. An error names the command and how it ended.
pub fn run(command: &mut Command) -> Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs as [`run`] does, but how the program ended is the answer.
pub(crate) fn status(command: &mut Command) -> Result<ExitStatus> {
    command
        .stdout(Stdio::from(io::stderr()))
        .status()
        .with_context(|| format!("{} could not be started", shown(command)))
}

/// Standard output as text; nothing is shown. An error carries standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} could not be started", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it, for messages.
pub fn shown(command: &Command) -> String {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

/// Path of a program, in the same search path that children get.
pub fn find(program: &str) -> Option<PathBuf> {
    which::which_in(program, Some(search_path()), "/").ok()
}

/// PATH, and behind it where `cargo install` puts programs and where Debian keeps the ones for
/// root: a login of a plain user has neither.
pub fn search_path() -> OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    let more = cargo_home().map(|home| home.join("bin")).into_iter();
    let more = more.chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    for folder in more {
        if !folders.iter().any(|known| known == Path::new(&folder)) {
            folders.push(folder);
        }
    }
    // Only a folder with a colon in its name can fail here; it was in no PATH before.
    env::join_paths(folders).unwrap_or(path)
}

/// Directory where cargo keeps the sources of crates, and what it installs.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let named = env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}
