//! Rule files on disk: finding and reading them.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use limiter_api::rules::Document;
use limiter_rules::file::requests::{For, RequestFile, whom_for};
use limiter_rules::file::{MAX_BYTES, Place, Problem};
use limiter_rules::{RuleFile, RuleFileError, RuleFiles};
use limiter_sharing::fnv::Fnv;
use rustix::fs::OFlags;

/// Source of the rules with which a daemon starts, and which a reload reads again.
#[derive(Clone, Debug)]
pub enum RuleSource {
    /// Files, and directories with files.
    Files(Vec<PathBuf>),
    /// The text of a rule file given in the arguments, with the name [`GIVEN`]; it never changes.
    Given(Document),
}

/// Name of a rule file that arguments stand for.
pub const GIVEN: &str = "--limit";

impl RuleSource {
    pub(crate) fn read(&self) -> Result<Vec<Document>, RuleFileError> {
        match self {
            Self::Files(paths) => read(paths),
            Self::Given(document) => Ok(vec![document.clone()]),
        }
    }

    /// Names of the documents in one line.
    pub(crate) fn names(&self) -> String {
        self.each_name().join(", ")
    }

    pub(crate) fn each_name(&self) -> Vec<String> {
        match self {
            Self::Files(paths) => paths.iter().map(|path| path.display().to_string()).collect(),
            Self::Given(document) => vec![document.name.clone()],
        }
    }

    /// Paths of the files; empty without files.
    pub(crate) fn paths(&self) -> &[PathBuf] {
        match self {
            Self::Files(paths) => paths,
            Self::Given(_) => &[],
        }
    }
}

/// Reads the files of `paths`, each of which is a file or a directory.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Document>, RuleFileError> {
    read_each(paths, None).into_iter().collect()
}

/// As [`read`], for a command that reads the files once: `-` stands for `input`, the command's
/// standard input.
pub fn read_once(paths: &[PathBuf], input: &mut dyn Read) -> Result<Vec<Document>, RuleFileError> {
    read_each(paths, Some(input)).into_iter().collect()
}

/// As [`read_once`], but a mistake in one file does not hide those in other files.
pub(crate) fn read_each(
    paths: &[PathBuf],
    mut input: Option<&mut dyn Read>,
) -> Vec<Result<Document, RuleFileError>> {
    let mut documents = Vec::new();
    let mut room = MAX_BYTES;
    for path in paths {
        if path == Path::new("-")
            && let Some(input) = &mut input
        {
            let mut bytes = Vec::new();
            let document = input
                .take(MAX_BYTES + 1)
                .read_to_end(&mut bytes)
                .map_err(|error| failed(STANDARD_INPUT.as_ref(), &error))
                .and_then(|_| text(STANDARD_INPUT.as_ref(), bytes, &mut room));
            documents.push(document);
            continue;
        }
        match files(path) {
            Err(error) => documents.push(Err(error)),
            Ok(files) => {
                for file in files {
                    documents.push(document(&file, &mut room));
                }
            }
        }
    }
    documents
}

/// Joins the rules of documents; all mistakes in them are one error. `max_frame` as in
/// [`RuleFile::parse`].
pub fn parse(documents: &[Document], max_frame: u64) -> Result<RuleFiles, RuleFileError> {
    let mut files = Vec::with_capacity(documents.len());
    let mut mistakes = Vec::new();
    for Document { name, text } in documents {
        let (file, errors) = RuleFile::check(name, text.as_bytes(), max_frame);
        mistakes.extend(errors);
        files.push((name.clone(), file));
    }
    RuleFileError::joined(mistakes).map_or_else(|| RuleFiles::unite(files), Err)
}

/// Largest total size of rule files whose text is kept, in bytes: larger files are made by
/// programs, which write no comments.
const MOST_TEXT: usize = 1 << 20;

/// Texts of the rule files in force, for an export in their author's words: the files on disk may
/// have changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Texts {
    documents: Arc<[Document]>,
    /// The rules for requests in these files.
    pub(crate) requests: Arc<[RequestPart]>,
}

impl Texts {
    /// Keeps the texts of documents, unless they are too large.
    fn of(documents: Vec<Document>) -> Self {
        let requests = request_parts(&documents).into();
        let length: usize = documents.iter().map(|document| document.text.len()).sum();
        let documents = if length > MOST_TEXT { Vec::new() } else { documents };
        Self { documents: documents.into(), requests }
    }

    /// The texts, each with its name.
    pub(crate) fn documents(&self) -> Vec<(&str, &str)> {
        self.documents
            .iter()
            .map(|Document { name, text }| (name.as_str(), text.as_str()))
            .collect()
    }
}

/// The rules for requests in a rule file, for `limiter serve`.
#[derive(Clone, Debug)]
pub(crate) struct RequestPart {
    pub(crate) file: String,
    /// The domain and a digest of its text, or the reason why `limiter serve` would refuse it.
    pub(crate) written: Result<(String, u64), String>,
}

/// Finds the rules for requests in rule files.
pub(crate) fn request_parts(documents: &[Document]) -> Vec<RequestPart> {
    let with = documents.iter().filter(|Document { text, .. }| {
        // Most files have no such rules, and some files are large.
        text.contains("requests") && whom_for(text) != For::Packets
    });
    let part = |Document { name, text }: &Document| {
        let (file, errors) = RequestFile::check(name, text.as_bytes());
        let written = match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok((file.domain.clone(), file.digest())),
        };
        RequestPart { file: name.clone(), written }
    };
    with.map(part).collect()
}

