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
mod state;
mod terminal;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyEventKind};
use limiter_api::client::Client;
use limiter_api::sources::By;
use limiter_rules::source_text;

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
    `limiter refused` lists the keys of requests that `limiter serve` refuses.\n\
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

pub(super) fn top(socket: PathBuf, look: &Look, output: Output) -> Result<Answer, Failure> {
    let within = look.within.as_deref().map(source_text::parse).transpose()?;
    let within = within.map(|selector| selector.to_string());
    if !look.is_live(output) {
        // All sources are read for it, so it may take longer.
        let client = Client::new(socket, 6 * PATIENCE);
        return once::once(&client, look.by, within.as_deref(), output);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::NoTerminal);
    }
    let client = Client::new(socket, PATIENCE);
    let mut state = State::new(look.by, within);
    // Without a daemon the terminal stays as it is.
    state.refresh(&client);
    if let Some(error) = state.lost.take() {
        return Err(error.into());
    }
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let mut terminal = Terminal::open().map_err(Failure::Terminal)?;
    let ended = watch(&mut terminal, &mut state, &client, look.interval, plain);
    match terminal.close().and(ended) {
        // Closing a terminal ends the programs in it.
        Err(error) if !terminal::is_gone() => Err(Failure::Terminal(error)),
        Ok(()) | Err(_) => Ok(Answer::default()),
    }
}

fn watch(
    terminal: &mut Terminal,
    state: &mut State,
    client: &Client,
    every: Duration,
    plain: bool,
) -> std::io::Result<()> {
    let mut due = Instant::now() + every.min(Duration::from_millis(300));
    let mut changed = true;
    let mut asked = false;
    while !terminal.is_asked_to_end() {
        if changed {
            terminal.draw(|frame| draw::draw(frame, state, plain))?;
            changed = false;
        }
        let wait = due.saturating_duration_since(Instant::now()).min(TURN);
        if event::poll(wait)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    match keys::press(state, key, client) {
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
            if !state.paused || asked {
                state.refresh(client);
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
