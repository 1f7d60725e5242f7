//! `cargo xtask dist`: the packages of a release, and that they come out the same again.

mod archive;
mod deb;
mod notices;
mod rpm;
mod sbom;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::{process, workspace};

/// Version of all packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Number of the packaging in a release.
const REVISION: &str = "1";

/// The checksums of everything that was made.
const SUMS: &str = "SHA256SUMS";

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Make everything twice, the second time in a clone of HEAD elsewhere, and compare; lintian
    #[arg(long)]
    check: bool,
    /// Directory to put it in: emptied before
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Only this; may be repeated
    #[arg(long, value_enum)]
    only: Vec<Form>,
    /// Pack this binary, and build none: for tests
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    binary: Option<PathBuf>,
}

/// Files of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A package for Debian and Ubuntu
    Deb,
    /// A package for Fedora, RHEL and the like
    Rpm,
    /// The tree of files, for everybody else
    Tarball,
    /// The lists of all crates in it, which `CycloneDX` calls SBOM
    Sbom,
}

/// A checkout that packages are made of.
struct Source {
    root: PathBuf,
    /// Number of the packaging, behind the version.
    revision: String,
    /// The BPF toolchain; none where the binary is given.
    toolchain: Option<String>,
    /// Time of everything inside, in seconds since 1970: that of the commit.
    epoch: String,
}

/// Sets up, builds, packs; with `--check` once more.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let root = workspace::root()?;
    let forms: &[Form] =
        if arguments.only.is_empty() { Form::value_variants() } else { &arguments.only };
    let toolchain = match arguments.binary {
        Some(_) => None,
        None => Some(setup::ensure(Tools::Dist)?),
    };
    if forms.contains(&Form::Sbom) {
        sbom::ensure_tool()?;
    }
    if arguments.check {
        refuse_changes(&root)?;
    }
    let source = Source { epoch: epoch(&root)?, root, revision: REVISION.to_owned(), toolchain };
    let binary = match &arguments.binary {
        Some(binary) => binary.clone(),
        None => source.build()?,
    };
    let output = arguments.output.clone().unwrap_or_else(|| source.root.join("target/packages"));
    let made = source.make(forms, &binary, &output)?;
    for name in &made {
        println!("{}", output.join(name).display());
    }
    if !arguments.check {
        return Ok(ExitCode::SUCCESS);
    }
    let mut good = true;
    for name in made.iter().filter(|name| is(name, "deb")) {
        good &= deb::lint(&source, &output.join(name))?;
    }
    good &= again(&source, forms, &output)?;
    println!("dist: {}", if good { "ok" } else { "failed" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes everything again in a clone of HEAD, and names what is different.
fn again(source: &Source, forms: &[Form], output: &Path) -> Result<bool> {
    let parent = tempfile::Builder::new()
        .prefix("limiter-again-")
        .tempdir()
        .context("no directory for the second build could be made")?;
    let clone = parent.path().join("limiter");
    let mut git = process::command("git");
    process::run(git.args(["clone", "--quiet", "--no-local"]).arg(&source.root).arg(&clone))?;
    let other = Source {
        root: clone,
        revision: source.revision.clone(),
        toolchain: source.toolchain.clone(),
        epoch: source.epoch.clone(),
    };
    let second = parent.path().join("packages");
    other.make(forms, &other.build()?, &second)?;
    let (first, second) = (sums(output)?, sums(&second)?);
    let different: Vec<_> = first.symmetric_difference(&second).collect();
    for line in &different {
        println!("dist: not the same again: {line}");
    }
    Ok(different.is_empty())
}

fn sums(directory: &Path) -> Result<BTreeSet<String>> {
    let path = directory.join(SUMS);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// The second build is of HEAD, so the first one has to be.
fn refuse_changes(root: &Path) -> Result<()> {
    let mut git = process::command("git");
    let changes = process::output(git.args(["status", "--porcelain"]).current_dir(root))?;
    let Some(first) = changes.lines().next() else { return Ok(()) };
    Err(Refused::new(
        format!("{} differs from HEAD ({})", root.display(), first.trim()),
        "commit it: --check compares with a build of HEAD",
    )
    .into())
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit.
fn epoch(root: &Path) -> Result<String> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        given.parse::<u64>().map_err(|error| {
            Refused::new(
                format!("SOURCE_DATE_EPOCH={given}: {error}"),
                "give whole seconds since 1970, or unset it",
            )
        })?;
        return Ok(given);
    }
    let mut git = process::command("git");
    let time = process::output(git.args(["log", "-1", "--format=%ct"]).current_dir(root))?;
    Ok(time.trim().to_owned())
}

/// Packs a binary for Debian as that packaging of this version, and says where it is.
pub(crate) fn deb_of(binary: &Path, revision: &str, output: &Path) -> Result<PathBuf> {
    let root = workspace::root()?;
    let source =
        Source { epoch: epoch(&root)?, root, revision: revision.to_owned(), toolchain: None };
    Ok(output.join(deb::make(&source, binary, output)?))
}

impl Source {
    /// A tool that works in the checkout, with the time and the language that are the same
    /// everywhere.
    fn tool(&self, program: &str) -> Command {
        let mut command = process::command(program);
        command.current_dir(&self.root).env("SOURCE_DATE_EPOCH", &self.epoch);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command
    }

    /// Builds the binary of a release, without the paths of this machine, and says where it is.
    fn build(&self) -> Result<PathBuf> {
        let toolchain = self.toolchain.as_deref().context("no BPF toolchain")?;
        let mut cargo = workspace::cargo(toolchain)?;
        cargo.current_dir(&self.root).args(["build", "--package", "limiter-userspace"]);
        cargo.args(["--bin", "limiter", "--profile", "dist", "--locked", "--target-dir"]);
        cargo.arg(self.root.join("target"));
        let home = process::cargo_home().context("neither CARGO_HOME nor HOME is set")?;
        let from = |path: &Path, to| format!("--remap-path-prefix={}={to}", path.display());
        let flags = [from(&home, "/cargo"), from(&self.root, "/limiter")];
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        workspace::built(cargo, "limiter")
    }

    /// Makes all `forms` of a binary and their checksums in a directory that is empty before, and
    /// gives the names.
    fn make(&self, forms: &[Form], binary: &Path, output: &Path) -> Result<Vec<String>> {
        if output.exists() {
            fs::remove_dir_all(output)
                .with_context(|| format!("cannot empty {}", output.display()))?;
        }
        fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
        let output = &output.canonicalize()?;
        let binary = &binary.canonicalize().with_context(|| binary.display().to_string())?;
        let mut names = Vec::new();
        for form in forms {
            eprintln!("xtask: {form:?}");
            names.extend(match form {
                Form::Deb => vec![deb::make(self, binary, output)?],
                Form::Rpm => vec![rpm::make(self, binary, output)?],
                Form::Tarball => vec![archive::make(self, binary, output)?],
                Form::Sbom => sbom::make(self, output)?,
            });
        }
        let text = process::output(
            process::command("sha256sum").arg("--").args(&names).current_dir(output),
        )?;
        fs::write(output.join(SUMS), text)?;
        names.push(SUMS.to_owned());
        Ok(names)
    }
}

fn is(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|of| of == extension)
}
