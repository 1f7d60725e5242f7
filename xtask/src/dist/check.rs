//! `cargo xtask dist --check`: other programs' opinions on what was made.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{REVISION, SUMS, Source, VERSION, deb};
use crate::arch::Arch;
use crate::process;

/// Modes and paths of the package's files, in the checkout.
const FILES: &str = "dist/debian/files";

/// Asks everybody; prints what was looked at, and what is wrong. True if nothing is.
pub(super) fn all(source: &Source, archs: &[Arch], made: &[String], output: &Path) -> bool {
    let mut good = true;
    let mut judge = |what: &str, judged: Result<()>| match judged {
        Ok(()) => println!("dist: {what}: ok"),
        Err(error) => {
            good = false;
            println!("dist: {what}: {error:#}");
        }
    };
    judge("scripts", deb::shellcheck(source));
    for name in made {
        let path = output.join(name);
        let extension = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        match extension {
            "deb" => {
                judge(&format!("{name}, by lintian"), deb::lint(&path));
                judge(&format!("{name}, its files"), files(source, &path));
                judge(&format!("{name}, its version"), deb_version(&path));
            }
            "rpm" => judge(&format!("{name}, its version"), rpm(&path)),
            "gz" => judge(&format!("{name}, its program"), tarball(name, &path)),
            "json" => judge(&format!("{name}, an SBOM"), sbom(&path)),
            "tar" => judge(&format!("{name}, by skopeo and umoci"), image(archs, &path)),
            _ => {}
        }
    }
    judge(SUMS, sums(made, output));
    good
}

/// The list of files is the one of the checkout, whatever the architecture.
fn files(source: &Source, package: &Path) -> Result<()> {
    let listed = fs::read_to_string(source.root.join(FILES))?;
    let mut dpkg = process::command("dpkg-deb");
    let contents = process::output(dpkg.arg("--contents").arg(package))?;
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, _, _, _, _, path] = words[..] else { return None };
        (!mode.starts_with('d')).then(|| format!("{mode} {}", path.trim_start_matches('.')))
    };
    let is: BTreeSet<String> = contents.lines().filter_map(line).collect();
    let listed: BTreeSet<String> = listed.lines().map(str::to_owned).collect();
    let different: Vec<_> = is.symmetric_difference(&listed).collect();
    ensure!(different.is_empty(), "{FILES} has others: {different:?}");
    Ok(())
}

fn deb_version(package: &Path) -> Result<()> {
    let mut dpkg = process::command("dpkg-deb");
    let version = process::output(dpkg.arg("--field").arg(package).arg("Version"))?;
    is_version(version.trim(), &format!("{VERSION}-{REVISION}"))
}

fn rpm(package: &Path) -> Result<()> {
    let mut rpm = process::command("rpm");
    rpm.args(["--query", "--package", "--queryformat", "%{VERSION}-%{RELEASE}"]).arg(package);
    is_version(&process::output(&mut rpm)?, &format!("{VERSION}-{REVISION}"))?;
    // Digests of header and payload.
    process::output(process::command("rpm").args(["--checksig", "--nosignature"]).arg(package))?;
    Ok(())
}

/// The program of a tarball says the version.
fn tarball(name: &str, path: &Path) -> Result<()> {
    let top = name.strip_suffix(".tar.gz").context("not named as a tarball")?;
    let arch = [Arch::Amd64, Arch::Arm64].into_iter().find(|arch| top.contains(arch.gnu()));
    let arch = arch.context("no architecture in the name")?;
    let work = tempfile::tempdir().context("no directory to unpack in")?;
    let mut tar = process::command("tar");
    process::run(tar.arg("-xzf").arg(path).arg("--directory").arg(work.path()))?;
    let tree = work.path().join(top);
    for (program, word) in
        [("usr/bin/limiter", "limiter"), ("usr/libexec/limiter/limiter-sandbox", "limiter-sandbox")]
    {
        let said = process::output(arch.run(&tree.join(program)).arg("--version"))?;
        is_version(said.trim(), &format!("{word} {VERSION}"))?;
    }
    let mut version = arch.run(&tree.join("usr/libexec/limiter/limiter-cni"));
    let said = process::output(version.env("CNI_COMMAND", "VERSION").stdin(Stdio::null()))?;
    ensure!(said.contains("supportedVersions"), "limiter-cni says {said:?}");
    let example = tree.join("usr/share/doc/limiter/examples/hosting.yaml");
    process::output(arch.run(&tree.join("usr/bin/limiter")).arg("check").arg(example))?;
    Ok(())
}

