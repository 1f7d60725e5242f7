//! The work of each command.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use limiter_api::bans::{BannedSource, Bans, SetBan, Unbanned};
use limiter_api::bypass::Bypass;
use limiter_api::client::Client;
use limiter_api::cluster::Cluster;
use limiter_api::events::Events;
use limiter_api::explain::ExplainedNow;
use limiter_api::limits::Limits;
use limiter_api::lists::{ListName, Lists};
use limiter_api::render::{self, Render};
use limiter_api::rules::{Changed, ConfirmRules, Document, ReloadRules, Session};
use limiter_api::sources::source::SourceView;
use limiter_api::stats::{AllStats, Stats};
use limiter_api::status::Status;
use limiter_daemon::rule_files::RuleSource;
use limiter_daemon::{self, RunOptions, StartError, from_maps, ssh};
use limiter_datapath::{Backend, machine};
#[cfg(feature = "replay")]
use limiter_replay::load::load_schema;
use limiter_rules::Dialect;
use limiter_rules::file::schema;
use limiter_rules::source_text;
use limiter_text::stderr::Log;
use serde::Serialize;
use tracing_subscriber::EnvFilter;

use super::answer::Answer;
use super::args::explain::Explain;
use super::args::pinned::{Detach, On, Pinned};
use super::args::{Args, ClusterView, Command};
use super::changes::{limits, lists, pinned, rule_sets};
use super::failure::Failure;
use super::files::{check, export};
use super::output::{Output, columns};
use super::packets::{capture, observe};
#[cfg(feature = "replay")]
use super::packets::{explain, simulate, tune};
use super::questions::without_daemon::Asked;
use super::questions::{events, sources};
use super::shell::shells;
use super::{demo, doctor, top};

