//! The arguments of `limiter run`.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use limiter_api::arguments::{at_least, interval, trial_time};
use limiter_common::bucket::MAX_SLOTS;
use limiter_common::header::Direction;
#[cfg(feature = "page")]
use limiter_daemon::control::Loopback;
use limiter_daemon::rule_files::RuleSource;
use limiter_daemon::{RunOptions, Watch};
use limiter_datapath::{Hook, ModeChoice, Options, SourceTable, TcOrder, machine};
use limiter_rules::model;
use limiter_text::stderr::say;

use super::defaults::{MAX_RULES, PIN_DIR};
use crate::failure::Failure;
use crate::files::first_rules;
use crate::questions::events::Reporting;
use crate::shell::completion_values;

// Headings of the help.
const WHAT: &str = "What to limit";
const SAFETY: &str = "Safety";
const RULES: &str = "Rules";
const WHERE: &str = "Where to attach";
const SIZES: &str = "Sizes";
const EVENTS: &str = "Events";
const OTHERS: &str = "For others";
const PLACES: &str = "Directories";

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "limiter run [OPTIONS] --limit <LIMIT>\n       limiter run [OPTIONS] --rules \
                      <FILE|DIR>"
)]
pub(crate) struct Run {
    /// Interface to limit, or a shell pattern as 'veth*' of the names of interfaces, those that
    /// appear later among them; may be repeated. All of them share rules and buckets [default: the
    /// one that has the default route]
    #[arg(help_heading = WHAT, long, value_name = "IFACE", add = completion_values::interfaces())]
    iface: Vec<String>,
    /// A limit without a rule file, for each source: 1000/s, 20mbit/s, 'udp/27015 128/s' or
    /// '192.0.2.0/24 tcp/22 10 syns/min'; may be repeated. As much as the rate names may come at
    /// once besides. With `--direction out` each destination has a limit, with `both` what comes in
    /// and goes out is counted together. The rule file that all of this stands for is printed
    #[arg(help_heading = WHAT, long, value_name = "LIMIT", conflicts_with = "rules")]
    limit: Vec<String>,
    /// A rule file, or a directory of them; may be repeated. All of them are one rule set
    #[arg(help_heading = WHAT, long, value_name = "FILE|DIR", required_unless_present = "limit")]
    rules: Vec<PathBuf>,
    /// The packets that are limited: those that come in by the interfaces, those that go out, or
    /// both. What goes out is limited by rules with `direction: out` or `both`
    #[arg(help_heading = WHAT, long, value_enum, default_value_t = Directions::In)]
    direction: Directions,
    /// Address or prefix that is never limited; may be repeated. The peer of the SSH session that
    /// starts the daemon is found by itself
    #[arg(help_heading = SAFETY, long, value_name = "PREFIX")]
    management: Vec<String>,
    /// With --limit: count what is over it, and let it pass
    #[arg(help_heading = SAFETY, long, requires = "limit")]
    shadow: bool,
    /// Remove the program and all limits when the daemon ends
    #[arg(help_heading = SAFETY, long)]
    detach_on_exit: bool,
    /// After how long without a sign of life of the daemon rules with `on_daemon_loss: shadow`
    /// only count; at least 5s
    #[arg(
        help_heading = SAFETY, long, value_name = "TIME", default_value = "30s", value_parser = loss,
    )]
    daemon_lost_after: Duration,
    /// What becomes of rule files that change on disk
    #[arg(help_heading = RULES, long, value_enum, default_value_t = Watched::Report)]
    watch: Watched,
    /// With `--watch apply`: how long changed files are on trial, until `limiter confirm`
    #[arg(
        help_heading = RULES, long, value_name = "TIME", default_value = "5m", value_parser = trial_time,
    )]
    watch_trial: NonZeroU32,
    /// How often the rule files are read in case the kernel does not report a change
    #[arg(
        help_heading = RULES, long, value_name = "TIME", default_value = "30s", value_parser = interval,
    )]
    watch_interval: Duration,
    /// How to attach to XDP
    #[arg(help_heading = WHERE, long, value_enum, default_value_t = Mode::Native)]
    mode: Mode,
    /// Where what comes in is limited. What goes out is limited at tc in any case
    #[arg(help_heading = WHERE, long, value_enum, default_value_t = Place::Xdp)]
    hook: Place,
    /// Place among the programs at tc (TCX) when limiter attaches: first, last, before:ID or
    /// after:ID, with the id of a program that `limiter doctor` names. It stays until `limiter
    /// detach`. A program before limiter can let packets by
    #[arg(help_heading = WHERE, long, value_name = "ORDER", default_value_t = TcOrder::First)]
    tc_order: TcOrder,
    /// Pin of an XDP program of somebody else that goes on with what limiter lets pass at XDP. It
    /// takes frames in several buffers (SEC("xdp.frags")), and is not attached itself
    #[arg(help_heading = WHERE, long, value_name = "PIN")]
    then: Option<PathBuf>,
    /// Sources that can be tracked, for IPv4 and for IPv6
    #[arg(
        help_heading = SIZES,
        long, value_name = "N", default_value_t = 262_144,
        value_parser = clap::value_parser!(u32).range(1..=1 << 27),
    )]
    max_sources: u32,
    /// Rules that fit, with those being replaced
    #[arg(
        help_heading = SIZES,
        long, value_name = "N", default_value_t = MAX_RULES,
        value_parser = clap::value_parser!(u32).range(16..i64::from(MAX_SLOTS)),
    )]
    max_rules: u32,
    /// Keys that can be tracked by the rules on anything but the source alone
    #[arg(
        help_heading = SIZES,
        long, value_name = "N", default_value_t = 65_536,
        value_parser = clap::value_parser!(u32).range(16..=1 << 24),
    )]
    max_keys: u32,
    /// Table that sources have their buckets in
    #[arg(help_heading = SIZES, long, value_enum, default_value_t = SourceTableChoice::Auto)]
    source_table: SourceTableChoice,
    #[command(flatten)]
    events: Reporting,
    /// The program's own log
    #[arg(
        help_heading = EVENTS, long, value_enum, value_name = "LEVEL", default_value_t = KernelLog::Off,
    )]
    kernel_log: KernelLog,
    /// Serve GET /metrics over TCP, too, to anybody who reaches the address [default: on the socket
    /// alone]
    #[arg(
        help_heading = OTHERS, long, value_name = "ADDRESS:PORT", value_parser = address_and_port,
    )]
    metrics_listen: Option<SocketAddr>,
    /// Serve the page for a browser, too, to every user of this machine: a loopback address, as
    /// 127.0.0.1:9465; from another one, through `ssh -L` [default: on the socket alone]
    #[cfg(feature = "page")]
    #[arg(help_heading = OTHERS, long, value_name = "ADDRESS:PORT")]
    page_listen: Option<Loopback>,
    /// Share budgets with `scope: cluster`, bans and lists with other nodes, as this file says:
    /// docs/cluster.md
    #[arg(help_heading = OTHERS, long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// Directory to pin maps and links in: on a BPF file system, for this daemon alone
    #[arg(help_heading = PLACES, long, value_name = "DIR", default_value = PIN_DIR)]
    pub(crate) pin_dir: PathBuf,
    /// Directory to keep the limits that `set` makes, the lists, and what `apply` sent
    #[arg(help_heading = PLACES, long, value_name = "DIR", default_value = "/var/lib/limiter")]
    state_dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Watched {
    /// They are checked and reported, and come in force by `limiter reload`
    #[value(alias = "on")]
    Report,
    /// They are checked as `limiter apply` does, and on trial: `limiter confirm` keeps them
    Apply,
    /// They are not looked at
    Off,
}

