//! Two daemons on one machine: each has pins, state and a socket of its own, or the second one is
//! refused.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::cables::{FAR, NEAR, passed_of, second_cable, send_ten};
use limiter_tests::command;
use limiter_tests::limiter::{Limiter, binary};
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

const SOURCE: [u8; 4] = [203, 0, 113, 77];

/// The options that a second daemon needs.
const OPTIONS: [&str; 3] = ["--state-dir", "--pin-dir", "--socket"];

fn rules(burst: u32) -> String {
    format!(
        "descriptors:\n  - {{key: remote_address, rate_limit: {{unit: hour, requests_per_unit: 20, \
         burst: {burst}}}}}\n"
    )
}

/// A limiter on an interface that has all paths of the first one.
fn another(bed: &Testbed, interface: &str, burst: u32) -> Result<Limiter> {
    let file = bed.dir.write("another.yaml", rules(burst))?;
    Ok(Limiter::new(binary()?, &file, interface, bed))
}

/// Message of a `limiter run` that must end with exit code 2.
fn refusal(limiter: &Limiter) -> Result<String> {
    let output = limiter.run_to_end()?;
    let said = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(2), "exit code {:?}: {said}", output.status.code());
    let errors: Vec<_> = said.lines().filter(|line| line.starts_with("limiter: ")).collect();
    ensure!(errors.len() == 1, "not one error: {said}");
    Ok(errors[0].to_owned())
}

fn is_attached(limiter: &Limiter) -> Result<bool> {
    Ok(limiter.json(&["status"])?["interfaces"][0]["attached"] == true)
}

#[test]
fn a_second_daemon_follows_the_remedies() -> Result<()> {
    require_root();
    let bed = Testbed::create("beside")?;
    second_cable(&bed)?;
    let mut first = bed.limiter(&rules(5))?;
    first.start()?;
    let generation = first.json(&["status"])?["generation"].clone();
    let pid = first.pid().context("no daemon")?.to_string();
    let mut second = another(&bed, NEAR, 8)?;
    let own = |name: &str| bed.dir.path().join(name);
    let pins = second.pins().to_owned();
    // Each remedy alone leads to the next refusal, and all of them name all options.
    for step in 0..3 {
        let said = refusal(&second)?;
        for option in OPTIONS {
            ensure!(said.contains(option), "{option} is not named: {said}");
        }
        match step {
            0 => {
                ensure!(said.contains("state directory") && said.contains(&pid), "{said}");
                second.keep_in(&own("second-state"));
            }
            1 => {
                ensure!(said.contains("another daemon listens there"), "{said}");
                second.listen_at(&own("second.sock"));
            }
            _ => {
                let named = said.contains(&pins.display().to_string()) && said.contains(&pid);
                ensure!(named && said.contains("pin directory"), "{said}");
            }
        }
        ensure!(is_attached(&first)?, "the first daemon lost its interface");
        let now = first.json(&["status"])?["generation"].clone();
        ensure!(now == generation, "the refused start changed the rules of the first one");
    }
    second.pin_in(&bed.bpffs.path().join("second"));
    second.start()?;
    for (limiter, into, passes) in [(&first, SENDER.interface, 5), (&second, FAR, 8)] {
        send_ten(&bed, into, SOURCE)?;
        let passed = passed_of(limiter, SOURCE, 10)?;
        ensure!(passed == passes, "{passed} of 10 passed on {into}, not {passes}");
    }
    // The lock ends with its process, however that ends.
    for limiter in [&mut first, &mut second] {
        limiter.kill()?;
        limiter.start()?;
        ensure!(limiter.json(&["status"])?["interfaces"][0]["adopted"] == true);
    }
    // `limiter detach` of one leaves the other.
    second.on_pins("detach")?;
    ensure!(is_attached(&first)?, "detaching the second daemon detached the first one");
    second.wait_until_ended()?;
    send_ten(&bed, SENDER.interface, SOURCE)?;
    ensure!(passed_of(&first, SOURCE, 20)? == 5, "the first one's rules are not in force");
    second.close()?;
    first.close()?;
    bed.close()
}

