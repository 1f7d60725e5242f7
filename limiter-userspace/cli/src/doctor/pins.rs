//! The pin directory, its file system, and the maps in it.

use std::path::Path;

use limiter_common::wire::ABI_VERSION;
use limiter_datapath::DatapathError;
use limiter_datapath::machine::{FileSystem, PinPlace, Pinned, USUAL_MOUNT};

use super::finding::Finding;
use crate::args::defaults::PIN_DIR;

pub(super) fn place(pin_dir: &Path, place: PinPlace, may_bpf: bool) -> Finding {
    let (check, path) = ("bpffs", pin_dir.display());
    if place.file_system == FileSystem::Other {
        return Finding::problem(check, format!("{path} is not on a BPF file system"))
            .remedy(format!("name a directory below {USUAL_MOUNT} with --pin-dir"));
    }
    if place.is_dotted {
        return Finding::refused(check, &DatapathError::DottedPin(pin_dir.to_owned()));
    }
    if place.file_system == FileSystem::ToMount {
        return Finding::note(
            check,
            format!(
                "no BPF file system is mounted at {USUAL_MOUNT}: a start by root mounts it, a \
                 service without CAP_SYS_ADMIN cannot"
            ),
        )
        .remedy("mount it")
        .command(format!("mount -t bpf bpf {USUAL_MOUNT}"));
    }
    if place.is_writable {
        return Finding::ok(check, format!("{path} is on a BPF file system"));
    }
    let seen = format!("this user may not write to {path}");
    if may_bpf {
        Finding::problem(check, seen).remedy(
            "give the user a BPF file system of its own, and name it with --pin-dir: \
             `mount -t bpf -o uid=USER,mode=0700 bpf DIRECTORY`",
        )
    } else {
        Finding::unknown(check, format!("{seen}; whether root may is not known"))
            .remedy("run `limiter doctor` as root")
    }
}

pub(super) fn pinned(pin_dir: &Path, pinned: &Pinned, may_bpf: bool) -> Finding {
    let (check, path) = ("pins", pin_dir.display());
    let on_pins = |command: &str| {
        if pin_dir == Path::new(PIN_DIR) {
            format!("limiter {command}")
        } else {
            format!("limiter {command} --pin-dir {path}")
        }
    };
    match pinned {
        Pinned::Nothing => Finding::ok(check, format!("nothing is pinned under {path}")),
        Pinned::Maps { bypass: false } => {
            Finding::ok(check, format!("the maps under {path} are of this version"))
        }
        Pinned::Maps { bypass: true } | Pinned::OtherLayout { bypass: true, .. } => {
            Finding::problem(check, "limits are off: limiter lets every packet pass")
                .remedy("turn off the bypass")
                .command(on_pins("on"))
        }
        Pinned::OtherLayout { found, bypass: false } => Finding::note(
            check,
            format!(
                "the maps under {path} are of another version (layout {found}, this limiter has \
                 {ABI_VERSION}): a start replaces them, and its buckets and counters begin anew"
            ),
        ),
        Pinned::Refused(error) if may_bpf => Finding::unseen(check, error),
        Pinned::Refused(_) => {
            Finding::unprivileged(check, &format!("which maps are pinned under {path}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    const GOOD: PinPlace =
        PinPlace { file_system: FileSystem::Bpf, is_dotted: false, is_writable: true };

    fn judged(place: PinPlace, may_bpf: bool) -> Finding {
        super::place(Path::new("/x"), place, may_bpf)
    }

    #[test]
    fn a_place_is_on_a_bpf_file_system_or_will_be() {
        assert_eq!(judged(GOOD, true).level, Level::Ok);
        let bare = judged(PinPlace { file_system: FileSystem::ToMount, ..GOOD }, true);
        assert_eq!(bare.level, Level::Note);
        assert_eq!(bare.command.as_deref(), Some("mount -t bpf bpf /sys/fs/bpf"));
        let other = judged(PinPlace { file_system: FileSystem::Other, ..GOOD }, true);
        assert_eq!(other.level, Level::Problem);
        assert!(other.seen.contains("/x"));
        let dotted = judged(PinPlace { is_dotted: true, ..GOOD }, true);
        assert_eq!(dotted.level, Level::Problem);
        assert_eq!(dotted.remedy.as_deref(), Some("name another --pin-dir"));
    }

    #[test]
    fn who_may_not_write_learns_what_that_means() {
        let closed = PinPlace { is_writable: false, ..GOOD };
        assert_eq!(judged(closed, true).level, Level::Problem);
        assert_eq!(judged(closed, false).level, Level::Unknown);
    }

    #[test]
    fn pins_are_bypassed_or_foreign_or_not_seen() {
        let judged = |maps: &Pinned, may_bpf| pinned(Path::new("/x"), maps, may_bpf);
        assert_eq!(judged(&Pinned::Nothing, true).level, Level::Ok);
        assert_eq!(judged(&Pinned::Maps { bypass: false }, true).level, Level::Ok);
        let off = judged(&Pinned::Maps { bypass: true }, true);
        assert_eq!(
            (off.level, off.command.as_deref()),
            (Level::Problem, Some("limiter on --pin-dir /x"))
        );
        let usual = pinned(Path::new(PIN_DIR), &Pinned::Maps { bypass: true }, true);
        assert_eq!(usual.command.as_deref(), Some("limiter on"));
        let old = judged(&Pinned::OtherLayout { found: 1, bypass: false }, true);
        assert_eq!(old.level, Level::Note);
        assert!(old.seen.contains("layout 1"), "{}", old.seen);
        let old = judged(&Pinned::OtherLayout { found: 1, bypass: true }, true);
        assert_eq!(old.command.as_deref(), Some("limiter on --pin-dir /x"));
        let unseen = Pinned::Refused(DatapathError::NothingPinned("/x".into()));
        assert_eq!(judged(&unseen, true).level, Level::Unknown);
        let denied = judged(&unseen, false);
        assert_eq!(denied.level, Level::Unknown);
        assert!(denied.seen.contains("needs CAP_BPF"));
    }
}
