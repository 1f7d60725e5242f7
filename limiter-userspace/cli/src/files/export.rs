//! `limiter export`, and how it writes a rule file that somebody reads: whole, or not at all.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

use limiter_api::client::Client;
use limiter_api::render::Render;
use limiter_api::rules::{ExportRules, Exported};
use limiter_daemon::own_files;
use serde::Serialize;

use crate::failure::Failure;

/// A link under the name of the new file is none that was made here.
const NOFOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// The bits of a mode that are permissions.
const PERMISSIONS: u32 = 0o7777;

/// The rules in force as a rule file, or those of `limiter set`.
pub(crate) fn ask(client: &Client, edits: bool) -> Result<Exported, Failure> {
    Ok(client.ask("/v1/rules", &ExportRules { edits })?)
}

/// A rule file that was written.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    /// Generation of the rule set that it holds.
    generation: u64,
    file: String,
}

/// Writes the rules into a file. Without an answer of the daemon, or without room, the file stays
/// as it is.
pub(crate) fn to_file(
    client: &Client,
    edits: bool,
    file: &Path,
) -> Result<(Written, Option<String>), Failure> {
    let exported = ask(client, edits)?;
    put(file, exported.text.as_bytes())?;
    let written = Written { generation: exported.generation, file: file.display().to_string() };
    Ok((written, left_out(&exported)))
}

/// Warns about what no rewritten export contains.
pub(crate) fn left_out(exported: &Exported) -> Option<String> {
    let files = &exported.without_requests_of;
    (!files.is_empty()).then(|| {
        format!(
            "warning: without the rules for requests of {}: copy the field `requests` from there, \
             or keep them in a file of their own, which `limiter serve` takes as well",
            files.join(", ")
        )
    })
}

/// Writes a rule file of other origin, and returns a message that says so.
#[cfg(any(feature = "import", feature = "replay"))]
pub(crate) fn written(file: &Path, contents: &[u8]) -> Result<String, Failure> {
    put(file, contents)?;
    Ok(format!("written: {}\n", file.display()))
}

/// Writes a file completely and for good, or not at all.
fn put(file: &Path, contents: &[u8]) -> Result<(), Failure> {
    let directory = replace(file, contents).map_err(|error| {
        let remedy = "nothing is changed; name a file in a directory that can be written to";
        Failure::Export(format!("cannot write {}: {error}: {remedy}", file.display()))
    })?;
    directory.sync_all().map_err(|error| {
        let remedy = "check the disk, and do it again";
        let what = "is written, but may be the one before after a power cut";
        Failure::Export(format!("{} {what}: {error}: {remedy}", file.display()))
    })
}

/// Replaces the contents of a file in one step. Its owner and permissions stay. Returns the
/// directory, whose change is not on disk yet.
fn replace(file: &Path, contents: &[u8]) -> io::Result<File> {
    let (target, before) = target(file)?;
    let (Some(directory), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    // Before anything changes, so that running out of descriptors changes nothing.
    let opened = File::open(directory)?;
    // Hidden, and without the ending of a rule file: nobody who watches the directory reads it.
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    let new = directory.join(hidden);
    let written = write(&new, before.as_ref(), contents).and_then(|()| fs::rename(&new, &target));
    match written {
        Ok(()) => Ok(opened),
        Err(error) => {
            // A file that is not there need not be removed, and the error of the writing is the one
            // that matters.
            drop(fs::remove_file(&new));
            Err(error)
        }
    }
}

/// The file that is meant, at the end of all links, with its metadata if it exists.
fn target(file: &Path) -> io::Result<(PathBuf, Option<Metadata>)> {
    let target = match fs::canonicalize(own_files::behind_links(file)?) {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => {
            return Ok((file.to_owned(), None));
        }
        Err(error) => return Err(error),
    };
    let metadata = fs::metadata(&target)?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok((target, Some(metadata)))
}

fn write(new: &Path, before: Option<&Metadata>, contents: &[u8]) -> io::Result<()> {
    let mode = before.map_or(0o666, |before| before.mode() & PERMISSIONS);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    let mut file = options.custom_flags(NOFOLLOW).open(new)?;
    if let Some(before) = before {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(contents)?;
    file.sync_all()
}

impl Render for Written {
    fn render(&self, text: &mut String) {
        let Self { generation, file } = self;
        // Writing to a `String` cannot fail.
        let _: std::fmt::Result =
            writeln!(text, "the rules of generation {generation} are in {file}");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_whose_rules_for_requests_are_left_out_are_named() {
        let mut exported =
            Exported { generation: 1, without_requests_of: Vec::new(), text: String::new() };
        assert_eq!(left_out(&exported), None);
        exported.without_requests_of = vec!["a.yaml".to_owned(), "b.yaml".to_owned()];
        let warning = left_out(&exported).unwrap();
        assert!(warning.contains("requests of a.yaml, b.yaml: copy the field"), "{warning}");
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("r.yaml");
        replace(&file, b"one\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        // A reader of the old file goes on reading that.
        let old = File::open(&file).unwrap();
        replace(&file, b"two\n").unwrap();
        assert_eq!(io::read_to_string(old).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
        assert_eq!(fs::metadata(&file).unwrap().mode() & PERMISSIONS, 0o640);
        assert_eq!(names(directory.path()), ["r.yaml"]);
    }

    #[test]
    fn a_link_stays_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("real.yaml"), directory.path().join("r.yaml"));
        fs::write(&file, "one\n").unwrap();
        symlink("real.yaml", &link).unwrap();
        replace(&link, b"two\n").unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "two\n");
    }

    #[test]
    fn what_cannot_be_replaced_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("d.yaml")).unwrap();
        symlink("nowhere", at("l.yaml")).unwrap();
        for name in ["d.yaml", "l.yaml", "no/such/r.yaml"] {
            assert!(replace(&at(name), b"x").is_err(), "{name}");
        }
        assert!(replace(Path::new("/dev/null"), b"x").is_err());
        assert_eq!(names(directory.path()), ["d.yaml", "l.yaml"]);
    }
}
