//! Messages to the service manager, and interfaces that come back.

use std::io::ErrorKind;
use std::os::unix::net::UnixDatagram;

use limiter_api::bypass::Bypass;
use limiter_api::render;
use limiter_api::status::InterfaceState;
use limiter_common::header::Direction;
use limiter_datapath::{Hook, LinkChange, Mode, Neighbour, Refused};

use super::Daemon;
use crate::machine::notify::Notifier;

/// A daemon with the socket of its manager.
fn managed() -> (Daemon, UnixDatagram) {
    let mut daemon = Daemon::start(&[]);
    let path = daemon.directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    daemon.service.notifier = Notifier::to(path.to_str().unwrap());
    daemon.service.notify_ready();
    (daemon, manager)
}

/// The next message, if there is one.
fn said(manager: &UnixDatagram) -> Option<String> {
    let mut buffer = [0; 256];
    match manager.recv(&mut buffer) {
        Ok(length) => Some(String::from_utf8(buffer[..length].to_vec()).unwrap()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_daemon_that_cannot_answer_gives_no_sign_of_life() {
    let (mut daemon, manager) = managed();
    let ready = "READY=1\nSTATUS=fake0 native, 2 rules, generation 1";
    assert_eq!(said(&manager).as_deref(), Some(ready));
    crate::service::notified::alive(&daemon.service);
    assert_eq!(said(&manager).as_deref(), Some("WATCHDOG=1"));
    daemon.service.detach().unwrap();
    crate::service::notified::alive(&daemon.service);
    assert_eq!(said(&manager), None);
}

#[test]
fn the_status_is_reported_when_it_changes() {
    let (mut daemon, manager) = managed();
    said(&manager).unwrap();
    daemon.service.notify_changes();
    assert_eq!(said(&manager), None);
    daemon.service.bypass(Bypass { engaged: true, ..Bypass::default() }).unwrap();
    daemon.service.notify_changes();
    assert_eq!(
        said(&manager).as_deref(),
        Some(
            "STATUS=fake0 native, 2 rules, generation 1, but nothing is limited until `limiter on`"
        )
    );
}

#[test]
fn rules_are_planned_again_when_an_interface_is_back() {
    let mut daemon = Daemon::start(&[]);
    let mut commits_after = |change| {
        daemon.fake.state().link_changes = vec![change];
        daemon.service.look_after_links();
        daemon.fake.state().commits
    };
    let name = || "fake0".to_owned();
    assert_eq!(commits_after(LinkChange::Gone(name())), 1);
    assert_eq!(commits_after(LinkChange::Detached { interface: name(), hook: Hook::Xdp }), 1);
    let error = "it is used".to_owned();
    let refused = Refused { interface: name(), mode: Mode::Native, error };
    assert_eq!(commits_after(LinkChange::Refused(refused)), 1);
    // No rule names the interface.
    assert_eq!(commits_after(LinkChange::Appeared(name())), 1);
    assert_eq!(commits_after(LinkChange::Left(name())), 1);
    assert_eq!(commits_after(LinkChange::Elsewhere(name())), 1);
    assert_eq!(commits_after(LinkChange::Unseen(name())), 1);
    assert_eq!(commits_after(LinkChange::Back(name())), 2);
    assert_eq!(commits_after(LinkChange::Renamed { was: "fake1".to_owned(), name: name() }), 3);
}

#[test]
fn a_daemon_without_its_pins_has_nothing_to_say() {
    let mut daemon = Daemon::start(&[]);
    daemon.fake.state().unpinned = true;
    daemon.service.look_after_links();
    assert!(daemon.service.status().is_err());
    let state = daemon.fake.state();
    assert!(state.left && !state.detached, "pins that are another's by now were removed");
}

/// A new container changes nothing for rules that do not name it.
#[test]
fn rules_are_planned_again_when_an_interface_of_theirs_appears() {
    for (keys, wanted) in [
        ("key: interface, value: fake1", 1),
        ("key: interface, value: fake0", 0),
        ("key: interface", 0),
        ("key: vlan, value: 7", 1),
    ] {
        let mut daemon = Daemon::start(&[]);
        daemon.write(&format!("descriptors:\n  - {{{keys}, rate_limit: {{rate: 9/s}}}}\n"));
        daemon.service.reload().unwrap();
        let before = daemon.fake.state().commits;
        daemon.fake.state().link_changes = vec![LinkChange::Appeared("fake1".to_owned())];
        daemon.service.look_after_links();
        assert_eq!(daemon.fake.state().commits - before, wanted, "{keys}");
    }
}

/// Every report of attached interfaces also reports the one that is not attached.
#[test]
fn an_interface_that_is_refused_is_reported() {
    let (mut daemon, manager) = managed();
    said(&manager).unwrap();
    let refused = Refused {
        interface: "fake1".to_owned(),
        mode: Mode::Tc(Direction::Out),
        error: "it is used".to_owned(),
    };
    daemon.fake.state().refused = vec![refused];
    daemon.service.notify_changes();
    let summary = "STATUS=fake0 native, 1 not attached, 2 rules, generation 1";
    assert_eq!(said(&manager).as_deref(), Some(summary));
    let status = daemon.service.status().unwrap();
    let interface = status.interfaces.last().unwrap();
    assert_eq!(
        (interface.name.as_str(), interface.attached, interface.ifindex),
        ("fake1", false, 8)
    );
    assert_eq!(interface.state, InterfaceState::Refused);
    let text = render::text(&status);
    assert!(text.contains("fake1 tc out, not attached: packets pass (it is used)"), "{text}");
    let metrics = daemon.service.metrics().unwrap();
    let line = "limiter_interface_attached{interface=\"fake1\",direction=\"out\"} 0";
    assert!(metrics.contains(line), "{metrics}");
}

#[test]
fn status_names_programs_before_limiter_and_other_limiters() {
    let daemon = Daemon::start(&[]);
    let index = daemon.service.status().unwrap().interfaces[0].ifindex;
    let at = |program_id, is_before, name: Option<&str>| Neighbour {
        hook: Hook::Tc(Direction::In),
        program_id,
        name: name.map(str::to_owned),
        is_before,
        pins: None,
    };
    let neighbours = vec![at(7, true, None), at(8, false, Some("limiter_l3")), at(9, false, None)];
    daemon.fake.state().neighbours.insert(index, neighbours);
    let status = daemon.service.status().unwrap();
    let text = render::text(&status);
    for part in
        ["program 7 runs before limiter at tc in", "another limiter is at tc in, too (program 8)"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(!text.contains("program 9"), "{text}");
    assert_eq!(status.interfaces[0].others.len(), 3);
}
