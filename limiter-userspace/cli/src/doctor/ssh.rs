//! The SSH session in which this is typed: the way that it comes, and whether limits may cut it.

use std::net::IpAddr;
use std::path::Path;

use limiter_rules::{Selector, source_text};

use super::command::to_daemon;
use super::finding::Finding;

/// Judges whether the session is safe. `spared` are the prefixes that the daemon never limits, or
/// has on its allow list; `None` without a daemon.
pub(super) fn session(peer: Option<IpAddr>, spared: Option<&[String]>, socket: &Path) -> Finding {
    let check = "ssh";
    let Some(peer) = peer else {
        return Finding::ok(check, "no SSH session is the way to this command");
    };
    let own = Selector::address(peer);
    let is_spared = |text: &String| source_text::parse(text).is_ok_and(|it| it.contains(&own));
    match spared {
        None => Finding::note(
            check,
            format!(
                "this SSH session is from {peer}: `limiter run` in it never limits that address, a \
                 service needs an option"
            ),
        )
        .remedy(format!("start a service with --management {peer}, or the network around it")),
        Some(spared) if spared.iter().any(is_spared) => {
            Finding::ok(check, format!("this SSH session, from {peer}, is never limited"))
        }
        Some(_) => Finding::warning(
            check,
            format!("this SSH session is from {peer}, which the rules may limit"),
        )
        .remedy("allow it, or start the daemon with --management")
        .command(format!("{} allow {peer}", to_daemon(socket))),
    }
}

/// Judges whether the session comes by one of the interfaces. The way back stands for the way here.
pub(super) fn way(peer: IpAddr, by: Result<Option<&str>, String>) -> Finding {
    let check = "ssh-path";
    match by {
        Ok(Some(name)) => Finding::ok(check, format!("the way to {peer} is by {name}")).on(name),
        Ok(None) => Finding::unknown(check, format!("there is no way to {peer} from here")),
        Err(error) => Finding::unknown(check, format!("the way to {peer}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;
    use crate::args::defaults::SOCKET;

    fn judged(spared: Option<&[&str]>) -> Finding {
        let spared = spared.map(|all| all.iter().map(|&it| it.to_owned()).collect::<Vec<_>>());
        session("192.0.2.9".parse().ok(), spared.as_deref(), Path::new(SOCKET))
    }

    #[test]
    fn a_session_is_spared_or_not() {
        assert_eq!(session(None, None, Path::new("/s")).level, Level::Ok);
        let alone = judged(None);
        assert_eq!(alone.level, Level::Note);
        assert!(alone.remedy.unwrap().contains("--management 192.0.2.9"));
        assert_eq!(judged(Some(&["2001:db8::/32", "192.0.2.0/24"])).level, Level::Ok);
        let open = judged(Some(&["198.51.100.0/24", "no prefix"]));
        assert_eq!(open.level, Level::Warning);
        assert_eq!(open.command.as_deref(), Some("limiter allow 192.0.2.9"));
    }

    #[test]
    fn the_way_is_said() {
        let peer = "192.0.2.9".parse().unwrap();
        assert_eq!(way(peer, Ok(Some("eth0"))).interface.as_deref(), Some("eth0"));
        assert_eq!(way(peer, Ok(None)).level, Level::Unknown);
        assert!(way(peer, Err("no".to_owned())).seen.contains("192.0.2.9: no"));
    }
}