/// The parts of a `CycloneDX` document that its schema asks for, and the version of what it is of.
fn sbom(path: &Path) -> Result<()> {
    let text = fs::read_to_string(path)?;
    let document: Value = serde_json::from_str(&text)?;
    ensure!(document["bomFormat"] == "CycloneDX", "it is no CycloneDX document");
    ensure!(document["specVersion"] == "1.5", "not of 1.5: {}", document["specVersion"]);
    let of = &document["metadata"]["component"];
    is_version(of["version"].as_str().unwrap_or_default(), VERSION)?;
    let components = document["components"].as_array().context("no components")?;
    ensure!(!components.is_empty(), "no components");
    let mut known: BTreeSet<&str> = BTreeSet::new();
    known.extend(of["bom-ref"].as_str());
    for component in components {
        for field in ["type", "name", "version", "bom-ref", "purl"] {
            ensure!(component[field].is_string(), "no {field} of {component}");
        }
        let reference = component["bom-ref"].as_str().unwrap_or_default();
        ensure!(known.insert(reference), "{reference} is there twice");
    }
    for dependency in document["dependencies"].as_array().context("no dependencies")? {
        let all = dependency["dependsOn"].as_array().into_iter().flatten();
        for reference in all.chain([&dependency["ref"]]) {
            let reference = reference.as_str().context("a reference that is no text")?;
            ensure!(known.contains(reference), "{reference} is no component");
        }
    }
    Ok(())
}

/// Each image is copied with all its digests checked, unpacked, and its program run with its own
/// libraries.
fn image(archs: &[Arch], path: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("no directory to unpack in")?;
    let archive = format!("oci-archive:{}:{VERSION}", path.display());
    let copy = format!("dir:{}", work.path().join("all").display());
    let mut skopeo = process::command("skopeo");
    process::output(skopeo.args(["copy", "--insecure-policy", "--all", &archive, &copy]))?;
    for arch in archs {
        let layout = work.path().join(arch.debian());
        let one = format!("oci:{}:{VERSION}", layout.display());
        let mut skopeo = process::command("skopeo");
        skopeo.args(["--override-os", "linux", "--override-arch", arch.debian()]);
        process::output(skopeo.args(["copy", "--insecure-policy", &archive, &one]))?;
        let bundle = work.path().join(format!("{}-bundle", arch.debian()));
        let mut umoci = process::command("umoci");
        umoci.args(["unpack", "--rootless", "--image"]);
        umoci.arg(format!("{}:{VERSION}", layout.display())).arg(&bundle);
        process::output(&mut umoci)?;
        let root = bundle.join("rootfs");
        let program = root.join("usr/bin/limiter");
        let said = process::output(arch.run_in(&root, &program).arg("--version"))?;
        is_version(said.trim(), &format!("limiter {VERSION}"))?;
    }
    Ok(())
}

/// The checksums are those of all files.
fn sums(made: &[String], output: &Path) -> Result<()> {
    let mut check = process::command("sha256sum");
    process::output(check.args(["--check", "--strict", SUMS]).current_dir(output))?;
    let text = fs::read_to_string(output.join(SUMS))?;
    let named = text.lines().filter_map(|line| line.split("  ").nth(1));
    let named: BTreeSet<&str> = named.collect();
    let made: BTreeSet<&str> =
        made.iter().map(String::as_str).filter(|name| *name != SUMS).collect();
    ensure!(named == made, "it names {named:?}, and there are {made:?}");
    Ok(())
}

fn is_version(is: &str, wanted: &str) -> Result<()> {
    ensure!(is == wanted, "version {is:?}, not {wanted:?}");
    Ok(())
}
