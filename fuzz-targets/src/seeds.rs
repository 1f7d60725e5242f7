//! Inputs that fuzzing begins with: the packets of the tests' captures, the example rule files, a
//! story of each rule set, and the texts of other programs that the importer's tests have.

use std::path::{Path, PathBuf};
use std::{fs, io};

use limiter_import::Format;
use limiter_replay::explain::Capture;

use crate::corpus::Entry;
use crate::{Target, decision, import};

/// Bytes of a story.
const STORY: usize = 300;

/// Files of a directory of the repository, by their extensions; "" is none.
fn files(directory: &str, kinds: &[&str]) -> io::Result<Vec<PathBuf>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory);
    let mut files = Vec::new();
    for file in fs::read_dir(directory)? {
        let path = file?.path();
        let kind = path.extension().map_or(Some(""), |kind| kind.to_str());
        if kind.is_some_and(|kind| kinds.contains(&kind)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The inputs for a target, with names.
///
/// # Errors
///
/// When a capture or an example cannot be read.
pub fn of(target: Target) -> io::Result<Vec<Entry>> {
    let mut seeds = Vec::new();
    let mut seed = |name: String, bytes: Vec<u8>| {
        seeds.push(Entry { name: format!("seed-{name}"), bytes });
    };
    match target {
        Target::Packet => {
            for path in files("tests/captures", &["pcap", "pcapng"])? {
                let mut capture = Capture::open(&path).map_err(io::Error::other)?;
                while let Some(packet) = capture.next_packet().map_err(io::Error::other)? {
                    seed(format!("{}-{}", stem(&path), packet.number), packet.frame);
                }
            }
        }
        Target::Rules => {
            for path in files("examples", &["yaml"])? {
                seed(stem(&path), fs::read(&path)?);
            }
            for (index, text) in decision::rule_sets().enumerate() {
                seed(format!("set-{index}"), text.as_bytes().to_vec());
            }
        }
        Target::Decision => {
            for index in 0..decision::COUNT {
                let mut random = fastrand::Rng::with_seed(index as u64);
                let first = u8::try_from(index).unwrap_or(0);
                let story = (0..STORY).map(|_| random.u8(..));
                seed(index.to_string(), std::iter::once(first).chain(story).collect());
            }
        }
        Target::Import => {
            for path in files("limiter-userspace/import/src/tests/texts", &[""])? {
                let text = fs::read(&path)?;
                let name = stem(&path);
                let program = name.split('-').next().unwrap_or_default();
                let named = Format::NAMED.iter().find(|(name, _)| *name == program);
                seed(name.clone(), import::input(None, &text));
                if let Some((_, format)) = named {
                    seed(format!("{name}-named"), import::input(Some(*format), &text));
                }
            }
        }
    }
    Ok(seeds)
}
