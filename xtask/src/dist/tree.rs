//! The tree of files that a package has: one for all kinds, but for the places that the systems
//! have different names for.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Programs, Source, notices};
use crate::process;

const DOC: &str = "usr/share/doc/limiter";

pub(super) const PROGRAMS: [(Program, &str); 3] = [
    (|programs| &programs.limiter, "usr/bin/limiter"),
    (|programs| &programs.sandbox, "usr/libexec/limiter/limiter-sandbox"),
    (|programs| &programs.cni, "usr/libexec/limiter/limiter-cni"),
];

type Program = fn(&Programs) -> &Path;

/// Files of the checkout, and their places.
const FILES: [(&str, &str); 11] = [
    ("dist/systemd/limiter.service", "usr/lib/systemd/system/limiter.service"),
    ("dist/systemd/limiter-serve.service", "usr/lib/systemd/system/limiter-serve.service"),
    ("dist/systemd/limiter-serve.socket", "usr/lib/systemd/system/limiter-serve.socket"),
    ("dist/systemd/limiter.sysusers.conf", "usr/lib/sysusers.d/limiter.conf"),
    ("dist/systemd/limiter.tmpfiles.conf", "usr/lib/tmpfiles.d/limiter.conf"),
    ("dist/systemd/limiter.env", "etc/limiter/limiter.env"),
    ("docs/rules.schema.json", "usr/share/limiter/rules.schema.json"),
    ("docs/requests.schema.json", "usr/share/limiter/requests.schema.json"),
    ("docs/loads.schema.json", "usr/share/limiter/loads.schema.json"),
    ("docs/openapi.json", "usr/share/limiter/openapi.json"),
    ("README.md", "usr/share/doc/limiter/README.md"),
];

/// The generator of the drop-in that the kernel needs, and its place.
const GENERATOR: (&str, &str) =
    ("dist/systemd/limiter-generator", "usr/lib/systemd/system-generators/limiter-generator");

/// Folders of the checkout, their files' extension, and their places.
const FOLDERS: [(&str, &str, &str); 9] = [
    ("docs", "md", "usr/share/doc/limiter/docs"),
    ("examples", "yaml", "usr/share/doc/limiter/examples"),
    ("dist/containers", "sh", "usr/share/doc/limiter/examples/containers"),
    ("dist/containers", "yaml", "usr/share/doc/limiter/examples/containers"),
    ("dist/fail2ban", "conf", "usr/share/doc/limiter/examples/fail2ban"),
    ("dist/grafana", "json", "usr/share/doc/limiter/examples/grafana"),
    ("dist/prometheus", "yml", "usr/share/doc/limiter/examples/prometheus"),
    ("dist/systemd/limiter.service.d", "conf", "usr/share/doc/limiter/examples/limiter.service.d"),
    (
        "dist/systemd/limiter-serve.service.d",
        "conf",
        "usr/share/doc/limiter/examples/limiter-serve.service.d",
    ),
];

/// Files that only Debian's package has.
const DEBIAN: [(&str, &str); 2] = [
    ("dist/debian/copyright", "usr/share/doc/limiter/copyright"),
    ("dist/debian/lintian-overrides", "usr/share/lintian/overrides/limiter"),
];

/// The texts of the licences, in the checkout.
const LICENCES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-GPL2", "LICENSE-MIT"];

/// Places that the systems have different names for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Debian's: the texts of common licences are in every system.
    Debian,
    /// Fedora's, and the one of zsh itself.
    Fedora,
}

impl Layout {
    const fn zsh(self) -> &'static str {
        match self {
            Self::Debian => "usr/share/zsh/vendor-completions/_limiter",
            Self::Fedora => "usr/share/zsh/site-functions/_limiter",
        }
    }
}

/// A directory that holds the files of a package.
pub(super) struct Tree<'a> {
    source: &'a Source,
    pub(super) root: PathBuf,
}