/// The joined rules of documents, and their texts.
pub(crate) fn taken(
    documents: Vec<Document>,
    max_frame: u64,
) -> Result<(RuleFiles, Texts), RuleFileError> {
    Ok((parse(&documents, max_frame)?, Texts::of(documents)))
}

/// Reads and joins rule files: [`read()`] and [`parse`].
pub fn load(paths: &[PathBuf], max_frame: u64) -> Result<RuleFiles, RuleFileError> {
    parse(&read(paths)?, max_frame)
}

/// Digest of one reading of the rule files: of their names and contents, or of the error.
///
/// FNV-1a, because the digest is kept in the state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(Fnv);

impl Digest {
    /// Digest of the documents read, or of the error.
    pub(crate) fn of(read: &Result<Vec<Document>, RuleFileError>) -> Self {
        let mut digest = Self::of_bytes(&[]);
        match read {
            Ok(documents) => {
                for Document { name, text } in documents {
                    digest.0.add(name.as_bytes());
                    digest.0.add(text.as_bytes());
                }
            }
            Err(error) => digest.0.add(error.to_string().as_bytes()),
        }
        digest
    }

    pub(crate) fn of_bytes(bytes: &[u8]) -> Self {
        let mut digest = Self(Fnv::new());
        digest.go_on(bytes);
        digest
    }

    /// Adds more bytes of the same file.
    pub(crate) fn go_on(&mut self, bytes: &[u8]) {
        self.0 = self.0.with(bytes);
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0.finish())
    }
}

/// The paths in one line.
pub fn names(paths: &[PathBuf]) -> String {
    RuleSource::Files(paths.to_vec()).names()
}

/// The files that a path stands for: the path itself, or the rule files of a directory in the order
/// of their names.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>, RuleFileError> {
    let metadata = fs::metadata(path).map_err(|error| failed(path, &error))?;
    if !metadata.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(|error| failed(path, &error))? {
        let entry = entry.map_err(|error| failed(path, &error))?;
        if is_rule_file(Path::new(&entry.file_name())) {
            files.push(entry.path());
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(refused(path, Problem::NoFiles));
    }
    Ok(files)
}

/// Returns true if the name is that of a rule file. Hidden files are left by editors and by swaps
/// of whole directories; backups of editors have other endings.
fn is_rule_file(name: &Path) -> bool {
    let hidden = name.to_string_lossy().starts_with('.');
    let extension = name.extension().and_then(|extension| extension.to_str());
    !hidden && matches!(extension, Some("yaml" | "yml"))
}

/// Standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Most readings of a file that changes in the meantime.
const READINGS: usize = 3;

fn document(path: &Path, room: &mut u64) -> Result<Document, RuleFileError> {
    // Otherwise, opening a pipe would wait for its writer, even a pipe that took the file's place a
    // moment ago.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(|error| failed(path, &error))?;
    let mut before = file.metadata().map_err(|error| failed(path, &error))?;
    if !before.is_file() {
        // A reload could not read a pipe again.
        let reason = "it is not a regular file".to_owned();
        let remedy = "name a YAML file, or a directory of them";
        return Err(refused(path, Problem::Read { reason, remedy }));
    }
    let mut bytes = Vec::new();
    for reading in 1.. {
        bytes.clear();
        let read = file.rewind().and_then(|()| {
            (&file).take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
            file.metadata()
        });
        let after = read.map_err(|error| failed(path, &error))?;
        if stamp(&after) == stamp(&before) {
            break;
        }
        if reading == READINGS {
            // Half of the old and half of the new text may be a valid rule file as well.
            let reason = "somebody writes to it".to_owned();
            return Err(refused(
                path,
                Problem::Read { reason, remedy: "try again when it is written" },
            ));
        }
        before = after;
    }
    text(path, bytes, room)
}

/// Checks the text of a file, and takes its size from `room`.
fn text(path: &Path, bytes: Vec<u8>, room: &mut u64) -> Result<Document, RuleFileError> {
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if length > *room {
        let alone = length > MAX_BYTES;
        let problem = if alone { Problem::TooLong } else { Problem::TooLongTogether };
        return Err(refused(path, problem));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        let place = Place::of_offset(error.as_bytes(), offset);
        let problem = Problem::NotUtf8 { offset };
        RuleFileError { place: Some(place), ..refused(path, problem) }
    })?;
    *room = room.saturating_sub(length);
    Ok(Document { name: path.display().to_string(), text })
}

/// Stamp of a file, which differs after each change of the file.
fn stamp(metadata: &Metadata) -> (u64, i64, i64, i64, i64) {
    (
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime(),
        metadata.ctime_nsec(),
    )
}

fn refused(path: &Path, problem: Problem) -> RuleFileError {
    RuleFileError { file: path.display().to_string(), place: None, problem }
}

fn failed(path: &Path, error: &io::Error) -> RuleFileError {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => "check the path",
        io::ErrorKind::PermissionDenied => "let the daemon's user read it",
        _ => "check the file",
    };
    refused(path, Problem::Read { reason: error.to_string(), remedy })
}
