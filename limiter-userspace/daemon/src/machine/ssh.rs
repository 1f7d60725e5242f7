//! The SSH session from which this process was started: the address of its peer.

use std::fs;
use std::path::Path;

use limiter_api::rules::Session;

/// Most ancestors to look at: more than any nesting of shells.
const MAX_ANCESTORS: usize = 64;

/// The SSH session from which this process was started.
pub fn own_session() -> Option<Session> {
    session(Path::new("/proc"), std::process::id())
}

/// The SSH session of a process, from its environment or, because sudo removes it there, from those
/// of its ancestors. `proc` is the mount point of procfs.
fn session(proc: &Path, pid: u32) -> Option<Session> {
    let mut pid = pid;
    for _ in 0..MAX_ANCESTORS {
        let directory = proc.join(pid.to_string());
        // Another user's environment may be unreadable while that of a further ancestor is not.
        if let Ok(environment) = fs::read(directory.join("environ"))
            && let Some(session) = in_environment(&environment)
        {
            return Some(session);
        }
        pid = parent(&fs::read_to_string(directory.join("stat")).ok()?)?;
        if pid == 0 {
            return None;
        }
    }
    None
}

/// Parses `SSH_CONNECTION=client port server port` or `SSH_CLIENT=client port port`.
fn in_environment(environment: &[u8]) -> Option<Session> {
    environment.split(|byte| *byte == 0).find_map(|entry| {
        let (value, port_at) = match entry.strip_prefix(b"SSH_CONNECTION=") {
            Some(value) => (value, 3),
            None => (entry.strip_prefix(b"SSH_CLIENT=")?, 2),
        };
        let words: Vec<&str> = str::from_utf8(value).ok()?.split_whitespace().collect();
        // A link-local address has a zone.
        let peer = words.first()?.split('%').next()?.parse().ok()?;
        let port = words.get(port_at).and_then(|port| port.parse().ok());
        Some(Session { peer, port })
    })
}

/// The fourth field of `stat`; the second is a name in parentheses that may contain anything.
fn parent(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(proc: &Path, pid: u32, parent: u32, environment: &[u8]) {
        let directory = proc.join(pid.to_string());
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("environ"), environment).unwrap();
        fs::write(directory.join("stat"), format!("{pid} (a) b c) S {parent} 1 1 0")).unwrap();
    }

    #[test]
    fn the_peer_is_found_past_sudo() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 30, 20, b"PATH=/bin\0SUDO_USER=x\0");
        process(proc.path(), 20, 10, b"");
        process(proc.path(), 10, 1, b"A=B\0SSH_CONNECTION=192.0.2.9 5000 192.0.2.1 22\0");
        process(proc.path(), 1, 0, b"");
        let found = Session { peer: "192.0.2.9".parse().unwrap(), port: Some(22) };
        assert_eq!(session(proc.path(), 30), Some(found));
        assert_eq!(session(proc.path(), 1), None);
        assert_eq!(session(proc.path(), 99), None);
    }

    #[test]
    fn both_variables_and_zones_are_read() {
        for (environment, address) in [
            (&b"SSH_CLIENT=2001:db8::5 1 2222\0"[..], Some(("2001:db8::5", Some(2222)))),
            (b"SSH_CONNECTION=fe80::1%eth0 1 fe80::2%eth0 22", Some(("fe80::1", Some(22)))),
            (b"SSH_CONNECTION=192.0.2.3", Some(("192.0.2.3", None))),
            (
                b"SSH_CONNECTION=UNKNOWN 65535 UNKNOWN 65535\0SSH_CLIENT=192.0.2.3 1 2\0",
                Some(("192.0.2.3", Some(2))),
            ),
            (b"XSSH_CLIENT=192.0.2.3 1 2\0", None),
            (b"\xff\0SSH_CLIENT=\xff\0", None),
        ] {
            let wanted = address.map(|(peer, port)| Session { peer: peer.parse().unwrap(), port });
            assert_eq!(in_environment(environment), wanted);
        }
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let proc = tempfile::tempdir().unwrap();
        process(proc.path(), 5, 5, b"");
        assert_eq!(session(proc.path(), 5), None);
    }
}
