//! Following a page, and what was different.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context as _, Result, bail, ensure};

use super::alike;
use super::place::{Place, Staying};
use super::text::{Step, Where, steps};
use super::tried::Counted;
use crate::limiter;

/// Commands that run until somebody ends them, and what says that they have begun: a command that
/// succeeds then.
pub const STAY: [(&str, &str); 3] = [
    ("limiter run ", "limiter status && grep -q '^limiter: ready:' \"$SAID\""),
    ("limiter serve ", "curl -fsS http://127.0.0.1:8081/healthcheck"),
    ("limiter events --follow", "limiter events --output json | grep -q '\"followers\": *[1-9]'"),
];

/// Time within which a command that stays says what the page shows, or will not.
const SAYS_WITHIN: Duration = Duration::from_mins(1);

/// Time within which packets that were sent are counted.
const COUNTS_WITHIN: Duration = Duration::from_secs(5);

/// Commands of a page that are not typed, without the comments behind them, and why.
pub type NotTyped = [(&'static str, &'static str)];

/// A page that is followed.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Path of the page in the repository.
    pub path: &'static str,
    /// Addresses from which the other machine sends as well.
    pub peers: &'static [&'static str],
    /// Commands of the page that are not typed, and why.
    pub not_typed: &'static NotTyped,
}

/// A command that did not do what the page says.
#[derive(Debug)]
struct Fault {
    what: String,
    /// The lines of the page, from which on, and what they would have to be.
    mended: Option<(usize, usize, Vec<String>)>,
}

struct Following<'a> {
    page: &'a Page,
    place: Place,
    typed: usize,
    skipped: BTreeSet<&'a str>,
    faults: Vec<Fault>,
    /// The daemon, and whoever watches it, with what they are to say.
    stays: Vec<(Staying, Step)>,
}

/// Follows a page; how many commands were typed.
///
/// With `LIMITER_FOLLOW_UPDATE` set, writes what was printed into the page, where that shows no
/// `...`.
///
/// # Errors
///
/// Names each command that did not do what the page says, and each that is not typed for no reason.
pub fn follow(page: &Page) -> Result<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let file = root.join(page.path);
    let text = fs::read_to_string(&file).with_context(|| page.path.to_owned())?;
    let (typed, faults) = follow_text(page, &text, &root)?;
    if env::var_os("LIMITER_FOLLOW_UPDATE").is_some() {
        fs::write(&file, mended(&text, &faults))?;
    }
    if faults.is_empty() {
        return Ok(typed);
    }
    let faults: Vec<String> = faults.into_iter().map(|fault| fault.what).collect();
    bail!("{} is not what happens:\n\n{}", page.path, faults.join("\n\n"));
}

/// [`follow`] of a text in the place of the page's.
///
/// # Errors
///
/// As [`follow`].
pub fn follow_as(page: &Page, text: &str) -> Result<usize> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (typed, faults) = follow_text(page, text, &root)?;
    match faults.first() {
        None => Ok(typed),
        Some(fault) => bail!("{}", fault.what),
    }
}

fn follow_text(page: &Page, text: &str, root: &Path) -> Result<(usize, Vec<Fault>)> {
    let binary = limiter::binary()?;
    let place = Place::create("page", &binary)?;
    for address in page.peers {
        place.add_peer(address)?;
    }
    let (skipped, faults, stays) = (BTreeSet::new(), Vec::new(), Vec::new());
    let mut following = Following { page, place, typed: 0, skipped, faults, stays };
    let done = steps(text)?.into_iter().try_for_each(|step| following.step(step, root));
    // Commands that stay are ended in any case.
    let ended = following.end_stays(0);
    done.and(ended)?;
    for (command, _) in page.not_typed {
        if !following.skipped.contains(command) {
            let what = format!("`{command}` is left out, but the page does not have it");
            following.faults.push(Fault { what, mended: None });
        }
    }
    // Nothing is left attached to an interface that is about to go.
    following.place.run("limiter detach")?;
    Ok((following.typed, following.faults))
}

/// A command without the comment behind it, which may change without the command.
fn without_comment(command: &str) -> &str {
    command.split_once(" #").map_or(command, |(bare, _)| bare.trim_end())
}

