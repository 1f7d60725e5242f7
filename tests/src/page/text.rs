//! The steps that a page asks for.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use super::tried::{Counted, TRIED};

/// How a directive begins that runs a command on the other machine.
const PEER: &str = "<!-- peer: ";
/// How a directive begins that gives a file of the repository another name.
const FILE: &str = "<!-- file: ";
/// How a directive begins that runs a command on the machine that is limited.
const HERE: &str = "<!-- here: ";
const END: &str = " -->";

/// Machine that a command is typed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Where {
    /// Machine that is limited.
    Here,
    /// Machine at the other end of the cable.
    Peer,
}

/// A step of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A command, and what it prints.
    Command {
        /// Line of the command in the page, from 1.
        line: usize,
        /// Place where the command is typed.
        place: Where,
        /// Text that is typed.
        command: String,
        /// First line of the output in the page, from 1.
        output_from: usize,
        /// Lines of the output.
        output: Vec<String>,
    },
    /// A file that the page shows.
    File {
        /// Path of the file.
        path: String,
        /// Content of the file.
        text: String,
    },
    /// A file of the repository.
    Copy {
        /// Path of the copy.
        path: String,
        /// Path of the file in the repository.
        from: String,
    },
    /// Command that the page does not show: traffic, if it is run on the other machine.
    Hidden {
        /// Line of the command in the page, from 1.
        line: usize,
        /// Machine that the command is run on.
        place: Where,
        /// Command that is run.
        command: String,
    },
    /// Statement of what rules have counted.
    Tried {
        /// Line of the statement in the page, from 1.
        line: usize,
        /// Rules, each with its counts.
        counted: Vec<Counted>,
    },
}

/// The command in a line of a console block, of which `first` is the first line.
fn prompt<'a>(line: &'a str, first: &str) -> Option<(Where, &'a str)> {
    if let Some(command) = line.strip_prefix("peer$ ") {
        return Some((Where::Peer, command));
    }
    let root = if first.starts_with("$ ") { None } else { line.strip_prefix("# ") };
    root.or_else(|| line.strip_prefix("$ ")).map(|command| (Where::Here, command))
}

fn console(from: usize, lines: &[&str], steps: &mut Vec<Step>) -> Result<()> {
    let first = lines.first().copied().unwrap_or_default();
    let mut index = 0;
    while index < lines.len() {
        let Some((place, command)) = prompt(lines[index], first) else {
            bail!("line {}: a console block begins with no command: {first:?}", from + index);
        };
        let line = from + index;
        let mut command = command.to_owned();
        index += 1;
        while command.ends_with('\\') {
            ensure!(index < lines.len(), "line {line}: a `\\` with nothing below");
            command.push('\n');
            command.push_str(lines[index]);
            index += 1;
        }
        let output_from = from + index;
        let mut output = Vec::new();
        while index < lines.len() && prompt(lines[index], first).is_none() {
            output.push(lines[index].to_owned());
            index += 1;
        }
        steps.push(Step::Command { line, place, command, output_from, output });
    }
    Ok(())
}

fn hidden(line: usize, place: Where, command: &str) -> Result<Step> {
    let Some(command) = command.strip_suffix(END) else { bail!("line {line}: no `{END}`") };
    Ok(Step::Hidden { line, place, command: command.to_owned() })
}

