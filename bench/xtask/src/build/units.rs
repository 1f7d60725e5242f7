//! Crates that a build compiled, from cargo's messages, and those that it compiled more than once
//! for one target: with other features, or on top of crates that have others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A crate, and the machine that it is compiled for. A crate that build scripts and procedural
/// macros use is compiled for the machine that builds, which is another target even where it is the
/// same machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crate {
    package: String,
    /// Name of the library or program, and `lib`, `proc-macro`, `bin`, `test` and the like.
    target: String,
    /// Compiled with its unit tests.
    has_tests: bool,
    /// Compiled for build scripts and procedural macros.
    for_host: bool,
}

/// All crates of one or more builds.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    /// Files made of a crate, each with the features that it has.
    files: BTreeMap<Crate, BTreeMap<String, Vec<String>>>,
}

impl Units {
    /// Takes in a line of `--message-format json`.
    pub(super) fn add(&mut self, line: &str) {
        let Some((unit, file, features)) = read(line) else { return };
        self.files.entry(unit).or_default().insert(file, features);
    }

    /// The crates of both.
    pub(super) fn and(mut self, other: &Self) -> Self {
        for (unit, files) in &other.files {
            self.files.entry(unit.clone()).or_default().extend(files.clone());
        }
        self
    }

    /// A file that is made of a crate, and is none of these.
    pub(super) fn beside(&self, known: &BTreeSet<PathBuf>) -> Option<&str> {
        let mut files = self.files.values().flat_map(BTreeMap::keys);
        files.find(|file| !known.contains(Path::new(file))).map(String::as_str)
    }

    /// A line for each crate that was compiled more than once for one target.
    pub(super) fn twice(&self) -> BTreeSet<String> {
        let twice = self.files.iter().filter(|(_, files)| files.len() > 1);
        twice.map(|(unit, files)| described(unit, files)).collect()
    }
}

/// The crate of a message, the file that is made of it, and its features. None for other messages,
/// and for build scripts: these follow their crates.
fn read(line: &str) -> Option<(Crate, String, Vec<String>)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |pointer: &str| message.pointer(pointer)?.as_str();
    let texts = |pointer: &str| -> Option<Vec<String>> {
        let list = message.pointer(pointer)?.as_array()?.iter();
        Some(list.filter_map(Value::as_str).map(str::to_owned).collect())
    };
    let kind = text("/target/kind/0")?;
    if text("/reason")? != "compiler-artifact" || kind == "custom-build" {
        return None;
    }
    let unit = Crate {
        package: package(text("/package_id")?),
        target: format!("{} ({kind})", text("/target/name")?),
        has_tests: message.pointer("/profile/test")?.as_bool()?,
        for_host: is_for_host(message.get("profile")?)?,
    };
    // The metadata has a hash of everything in its name. A program has it only in target/*/deps.
    let files = texts("/filenames")?;
    let is_metadata = |file: &&String| Path::new(file).extension() == Some(OsStr::new("rmeta"));
    let metadata = files.iter().find(is_metadata);
    let file = metadata.or(files.last())?.clone();
    Some((unit, file, texts("/features")?))
}

/// Name and version of `registry+https://host/index#name@1.0.0` and `path+file:///a/name#1.0.0`.
fn package(id: &str) -> String {
    match id.rsplit_once('#') {
        Some((_, full)) if full.contains('@') => full.replace('@', " "),
        Some((place, version)) => {
            let name = place.rsplit_once('/').map_or(place, |(_, name)| name);
            format!("{name} {version}")
        }
        None => id.to_owned(),
    }
}

/// Cargo compiles for build scripts and procedural macros without debugging information, and in a
/// release without optimisation. In dev, a crate that is compiled for both alike is compiled once,
/// with debugging information.
fn is_for_host(profile: &Value) -> Option<bool> {
    if profile.get("debug_assertions")?.as_bool()? {
        let information = profile.get("debuginfo")?;
        Some(information.is_null() || information == 0)
    } else {
        Some(profile.get("opt_level")? == "0")
    }
}