impl Following<'_> {
    fn step(&mut self, step: Step, root: &Path) -> Result<()> {
        match &step {
            Step::File { path, text } => self.place.put(path, text.as_bytes()),
            Step::Copy { path, from } => {
                let content = fs::read(root.join(from)).with_context(|| from.clone())?;
                self.place.put(path, &content)
            }
            Step::Hidden { line, place: Where::Here, command } => {
                let (said, code) = self.place.run(command)?;
                if code != 0 {
                    let what = format!("line {line}: `{command}` ended with {code}:\n{said}");
                    self.faults.push(Fault { what, mended: None });
                }
                Ok(())
            }
            Step::Tried { line, counted } => self.tried(*line, counted),
            Step::Hidden { line, place: Where::Peer, command } => {
                let output = self.place.run_peer(command)?;
                if output.status.code() == Some(127) {
                    let said = String::from_utf8_lossy(&output.stderr).into_owned();
                    self.faults.push(Fault { what: format!("line {line}: {said}"), mended: None });
                }
                Ok(())
            }
            Step::Command { command, place, .. } => {
                let bare = without_comment(command);
                if let Some((left_out, _)) =
                    self.page.not_typed.iter().find(|(left_out, _)| *left_out == bare)
                {
                    self.skipped.insert(left_out);
                    return Ok(());
                }
                self.typed += 1;
                let (place, command) = (*place, command.clone());
                match place {
                    Where::Peer => {
                        let output = self.place.run_peer(&command)?;
                        let said = [output.stdout, output.stderr].concat();
                        self.compare(&step, &String::from_utf8_lossy(&said));
                    }
                    Where::Here => self.here(&command, step)?,
                }
                Ok(())
            }
        }
    }

    /// Waits until rules have counted what the page says: packets may be under way.
    fn tried(&mut self, line: usize, counted: &[Counted]) -> Result<()> {
        let deadline = Instant::now() + COUNTS_WITHIN;
        loop {
            let (list, code) = self.place.run("limiter list --output json")?;
            ensure!(code == 0, "line {line}: {list}");
            let mut differ = Vec::new();
            for counted in counted {
                differ.extend(counted.differs(&list)?);
            }
            if differ.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                let what = format!("line {line}: {}", differ.join("; "));
                self.faults.push(Fault { what, mended: None });
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn here(&mut self, command: &str, step: Step) -> Result<()> {
        if let Some(at) = STAY.iter().position(|(begins, _)| command.contains(begins)) {
            // Another daemon ends the one before and who watches it; a watcher ends watchers.
            self.end_stays(at.min(self.stays.len()))?;
            let staying = self.place.stay(command)?;
            self.wait_for(&staying, STAY[at].1, command)?;
            self.stays.push((staying, step));
            return Ok(());
        }
        let (said, code) = self.place.run(command)?;
        let Step::Command { line, output, .. } = &step else { return Ok(()) };
        let refused = output.iter().any(|line| line.starts_with("limiter: "));
        // A command that asks for the exit code gets it below.
        if (code != 0) != refused && !command.ends_with("; echo $?") {
            let what = format!("line {line}: `{command}` ended with {code}:\n{said}");
            self.faults.push(Fault { what, mended: None });
        }
        self.compare(&step, &said);
        Ok(())
    }

    fn wait_for(&mut self, staying: &Staying, begun: &str, command: &str) -> Result<()> {
        let deadline = Instant::now() + SAYS_WITHIN;
        loop {
            let begun = begun.replace("$SAID", &staying.path());
            let (_, code) = self.place.run(&begun)?;
            if code == 0 {
                return Ok(());
            }
            if !staying.runs() || Instant::now() > deadline {
                bail!("`{command}` did not begin: {}", staying.said()?);
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends what stays, but the first `kept`, once it has said what the page shows.
    fn end_stays(&mut self, kept: usize) -> Result<()> {
        let mut ended = Ok(());
        while self.stays.len() > kept {
            let Some((staying, step)) = self.stays.pop() else { break };
            let Step::Command { output, .. } = &step else { continue };
            let deadline = Instant::now() + SAYS_WITHIN;
            let mut said = staying.said()?;
            while alike::differs(output, &begin(&said, output)).is_some()
                && Instant::now() < deadline
            {
                thread::sleep(Duration::from_millis(50));
                said = staying.said()?;
            }
            let said = begin(&said, output).join("\n");
            self.compare(&step, &said);
            // Commands that are left are ended all the same.
            ended = ended.and(staying.end());
        }
        ended
    }

    fn compare(&mut self, step: &Step, said: &str) {
        let Step::Command { command, line, output, output_from, .. } = step else { return };
        let said: Vec<String> = said.lines().map(|line| line.trim_end().to_owned()).collect();
        let Some(at) = alike::differs(output, &said) else { return };
        let what = format!(
            "line {line}: `{command}`, from line {} of the page on:\n--- the page\n{}\n--- what \
             it printed\n{}",
            output_from + at,
            output.join("\n"),
            said.join("\n")
        );
        let shown = output.iter().all(|line| !line.contains("..."));
        let mended = shown.then_some((*output_from, output.len(), said));
        self.faults.push(Fault { what, mended });
    }
}

/// Output so far of a command that stays, as much as the page shows of it.
fn begin(said: &str, page: &[String]) -> Vec<String> {
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    let shown = (0..=lines.len()).find(|&n| alike::differs(page, &lines[..n]).is_none());
    lines[..shown.unwrap_or(lines.len())].to_vec()
}

/// The page with what was printed.
fn mended(text: &str, faults: &[Fault]) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (from, length, said) in faults.iter().rev().filter_map(|fault| fault.mended.as_ref()) {
        lines.splice(from - 1..from - 1 + length, said.iter().cloned());
    }
    lines.join("\n") + "\n"
}