fn address_and_port(text: &str) -> Result<SocketAddr, String> {
    let remedy = "write an address and a port, as in 127.0.0.1:9464 or [::1]:9464";
    text.parse().map_err(|_malformed| remedy.to_owned())
}

/// A length of time of at least five seconds: the daemon gives a sign of life each second.
fn loss(text: &str) -> Result<Duration, String> {
    at_least(text, 5)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Directions {
    /// What comes in
    In,
    /// What goes out
    Out,
    /// Both
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Place {
    /// Before the kernel makes a socket buffer: fastest
    Xdp,
    /// Behind that: any interface, beside other programs, VLAN tags seen that the card took off
    Tc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// By the driver, before the kernel makes a socket buffer
    Native,
    /// By the stack, after it did: any interface, but slower
    Generic,
    /// Native if the driver can, else generic
    Auto,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SourceTableChoice {
    /// In lines on x86-64 and arm64, elsewhere in hash maps
    Auto,
    /// In hash maps of the kernel
    Hash,
    /// In lines of an array: faster, and half of the memory
    Lines,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum KernelLog {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl SourceTableChoice {
    /// `None` unless a table is named.
    const fn named(self) -> Option<SourceTable> {
        match self {
            Self::Auto => None,
            Self::Hash => Some(SourceTable::Hash),
            Self::Lines => Some(SourceTable::Lines),
        }
    }
}

impl Run {
    fn watch(&self) -> Option<Watch> {
        let trial = Duration::from_secs(u64::from(self.watch_trial.get()));
        let trial = match self.watch {
            Watched::Off => return None,
            Watched::Report => None,
            Watched::Apply => Some(trial),
        };
        Some(Watch { every: self.watch_interval, trial })
    }

    fn hooks(&self) -> Vec<Hook> {
        let incoming = match self.hook {
            Place::Xdp => Hook::Xdp,
            Place::Tc => Hook::Tc(Direction::In),
        };
        let outgoing = Hook::Tc(Direction::Out);
        match self.direction {
            Directions::In => vec![incoming],
            Directions::Out => vec![outgoing],
            Directions::Both => vec![incoming, outgoing],
        }
    }

    /// The rules: files, or the text that `--limit` stands for.
    fn rules(&self) -> Result<RuleSource, Failure> {
        if self.limit.is_empty() {
            return Ok(RuleSource::Files(self.rules.clone()));
        }
        let direction = match self.direction {
            Directions::In => model::Direction::In,
            Directions::Out => model::Direction::Out,
            Directions::Both => model::Direction::Both,
        };
        first_rules::document(&self.limit, direction, self.shadow).map(RuleSource::Given)
    }

    /// The interfaces that are named, or the one that has the default route.
    fn interfaces(&self) -> Result<Vec<String>, Failure> {
        if !self.iface.is_empty() {
            return Ok(self.iface.clone());
        }
        let failed = |error: String| {
            Failure::Limit(format!("the default route: {error}: name an interface with --iface"))
        };
        let routes = machine::default_routes().map_err(|error| failed(error.to_string()))?;
        let links = machine::links().map_err(|error| failed(error.to_string()))?;
        let links = links.into_iter().filter(|link| routes.contains(&link.index));
        let names: Vec<String> = links.map(|link| link.name).collect();
        match names.as_slice() {
            [only] => {
                say(format_args!("limiter: --iface {only}: the default route is there"));
                Ok(names)
            }
            [] => Err(Failure::Limit(
                "no interface has a default route: name one, as in --iface eth0; `ip -brief \
                 link` lists them"
                    .to_owned(),
            )),
            several => Err(Failure::Limit(format!(
                "{} have a default route: name those to limit, as in --iface {}",
                several.join(" and "),
                several.first().map_or("eth0", String::as_str)
            ))),
        }
    }

    /// The options in the form that the daemon takes.
    pub(crate) fn options(&self, socket: PathBuf) -> Result<RunOptions, Failure> {
        Ok(RunOptions {
            rules: self.rules()?,
            interfaces: self.interfaces()?,
            hooks: self.hooks(),
            mode: match self.mode {
                Mode::Native => ModeChoice::Native,
                Mode::Generic => ModeChoice::Generic,
                Mode::Auto => ModeChoice::Auto,
            },
            socket,
            state_dir: self.state_dir.clone(),
            datapath: Options {
                pin_dir: self.pin_dir.clone(),
                max_sources: self.max_sources,
                source_table: self.source_table.named().unwrap_or_default(),
                max_rules: self.max_rules,
                max_keys: self.max_keys,
                kernel_log: self.kernel_log as u8,
                tc_order: self.tc_order,
                then: self.then.clone(),
            },
            source_table: self.source_table.named(),
            management: self.management.clone(),
            watch: self.watch(),
            events: self.events.options(),
            daemon_lost_after: self.daemon_lost_after,
            detach_on_exit: self.detach_on_exit,
            metrics_listen: self.metrics_listen,
            #[cfg(feature = "page")]
            page_listen: self.page_listen,
            cluster: self.cluster.clone(),
        })
    }
}
