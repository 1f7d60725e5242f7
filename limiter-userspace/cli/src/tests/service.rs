//! The command lines of the unit in dist/systemd, which the packages install, are ones that the
//! binary takes.

use super::{Command, parse};

const UNIT: &str = include_str!("../../../../dist/systemd/limiter.service");
const ENVIRONMENT: &str = include_str!("../../../../dist/systemd/limiter.env");

/// The value of the one line of a file that sets the key.
fn value<'a>(file: &'a str, key: &str) -> &'a str {
    let mut values = file.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    let value = values.next().unwrap_or_else(|| panic!("no {key}="));
    assert_eq!(values.next(), None, "{key}= stands twice");
    value
}

/// The binary accepts the command lines of the unit.
#[test]
fn the_service_starts_and_reloads_as_the_binary_is_started_and_reloaded() {
    let options = value(ENVIRONMENT, "LIMITER_RUN");
    let start = value(UNIT, "ExecStart").replace("$LIMITER_RUN", options);
    let args = parse(&start).unwrap_or_else(|error| panic!("{start}: {error}"));
    let Command::Run(run) = &args.command else { panic!("{start}: {args:?}") };
    // Directories that the unit makes, or packages.
    let options = run.options(args.socket.clone()).unwrap();
    let of_unit = |key: &str, above: &str| format!("{above}/{}", value(UNIT, key));
    assert_eq!(options.state_dir.to_str(), Some(&*of_unit("StateDirectory", "/var/lib")));
    let runtime = of_unit("RuntimeDirectory", "/run");
    assert_eq!(args.socket.parent().and_then(|path| path.to_str()), Some(&*runtime));
    let pins = value(UNIT, "ReadWritePaths").trim_start_matches('-');
    assert_eq!(options.datapath.pin_dir.to_str(), Some(pins));
    let reload = parse(value(UNIT, "ExecReload")).unwrap();
    assert!(matches!(reload.command, Command::Reload(_)), "{reload:?}");
}

/// The unit of the bouncer, which a page shows.
#[cfg(feature = "import")]
#[test]
fn the_bouncer_starts_as_the_binary_is_started_as_the_user_of_the_daemon() {
    let page = include_str!("../../../../docs/recipes.md");
    let (_, unit) = page.split_once("# /etc/systemd/system/limiter-crowdsec.service\n").unwrap();
    let (unit, _) = unit.split_once("```").unwrap();
    let start = value(unit, "ExecStart");
    let args = parse(start).unwrap_or_else(|error| panic!("{start}: {error}"));
    assert!(matches!(args.command, Command::Crowdsec(_)), "{start}: {args:?}");
    // The daemon takes changes from its own user, and from root.
    assert_eq!(value(unit, "User"), value(UNIT, "User"));
    assert_eq!(value(unit, "CapabilityBoundingSet"), "");
}

#[cfg(feature = "requests")]
const SERVE: &str = include_str!("../../../../dist/systemd/limiter-serve.service");

#[cfg(feature = "requests")]
#[test]
fn the_service_for_requests_starts_as_the_binary_is_started_and_has_no_privilege() {
    let environment = value(SERVE, "Environment").trim_matches('"');
    let options = environment.strip_prefix("LIMITER_SERVE=").unwrap();
    let start = value(SERVE, "ExecStart").replace("$LIMITER_SERVE", options);
    let args = parse(&start).unwrap_or_else(|error| panic!("{start}: {error}"));
    assert!(matches!(args.command, Command::Serve(_)), "{start}: {args:?}");
    // The directory that the unit makes; another one, given with the other options, is the one.
    let state = format!("--state-dir /var/lib/{} ", value(SERVE, "StateDirectory"));
    assert!(start.contains(&state), "{start}");
    parse(&format!("{start} --state-dir /elsewhere")).unwrap();
    // The socket is where the service listens without it.
    let socket = include_str!("../../../../dist/systemd/limiter-serve.socket");
    assert_eq!(value(socket, "ListenStream"), limiter_requests::DEFAULT_LISTEN.to_string());
    for key in ["IPAddressDeny", "IPAddressAllow"] {
        assert_eq!(value(socket, key), value(SERVE, key));
    }
    for key in ["AmbientCapabilities", "CapabilityBoundingSet"] {
        assert_eq!(value(SERVE, key), "");
    }
    // The daemon takes bans from its own user.
    assert_eq!(value(SERVE, "User"), value(UNIT, "User"));
}
