//! Notifies others: a command and a webhook, for every start, still and end.
//!
//! One call runs at a time, with a time limit. Events in the meantime wait, up to a bound; those
//! beyond it are left out and counted.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use limiter_api::events::Line;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::webhook::Webhook;
use crate::web::WebUrl;

pub(super) const WAITING: usize = 64;

/// Receivers of notifications.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookOptions {
    /// A program, without arguments.
    pub command: Option<PathBuf>,
    /// Address of a webhook.
    pub url: Option<WebUrl>,
    /// Longest time that a call may take.
    pub timeout: Duration,
}

impl HookOptions {
    pub(super) const fn is_any(&self) -> bool {
        self.command.is_some() || self.url.is_some()
    }
}

/// State of a hook: a failure is reported once, and so is the recovery.
#[derive(Debug, Default)]
struct Health {
    failed: u64,
}

impl Health {
    fn note(&mut self, what: &str, result: Result<(), String>) {
        match result {
            Ok(()) if self.failed > 0 => {
                tracing::info!("{what} works again after {} failures", self.failed);
                self.failed = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if self.failed == 0 {
                    tracing::warn!("{what}: {error}; further failures are counted");
                }
                self.failed += 1;
            }
        }
    }
}

/// Calls the hooks until the channel of lines ends.
pub(super) async fn call(options: HookOptions, mut lines: mpsc::Receiver<Line>) {
    let (mut command_health, mut url_health) = (Health::default(), Health::default());
    let webhook = options.url.map(Webhook::new);
    while let Some(line) = lines.recv().await {
        let variables = variables(&line);
        if variables.is_empty() {
            continue;
        }
        let Ok(text) = serde_json::to_vec(&line) else { continue };
        if let Some(path) = &options.command {
            let result = run(path, line.name(), variables, &text, options.timeout).await;
            command_health.note(&format!("the hook {}", path.display()), result);
        }
        if let Some(webhook) = &webhook {
            let result = match timeout(options.timeout, webhook.post(text)).await {
                Ok(result) => result,
                Err(_elapsed) => Err(format!("no answer within {:?}", options.timeout)),
            };
            url_health.note(&format!("the hook {}", webhook.url()), result);
        }
    }
}

/// Environment of a command, beside the name of the event; empty for events that hooks do not get.
fn variables(line: &Line) -> Vec<(&'static str, String)> {
    match line {
        Line::Start(episode) | Line::Still(episode) | Line::End(episode) => vec![
            ("LIMITER_SOURCE", episode.source.clone()),
            ("LIMITER_RULE", episode.rule.clone().unwrap_or_default()),
            ("LIMITER_REASON", episode.reason.clone()),
            ("LIMITER_WOULD_DROP", episode.would_drop.to_string()),
            ("LIMITER_INTERFACE", episode.last.interface.clone().unwrap_or_default()),
            ("LIMITER_BEGAN", episode.began.clone()),
            ("LIMITER_SECONDS", episode.seconds.to_string()),
            ("LIMITER_SAMPLED", episode.sampled.to_string()),
        ],
        Line::TableFull(full) => vec![
            ("LIMITER_PHASE", full.phase.name().to_owned()),
            ("LIMITER_TABLE", full.table.clone()),
            ("LIMITER_PACKETS", full.packets.to_string()),
        ],
        Line::Drop(_) | Line::Lost { .. } => Vec::new(),
    }
}

/// Runs the command without a shell and with nothing of the daemon's environment but `PATH`.
async fn run(
    path: &PathBuf,
    event: &str,
    variables: Vec<(&'static str, String)>,
    text: &[u8],
    most: Duration,
) -> Result<(), String> {
    let mut command = Command::new(path);
    command
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .env("LIMITER_EVENT", event)
        .envs(variables)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::inherit())
        // A process group, so that processes started by the command end with it.
        .process_group(0)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
    // Declared after the child and so dropped before it: until the child is waited for, its number
    // is not reused.
    let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let stdin = child.stdin.take();
    let ended = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input has everything in its environment.
            if let Err(error) = stdin.write_all(text).await {
                tracing::debug!(%error, "the hook did not read its input");
            }
        }
        child.wait().await
    };
    match timeout(most, ended).await {
        Ok(Ok(status)) => {
            group.0 = None;
            if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
        }
        Ok(Err(error)) => Err(format!("cannot wait for it: {error}")),
        Err(_elapsed) => Err(format!("it did not end within {most:?}, and was killed")),
    }
}

/// A process group that ends when this is dropped, also when the daemon ends.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "the hook had ended by itself");
        }
    }
}