/// The longest that any command waits for the daemon: a reload of the largest rule file is well
/// under it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Does what the arguments say; mistakes in the arguments are errors.
pub(super) fn execute(args: &Args, backend: &dyn Backend) -> Result<Answer, Failure> {
    let client = Client::new(args.socket.clone(), PATIENCE);
    let print = Printer(args.output);
    match &args.command {
        Command::Run(run) => run_daemon(&run.options(args.socket.clone())?, backend),
        #[cfg(feature = "requests")]
        Command::Serve(what) => serve(what, &client),
        #[cfg(feature = "requests")]
        Command::Refused(ask) => {
            let print = Printer(if ask.json { Output::Json } else { args.output });
            print.answer(&super::questions::refused::ask(ask)?)
        }
        Command::Status => print.answer(&named(client.get::<Status>("/v1/status")?)),
        Command::Set(set) => print.answer(&limits::set(&client, set)?),
        Command::Unset(unset) => print.answer(&limits::unset(&client, unset)?),
        Command::List(Pinned { pin_dir }) => {
            let way = Asked { client: &client, pin_dir: pin_dir.as_deref(), backend };
            print.noted(&way.ask::<Limits>("/v1/limits", from_maps::limits)?)
        }
        Command::Stats { all, pinned: Pinned { pin_dir } } => {
            let way = Asked { client: &client, pin_dir: pin_dir.as_deref(), backend };
            let (stats, notes) = way.ask::<Stats>("/v1/stats", from_maps::stats)?;
            if *all { print.noted(&(AllStats(stats), notes)) } else { print.noted(&(stats, notes)) }
        }
        Command::Show { address, pinned: Pinned { pin_dir } } => {
            let address = source_text::parse_one(address)?;
            let way = Asked { client: &client, pin_dir: pin_dir.as_deref(), backend };
            let path = format!("/v1/sources/{address}");
            print.noted(&way.ask::<SourceView>(&path, |maps| from_maps::source(maps, address))?)
        }
        Command::Sources(ask) => print.answer(&sources::ask(&client, ask)?),
        Command::Top(look) => top::top(args.socket.clone(), look, args.output),
        Command::Allow(listing) => print.noted(&lists::set(&client, ListName::Allow, listing)?),
        Command::Deny(listing) => print.noted(&lists::set(&client, ListName::Deny, listing)?),
        Command::Unlist(whom) => print.answer(&lists::unset(&client, whom)?),
        #[cfg(feature = "import")]
        Command::Crowdsec(ask) => {
            start_log()?;
            match super::crowdsec::run(ask, &client)? {}
        }
        Command::Lists => print.answer(&client.get::<Lists>("/v1/lists")?),
        Command::Bans => print.answer(&client.get::<Bans>("/v1/bans")?),
        Command::Ban(ban) => {
            let ban = SetBan { session: ssh::own_session(), ..ban.clone() };
            print.answer(&client.put::<BannedSource>("/v1/bans", &ban)?)
        }
        Command::Unban(unban) => {
            source_text::parse(&unban.source)?;
            print.answer(&client.delete::<Unbanned>("/v1/bans", unban)?)
        }
        Command::Events(ask) => report_events(&client, ask, args.output),
        Command::Capture(ask) => capture::capture(&client, ask),
        Command::Observe(ask) => print.answer(&observe::observe(&client, ask)?),
        Command::Reload(asked) => {
            let (peer, port) = Session::words(ssh::own_session());
            let asked = ReloadRules { peer, port, ..*asked };
            print.answer(&client.post::<Changed>("/v1/reload", &asked)?)
        }
        Command::Schema { .. } => schema_in(&schema_of(&args.command), args.output),
        Command::Completions { shell } => Ok(shells::completions(*shell)),
        Command::Man { dir } => shells::man(Args::definition(), dir.as_deref()),
        Command::Demo(ask) => Err(demo::demo(ask, args.output)),
        Command::Doctor(ask) => doctor::doctor(ask, &client, args.output),
        #[cfg(feature = "import")]
        Command::Import(ask) => super::files::import::import(ask, args.output),
        Command::Check(what) => check::check(what, &client, args.output),
        Command::Diff { files } => rule_sets::diff(&client, files, args.output)
            // Exit code 1 stands for a difference.
            .map_err(|failure| Failure::Diff(Box::new(failure))),
        Command::Apply { files, force, confirm } => {
            let changed = rule_sets::apply(&client, files, *force, *confirm)?;
            let mut answer = print.answer(&changed)?;
            if let (Some(seconds), Output::Table) = (confirm, args.output) {
                let note = format!(
                    "On trial: unless you run `limiter confirm` within {}, the previous rules \
                     return.\n",
                    render::seconds(u64::from(seconds.get()))
                );
                answer.text.push_str(&note);
            }
            Ok(answer)
        }
        Command::Confirm => {
            let (peer, port) = Session::words(ssh::own_session());
            let asked = ConfirmRules { peer, port };
            print.answer(&client.post::<Changed>("/v1/rules/confirm", &asked)?)
        }
        Command::Revert => print.answer(&client.post::<Changed>("/v1/rules/revert", &())?),
        Command::Export { edits, to } => exported(&client, *edits, to.as_deref(), print),
        Command::Explain(what) => explain(&client, what, args.output),
        #[cfg(feature = "replay")]
        Command::Tune(ask) => tune::tune(&client, backend, ask, args.output),
        #[cfg(feature = "replay")]
        Command::Simulate(ask) => simulate::simulate(ask, args.output),
        Command::Cluster { view: ClusterView::Status } => {
            print.answer(&client.get::<Cluster>("/v1/cluster")?)
        }
        Command::Off(pinned) => bypass(&client, pinned, backend, None, print),
        Command::On(On { pinned, force }) => bypass(&client, pinned, backend, Some(*force), print),
        Command::Detach(what) => detach(&client, what, backend, print),
    }
}

/// Takes the programs off an interface, or off all.
fn detach(
    client: &Client,
    Detach { pinned: Pinned { pin_dir }, iface }: &Detach,
    backend: &dyn Backend,
    print: Printer,
) -> Result<Answer, Failure> {
    let pin_dir = pin_dir.as_deref();
    let (detached, notes) = match iface {
        Some(iface) => pinned::free(client, pin_dir, backend, iface)?,
        None => pinned::detach(client, pin_dir, backend)?,
    };
    Ok(Answer { errors: notes, ..print.answer(&detached)? })
}

/// The state with the names of others' programs, as far as this process may ask the kernel:
/// a daemon with two capabilities may not.
fn named(mut status: Status) -> Status {
    let others = status.interfaces.iter_mut().flat_map(|at| &mut at.others);
    for other in others.filter(|other| other.name.is_none()) {
        other.name = machine::program_name(other.program_id);
    }
    status
}

/// Runs the daemon, with its log. An error about the machine names the command that says more.
fn run_daemon(options: &RunOptions, backend: &dyn Backend) -> Result<Answer, Failure> {
    start_log()?;
    if let RuleSource::Given(Document { text, .. }) = &options.rules {
        // Nobody has to read it.
        let _unread = std::io::stdout().lock().write_all(text.as_bytes());
    }
    limiter_daemon::run(options, backend).map_err(|error| {
        let is_of_machine = matches!(error, StartError::Datapath(_));
        let RunOptions { socket, interfaces, datapath, .. } = options;
        let more =
            is_of_machine.then(|| doctor::command::command(socket, interfaces, &datapath.pin_dir));
        Failure::Start { error: Box::new(error), more }
    })?;
    Ok(Answer::default())
}

