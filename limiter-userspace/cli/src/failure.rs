//! Errors of commands, and the exit codes for them.

use std::process::ExitCode;

use limiter_api::client::ClientError;
use limiter_daemon::StartError;
use limiter_daemon::control::Refusal;
use limiter_datapath::DatapathError;
#[cfg(feature = "replay")]
use limiter_replay::explain::{CaptureError, ExplainError};
#[cfg(feature = "replay")]
use limiter_replay::load::LoadError;
use limiter_rules::{PlanError, RateTextError, RuleFileError, SourceTextError, TargetError};

/// Error of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// An address or prefix.
    #[error(transparent)]
    Source(#[from] SourceTextError),
    /// A port where a list wants an address.
    #[error(
        "{text:?} is a port, and the lists are of addresses: `action: drop` in a rule file drops \
         all packets to it (docs/rules.md#blocks), `limiter set --port {port} RATE` limits them"
    )]
    PortListed {
        /// Text in the place of an address.
        text: String,
        /// The port, as `--port` reads it.
        port: String,
    },
    /// Whom to limit.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// A rate on the command line that cannot be read.
    #[error(transparent)]
    Rate(#[from] RateTextError),
    /// A limit of `run --limit`, or an interface that `run` was to find.
    #[error("{0}")]
    Limit(String),
    /// The daemon, or the way to it.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The start of the daemon by `run`.
    #[error("{error}{}", reported(more.as_deref()))]
    Start {
        /// Why the daemon did not start.
        error: Box<StartError>,
        /// The command that says more, where the machine has to do with it.
        more: Option<String>,
    },
    /// `serve`.
    #[cfg(feature = "requests")]
    #[error(transparent)]
    Serve(#[from] limiter_requests::ServeError),
    /// The server that `refused` asks.
    #[cfg(feature = "requests")]
    #[error("{0}")]
    Server(String),
    /// The pinned maps, without a daemon.
    #[error("{0}")]
    Pinned(DatapathError),
    /// No daemon, and maps that cannot be read without one.
    #[error("{daemon}; nor can it be read from the maps: {maps}")]
    Unread {
        /// Why there is no answer of a daemon.
        daemon: ClientError,
        /// Why the maps give none.
        maps: Box<Self>,
    },
    /// An answer that the maps do not give.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The directory of the pinned maps.
    #[error("{0}")]
    PinDir(String),
    /// The file with the sources to list.
    #[error("{}", .0.join("; "))]
    ListFile(Vec<String>),
    /// The file that rules were to be written into.
    #[error("{0}")]
    Export(String),
    /// A text of another program that cannot be translated.
    #[cfg(feature = "import")]
    #[error("{file} {why}")]
    Import {
        /// Name of the text.
        file: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// The key of a bouncer.
    #[cfg(feature = "import")]
    #[error("{0}")]
    Key(String),
    /// A capture that cannot be read.
    #[cfg(feature = "replay")]
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// A packet that cannot be explained.
    #[cfg(feature = "replay")]
    #[error("{file}: {source}")]
    Explain {
        /// The capture.
        file: String,
        /// Why the packet is not explained.
        source: ExplainError,
    },
    /// A load that cannot be made.
    #[cfg(feature = "replay")]
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Rule sets, or captures, that cannot be put side by side.
    #[cfg(feature = "replay")]
    #[error("{0}")]
    Replay(String),
    /// A rule file that cannot be read.
    #[error(transparent)]
    RuleFile(#[from] RuleFileError),
    /// A rule file that cannot be installed.
    #[error("{file}: {source}")]
    Plan {
        /// Names of the rule files.
        file: String,
        /// Why the rules cannot be put in force.
        source: PlanError,
    },
    /// An error of `diff`, whose exit code 1 means something else.
    #[error(transparent)]
    Diff(Box<Self>),
    /// Standard output.
    #[error("cannot write to standard output: {0}: check where it goes")]
    Output(std::io::Error),
    /// `capture` where somebody would read the bytes.
    #[error("packets are not written to a terminal: name a file with -w, or pipe them")]
    Binary,
    /// A capture whose end did not come.
    #[error("the daemon ended, or cut the capture off: see its log")]
    CutOff,
    /// A capture that ended early, of which there is something.
    #[error("{failure}; {what} is kept in {}", limiter_text::plain::clean(&file.display().to_string()))]
    Kept {
        /// The reason why it ended.
        failure: Box<Self>,
        /// Content of the file.
        what: &'static str,
        /// File that has the part until then.
        file: std::path::PathBuf,
    },
    /// `top` where there is no terminal.
    #[error(
        "standard output is no terminal: use `limiter top --once` for one frame as text, or \
         `limiter sources`"
    )]
    NoTerminal,
    /// The terminal could not be used.
    #[error("cannot use the terminal: {0}: check that standard input and output are one")]
    Terminal(std::io::Error),
    /// A log filter that cannot be read.
    #[error("LIMITER_LOG: {0}: write one like info or limiter_daemon=debug")]
    Filter(String),
    /// The directory for manual pages.
    #[error("{0}: name a directory that can be made or written to with --dir")]
    Man(String),
    /// The sandbox of `limiter demo`.
    #[error("{0}")]
    Demo(String),
    /// An answer that cannot be written down.
    #[error("cannot write the answer as JSON: {0}: report this as a bug")]
    Json(#[from] serde_json::Error),
    /// An answer that cannot be written down in YAML.
    #[error("cannot write the answer as YAML: {0}: report this as a bug")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Command that says more, at the end of a message.
fn reported(more: Option<&str>) -> String {
    more.map_or_else(String::new, |more| format!("; more: `{more}`"))
}

impl Failure {
    /// True if no daemon answered.
    pub const fn is_no_daemon(&self) -> bool {
        matches!(self, Self::Client(daemon) | Self::Unread { daemon, .. } if daemon.no_daemon())
    }

    /// Lines for people: of a list that is refused, one for each line of it.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::ListFile(lines) => lines.clone(),
            #[cfg(feature = "requests")]
            Self::Serve(error) => error.lines(),
            other => vec![other.to_string()],
        }
    }

    /// 1 when something broke, 2 when something was refused.
    pub fn exit_code(&self) -> ExitCode {
        let broke = match self {
            Self::Client(error) => error.is_failure(),
            Self::Start { error, .. } => error.is_failure(),
            #[cfg(feature = "requests")]
            Self::Serve(error) => error.is_failure(),
            Self::Pinned(fault) => !fault.is_refusal(),
            Self::Unread { daemon, .. } => daemon.is_failure(),
            Self::Refused(refusal) => matches!(refusal, Refusal::Failed(_)),
            Self::Kept { failure, .. } => return failure.exit_code(),
            Self::Json(_) | Self::Yaml(_) | Self::Output(_) | Self::Terminal(_) | Self::CutOff => {
                true
            }
            Self::Source(_)
            | Self::PortListed { .. }
            | Self::Target(_)
            | Self::Rate(_)
            | Self::Limit(_)
            | Self::PinDir(_)
            | Self::ListFile(_)
            | Self::Export(_)
            | Self::Man(_)
            | Self::Demo(_)
            | Self::NoTerminal
            | Self::Binary
            | Self::RuleFile(_)
            | Self::Diff(_)
            | Self::Plan { .. }
            | Self::Filter(_) => false,
            #[cfg(feature = "requests")]
            Self::Server(_) => false,
            #[cfg(feature = "import")]
            Self::Import { .. } | Self::Key(_) => false,
            #[cfg(feature = "replay")]
            Self::Capture(_) | Self::Explain { .. } | Self::Load(_) | Self::Replay(_) => false,
        };
        ExitCode::from(if broke { 1 } else { 2 })
    }
}
