//! `cargo xtask dist`: the packages of a release, and that they come out the same again.

mod archive;
mod check;
mod deb;
mod notices;
mod oci;
mod rpm;
mod sbom;
mod tree;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use clap::ValueEnum;

use crate::arch::Arch;
use crate::failure::Refused;
use crate::setup::{self, Tools};
use crate::{cross, process, workspace};

/// Version of all packages: that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Number of the packaging in a release.
const REVISION: &str = "1";

/// The checksums of everything that was made.
const SUMS: &str = "SHA256SUMS";

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Make everything twice, the second time in a clone of HEAD elsewhere, and compare; and have
    /// other programs look at it
    #[arg(long)]
    check: bool,
    /// Only for this architecture; may be repeated. On x86-64 both are made
    #[arg(long, value_enum)]
    arch: Vec<Arch>,
    /// Directory to put it in: emptied before
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Only this; may be repeated
    #[arg(long, value_enum)]
    only: Vec<Form>,
    /// Pack this binary, and build none: for tests. With --check it is packed twice
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    binary: Option<PathBuf>,
    /// Pack this sandbox of `limiter demo`: for tests
    #[arg(long, value_name = "FILE", requires = "cni")]
    sandbox: Option<PathBuf>,
    /// Pack this plugin of CNI: for tests
    #[arg(long, value_name = "FILE", requires = "binary")]
    cni: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(crate) struct Programs {
    pub(crate) limiter: PathBuf,
    /// Program behind `limiter demo`.
    pub(crate) sandbox: PathBuf,
    /// Plugin of CNI.
    pub(crate) cni: PathBuf,
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
    /// A container image for all the architectures, as an OCI layout
    Oci,
    /// The lists of all crates in it, which `CycloneDX` calls SBOM
    Sbom,
}

