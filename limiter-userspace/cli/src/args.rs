//! The arguments.

pub(super) mod defaults;
pub(super) mod explain;
pub(super) mod lists;
pub(super) mod pinned;
mod run;
pub(super) mod set;

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use limiter_api::arguments::trial_time;
use limiter_api::bans::{SetBan, Unban};
use limiter_api::limits::UnsetLimit;
use limiter_api::rules::ReloadRules;
use limiter_api::sources::AskSources;

use self::defaults::SOCKET;
use self::explain::Explain;
use self::lists::{Listing, Whom};
use self::pinned::{Detach, On, Pinned, WITHOUT_DAEMON};
use self::run::Run;
use self::set::Set;
#[cfg(feature = "import")]
use super::crowdsec::Ask as AskCrowdsec;
use super::demo::Ask as AskDemo;
use super::doctor::Ask as AskDoctor;
use super::files::check::Check;
#[cfg(feature = "import")]
use super::files::import::Ask as AskImport;
use super::output::Output;
use super::packets::capture::Ask as AskCapture;
use super::packets::observe::Ask as AskObserve;
#[cfg(feature = "replay")]
use super::packets::simulate::Ask as AskSimulate;
#[cfg(feature = "replay")]
use super::packets::tune::Ask as AskTune;
use super::questions::events::Ask;
#[cfg(feature = "requests")]
use super::questions::refused::Ask as AskRefused;
#[cfg(feature = "requests")]
use super::serve::Serve;
use super::shell::completion_values;
use super::shell::help;
use super::shell::shells::Shell;
use super::top::Look;

/// Words below the help of `explain`.
#[cfg(feature = "replay")]
const EXPLAIN: &str = "With --from, the daemon is asked: by which rules, which buckets, how full \
    they are and when such a packet would pass. The decision is the program's own, over its maps \
    as they are. Nothing is charged.\nWhat rules ask for and is not given is assumed, and that is \
    said.\n\n\
    With --pcap, no daemon and no privilege is needed. The packets are judged in the time of the \
    capture, by the code of the program in the kernel, as if all of them came in by one interface \
    with empty buckets before the first. The lists and limits of a running daemon are not asked.\n\
    Capture what comes in only: tcpdump -Q in -i IFACE -w FILE. Where limits are in force, tcpdump \
    sees only what they let pass: XDP drops before it. Capture before they are, or on a mirror \
    port. A capture that was cut off is explained up to there, with exit code 2; Ctrl-C ends with \
    the sums of what was read.";
#[cfg(not(feature = "replay"))]
const EXPLAIN: &str = "The daemon is asked: by which rules, which buckets, how full they are and \
    when such a packet would pass. The decision is the program's own, over its maps as they are. \
    Nothing is charged.\nWhat rules ask for and is not given is assumed, and that is said.";

/// Words below the help of `simulate`.
#[cfg(feature = "replay")]
const SIMULATE: &str = "Every packet is judged in its own time by the code of the program in the \
    kernel, with empty buckets \
    before the first, as for `explain --pcap`. Each --rules is one candidate. Nothing is applied.\n\
    SOURCES HIT: of which any packet was dropped, and THEIR PACKETS the share of all packets \
    that these sent. \
    MOST IN: what passed of one source in any such time. STARVED: the longest time in which all \
    packets of a \
    bucket were dropped that was offered no more than its limit on average. WAIT: the longest \
    that a packet would wait, and the mean of \
    those that wait, if the limiter queued in place of dropping.\n\
    A load: {duration: 10s, senders: [{pattern: steady, rate: 50/s, sources: 20}]}; patterns are \
    steady, poisson, onoff (on_for, \
    off_for), ramp (rate_at_end), flood, stall (stall_from, stall_for); fields are from, to, \
    size, address, port, and seed \
    beside duration.";

