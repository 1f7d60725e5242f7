//! `limiter top`: who sends and who is dropped, live, and what to do about it.
//!
//! [`state`] is what is known, [`keys`] changes it, [`draw`] shows it, [`link`] asks the daemon.

mod draw;
mod filter;
mod keys;
mod line;
mod link;
mod once;
mod orders;
mod past;
#[cfg(feature = "requests")]
mod refused;
mod state;
mod terminal;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEvent, KeyEventKind};
use limiter_api::client::Client;
use limiter_api::sources::By;
#[cfg(feature = "requests")]
use limiter_requests::Listen;
use limiter_rules::source_text;
use ratatui::Frame;

use super::answer::Answer;
use super::failure::Failure;
use super::output::Output;
use keys::Flow;
use state::State;
use terminal::Terminal;

/// The daemon answers in milliseconds. While it does not, the view says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Time between two looks for signals.
const TURN: Duration = Duration::from_millis(100);

/// Arguments of `top`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Keys:\n  \
    arrows, j, k  choose a row\n  \
    Enter         show one source; there b denies it for a time, d for good, a allows it,\n\
    \x20               l limits it, u undoes that\n  \
    1 to 5, Tab   sources, events, rules, interfaces, requests\n  \
    s, S          sort by another column\n  \
    /, f          filter by a prefix, by a rule\n  \
    p             pause\n  \
    ?             all keys\n  \
    q             quit\n\n\
    NO_COLOR turns colours off.")]
pub(super) struct Look {
    /// How often to look
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// By what the first ones stand out
    #[arg(long, value_enum, default_value_t = By::DropRate)]
    by: By,
    /// Only sources in this prefix
    #[arg(long, value_name = "PREFIX")]
    within: Option<String>,
    /// Show the keys of requests that a `limiter serve` refuses, as `limiter refused` lists them;
    /// it listens at this address [default: 127.0.0.1:8081]. Needs no daemon
    #[cfg(feature = "requests")]
    #[arg(
        long, value_name = "ADDRESS:PORT|unix:PATH", num_args = 0..=1,
        default_missing_value = "127.0.0.1:8081", conflicts_with_all = ["by", "within"],
    )]
    requests: Option<Listen>,
    /// Print one frame as text, and end: for scripts, and where there is no terminal
    #[arg(long)]
    once: bool,
}

impl Look {
    /// True if it is for a terminal, and not for a reader.
    pub(super) fn is_live(&self, output: Output) -> bool {
        !self.once && output == Output::Table
    }
}

/// From a quarter of a second, which the daemon can distinguish, to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if (Duration::from_millis(250)..=Duration::from_hours(1)).contains(&time) => {
            Ok(time)
        }
        Ok(_) => Err("give 250ms to 1h".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// What the terminal shows.
trait View {
    fn draw(&self, frame: &mut Frame<'_>);
    fn press(&mut self, key: KeyEvent) -> Flow;
    /// Asks for what it shows.
    fn refresh(&mut self);
    fn is_paused(&self) -> bool;
}

/// What a daemon says.
struct OfDaemon {
    state: State,
    client: Client,
    plain: bool,
}

impl View for OfDaemon {
    fn draw(&self, frame: &mut Frame<'_>) {
        draw::draw(frame, &self.state, self.plain);
    }

    fn press(&mut self, key: KeyEvent) -> Flow {
        keys::press(&mut self.state, key, &self.client)
    }

    fn refresh(&mut self) {
        self.state.refresh(&self.client);
    }

    fn is_paused(&self) -> bool {
        self.state.paused
    }
}

pub(super) fn top(socket: PathBuf, look: &Look, output: Output) -> Result<Answer, Failure> {
    #[cfg(feature = "requests")]
    if let Some(server) = &look.requests {
        return refused::top(server, look, output);
    }
    let within = look.within.as_deref().map(source_text::parse).transpose()?;
    let within = within.map(|selector| selector.to_string());
    if !look.is_live(output) {
        // All sources are read for it, so it may take longer.
        let client = Client::new(socket, 6 * PATIENCE);
        return once::once(&client, look.by, within.as_deref(), output);
    }
    let client = Client::new(socket, PATIENCE);
    live(look.interval, |plain| {
        let mut view = OfDaemon { state: State::new(look.by, within), client, plain };
        view.refresh();
        match view.state.lost.take() {
            Some(error) => Err(error.into()),
            None => Ok(view),
        }
    })
}

/// Shows the view that `open` returns; its argument is true without colours. If `open` fails, the
/// terminal stays as it is.
fn live<V: View>(
    every: Duration,
    open: impl FnOnce(bool) -> Result<V, Failure>,
) -> Result<Answer, Failure> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let mut view = open(std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()))?;
    let mut terminal = Terminal::open().map_err(Failure::Terminal)?;
    let ended = watch(&mut terminal, &mut view, every);
    match terminal.close().and(ended) {
        // Closing a terminal ends the programs in it.
        Err(error) if !terminal::is_gone() => Err(Failure::Terminal(error)),
        Ok(()) | Err(_) => Ok(Answer::default()),
    }
}

fn watch(terminal: &mut Terminal, view: &mut impl View, every: Duration) -> std::io::Result<()> {
    let mut due = Instant::now() + every.min(Duration::from_millis(300));
    let mut changed = true;
    let mut asked = false;
    while !terminal.is_asked_to_end() {
        if changed {
            terminal.draw(|frame| view.draw(frame))?;
            changed = false;
        }
        let wait = due.saturating_duration_since(Instant::now()).min(TURN);
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    match view.press(key) {
                        Flow::Quit => break,
                        Flow::Refresh => (due, asked) = (Instant::now(), true),
                        Flow::Go => {}
                    }
                    changed = true;
                }
                Event::Resize(..) => changed = true,
                _ => {}
            }
        }
        if Instant::now() >= due {
            // A key that needs an answer gets one in a pause, too.
            if !view.is_paused() || asked {
                view.refresh();
                changed = true;
            }
            asked = false;
            due = Instant::now() + every;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
