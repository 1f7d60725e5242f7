//! Errors that prevent any import.

/// Longest text of rules in bytes.
pub const MAX_BYTES: usize = 16 << 20;

/// Longest text of a list in bytes: a million sources with their times and comments.
pub const MAX_LIST_BYTES: usize = 128 << 20;

/// Error of a whole text. Problems of a single rule are reported with that rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// The text is too long.
    #[error("is longer than {} MiB: give less at once", .0 >> 20)]
    TooLong(usize),
    /// The rule file would be longer than a daemon reads.
    #[error(
        "becomes a rule file of more than {} MiB, with its comments: give less at once",
        MAX_BYTES >> 20
    )]
    TooMuch,
    /// The input is not text.
    #[error("byte {0} is not UTF-8: give the text that the program printed")]
    NotUtf8(usize),
    /// The text is empty.
    #[error("is empty: give the text that the program printed")]
    Empty,
    /// No format fits.
    #[error(
        "is of no format that is known: name it, as in `limiter import nft FILE`: nft (JSON), \
         iptables, ip6tables, ufw, tc, ipset, fail2ban or crowdsec; of a script of commands, run it \
         and give the output of iptables-save"
    )]
    Unknown,
    /// The text is the output of `nft list ruleset` without `-j`.
    #[error("is nft's own language, which is not read: give the output of `nft -j list ruleset`")]
    NftText,
    /// The text is not valid JSON.
    #[error("is no JSON: {0}: give the whole output of {1}")]
    Json(String, &'static str),
    /// The JSON is of another kind.
    #[error("is JSON, but {0}: give the output of {1}")]
    Shape(&'static str, &'static str),
    /// A line that cannot be understood, which makes everything after it unclear.
    #[error("line {line}: {what}: {remedy}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The fault.
        what: String,
        /// Advice.
        remedy: &'static str,
    },
    /// The text was cut off.
    #[error("{0}: it was cut off: give all of it")]
    CutOff(&'static str),
    /// There are several sets, some of which may be for sources that are let in.
    #[error("has several sets of addresses: {0}: name one with --set")]
    Sets(String),
    /// There is no such set.
    #[error("has no set of addresses {0:?}: there are {1}")]
    NoSet(String, String),
    /// `--set` was given with another format.
    #[error("has no sets of its own to choose from: leave --set out")]
    SetElsewhere,
    /// limiter itself rejects the rule file.
    #[error("the rule file that was made of it is refused: {0}: report this as a bug")]
    Own(String),
}