impl<'a> Tree<'a> {
    /// Puts everything into `root`, which is made.
    pub(super) fn fill(
        source: &'a Source,
        programs: &Programs,
        root: PathBuf,
        layout: Layout,
    ) -> Result<Self> {
        let tree = Self::bare(source, root);
        for (program, to) in PROGRAMS {
            tree.copy(program(programs), to, 0o755)?;
        }
        tree.copy(&source.root.join(GENERATOR.0), GENERATOR.1, 0o755)?;
        for (from, to) in FILES {
            tree.copy(&source.root.join(from), to, 0o644)?;
        }
        for (folder, extension, to) in FOLDERS {
            let folder = source.root.join(folder);
            let files = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
            for file in files {
                let file = file?.path();
                let Some(name) = file.file_name().and_then(|name| name.to_str()) else { continue };
                if super::is(name, extension) {
                    tree.copy(&file, &format!("{to}/{name}"), 0o644)?;
                }
            }
        }
        let changes = fs::read(source.root.join("CHANGELOG.md"))?;
        tree.compressed(&format!("{DOC}/changelog"), &changes)?;
        tree.compressed(&format!("{DOC}/third-party.txt"), notices::of(source)?.as_bytes())?;
        tree.made_by_the_binary(&programs.limiter, layout)?;
        match layout {
            Layout::Debian => {
                for (from, to) in DEBIAN {
                    tree.copy(&source.root.join(from), to, 0o644)?;
                }
            }
            Layout::Fedora => {
                for name in LICENCES {
                    let to = format!("usr/share/licenses/limiter/{name}");
                    tree.copy(&source.root.join(name), &to, 0o644)?;
                }
            }
        }
        Ok(tree)
    }

    /// A directory with nothing in it yet, which is made with the first file.
    pub(super) fn bare(source: &'a Source, root: PathBuf) -> Self {
        Self { source, root }
    }

    fn made_by_the_binary(&self, binary: &Path, layout: Layout) -> Result<()> {
        let pages = tempfile::tempdir().context("no directory for the pages could be made")?;
        process::output(self.source.arch.run(binary).args(["man", "--dir"]).arg(pages.path()))?;
        for page in fs::read_dir(pages.path())? {
            let page = page?;
            let name = page.file_name();
            let name = name.to_str().context("the name of a manual page is not UTF-8")?;
            self.compressed(&format!("usr/share/man/man1/{name}"), &fs::read(page.path())?)?;
        }
        for (shell, to) in [
            ("bash", "usr/share/bash-completion/completions/limiter"),
            ("zsh", layout.zsh()),
            ("fish", "usr/share/fish/vendor_completions.d/limiter.fish"),
        ] {
            let text = process::output(self.source.arch.run(binary).args(["completions", shell]))?;
            self.write(to, text.as_bytes(), 0o644)?;
        }
        Ok(())
    }

    /// Writes a file and gzips it: `.gz` is added to the name.
    pub(super) fn compressed(&self, to: &str, content: &[u8]) -> Result<()> {
        self.write(to, content, 0o644)?;
        // Neither name nor time in it.
        process::run(self.source.tool("gzip").args(["-9", "--no-name", "--"]).arg(self.at(to)))
    }

    fn copy(&self, from: &Path, to: &str, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| from.display().to_string())?;
        self.write(to, &content, mode)
    }

    /// Writes a file and the directories above it, with modes that no umask has a say in.
    pub(super) fn write(&self, to: &str, content: &[u8], mode: u32) -> Result<()> {
        let path = self.at(to);
        let parent = path.parent().context("a file has a directory")?;
        fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
        let above = parent.ancestors().take_while(|directory| directory.starts_with(&self.root));
        for directory in above {
            fs::set_permissions(directory, Permissions::from_mode(0o755))?;
        }
        fs::write(&path, content)
            .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(mode)))
            .with_context(|| path.display().to_string())
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Paths of all files below a part of the tree, from its root, sorted.
    pub(super) fn files(&self, below: &str) -> Result<Vec<String>> {
        self.find(&[below, "-type", "f"])
    }

    /// Directories that no other package has, as [`Self::files`] gives files.
    pub(super) fn own_directories(&self) -> Result<Vec<String>> {
        self.find(&["etc", "usr", "-type", "d", "-path", "*/limiter*"])
    }

    fn find(&self, wanted: &[&str]) -> Result<Vec<String>> {
        let mut find = self.source.tool("find");
        let found = process::output(find.current_dir(&self.root).args(wanted))?;
        let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
        found.sort_unstable();
        Ok(found)
    }
}