/// Answers requests, with a log.
#[cfg(feature = "requests")]
fn serve(what: &super::serve::Serve, daemon: &Client) -> Result<Answer, Failure> {
    start_log()?;
    super::serve::serve(what, daemon)
}

fn schema_of(command: &Command) -> serde_json::Value {
    match command {
        #[cfg(feature = "replay")]
        Command::Schema { load: true, .. } => load_schema(),
        #[cfg(feature = "requests")]
        Command::Schema { requests: true, .. } => schema(Dialect::Requests),
        _ => schema(Dialect::Packets),
    }
}

fn schema_in(schema: &serde_json::Value, output: Output) -> Result<Answer, Failure> {
    match output {
        Output::Yaml => Ok(output.document(schema)?.unwrap_or_default().into()),
        Output::Table | Output::Json => Ok((serde_json::to_string_pretty(schema)? + "\n").into()),
    }
}

fn exported(
    client: &Client,
    edits: bool,
    to: Option<&Path>,
    print: Printer,
) -> Result<Answer, Failure> {
    let (answer, warning) = match to {
        None => {
            let exported = export::ask(client, edits)?;
            (print.answer(&exported)?, export::left_out(&exported))
        }
        Some(file) => {
            let (written, warning) = export::to_file(client, edits, file)?;
            (print.answer(&written)?, warning)
        }
    };
    Ok(Answer { errors: warning.into_iter().collect(), ..answer })
}

fn explain(client: &Client, what: &Explain, output: Output) -> Result<Answer, Failure> {
    if let Some(asked) = what.asked() {
        let print = Printer(if what.json { Output::Json } else { output });
        return print.answer(&client.ask::<ExplainedNow>("/v1/explain", &asked)?);
    }
    #[cfg(feature = "replay")]
    explain::explain(what, output, &mut std::io::stdout().lock())?;
    Ok(Answer::default())
}

fn report_events(client: &Client, ask: &events::Ask, output: Output) -> Result<Answer, Failure> {
    let output = if ask.json { Output::Json } else { output };
    if ask.asked.follow {
        events::follow(client, ask, output, &mut std::io::stdout())?;
        return Ok(Answer::default());
    }
    Printer(output).answer(&client.ask::<Events>(events::PATH, &ask.asked)?)
}

/// `limiter off`, or `on` and whether that is forced.
fn bypass(
    client: &Client,
    Pinned { pin_dir }: &Pinned,
    backend: &dyn Backend,
    on: Option<bool>,
    print: Printer,
) -> Result<Answer, Failure> {
    let wanted = match on {
        None => Bypass { engaged: true, ..Bypass::default() },
        Some(force) => Bypass { engaged: false, force, session: ssh::own_session() },
    };
    let (bypass, notes) = pinned::bypass(client, pin_dir.as_deref(), backend, wanted)?;
    Ok(Answer { errors: notes, ..print.answer(&bypass)? })
}

#[derive(Clone, Copy)]
struct Printer(Output);

impl Printer {
    fn answer<T: Serialize + Render>(self, answer: &T) -> Result<Answer, Failure> {
        let text = self.0.document(answer)?;
        let text = text.unwrap_or_else(|| render::text_within(answer, columns()));
        Ok(text.into())
    }

    /// An answer with lines for standard error.
    fn noted<T: Serialize + Render>(
        self,
        (answer, notes): &(T, Vec<String>),
    ) -> Result<Answer, Failure> {
        Ok(Answer { errors: notes.clone(), ..self.answer(answer)? })
    }
}

/// The log of a process that stays, on stderr.
fn start_log() -> Result<(), Failure> {
    let filter = match std::env::var("LIMITER_LOG") {
        Ok(filter) => {
            filter.parse().map_err(|error| Failure::Filter(format!("{filter:?}: {error}")))?
        }
        Err(std::env::VarError::NotPresent) => EnvFilter::new("info"),
        Err(error) => return Err(Failure::Filter(error.to_string())),
    };
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    // A second start in one process keeps the first log.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Log { to: std::io::stderr(), coloured: terminal })
        .with_ansi(terminal)
        .with_target(false)
        // The subscriber would report a full disk on standard error, which cannot be written to
        // then, and panic.
        .log_internal_errors(false)
        .try_init()
        .unwrap_or_else(|already| tracing::debug!("{already}"));
    Ok(())
}