/// The steps of a page.
///
/// # Errors
///
/// When a block has no end, a console block begins with output, or a directive is not understood.
pub fn steps(page: &str) -> Result<Vec<Step>> {
    let lines: Vec<&str> = page.lines().collect();
    let mut steps = Vec::new();
    let mut index = 0;
    while index < lines.len() {
        let (line, text) = (index + 1, lines[index].trim_start());
        index += 1;
        if let Some(command) = text.strip_prefix(PEER) {
            steps.push(hidden(line, Where::Peer, command)?);
        } else if let Some(command) = text.strip_prefix(HERE) {
            steps.push(hidden(line, Where::Here, command)?);
        } else if let Some(said) = text.strip_prefix(TRIED) {
            let counted = Counted::all(said).with_context(|| format!("line {line}"))?;
            steps.push(Step::Tried { line, counted });
        } else if let Some(names) = text.strip_prefix(FILE) {
            let names = names.strip_suffix(END).and_then(|names| names.split_once(" = "));
            let Some((path, from)) = names else { bail!("line {line}: not `PATH = FILE`") };
            steps.push(Step::Copy { path: path.to_owned(), from: from.to_owned() });
        } else if let Some(language) = text.strip_prefix("```") {
            // A block inside of a list would be indented, and its lines with it.
            let indented = lines[index - 1].len() != text.len();
            let from = index;
            while index < lines.len() && lines[index].trim() != "```" {
                index += 1;
            }
            ensure!(index < lines.len(), "line {line}: a block without an end");
            let block = &lines[from..index];
            index += 1;
            match language {
                "console" => {
                    ensure!(!indented, "line {line}: a console block inside of a list");
                    console(from + 1, block, &mut steps)?;
                }
                "yaml" => steps.extend(file(block)),
                // Whatever could be typed must not be left out because of how its block is called.
                _ => {
                    let shell = matches!(language, "sh" | "bash" | "shell");
                    let first = block.first().copied().unwrap_or_default();
                    let commands = shell || (language.is_empty() && prompt(first, first).is_some());
                    ensure!(!commands, "line {line}: commands stand in blocks called `console`");
                }
            }
        }
    }
    Ok(steps)
}

/// The file that a `yaml` block is, if its first line names it.
fn file(block: &[&str]) -> Option<Step> {
    let path = block.first()?.strip_prefix("# ")?;
    let is_path =
        !path.contains(' ') && Path::new(path).extension().is_some_and(|end| end == "yaml");
    let text = block.iter().flat_map(|line| [line, "\n"]).collect();
    is_path.then(|| Step::File { path: path.to_owned(), text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: usize, place: Where, command: &str, output: &[&str]) -> Step {
        let output: Vec<String> = output.iter().map(|&line| line.to_owned()).collect();
        let output_from = line + 1 + command.matches('\n').count();
        Step::Command { line, place, command: command.to_owned(), output_from, output }
    }

    #[test]
    fn commands_have_the_lines_below_them() {
        let page = "Text.\n\n```console\n# one\nout\n\n$ two \\\n  more\npeer$ three\nx\n```\n";
        let wanted = [
            command(4, Where::Here, "one", &["out", ""]),
            command(7, Where::Here, "two \\\n  more", &[]),
            command(9, Where::Peer, "three", &["x"]),
        ];
        assert_eq!(steps(page).expect("a page"), wanted);
        let page = "```console\n$ one\n# HELP\n```\n";
        let wanted = [command(2, Where::Here, "one", &["# HELP"])];
        assert_eq!(steps(page).expect("a page"), wanted);
    }

    #[test]
    fn files_and_traffic_are_steps() {
        let page = "```yaml\n# a/b.yaml\nx: 1\n```\n```yaml\n# No file.\n```\n<!-- peer: ping -c \
            1 x -->\n\
                    <!-- file: a.pcap = tests/b.pcap -->\n";
        let wanted = [
            Step::File { path: "a/b.yaml".into(), text: "# a/b.yaml\nx: 1\n".into() },
            Step::Hidden { line: 8, place: Where::Peer, command: "ping -c 1 x".into() },
            Step::Copy { path: "a.pcap".into(), from: "tests/b.pcap".into() },
        ];
        assert_eq!(steps(page).expect("a page"), wanted);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        for page in [
            "```console\nout\n```\n",
            "```console\n# a\n",
            "- x\n\n  ```console\n  # a\n  ```\n",
            "```console\n# a \\\n```\n",
            "```sh\nlimiter status\n```\n",
            "```\n# limiter status\n```\n",
            "<!-- peer: a\n",
            "<!-- here: a\n",
            "<!-- tried: it works. -->\n",
            "<!-- file: a -->\n",
        ] {
            assert!(steps(page).is_err(), "{page:?}");
        }
    }
}
