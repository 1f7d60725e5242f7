//! The container image: an OCI layout in a tar, with an image for each architecture. It has the
//! program, its licences, and those of Debian's libraries that the program is linked to. No engine
//! is needed to make it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::tree::Tree;
use super::{Programs, Source, VERSION};
use crate::arch::Arch;
use crate::{cross, process};

/// Debian's packages of the libraries, and those of their files that the image has.
const LIBRARIES: [(&str, &[&str]); 2] =
    [("libc6", &["libc.so.6", "libm.so.6"]), ("libgcc-s1", &["libgcc_s.so.1"])];

/// Other files of the image.
const FILES: [(&str, &str); 2] =
    [("etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\n"), ("etc/group", "root:x:0:\n")];

/// Files of the checkout in the image, and their places.
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-GPL2", "LICENSE-MIT"];

/// Makes the tar, and gives its name.
pub(super) fn make(
    source: &Source,
    programs: &[(Arch, Programs)],
    output: &Path,
) -> Result<String> {
    let work = tempfile::tempdir().context("no directory for the image could be made")?;
    let layout = work.path().join("layout");
    fs::create_dir_all(layout.join("blobs/sha256"))?;
    let mut images = Vec::new();
    for (arch, programs) in programs {
        let root = work.path().join(arch.debian());
        images.push(image(&source.of(*arch), programs, &root, &layout)?);
    }
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": images,
        "annotations": annotations(source)?,
    });
    let mut index = blob(&layout, "application/vnd.oci.image.index.v1+json", &index)?;
    index["annotations"] = json!({"org.opencontainers.image.ref.name": VERSION});
    let top = json!({"schemaVersion": 2, "manifests": [index]});
    fs::write(layout.join("index.json"), serde_json::to_vec(&top)?)?;
    fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
    let name = format!("limiter-{VERSION}-oci.tar");
    pack(source, &layout, &output.join(&name))?;
    Ok(name)
}

/// Puts an image into the layout, and describes its manifest.
fn image(source: &Source, programs: &Programs, root: &Path, layout: &Path) -> Result<Value> {
    let arch = source.arch;
    let tree = Tree::bare(source, root.to_owned());
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    for (package, names) in LIBRARIES {
        let unpacked = cross::fetched(arch, package, None)?;
        let from = unpacked.join(arch.libraries());
        for name in names {
            tree.write(&format!("{}/{name}", arch.libraries()), &read(&from.join(name))?, 0o755)?;
        }
        // A link to the directory of another package of the same source has that one's.
        let doc = unpacked.join("usr/share/doc").join(package);
        let text = match fs::read_link(&doc) {
            Ok(other) => {
                let name = other.to_str().context("a package's name is not UTF-8")?;
                read(
                    &cross::fetched(arch, name, None)?
                        .join(format!("usr/share/doc/{name}/copyright")),
                )?
            }
            Err(_) => read(&doc.join("copyright"))?,
        };
        tree.write(&format!("usr/share/doc/{package}/copyright"), &text, 0o644)?;
        if package == "libc6" {
            let loader = read(&unpacked.join(arch.libraries()).join(loader_name(arch)))?;
            tree.write(arch.loader(), &loader, 0o755)?;
        }
    }
    for (path, text) in FILES {
        tree.write(path, text.as_bytes(), 0o644)?;
    }
    for name in LICENCES {
        let to = format!("usr/share/licenses/limiter/{name}");
        tree.write(&to, &read(&source.root.join(name))?, 0o644)?;
    }
    tree.write("usr/bin/limiter", &read(&programs.limiter)?, 0o755)?;
    tree.write("usr/bin/limiter-cni", &read(&programs.cni)?, 0o755)?;
    for directory in ["etc/limiter", "run/limiter", "var/lib/limiter", "sys/fs/bpf"] {
        fs::create_dir_all(tree.at(directory))?;
    }

    let tar = layout.with_extension(format!("{}.tar", arch.debian()));
    pack(source, root, &tar)?;
    let diff = digest(&tar)?;
    process::run(source.tool("gzip").args(["-9", "--no-name", "--"]).arg(&tar))?;
    let layer = file_blob(
        layout,
        "application/vnd.oci.image.layer.v1.tar+gzip",
        &tar.with_extension("tar.gz"),
    )?;
    let config = json!({
        "created": source.time()?,
        "architecture": arch.debian(),
        "os": "linux",
        "config": {
            "Entrypoint": ["/usr/bin/limiter"],
            "Cmd": ["--help"],
            "Env": ["PATH=/usr/bin"],
            "Labels": annotations(source)?,
            "StopSignal": "SIGTERM",
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{diff}")]},
        "history": [{"created": source.time()?, "created_by": "cargo xtask dist"}],
    });
    let config = blob(layout, "application/vnd.oci.image.config.v1+json", &config)?;
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
    });
    let mut manifest = blob(layout, "application/vnd.oci.image.manifest.v1+json", &manifest)?;
    manifest["platform"] = json!({"architecture": arch.debian(), "os": "linux"});
    Ok(manifest)
}

/// The file name of the loader.
fn loader_name(arch: Arch) -> &'static str {
    arch.loader().rsplit('/').next().unwrap_or_default()
}

fn annotations(source: &Source) -> Result<Value> {
    Ok(json!({
        "org.opencontainers.image.title": "limiter",
        "org.opencontainers.image.description": "Per-source rate limits in XDP",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": "(MIT OR Apache-2.0) AND GPL-2.0-only",
        "org.opencontainers.image.created": source.time()?,
    }))
}

/// Packs what is in a directory, the same again each time.
fn pack(source: &Source, directory: &Path, to: &Path) -> Result<()> {
    let mut tar = source.tool("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{}", source.epoch)).arg("--directory").arg(directory);
    tar.args(["--mode=u+rwX,go+rX,go-w", "--create", "--file"]).arg(to).arg("--");
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let names = entries.map(|entry| Ok(entry?.file_name()));
    // In an order: the option is for what is in directories.
    tar.args(names.collect::<std::io::Result<BTreeSet<_>>>()?);
    process::run(&mut tar)
}

fn digest(path: &Path) -> Result<String> {
    let line = process::output(process::command("sha256sum").arg("--").arg(path))?;
    let digest = line.split(' ').next().context("sha256sum says nothing")?;
    Ok(digest.to_owned())
}

/// Puts a document into the layout, and describes it.
fn blob(layout: &Path, media_type: &str, content: &Value) -> Result<Value> {
    let path = layout.with_extension("json");
    fs::write(&path, serde_json::to_vec(content)?)?;
    file_blob(layout, media_type, &path)
}

fn file_blob(layout: &Path, media_type: &str, path: &Path) -> Result<Value> {
    let (digest, size) = (digest(path)?, fs::metadata(path)?.len());
    fs::copy(path, layout.join("blobs/sha256").join(&digest))?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size}))
}
