//! `limiter import`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use limiter_import::{Format, Imported, MAX_LIST_BYTES, Options, Outcome};
use limiter_rules::RuleFile;
use limiter_rules::model::{Part, Path as RulePath};
use limiter_rules::warnings::Warnings;
use limiter_text::plain::clean;

use super::export;
use crate::answer::Answer;
use crate::args::defaults::LEAST_FRAME;
use crate::demo;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `import`.
#[derive(Debug, clap::Args)]
pub(crate) struct Ask {
    /// Format of the text: nft, iptables, ip6tables, ufw, tc, ipset, fail2ban or crowdsec; or the
    /// file, whose format is then looked for
    #[arg(value_name = "FORMAT|FILE")]
    first: String,
    /// The file; `-` for standard input, which is the default behind a format
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Make rules that only count what is over the limits
    #[arg(long)]
    shadow: bool,
    /// Of several sets of ipset, or jails of fail2ban, the one that is meant
    #[arg(long, value_name = "NAME")]
    set: Option<String>,
    /// Write it there, as a whole or not at all, and print nothing of it
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Load the text and its translation into network namespaces beside each other, send the same
    /// packets through both, and print what passed. Needs root, and nft or iptables-restore
    #[arg(long, conflicts_with_all = ["shadow", "set", "to"])]
    compare: bool,
}

/// Translates a text. Nothing is applied.
pub(crate) fn import(ask: &Ask, output: Output) -> Result<Answer, Failure> {
    let known = Format::NAMED.into_iter().find(|(name, _)| *name == ask.first);
    let (format, file) = match (known, &ask.file) {
        (Some((_, format)), file) => {
            (Some(format), file.clone().unwrap_or_else(|| PathBuf::from("-")))
        }
        (None, None) => (None, PathBuf::from(&ask.first)),
        (None, Some(_)) => {
            let names = Format::NAMED.map(|(name, _)| name).join(", ");
            return Err(Failure::Import {
                file: clean(&ask.first),
                why: format!("is no format: use one of {names}"),
            });
        }
    };
    let name = if file == Path::new("-") {
        "standard input".to_owned()
    } else {
        clean(&file.display().to_string())
    };
    if ask.compare {
        return Err(compare(format, &file, output));
    }
    let failed = |why: String| Failure::Import { file: name.clone(), why };
    let text = read(&file)
        .map_err(|error| failed(format!("cannot be read: {error}: name a text file, or -")))?;
    let options = Options { format, shadow: ask.shadow, set: ask.set.clone() };
    let imported =
        limiter_import::import(&text, &options).map_err(|error| failed(error.to_string()))?;
    let refused = imported.count(Outcome::NotTranslated);
    let mut errors = summary(&imported, refused);
    errors.extend(warnings(&imported));
    let text = match (&ask.to, output.document(&imported)?) {
        (Some(to), document) => {
            let written = export::written(to, imported.text.as_bytes())?;
            document.unwrap_or(written)
        }
        (None, document) => document.unwrap_or(imported.text),
    };
    Ok(Answer { text, errors, code: if refused > 0 { 2 } else { 0 } })
}

/// Warnings about the rules that were made, in the words of `limiter check`.
fn warnings(imported: &Imported) -> Vec<String> {
    if imported.is_list {
        return Vec::new();
    }
    // The translation is read by anybody who checks it; an error in it is reported there.
    let file = RuleFile::parse("-", imported.text.as_bytes(), LEAST_FRAME);
    // iptables-save has rules of one family, and ip6tables-save those of the other.
    let of_family = |path: &RulePath| {
        let whole =
            |part: &Part| matches!(part, Part::Source(_, Some(net)) if net.prefix_len() == 0);
        path.parts.iter().any(whole)
    };
    let lines = file.map(|file| Warnings::of(&file.rules, &file.rules.lists, of_family).in_full());
    lines.unwrap_or_default().iter().map(|line| format!("warning: {}", clean(line))).collect()
}

/// Becomes the sandbox, which compares; returns only if that fails.
fn compare(format: Option<Format>, file: &Path, output: Output) -> Failure {
    let mut sandbox = match demo::sandbox() {
        Ok(sandbox) => sandbox,
        Err(failure) => return failure,
    };
    let file = if file == Path::new("-") { Path::new("/dev/stdin") } else { file };
    sandbox.arg("--compare").arg(file);
    if let Some(format) = format {
        sandbox.args(["--format", format.name()]);
    }
    match demo::printing(&mut sandbox, output) {
        Ok(()) => demo::become_it(sandbox),
        Err(failure) => failure,
    }
}

/// One byte more than is imported, so that more is noticed.
fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let most = u64::try_from(MAX_LIST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    if file == Path::new("-") {
        io::stdin().lock().take(most).read_to_end(&mut text)?;
    } else {
        File::open(file)?.take(most).read_to_end(&mut text)?;
    }
    Ok(text)
}

fn summary(imported: &Imported, refused: usize) -> Vec<String> {
    let mut lines = imported.remarks.clone();
    let (what, left) = if imported.is_list {
        ("source", String::new())
    } else {
        let left = imported.count(Outcome::Left);
        ("rule", format!(", {left} left to the firewall: no limits"))
    };
    lines.push(format!(
        "{} {what}{} translated, {refused} not{left}; nothing was applied",
        imported.translated,
        if imported.translated == 1 { "" } else { "s" }
    ));
    if refused > 0 {
        lines.push(
            "what is not translated stands in the output as comments, with the reason".into(),
        );
    }
    lines
}
