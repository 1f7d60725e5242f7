//! Errors of the daemon: refusals and their reasons.

use std::path::PathBuf;

use limiter_cluster::ConfigError;
use limiter_datapath::{DatapathError, TcOrder};
use limiter_rules::file::SerializeError;
use limiter_rules::{
    Path, PlanError, RateTextError, RuleFileError, Selector, SourceTextError, TargetError,
};

use super::disk::state_dir::StateError;
use crate::control::BindError;
use crate::control::Refusal;

/// Reason why a request to the daemon has no effect.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServiceError {
    /// Rules wait to be confirmed.
    #[error(
        "rules are on trial: `limiter confirm` or `limiter revert` them first; `limiter deny` and \
         `limiter ban` work meanwhile"
    )]
    OnTrial,
    /// No rules wait to be confirmed.
    #[error(
        "no rules are on trial: `limiter apply --confirm TIME` begins one; `limiter reload` goes \
         back to the rule files"
    )]
    NoTrial,
    /// A trial that is longer than allowed.
    #[error("confirm_seconds: give 1 to 86400, which is a day")]
    LongTrial,
    /// Rules waited to be confirmed until a moment ago.
    #[error(
        "the time of the trial is over, and the previous rules are in force again; apply the new ones anew"
    )]
    TooLate,
    /// A prefix where only a single source can be banned.
    #[error(
        "{0:?} is more than one source: `limiter deny {0} --for TIME` drops all of it, and \
         `limiter sources --within {0}` lists the sources in it, to ban one"
    )]
    BanSeveral(String),
    #[error(transparent)]
    Source(#[from] SourceTextError),
    #[error(transparent)]
    Rate(#[from] RateTextError),
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    File(#[from] RuleFileError),
    /// A plan that cannot be put in force, though the rule file is correct.
    #[error(transparent)]
    Plan(PlanError),
    #[error(
        "{selector} is inside the management prefix {prefix}, which is never limited: \
         start the daemon without that prefix to limit it"
    )]
    Management { selector: Selector, prefix: Selector },
    #[error(
        "the rule for {path} comes from the rule file {place}: \
         remove it there and run `limiter reload`"
    )]
    FromFile { path: Path, place: String },
    #[error("the rule for {path} comes from {argument}: start without it")]
    FromArgument { path: Path, argument: String },
    #[error(
        "the rule for {path} was put in force by `limiter apply` ({place}): apply rules without \
         it, or go back to the rule files with `limiter reload`"
    )]
    FromApplied { path: Path, place: String },
    #[error(
        "the list entry {selector} comes from the rule file {place}: remove it there and run \
         `limiter reload`"
    )]
    ListedByFile { selector: Selector, place: String },
    #[error(
        "the list entry {selector} was put in force by `limiter apply` ({place}): apply rules \
         without it, or go back to the rule files with `limiter reload`"
    )]
    ListedByApply { selector: Selector, place: String },
    /// A request for a rule set without files.
    #[error("documents: there is none: send at least one rule file")]
    NoDocuments,
    /// No source would be limited any more, and no file was named for that.
    #[error(
        "{files}: nobody would be limited any more: write the rules again, or lift all limits with \
         `limiter reload --force`"
    )]
    LiftsAll { files: String },
    /// The change would lock somebody out.
    #[error("not applied: {0}")]
    Objection(String),
    #[error("there is no interface {0}: `ip link` lists those of this machine")]
    NoInterface(String),
    /// Packets of a limit that was to let them wait do not wait here.
    #[error("not set: {0}")]
    CannotWait(String),
    #[error("there is no rule for {0}: `limiter list` shows all")]
    NoRule(Path),
    /// The limit is one for all of them together, or the other way round, or of another direction.
    #[error(
        "there is no rule for {path}, but one that differs in {option}: `limiter unset {words}` \
         removes it"
    )]
    NoRuleBut { path: Path, option: &'static str, words: String },
    #[error("{selector} has no entry of its own, it is {stands}: `limiter lists` shows all")]
    NotListed { selector: Selector, stands: String },
    #[error("{0} is neither banned nor on record: `limiter bans` shows the bans")]
    NotBanned(Selector),
    #[error("0 seconds are over at once: give at least 1, or leave the time out for ever")]
    NoTime,
    #[error("limit: {count} sources: give 1 to {most}")]
    SourceCount { count: u32, most: u32 },
    #[error("no frame has {length} bytes: ask about 1 to {most}, or leave the length out")]
    NoFrame { length: u64, most: u64 },
    /// A word of a request, and the problem with it.
    #[error("{word}: {problem}")]
    Word { word: &'static str, problem: String },
    #[error("the lists have room for {capacity} {what}: remove some, or list wider prefixes")]
    ListsFull { what: &'static str, capacity: usize },
    #[error("as many follow events as may: end one of them first")]
    Followers,
    /// The log of events cannot be kept or read.
    #[error("{0}: make room, or mend the state directory")]
    EventLog(String),
    #[error("the disk of the log of events does not keep up: ask again later")]
    EventLogBusy,
    #[error(
        "user {user} captures since {since}, and there is one capture at a time: wait, or end it \
         with `limiter capture --stop`"
    )]
    Capturing { user: u32, since: String },
    #[error("no capture is under way")]
    NoCapture,
    #[error("the limits were detached: start the daemon again")]
    Detached,
    #[error(transparent)]
    Datapath(#[from] DatapathError),
    #[error("cannot write the edits as JSON: {0}: report this as a bug")]
    Json(#[from] serde_json::Error),
    #[error("cannot write the rules as YAML: {0}: report this as a bug")]
    Yaml(#[from] SerializeError),
    #[error(transparent)]
    State(#[from] StateError),
    /// The confirmation was not written to disk, so it has no effect.
    #[error("{store}; the rules on trial are taken back: make room, and apply them again")]
    NotKept { store: StateError },
    /// The change is in force, but was not written to disk and could not be undone.
    #[error("{store}; taking the change back failed too, so it holds until the next start: {undo}")]
    Torn { store: StateError, undo: Box<Self> },
}

impl From<ServiceError> for Refusal {
    fn from(error: ServiceError) -> Self {
        use ServiceError as E;

        let text = error.to_string();
        match error {
            E::Source(_)
            | E::BanSeveral(_)
            | E::Rate(_)
            | E::File(_)
            | E::Plan(_)
            | E::NoTime
            | E::NoDocuments
            | E::LongTrial
            | E::Word { .. }
            | E::Target(_)
            | E::NoInterface(_)
            | E::NoFrame { .. }
            | E::SourceCount { .. } => Self::Invalid(text),
            E::NoRule(_)
            | E::NoRuleBut { .. }
            | E::NotListed { .. }
            | E::NotBanned(_)
            | E::NoCapture => Self::NotFound(text),
            E::Management { .. }
            | E::FromFile { .. }
            | E::FromArgument { .. }
            | E::FromApplied { .. }
            | E::ListedByFile { .. }
            | E::ListedByApply { .. }
            | E::Objection(_)
            | E::CannotWait(_)
            | E::LiftsAll { .. }
            | E::ListsFull { .. }
            | E::Followers
            | E::Capturing { .. }
            | E::Detached
            | E::OnTrial
            | E::NoTrial
            | E::TooLate => Self::Conflict(text),
            E::Datapath(error) if error.is_refusal() => Self::Conflict(text),
            E::Datapath(_)
            | E::Json(_)
            | E::Yaml(_)
            | E::State(_)
            | E::EventLog(_)
            | E::EventLogBusy
            | E::NotKept { .. }
            | E::Torn { .. } => Self::Failed(text),
        }
    }
}

/// Refuses mistakes of a request itself in the same way as those of the service.
macro_rules! refused {
    ($($error:ty),*) => {
        $(impl From<$error> for Refusal {
            fn from(error: $error) -> Self {
                ServiceError::from(error).into()
            }
        })*
    };
}

refused!(
    SourceTextError,
    RateTextError,
    TargetError,
    RuleFileError,
    DatapathError,
    StateError,
    serde_json::Error
);

/// Reason why the daemon does not start or ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A management prefix is invalid.
    #[error("--management: {0}")]
    Management(SourceTextError),
    /// An interface is given twice.
    #[error("--iface {0} is given twice: give it once")]
    InterfaceTwice(String),
    /// A position among programs at tc, though nothing is attached at tc.
    #[error(
        "--tc-order {0}: this start limits nothing at tc: leave it out, or give --hook tc or \
         --direction out"
    )]
    OrderWithoutTc(TcOrder),
    /// A next program at XDP, though nothing is attached at XDP.
    #[error(
        "--then {}: this start limits nothing at XDP: leave it out; at tc the other program is \
         attached for itself, and --tc-order says where",
        .0.display()
    )]
    ThenWithoutXdp(PathBuf),
    /// The rule file, or the edits kept in the state directory.
    #[error(transparent)]
    File(#[from] RuleFileError),
    /// All rules together.
    #[error("{files}: {source}")]
    Plan {
        /// The rule files.
        files: String,
        /// The part of the plan that does not fit.
        source: PlanError,
    },
    /// The file of `--cluster`.
    #[error("--cluster: {0}")]
    Cluster(#[from] ConfigError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// The control socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An address for a server over TCP.
    #[error("{option} {address}: {source}: give a free port and an address of this machine")]
    Listen {
        /// The option that asked for the server.
        option: &'static str,
        /// Address that the daemon was to listen on.
        address: std::net::SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The data path.
    #[error(transparent)]
    Datapath(DatapathError),
    /// The service failed before any request.
    #[error("{0}")]
    Service(Box<dyn std::error::Error + Send + Sync>),
    /// The system provides no runtime or no signals.
    #[error("cannot {what}: {source}: check the limits of open files and processes")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The daemon ran, but could not remove the limits at its end.
    #[error("{0}: run `limiter detach` to try again")]
    Detach(DatapathError),
}

impl StartError {
    /// Returns true if something broke, rather than was refused.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::Datapath(fault) => !fault.is_refusal(),
            Self::Service(_) | Self::System { .. } | Self::Detach(_) => true,
            Self::Management(_)
            | Self::Cluster(_)
            | Self::InterfaceTwice(_)
            | Self::File(_)
            | Self::Plan { .. }
            | Self::State(_)
            | Self::Listen { .. }
            | Self::OrderWithoutTc(_)
            | Self::ThenWithoutXdp(_)
            | Self::Bind(_) => false,
        }
    }
}
