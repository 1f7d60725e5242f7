//! The package for Debian, made by `cargo xtask dist` of the binary under test: its files, and that
//! they are for each other. `dist/debian/try-package` installs it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::work_dir::WorkDir;
use limiter_tests::{command, limiter};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Modes and paths of the files, as the package has them.
const LIST: &str = "dist/debian/files";

/// Rewrites [`LIST`] instead of comparing.
const UPDATE: &str = "LIMITER_UPDATE_PACKAGE";

/// Makes the package in a directory, and unpacks it below; gives its files, with their modes.
fn package(directory: &Path) -> Result<String> {
    let mut make = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    make.current_dir(ROOT).args(["run", "--quiet", "--package", "xtask", "--", "dist"]);
    make.env("SOURCE_DATE_EPOCH", "1000000000");
    // Without symbols, as those of a release: packing takes as long as they are large.
    let stripped = |program: &Path, name: &str| {
        let to = directory.with_extension(name);
        command::checked(Command::new("strip").arg("-o").arg(&to).arg(program))?;
        anyhow::Ok(to)
    };
    let sandbox = &limiter::sandbox()?;
    make.args(["--only", "deb", "--binary"]).arg(stripped(&limiter::binary()?, "limiter")?);
    make.arg("--sandbox").arg(stripped(sandbox, "sandbox")?);
    make.arg("--cni").arg(stripped(&limiter::cni()?, "cni")?);
    command::checked(make.arg("--output").arg(directory))?;
    let files = fs::read_dir(directory)?.map(|file| Ok(file?.path()));
    let files = files.collect::<Result<Vec<_>>>()?;
    let deb = files.iter().find(|path| path.extension().is_some_and(|of| of == "deb"));
    let deb = deb.context("no package was made")?;
    let tree = directory.join("tree");
    command::checked(Command::new("dpkg-deb").arg("--raw-extract").arg(deb).arg(&tree))?;
    let contents = command::checked(Command::new("dpkg-deb").arg("--contents").arg(deb))?;
    let mut files = BTreeSet::new();
    for line in contents.lines() {
        // `-rw-r--r-- root/root 271 2026-11-23 07:38 ./etc/limiter/limiter.env`
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, _, _, _, path] = words[..] else {
            anyhow::bail!("not a line of contents: {line}")
        };
        ensure!(owner == "root/root", "{line}");
        if !mode.starts_with('d') {
            files.insert(format!("{mode} {}\n", path.trim_start_matches('.')));
        }
    }
    Ok(files.into_iter().collect())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_package_has_the_files_that_are_listed_and_they_fit() -> Result<()> {
    let dir = WorkDir::create("package")?;
    let files = package(&dir.path().join("made"))?;
    let list = Path::new(ROOT).join(LIST);
    if env::var_os(UPDATE).is_some() {
        fs::write(&list, &files)?;
    }
    let listed = fs::read_to_string(&list)?;
    let (is, listed): (BTreeSet<_>, BTreeSet<_>) =
        (files.lines().collect(), listed.lines().collect());
    let different: Vec<_> = is.symmetric_difference(&listed).collect();
    ensure!(
        different.is_empty(),
        "{LIST} and the package differ; {UPDATE}=1 writes it: {different:?}"
    );

    let tree = dir.path().join("made/tree");
    let at = |path: &str| tree.join(path.trim_start_matches('/'));
    let read = |path: &str| fs::read_to_string(at(path)).with_context(|| path.to_owned());
    let unit = read("/usr/lib/systemd/system/limiter.service")?;
    for key in ["ExecStart=", "ExecReload="] {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).context(key)?;
        let program = line.split(' ').next().context(key)?;
        ensure!(at(program).is_file(), "{key}{program} is not in the package");
    }
    let environment = unit.lines().find_map(|line| line.strip_prefix("EnvironmentFile="));
    ensure!(read("/DEBIAN/conffiles")?.trim_end() == environment.context("EnvironmentFile=")?);
    for page in ["limiter", "limiter-run"] {
        ensure!(unit.contains(&format!("man:{page}(1)")), "the unit does not name {page}(1)");
        ensure!(at(&format!("usr/share/man/man1/{page}.1.gz")).is_file(), "no {page}(1)");
    }
    let serve = read("/usr/lib/systemd/system/limiter-serve.service")?;
    ensure!(
        serve.contains("ExecStart=/usr/bin/limiter serve ")
            && serve.contains("man:limiter-serve(1)")
    );
    ensure!(at("usr/share/man/man1/limiter-serve.1.gz").is_file(), "no limiter-serve(1)");
    // The packaged binary takes the packaged examples.
    let examples = at("usr/share/doc/limiter/examples");
    let mut checked = 0;
    for example in fs::read_dir(examples)? {
        let example = example?.path();
        if example.extension().is_some_and(|of| of == "yaml") {
            command::checked(Command::new(at("usr/bin/limiter")).arg("check").arg(&example))?;
            checked += 1;
        }
    }
    ensure!(checked > 3, "{checked} examples");
    ensure!(!files.contains("/etc/limiter/rules"), "an installation has rules");
    for script in ["postinst", "prerm", "postrm"] {
        command::run("sh", ["-n", at(&format!("DEBIAN/{script}")).to_str().context("path")?])?;
    }
    Ok(())
}
