//! Kernel errors in words for the user: the whole chain of causes in one line, and the remedy.

use std::error::Error;
use std::fmt;
use std::io;

/// An error with its causes and the remedy. aya's own texts leave the kernel's answer to the cause.
pub(super) struct Reported<'a>(pub(super) &'a (dyn Error + 'static));

impl fmt::Display for Reported<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        let mut code = None;
        let mut cause = Some(self.0);
        while let Some(error) = cause {
            let text = error.to_string();
            // Only the first line: the verifier's log has thousands.
            let line = text.lines().next().unwrap_or_default();
            if !said.contains(line) {
                if !said.is_empty() {
                    said.push_str(": ");
                }
                said.push_str(line);
            }
            if let Some(error) = error.downcast_ref::<io::Error>() {
                code = error.raw_os_error().or(code);
            }
            cause = error.source();
        }
        write!(f, "{said}: {}", of(code))
    }
}

/// Remedy for an error number of the kernel.
const fn of(code: Option<i32>) -> &'static str {
    match code {
        Some(libc::EPERM) => "run as root, or with CAP_BPF and CAP_NET_ADMIN",
        // The verifier's answer: before 6.18, without CAP_PERFMON, it explores other paths.
        Some(libc::EACCES) => {
            "run as root, or with CAP_BPF and CAP_NET_ADMIN, and before Linux 6.18 CAP_PERFMON too"
        }
        Some(libc::ENOMEM) => {
            "free memory, or start with smaller --max-sources, --max-keys and --max-rules"
        }
        Some(libc::EMFILE | libc::ENFILE) => "raise the limit of open files",
        Some(libc::ENOSPC | libc::E2BIG) => {
            "make room: fewer rules and list entries, or larger maps"
        }
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => "try again",
        _ => "try again; if it stays, look into the kernel's log with `dmesg`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("map {map} failed\nand more")]
    struct Outer {
        map: &'static str,
        source: io::Error,
    }

    #[test]
    fn the_cause_and_the_remedy_are_in_one_line() {
        let source = io::Error::from_raw_os_error(libc::ENOMEM);
        let text = Reported(&Outer { map: "RULES", source }).to_string();
        assert!(
            text.starts_with("map RULES failed: Cannot allocate memory (os error 12): free memory"),
            "{text}"
        );
        assert!(!text.contains('\n'));
        let refused = Reported(&io::Error::from_raw_os_error(libc::EACCES)).to_string();
        assert!(refused.ends_with("before Linux 6.18 CAP_PERFMON too"), "{refused}");
        let text = Reported(&io::Error::other("odd")).to_string();
        assert_eq!(text, "odd: try again; if it stays, look into the kernel's log with `dmesg`");
    }
}
