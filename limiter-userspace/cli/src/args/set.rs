//! The arguments of `set` and `unset`.

use std::time::Duration;

use clap::ValueEnum;
use limiter_rules::model::Direction;

use super::time::some_time;
use crate::shell::completion_values;

/// Packets of a limit.
#[derive(Debug, clap::Args)]
pub(crate) struct Whom {
    /// Limit packets to a port, a range of ports or a protocol alone, as in 22/tcp, 8000-8080/udp
    /// or icmp
    #[arg(long, value_name = "PORT/PROTOCOL", allow_hyphen_values = true)]
    pub(crate) port: Option<String>,
    /// One limit for all of them together, instead of one for each source
    #[arg(long)]
    pub(crate) shared: bool,
    /// Packets that come in, that go out, or both; of those that go out, ADDRESS and --port are
    /// where they go
    #[arg(long, value_enum, default_value = "in")]
    pub(crate) direction: Way,
}

/// Directions of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Incoming packets
    #[default]
    In,
    /// Outgoing packets
    Out,
    /// Both, with one limit for them together
    Both,
}

impl From<Way> for Direction {
    fn from(way: Way) -> Self {
        match way {
            Way::In => Self::In,
            Way::Out => Self::Out,
            Way::Both => Self::Both,
        }
    }
}

/// Arguments of `set`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "limiter set [OPTIONS] [ADDRESS|PREFIX] <RATE>")]
pub(crate) struct Set {
    /// Whom to limit, as in 192.0.2.7 or 192.0.2.0/24; with --port the rate alone is for every
    /// source
    // Of two words the first is the address, whatever options stand between them.
    #[arg(value_name = "ADDRESS|PREFIX")]
    first: String,
    /// How much it may send
    #[arg(value_name = "RATE")]
    second: Option<String>,
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// Packets or bytes at once, as in 200, 10k or 60kB [default: the amount of RATE]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) burst: Option<String>,
    /// Unit that is counted [default: packets, or bytes if RATE is in bits or bytes]
    #[arg(long, value_enum)]
    pub(crate) count: Option<Unit>,
    /// End the limit by itself after this time, as in 10m, 2h or 1d [default: never]
    #[arg(long = "for", value_name = "TIME", value_parser = some_time)]
    pub(crate) time: Option<Duration>,
    /// A name for the rule, which `limiter list` shows
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Try it out: count what is over the limit, and let it pass
    #[arg(long)]
    pub(crate) shadow: bool,
    /// Tell the sender of what is dropped, as far as the rule file's `replies` allows
    #[arg(long)]
    pub(crate) reject: bool,
    /// Set it even if it limits this SSH session
    #[arg(long)]
    pub(crate) force: bool,
}

impl Set {
    /// The address or prefix, if one is given.
    pub(crate) fn source(&self) -> Option<&str> {
        self.second.as_ref().map(|_| self.first.as_str())
    }

    pub(crate) fn rate(&self) -> &str {
        self.second.as_ref().unwrap_or(&self.first)
    }
}

/// Arguments of `unset`.
#[derive(Debug, clap::Args)]
pub(crate) struct Unset {
    /// Source whose limit to remove
    #[arg(value_name = "ADDRESS|PREFIX", required_unless_present = "port", add = completion_values::set())]
    pub(crate) source: Option<String>,
    #[command(flatten)]
    pub(crate) whom: Whom,
    /// Remove it even if another rule limits this SSH session then
    #[arg(long)]
    pub(crate) force: bool,
}

/// Units of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Unit {
    /// Frames
    Packets,
    /// Bytes of frames
    Bytes,
    /// Attempts to open a TCP connection
    Syns,
    /// New flows
    Flows,
}

impl From<Unit> for limiter_common::wire::Count {
    fn from(unit: Unit) -> Self {
        match unit {
            Unit::Packets => Self::Packets,
            Unit::Bytes => Self::Bytes,
            Unit::Syns => Self::Syns,
            Unit::Flows => Self::Flows,
        }
    }
}