/// Words below the help of `tune`.
#[cfg(feature = "replay")]
const TUNE: &str = "Without traffic the daemon is asked: of each rule in force, how near its \
    sources come to it, and whether it is too tight, fitting or loose, with the numbers that say \
    so.\nWith --pcap, --load or --for, for each source and each of 32 rates: the least burst with \
    which a token bucket drops nothing, exactly. The \
    rate is proposed with which a source can pass least in 10 s, of those that spare the share \
    that is asked for; its burst \
    is 20 % more than needed, rounded up. Nothing is applied: the rule only counts \
    (shadow_mode), and is to be tried out.\n\
    Every packet of a source counts, so capture what the rule is to be for: tcpdump -Q in -i \
    IFACE -w \
    FILE udp port 27015. Attackers in the traffic spoil the shares: leave them out with \
    --exclude.";

/// Exit codes, for the help.
pub(super) const EXIT_CODES: &str = "Exit codes: 0 done; 1 the daemon, the kernel or standard \
    output failed, or the daemon did not answer and a change may still happen, and for `diff` a \
    difference, for `doctor` a problem; 2 refused, and nothing changed: wrong usage, bad input, no \
    privilege, no daemon. Errors are a line on standard error, which names the remedy.";

/// Heading of the options that most commands have.
const GENERAL: &str = "General options";

/// Commands that take a general option and have no use for it, or next to none: scripts may give it
/// in any case, and the help of the command does not show it.
const UNUSED: [(&str, &[&str]); 2] = [
    ("socket", &["check", "completions", "demo", "import", "man", "refused", "schema", "simulate"]),
    ("output", &["capture", "completions", "crowdsec", "man", "run", "serve"]),
];

/// Limit what each source may send, before the network stack sees it.
#[derive(Debug, Parser)]
#[command(
    name = "limiter",
    version,
    max_term_width = 100,
    after_help = EXIT_CODES,
    disable_help_flag = true,
    override_help = help::text()
)]
pub struct Args {
    /// The daemon's control socket
    #[arg(
        long, global = true, value_name = "PATH", default_value = SOCKET, help_heading = GENERAL
    )]
    pub(super) socket: PathBuf,
    /// Form of the answer: table, json or yaml
    #[arg(
        long, global = true, value_name = "FORM", value_enum, default_value_t = Output::Table,
        hide_possible_values = true, help_heading = GENERAL,
    )]
    pub(super) output: Output,
    /// Print this help; -h is shorter
    #[arg(
        short, long, global = true, action = clap::ArgAction::Help, help_heading = GENERAL,
    )]
    help: Option<bool>,
    #[command(subcommand)]
    pub(super) command: Command,
}

impl Args {
    /// The definition, with examples below the help of each command.
    pub(super) fn definition() -> clap::Command {
        let mut definition = Self::command();
        for (option, commands) in UNUSED {
            let option = definition.get_arguments().find(|at| at.get_id() == option).cloned();
            let Some(option) = option.map(|option| option.hide(true)) else { continue };
            for name in commands {
                // A build may be without some commands.
                if definition.find_subcommand(name).is_some() {
                    definition =
                        definition.mut_subcommand(name, |command| command.arg(option.clone()));
                }
            }
        }
        for (command, argument, values) in completion_values::of_requests() {
            definition = definition
                .mut_subcommand(command, |command| command.mut_arg(argument, |it| it.add(values)));
        }
        help::EXAMPLES.iter().fold(definition, |definition, (name, lines)| {
            definition.mut_subcommand(name, |command| {
                let before = command.get_after_help().map(|text| format!("{text}\n\n"));
                let lines: Vec<_> = lines.iter().map(|line| format!("  limiter {line}")).collect();
                let before = before.unwrap_or_default();
                command.after_help(format!("{before}Examples:\n{}", lines.join("\n")))
            })
        })
    }

    /// The arguments of this process.
    pub(super) fn parsed() -> Result<Self, clap::Error> {
        Self::from_arg_matches(&Self::definition().try_get_matches()?)
    }