/// By a symbolic link, through a parent, and by a bind mount.
#[test]
fn a_pin_directory_is_locked_by_whatever_path() -> Result<()> {
    require_root();
    let bed = Testbed::create("onedir")?;
    second_cable(&bed)?;
    let mut first = bed.limiter(&rules(5))?;
    first.start()?;
    let pins = first.pins().to_owned();
    let link = bed.dir.path().join("link");
    std::os::unix::fs::symlink(&pins, &link)?;
    let through = pins.join("maps/..");
    let bound = bed.dir.path().join("bound");
    fs::create_dir(&bound)?;
    command::run("mount", ["--bind".as_ref(), pins.as_os_str(), bound.as_os_str()])?;
    let mut second = another(&bed, NEAR, 8)?;
    second.keep_in(&bed.dir.path().join("second-state"));
    second.listen_at(&bed.dir.path().join("second.sock"));
    let refused: Vec<Result<(PathBuf, String)>> = [link, through, bound.clone()]
        .into_iter()
        .map(|path| {
            second.pin_in(&path);
            Ok((path, refusal(&second)?))
        })
        .collect();
    // The next steps must not find the first one's pins.
    second.pin_in(&bed.bpffs.path().join("second"));
    command::run("umount", [bound])?;
    for refused in refused {
        let (path, said) = refused?;
        let named = said.contains(&path.display().to_string());
        ensure!(named && said.contains("another daemon"), "{}: {said}", path.display());
    }
    ensure!(is_attached(&first)?);
    second.start()?;
    second.close()?;
    first.close()?;
    bed.close()
}

/// The remedy names the directory, and what it takes the limits off; typed as it stands, it clears
/// the way.
#[test]
fn the_pins_of_another_limiter_are_named() -> Result<()> {
    require_root();
    for killed in [false, true] {
        let bed = Testbed::create("that")?;
        second_cable(&bed)?;
        let mut first = bed.limiter(&rules(5))?;
        first.pin_in(&bed.bpffs.path().join("deep/below/pins"));
        first.options(["--iface", NEAR]).start()?;
        if killed {
            first.kill()?;
        }
        let mut second = another(&bed, RECEIVER.interface, 8)?;
        second.apart("second");
        let said = refusal(&second)?;
        let both = format!("{}, {NEAR}", RECEIVER.interface);
        ensure!(said.contains(&both), "it does not say what else goes: {said}");
        let command = said.split('`').nth(1).context("no command")?;
        let words: Vec<_> = command.split(' ').collect();
        let pins = first.pins().display().to_string();
        ensure!(words == ["limiter", "detach", "--pin-dir", &pins], "{said}");
        let said = second.ok(&words[1..])?;
        ensure!(said == format!("detached from {both}\n"), "{said}");
        if !killed {
            // The daemon has nothing left to limit with, and does not claim to.
            let said = first.wait_until_ended()?;
            ensure!(said.contains("the pins were removed"), "{said}");
            ensure!(!said.contains("stay in force"), "{said}");
        }
        // The kernel takes a link off a little after its last pin and descriptor are gone.
        let gone = (0..100).any(|_| {
            sleep(Duration::from_millis(20));
            second.xdp().is_ok_and(|xdp| xdp.is_null())
        });
        ensure!(gone, "{}", second.xdp()?);
        second.start()?;
        send_ten(&bed, SENDER.interface, SOURCE)?;
        ensure!(passed_of(&second, SOURCE, 10)? == 8);
        second.close()?;
        first.close()?;
        bed.close()?;
    }
    Ok(())
}

/// The bypass is in the pins, so every daemon sees it, from any of them.
#[test]
fn a_bypass_past_the_daemon_is_reported_by_it() -> Result<()> {
    require_root();
    let bed = Testbed::create("past")?;
    let mut first = bed.limiter(&rules(5))?;
    first.start()?;
    let mut past = another(&bed, RECEIVER.interface, 8)?;
    past.listen_at(&bed.dir.path().join("nobody.sock"));
    past.on_pins("off")?;
    ensure!(first.json(&["status"])?["bypass"] == true);
    past.on_pins("on")?;
    ensure!(first.json(&["status"])?["bypass"] == false);
    past.pin_in(&bed.bpffs.path().join("none"));
    first.close()?;
    past.close()?;
    bed.close()
}