fn described(unit: &Crate, files: &BTreeMap<String, Vec<String>>) -> String {
    let mut sets: Vec<String> =
        files.values().map(|features| format!("[{}]", features.join(" "))).collect();
    sets.sort();
    sets.dedup();
    let host = if unit.for_host { ", for build scripts and macros" } else { "" };
    let tests = if unit.has_tests { ", with its tests" } else { "" };
    let how = match &sets[..] {
        [same] => format!("{} times with features {same}, on other crates", files.len()),
        _ => format!("with features {}", sets.join(" and ")),
    };
    format!("{}, {}{tests}{host}: {how}", unit.package, unit.target)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message about a library; `profile` has what distinguishes the targets.
    fn message(name: &str, hash: &str, features: &str, profile: &str) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"registry+https://x/i#{name}@1.2.3",
            "target":{{"kind":["lib"],"name":"{name}"}},"profile":{{{profile},"test":false}},
            "features":[{features}],"filenames":["/t/lib{name}-{hash}.rlib",
            "/t/lib{name}-{hash}.rmeta"]}}"#
        )
    }

    fn units(lines: &[String]) -> Units {
        let mut units = Units::default();
        for line in lines {
            units.add(line);
        }
        units
    }

    const DEV: &str = r#""debug_assertions":true,"debuginfo":"line-tables-only","opt_level":"0""#;
    const DEV_HOST: &str = r#""debug_assertions":true,"debuginfo":0,"opt_level":"2""#;
    const RELEASE: &str = r#""debug_assertions":false,"debuginfo":0,"opt_level":"3""#;
    const RELEASE_HOST: &str = r#""debug_assertions":false,"debuginfo":0,"opt_level":"0""#;

    #[test]
    fn other_features_for_one_target_are_found() {
        let twice = units(&[
            message("a", "1", r#""std""#, DEV),
            message("a", "2", r#""alloc","std""#, DEV),
            message("b", "3", "", DEV),
        ]);
        let line = "a 1.2.3, a (lib): with features [alloc std] and [std]";
        assert_eq!(twice.twice(), BTreeSet::from([line.to_owned()]));
    }

    #[test]
    fn other_crates_beneath_are_found() {
        let twice = units(&[message("a", "1", "", RELEASE), message("a", "2", "", RELEASE)]);
        let line = "a 1.2.3, a (lib): 2 times with features [], on other crates";
        assert_eq!(twice.twice(), BTreeSet::from([line.to_owned()]));
    }

    #[test]
    fn another_profile_for_the_same_target_is_found() {
        let both = units(&[message("a", "1", "", DEV)]);
        let both = both.and(&units(&[message("a", "2", "", RELEASE)]));
        assert_eq!(both.twice().len(), 1);
    }

    #[test]
    fn crates_of_build_scripts_are_of_another_target() {
        for (target, host) in [(DEV, DEV_HOST), (RELEASE, RELEASE_HOST)] {
            let once = [message("a", "1", r#""std""#, target), message("a", "2", "", host)];
            assert!(units(&once).twice().is_empty(), "{once:?}");
            let twice = [message("a", "1", r#""std""#, host), message("a", "2", "", host)];
            assert_eq!(units(&twice).twice().len(), 1, "{twice:?}");
        }
    }

    #[test]
    fn the_same_file_again_is_no_second_one() {
        let line = message("a", "1", "", DEV);
        let once = units(&[line.clone(), line]);
        assert!(once.twice().is_empty());
        let known = BTreeSet::from([PathBuf::from("/t/liba-1.rmeta")]);
        assert_eq!(once.beside(&known), None);
        assert_eq!(once.beside(&BTreeSet::new()), Some("/t/liba-1.rmeta"));
    }

    #[test]
    fn build_scripts_and_other_messages_are_left_out() {
        let line = message("a", "1", "", DEV);
        assert!(read(&line).is_some());
        assert!(read(&line.replace("\"lib\"", "\"custom-build\"")).is_none());
        assert!(read(&line.replace("compiler-artifact", "compiler-message")).is_none());
        assert!(read(r#"{"reason":"build-finished","success":true}"#).is_none());
        assert!(read("no JSON").is_none());
    }

    #[test]
    fn packages_have_names() {
        assert_eq!(package("registry+https://x/i#serde@1.0.2"), "serde 1.0.2");
        assert_eq!(package("path+file:///w/xtask#0.1.0"), "xtask 0.1.0");
        assert_eq!(package("path+file:///w/cli#limiter-cli@0.1.0"), "limiter-cli 0.1.0");
    }
}
