//! The kernel's modules: finding them in a package, and what else each of them needs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::package::{files, name};
use crate::process;

/// Copies modules and those that they need from below `tree` to `to`, unpacked, with names that
/// sort in the order of loading. One that is in the kernel itself leaves an empty file, `.builtin`.
/// One that is nowhere is an error, or leaves an empty file, `.absent`, where that is allowed.
pub(super) fn copy(
    tree: &Path,
    wanted: &[&str],
    may_be_absent: bool,
    to: &Path,
    busybox: &Path,
) -> Result<()> {
    fs::create_dir(to)?;
    let mut known = Vec::new();
    below(tree, &mut known)?;
    let mut done: Vec<String> = Vec::new();
    for module in wanted {
        if may_be_absent && !is_there(&known, module)? {
            let number = files(to)?.len();
            fs::write(to.join(format!("{number:02}-{module}.absent")), "")?;
            continue;
        }
        copy_one(&known, module, to, busybox, &mut done)?;
    }
    Ok(())
}

fn copy_one(
    known: &[PathBuf],
    module: &str,
    to: &Path,
    busybox: &Path,
    done: &mut Vec<String>,
) -> Result<()> {
    if done.iter().any(|name| name == module) {
        return Ok(());
    }
    let path = known.iter().find(|path| module_of(path).as_deref() == Some(module));
    let number = files(to)?.len();
    if path.is_none() && is_builtin(known, module)? {
        done.push(module.to_owned());
        return Ok(fs::write(to.join(format!("{number:02}-{module}.builtin")), "")?);
    }
    let path = path.with_context(|| format!("there is no module {module}"))?;
    let content = if path.extension().is_some_and(|end| end == "xz") {
        let mut unpack = process::command(busybox);
        let output = unpack.arg("xzcat").arg(path).output()?;
        anyhow::ensure!(output.status.success(), "{} failed", process::shown(&unpack));
        output.stdout
    } else {
        fs::read(path)?
    };
    // Noted before the others: a circle ends here.
    done.push(module.to_owned());
    for other in depends(&content) {
        copy_one(known, &other, to, busybox, done)?;
    }
    let number = files(to)?.len();
    fs::write(to.join(format!("{number:02}-{module}.ko")), content)?;
    Ok(())
}

/// True if there is a file of a module, or the kernel has it in itself.
fn is_there(known: &[PathBuf], module: &str) -> Result<bool> {
    let is_it = |path: &PathBuf| module_of(path).as_deref() == Some(module);
    Ok(known.iter().any(is_it) || is_builtin(known, module)?)
}

/// True if the kernel has a module in itself, by its list of those.
fn is_builtin(known: &[PathBuf], module: &str) -> Result<bool> {
    let Some(list) = known.iter().find(|path| name(path) == "modules.builtin") else {
        return Ok(false);
    };
    let list = fs::read_to_string(list).with_context(|| list.display().to_string())?;
    Ok(list.lines().any(|line| module_of(Path::new(line)).as_deref() == Some(module)))
}

/// All files below a directory.
fn below(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in files(directory)? {
        // Not through links: a package's `build` leads out of it.
        if fs::symlink_metadata(&path)?.is_dir() {
            below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The name of the module in a file, with `_` as the kernel has it.
fn module_of(path: &Path) -> Option<String> {
    let name = name(path);
    let name = name.strip_suffix(".xz").unwrap_or(name);
    Some(name.strip_suffix(".ko")?.replace('-', "_"))
}

/// The modules that a module says it needs.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = module.get(at + KEY.len()..).unwrap_or_default();
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_modules_come_first() {
        let tree = tempfile::tempdir().unwrap();
        let net = tree.path().join("6.1/kernel/net");
        fs::create_dir_all(&net).unwrap();
        fs::write(net.join("top.ko"), b"\x7fELF\0depends=mid-dle,low\0vermagic=x\0").unwrap();
        fs::write(net.join("mid-dle.ko"), b"\0depends=low\0").unwrap();
        fs::write(net.join("low.ko"), b"\0depends=\0").unwrap();
        fs::write(net.join("other.ko"), b"\0depends=\0").unwrap();
        let to = tree.path().join("to");
        let busybox = Path::new("busybox");
        copy(&tree.path().join("6.1"), &["top"], false, &to, busybox).unwrap();
        let mut names: Vec<String> =
            files(&to).unwrap().iter().map(|path| name(path).to_owned()).collect();
        names.sort();
        assert_eq!(names, ["00-low.ko", "01-mid_dle.ko", "02-top.ko"]);
        fs::remove_dir_all(&to).unwrap();
        let error = copy(tree.path(), &["none"], false, &to, busybox).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
        fs::remove_dir_all(&to).unwrap();
        copy(tree.path(), &["none", "low"], true, &to, busybox).unwrap();
        assert!(to.join("00-none.absent").exists() && to.join("01-low.ko").exists());
    }

    #[test]
    fn a_module_has_a_name_in_any_packing() {
        let names = ["a/veth.ko", "a/veth.ko.xz"].map(|path| module_of(Path::new(path)));
        assert_eq!(names, [Some("veth".to_owned()), Some("veth".to_owned())]);
        assert_eq!(module_of(Path::new("modules.builtin")), None);
    }
}
