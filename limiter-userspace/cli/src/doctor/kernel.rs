//! The kernel, and the privileges to use it.

use limiter_datapath::machine::{Features, Privileges};

use super::finding::Finding;

/// First Linux whose verifier takes the program without `CAP_PERFMON`.
const WITHOUT_PERFMON: (u32, u32) = (6, 18);

/// First Linux that charges maps to the memory cgroup, and not to `RLIMIT_MEMLOCK`.
const WITHOUT_MEMLOCK: (u32, u32) = (5, 11);

/// Judges the kernel. Features are asked for by a process that may.
pub(super) fn kernel(release: &str, features: Option<&Features>) -> Finding {
    let check = "kernel";
    let Some(features) = features else {
        let what = format!("whether Linux {release} has all that the program needs");
        return Finding::unprivileged(check, &what);
    };
    if let Err(error) = &features.checked {
        return Finding::refused(check, error);
    }
    if features.unseen.is_empty() {
        return Finding::ok(check, format!("Linux {release} has all that the program needs"));
    }
    let unseen = features.unseen.join(", ");
    Finding::unknown(check, format!("Linux {release} does not say whether it has {unseen}"))
        .remedy("`limiter run` loads the program, and says so if it is refused")
}

/// Judges whether a limit of locked memory counts.
pub(super) fn memlock(release: &str) -> Finding {
    let check = "memlock";
    match version(release) {
        Some(version) if version >= WITHOUT_MEMLOCK => {
            Finding::ok(check, "maps do not count as locked memory, from Linux 5.11 on")
        }
        Some(_) => Finding::note(check, "maps count as locked memory before Linux 5.11"),
        None => Finding::unknown(check, format!("{release:?} is no release of Linux")),
    }
}

/// Judges what this process may do.
pub(super) fn capabilities(held: Privileges, release: &str) -> Finding {
    let check = "capabilities";
    if let Err(error) = held.check() {
        return Finding::refused(check, &error);
    }
    let needs_perfmon = version(release).is_none_or(|version| version < WITHOUT_PERFMON);
    if needs_perfmon && !held.perfmon {
        let seen = format!(
            "this process has no CAP_PERFMON, without which the verifier of Linux {release} may \
             refuse the program"
        );
        return Finding::warning(check, seen).remedy("run as root, or with CAP_PERFMON too");
    }
    Finding::ok(check, "this process may load the program and attach it")
}

/// Major and minor number of a release, as `6.1.0-18-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use limiter_datapath::DatapathError;

    use super::super::finding::Level;
    use super::*;

    const ROOT: Privileges = Privileges { bpf: true, net_admin: true, perfmon: true };

    #[test]
    fn a_release_is_read() {
        assert_eq!(version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("six"), None);
    }

    #[test]
    fn a_kernel_is_old_or_good_or_not_seen() {
        let lacking = DatapathError::OldKernel { release: "5.15".into(), lacking: "all".into() };
        let of = |unseen: &[&str], checked| Features {
            release: "5.15".into(),
            unseen: unseen.iter().map(|&name| name.to_owned()).collect(),
            checked,
        };
        let old = kernel("5.15", Some(&of(&[], Err(lacking))));
        assert_eq!(old.level, Level::Problem);
        assert_eq!(old.seen, "this kernel, Linux 5.15, lacks all");
        assert!(old.remedy.unwrap().starts_with("run a newer one"));
        assert_eq!(kernel("6.1", Some(&of(&[], Ok(())))).level, Level::Ok);
        let unseen = kernel("6.1", Some(&of(&["XDP programs"], Ok(()))));
        assert_eq!(unseen.level, Level::Unknown);
        assert!(unseen.seen.contains("XDP programs"));
        let denied = kernel("6.1", None);
        assert_eq!(denied.level, Level::Unknown);
        assert!(denied.seen.contains("CAP_BPF"));
    }

    #[test]
    fn memory_is_locked_before_5_11_only() {
        assert_eq!(memlock("5.11.0").level, Level::Ok);
        assert_eq!(memlock("5.10.200").level, Level::Note);
        assert_eq!(memlock("x").level, Level::Unknown);
    }

    #[test]
    fn each_capability_counts() {
        assert_eq!(capabilities(ROOT, "6.1").level, Level::Ok);
        for held in [Privileges { bpf: false, ..ROOT }, Privileges { net_admin: false, ..ROOT }] {
            let finding = capabilities(held, "6.18");
            assert_eq!(finding.level, Level::Problem);
            assert!(finding.remedy.unwrap().contains("CAP_BPF and CAP_NET_ADMIN"));
        }
        let service = Privileges { perfmon: false, ..ROOT };
        assert_eq!(capabilities(service, "6.18.0").level, Level::Ok);
        let old = capabilities(service, "6.12.3");
        assert_eq!(old.level, Level::Warning);
        assert!(old.seen.contains("6.12.3"));
    }
}