    /// True if somebody reads while the command waits, however long that takes. Such a command
    /// changes nothing, so that it may end with its reader.
    pub(super) fn waits_with_a_reader(&self) -> bool {
        match &self.command {
            Command::Events(ask) => ask.asked.follow,
            Command::Capture(ask) => ask.is_piped(),
            // A capture may be a pipe.
            #[cfg(feature = "replay")]
            Command::Explain(what) => what.pcap.is_some(),
            #[cfg(feature = "replay")]
            Command::Simulate(_) | Command::Tune(_) => true,
            // A live view sees to its terminal itself.
            Command::Top(look) => !look.is_live(self.output),
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the daemon in the foreground: load, attach, apply the rules, serve the socket
    #[command(after_help = "Signals: SIGHUP reloads the rule files; SIGTERM and SIGINT end the \
        daemon, and the limits stay in force unless --detach-on-exit is given.\n\
        LIMITER_LOG sets the log's level and filter, as in LIMITER_LOG=debug.")]
    Run(Box<Run>),
    /// Answer proxies that ask whether a request is within its limits: HTTP and gRPC, beside the
    /// daemon or without one. Needs no privilege
    #[cfg(feature = "requests")]
    #[command(
        after_help = "Over gRPC, Envoy's rate limit service (v3), health and reflection, at \
        the same addresses. Over HTTP, POST /json takes the JSON of envoyproxy/ratelimit; /check \
        is for proxies that ask by a request of their own; /reserve says when a request may go; \
        /metrics is for Prometheus, /healthcheck for supervisors.\n\
        Signals: SIGHUP reads the rule files again, and refuses bad ones; SIGTERM and SIGINT answer \
        what is under way and end.\n\
        `action: {ban: {}}` of a rule asks the daemon at --socket, which takes that from root and \
        from its own user. Without one, requests are answered all the same.\n\
        LIMITER_LOG sets the log's level and filter, as in LIMITER_LOG=debug."
    )]
    Serve(Serve),
    /// List the keys of requests that `limiter serve` refuses most, or what it refused of one.
    /// Needs no daemon and no privilege
    #[cfg(feature = "requests")]
    #[command(
        after_help = "A key is a descriptor at its rule. Values are shown where the rule has \
        detailed_metric or value_to_metric; ID is a hash of them, by which to know the key again \
        until `limiter serve` ends: ask for a descriptor to see whose it is.\n\
        REFUSED/S is of about the last ten seconds. REFUSED is exact since SINCE, and marked `≥` if \
        the key may have been refused before that (`missed_at_most` in JSON). Up to 1,024 keys are \
        followed; the last line has the sum of the others."
    )]
    Refused(AskRefused),
    /// Show the daemon, its interfaces and its last reload
    Status,
    /// Limit an address, prefix or port; replaces its rule from the rule file
    #[command(
        alias = "add",
        after_help = "RATE: 100/s, 10k/s, 600/min, 100/5min, 10/hour, 5/day, 3/week; in bytes \
                      64kbit/s, 10mbit/s, 1gbit/s, 500kB/s, 1MB/s, 1MiB/s; or unlimited.\nEvery \
                      source inside a prefix has a bucket of its own, unless --shared is given. \
                      An IPv6 source is a /64."
    )]
    Set(Box<Set>),
    /// Remove a limit that `set` made
    #[command(alias = "remove")]
    Unset(UnsetLimit),
    /// List the rules in force. Works without a daemon
    #[command(after_help = WITHOUT_DAEMON)]
    List(Pinned),
    /// Show all counters: by verdict, reason and rule. Works without a daemon
    #[command(after_help = WITHOUT_DAEMON)]
    Stats {
        /// With reasons and rules that have counted no packet
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        pinned: Pinned,
    },
    /// Show one source: its limit, and what is left of it now. Works without a daemon
    #[command(after_help = WITHOUT_DAEMON)]
    Show {
        /// The source: an address, or an IPv6 /64
        #[arg(add = completion_values::sources())]
        address: String,
        #[command(flatten)]
        pinned: Pinned,
    },
    /// List the sources that stand out, of all that are tracked
    #[command(after_help = "All tracked sources are read once. For `rate` and `drop-rate` those \
        with the largest counters, and those that used up most of their burst, are read again a \
        quarter of a second later: 1024 of each.")]
    Sources(AskSources),
    /// Watch who sends and who is dropped, and act on it: a live view of the whole terminal
    #[command(alias = "watch")]
    Top(Look),
    /// Let addresses or prefixes pass, before any rule
    Allow(Listing),
    /// Drop everything from addresses or prefixes, before any rule
    #[command(alias = "block")]
    Deny(Listing),
    /// Take addresses or prefixes off their lists
    #[command(
        alias = "unblock",
        after_help = "One that is on no list is an error; of several, those are passed over and \
        counted."
    )]
    Unlist(Whom),
    /// List who is allowed and who is denied
    Lists,
    /// Deny whom CrowdSec bans, as a bouncer of its local API. Needs no privilege but to change the
    /// lists
    #[cfg(feature = "import")]
    #[command(
        after_help = "Runs until a signal ends it. Decisions of the type `ban` on addresses and \
        ranges become entries of the deny list by `crowdsec`: each ends with its decision, and its \
        reason is the scenario. Other types are counted and passed over. What may not be on the \
        list is reported and left out, as for every list.\n\
        While the local API or the daemon does not answer, or answers something else, entries \
        stay until their own ends. Then, and at each start, all decisions are read, and replace \
        the entries. An answer without any ban replaces nothing: it takes off those that it names \
        as deleted.\n\
        LIMITER_LOG sets the log's level and filter, as in LIMITER_LOG=debug."
    )]
    Crowdsec(AskCrowdsec),
    /// List who is banned, for how long and by which rule
    Bans,
    /// Ban an address for a time: drop all that comes from it
    #[command(after_help = "As a ban by a rule: it comes after the lists, is not kept over a \
        reboot, and makes the next ban by a rule longer. `limiter unban` ends it. To drop a \
        prefix, or for ever, use `limiter deny`.")]
    Ban(SetBan),
    /// Forget the bans and strikes of an address, or of all in a prefix
    Unban(Unban),
    /// Show which sources were dropped by which rule and why: episodes of drops, from a sample
    #[command(alias = "log")]
    Events(Ask),
    /// Write packets with their verdict, reason and rule, as pcapng for Wireshark
    Capture(Box<AskCapture>),
    /// Record every packet of a share of the sources for a time, to find limits for them
    Observe(AskObserve),
    /// Read the rule files again; ends what `apply` put in their place
    Reload(ReloadRules),
    /// Compare rule files with the rules in force
    #[command(after_help = "Exit code: 0 if they are the same, 1 if not, 2 if they could not be \
                            compared.\nThe files are one rule set, and are compared with the \
                            daemon's rule files, or with what `apply` put in their place. Limits \
                            that `set` made stay whatever the files say; they are reported at the \
                            end. The order of rules is not compared.")]
    Diff {
        /// Rule files, and directories of them; `-` is standard input
        #[arg(value_name = "FILE|DIR", required = true)]
        files: Vec<PathBuf>,
    },
    /// Put rule files in force, in the place of the daemon's own
    #[command(after_help = "The files are one rule set. It is put in force whole or not at all, \
                            and outlives a restart of the daemon. `limiter reload`, or a change \
                            of the daemon's own rule files, ends it. Limits that `set` made \
                            stay.\nRefused, unless forced, are rules that would limit the SSH \
                            session in which this is typed, and rules for sources inside a \
                            management prefix.")]
    Apply {
        /// Rule files, and directories of them; `-` is standard input
        #[arg(value_name = "FILE|DIR", required = true)]
        files: Vec<PathBuf>,
        /// Apply rules that would limit this SSH session; rules inside management prefixes are left
        /// out
        #[arg(long)]
        force: bool,
        /// Try them out: unless you run `limiter confirm` within this time, as in 60s or 5m, the
        /// previous rules return, with or without the daemon
        #[arg(long, value_name = "TIME", value_parser = trial_time)]
        confirm: Option<NonZeroU32>,
    },
    /// Keep the rules on trial, which `apply --confirm` put in force
    Confirm,
    /// Take back the rules on trial before their time is over
    Revert,
    /// Print the rules in force as a rule file: those of the files, with the limits that `set` made
    Export {
        /// Only the limits that `set` made
        #[arg(long)]
        edits: bool,
        /// Write them there, as a whole or not at all, and print nothing of them
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Check rule files and say what they mean. Needs no daemon and no privilege
    #[command(after_help = "Exit code: 0 if a daemon would take the files as one rule set, 2 if \
        not. All mistakes are reported.\n\
        Interfaces and CPUs that rules name are not looked for on this machine.")]
    Check(Check),
    /// See limits at work on a virtual cable. As root; needs no network card, and leaves nothing
    Demo(AskDemo),
    /// Look at this machine: what keeps limits from holding here, and what to do. Needs no daemon
    Doctor(AskDoctor),
    /// Translate rules of nft, iptables, ufw and tc into a rule file, and lists of ipset and
    /// fail2ban into a list. Needs no daemon and no privilege
    #[command(after_help = "Nothing is applied. Each rule is translated, and every difference \
                            stands beside it, or stands in the output as a comment with the \
                            reason.\nnft: nft -j list ruleset; iptables, ip6tables: \
                            iptables-save; ufw: /etc/ufw/user.rules; tc: tc filter show dev \
                            IFACE ingress; ipset: ipset save; fail2ban: fail2ban-client \
                            banned.\nA list is for `limiter deny --file`.\nExit code: 0 if \
                            everything was translated or left to the firewall, 2 if something \
                            was not.")]
    #[cfg(feature = "import")]
    Import(AskImport),
    /// Print the JSON schema of rule files, for editors. Needs no daemon and no privilege
    Schema {
        #[cfg(feature = "replay")]
        /// The schema of load files, as `simulate` and `tune` read them
        #[cfg_attr(feature = "requests", arg(long, conflicts_with = "requests"))]
        #[cfg_attr(not(feature = "requests"), arg(long))]
        load: bool,
        /// The schema of rule files for requests, as `serve` reads them
        #[cfg(feature = "requests")]
        #[arg(long)]
        requests: bool,
    },
    /// Print the completions of a shell. Needs no daemon and no privilege
    #[command(after_help = "bash: limiter completions bash > \
        /usr/share/bash-completion/completions/limiter\n\
        zsh: limiter completions zsh > /usr/share/zsh/vendor-completions/_limiter\n\
        fish: limiter completions fish > /usr/share/fish/vendor_completions.d/limiter.fish\n\
        elvish: limiter completions elvish > ~/.config/elvish/lib/limiter.elv, and `use limiter`")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page. Needs no daemon and no privilege
    Man {
        /// Write the pages of all commands there instead: limiter.1, limiter-run.1, ...; the
        /// directory is made
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    #[cfg_attr(
        feature = "replay",
        doc = "Say what would happen to a packet now, and why; or what rules would do with a capture"
    )]
    #[cfg_attr(not(feature = "replay"), doc = "Say what would happen to a packet now, and why")]
    #[command(after_help = EXPLAIN)]
    Explain(Box<Explain>),
    /// Put captures, access logs, or a load from a file, before several rule files or all
    /// algorithms, side by side. Needs no daemon and no privilege
    #[command(after_help = SIMULATE)]
    #[cfg(feature = "replay")]
    Simulate(AskSimulate),
    /// Say how near sources come to the limits in force, and whether these fit; or find the limit
    /// that spares the sources of a capture or an access log, and say who would be hit
    #[command(after_help = TUNE)]
    #[cfg(feature = "replay")]
    Tune(AskTune),
    /// Show the nodes that share limits with this one, and the leases of those limits
    Cluster {
        /// Subject to show
        #[arg(value_enum, default_value_t = ClusterView::Status)]
        view: ClusterView,
    },
    /// Turn on the bypass: limiter lets every packet pass until `on`. Works without a daemon
    Off(Pinned),
    /// Turn off the bypass. Works without a daemon
    On(On),
    /// Remove the program, its maps and all limits; or free one interface. Works without a daemon
    Detach(Detach),
}

/// Subject that `cluster` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ClusterView {
    /// Contact to the others, nodes, and leases
    Status,
}