/// A checkout that packages are made of, for an architecture.
#[derive(Clone)]
struct Source {
    root: PathBuf,
    /// Number of the packaging, behind the version.
    revision: String,
    arch: Arch,
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
    let archs = if arguments.arch.is_empty() { Arch::usual() } else { arguments.arch.clone() };
    let tools = if arguments.check { Tools::DistCheck } else { Tools::Dist };
    let toolchain = match arguments.binary {
        Some(_) if !arguments.check => None,
        _ => Some(setup::ensure(tools)?),
    };
    if forms.contains(&Form::Sbom) {
        sbom::ensure_tool()?;
    }
    if arguments.check {
        refuse_changes(&root)?;
    }
    let first = archs.first().copied().unwrap_or(Arch::Amd64);
    let source = Source {
        epoch: epoch(&root)?,
        root,
        revision: REVISION.to_owned(),
        arch: first,
        toolchain,
    };
    let given = match (&arguments.binary, &arguments.sandbox, &arguments.cni) {
        (Some(limiter), Some(sandbox), Some(cni)) => {
            Some(vec![(source.arch, Programs::given(limiter, sandbox, cni)?)])
        }
        _ => None,
    };
    let pack = |source: &Source, output: &Path| {
        let programs = match &given {
            Some(programs) => programs.clone(),
            None => source.build(&archs)?,
        };
        source.make(forms, &programs, output)
    };
    let output = arguments.output.clone().unwrap_or_else(|| source.root.join("target/packages"));
    let made = pack(&source, &output)?;
    for name in &made {
        println!("{}", output.join(name).display());
    }
    if !arguments.check {
        return Ok(ExitCode::SUCCESS);
    }
    let good = check::all(&source, &archs, &made, &output) & again(&source, &output, pack)?;
    println!("dist: {}", if good { "ok" } else { "failed" });
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Makes everything again in a clone of HEAD, and names what is different.
fn again(
    source: &Source,
    output: &Path,
    pack: impl Fn(&Source, &Path) -> Result<Vec<String>>,
) -> Result<bool> {
    let parent = tempfile::Builder::new()
        .prefix("limiter-again-")
        .tempdir()
        .context("no directory for the second build could be made")?;
    let clone = parent.path().join("limiter");
    let mut git = process::command("git");
    process::run(git.args(["clone", "--quiet", "--no-local"]).arg(&source.root).arg(&clone))?;
    let other = Source { root: clone, ..source.clone() };
    let second = parent.path().join("packages");
    pack(&other, &second)?;
    let (first, second) = (sums(output)?, sums(&second)?);
    let different: Vec<_> = first.symmetric_difference(&second).collect();
    for line in &different {
        println!("dist: not the same again: {line}");
    }
    if different.is_empty() {
        println!("dist: made again in another directory, the same bytes: ok");
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

impl Programs {
    fn given(limiter: &Path, sandbox: &Path, cni: &Path) -> Result<Self> {
        let absolute =
            |path: &Path| path.canonicalize().with_context(|| path.display().to_string());
        Ok(Self { limiter: absolute(limiter)?, sandbox: absolute(sandbox)?, cni: absolute(cni)? })
    }
}

/// Packs programs for Debian as that packaging of this version, and says where it is.
pub(crate) fn deb_of(programs: &Programs, revision: &str, output: &Path) -> Result<PathBuf> {
    let root = workspace::root()?;
    let arch = Arch::Amd64;
    let source =
        Source { epoch: epoch(&root)?, root, revision: revision.to_owned(), arch, toolchain: None };
    Ok(output.join(deb::make(&source, programs, output)?))
}

impl Source {
    /// A tool that works in the checkout, with the time and the language that are the same
    /// everywhere.
    fn tool(&self, program: &str) -> Command {
        let mut command = process::command(program);
        command.current_dir(&self.root).env("SOURCE_DATE_EPOCH", &self.epoch);
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        // For the tools of dpkg-dev.
        command.env("DEB_HOST_ARCH", self.arch.debian());
        command
    }

    /// This checkout, for another architecture.
    fn of(&self, arch: Arch) -> Self {
        Self { arch, ..self.clone() }
    }

    /// The time of everything inside, as RFC 3339 has it.
    fn time(&self) -> Result<String> {
        let mut date = self.tool("date");
        date.args(["--utc", "--date", &format!("@{}", self.epoch), "+%Y-%m-%dT%H:%M:%SZ"]);
        Ok(process::output(&mut date)?.trim().to_owned())
    }

    /// Builds the programs of a release for each architecture, without the paths of this machine,
    /// and says where they are.
    fn build(&self, archs: &[Arch]) -> Result<Vec<(Arch, Programs)>> {
        archs
            .iter()
            .map(|arch| {
                let source = self.of(*arch);
                let limiter = source.build_one("limiter-userspace", "limiter")?;
                let sandbox = source.build_one("limiter-sandbox", "limiter-sandbox")?;
                let cni = source.build_one("limiter-cni", "limiter-cni")?;
                Ok((*arch, Programs { limiter, sandbox, cni }))
            })
            .collect()
    }

    fn build_one(&self, package: &str, program: &str) -> Result<PathBuf> {
        let toolchain = self.toolchain.as_deref().context("no BPF toolchain")?;
        let mut cargo = workspace::cargo(toolchain)?;
        cargo.current_dir(&self.root).args(["build", "--package", package]);
        cargo.args(["--bin", program, "--profile", "dist", "--locked", "--target-dir"]);
        cargo.arg(self.root.join("target"));
        cross::prepare(&mut cargo, self.arch, toolchain)?;
        let home = process::cargo_home().context("neither CARGO_HOME nor HOME is set")?;
        let from = |path: &Path, to| format!("--remap-path-prefix={}={to}", path.display());
        let mut flags = vec![from(&home, "/cargo"), from(&self.root, "/limiter")];
        flags.extend(cross::flags(self.arch)?);
        cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"));
        workspace::built(cargo, program)
    }

    /// Makes all `forms` of the programs and their checksums in a directory that is empty before,
    /// and gives the names.
    fn make(
        &self,
        forms: &[Form],
        programs: &[(Arch, Programs)],
        output: &Path,
    ) -> Result<Vec<String>> {
        if output.exists() {
            fs::remove_dir_all(output)
                .with_context(|| format!("cannot empty {}", output.display()))?;
        }
        fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
        let output = &output.canonicalize()?;
        let mut names = Vec::new();
        for form in forms {
            eprintln!("xtask: {form:?}");
            let pack = match form {
                Form::Deb => deb::make,
                Form::Rpm => rpm::make,
                Form::Tarball => archive::make,
                Form::Oci => {
                    names.push(oci::make(self, programs, output)?);
                    continue;
                }
                Form::Sbom => {
                    names.extend(sbom::make(self, output)?);
                    continue;
                }
            };
            for (arch, programs) in programs {
                names.push(pack(&self.of(*arch), programs, output)?);
            }
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
