//! fail2ban, whose bans the action of `dist` makes entries of the deny list.

use anyhow::{Result, ensure};

use crate::machine::{Machine, start_daemon, until};
use crate::package::debian;
use crate::page::Page;
use crate::partner::tried;

const TRIED: &str = "the action of `dist` and its lines for `jail.local`: failed log-ins, a ban, \
                     its end; fail2ban killed, stopped, restarted; the daemon restarted and away";

const JAIL: &str = "[sshd]\nenabled = true\nbackend = polling\nlogpath = /var/log/auth.log\n\
                    maxretry = 3\nbantime = 600\n";

/// Banned is who does not pass, and whom the list names.
fn is_banned(machine: &Machine, address: &str, wanted: bool) -> Result<()> {
    let ask = || {
        let lists = machine.run("limiter lists")?;
        let listed = lists
            .lines()
            .any(|line| line.starts_with(&format!("{address} ")) && line.contains("fail2ban-sshd"));
        ensure!(listed == wanted && machine.pings(address) != wanted, "{wanted}: {lists}");
        Ok(())
    };
    until("a ban, or its end", ask)
}

/// Five failed log-ins, as sshd logs them.
fn fail(machine: &Machine, address: &str) -> Result<()> {
    let failed = format!("Failed password for root from {address} port 40000 ssh2");
    let line = format!("echo \"$(date '+%b %e %T') host sshd[77]: {failed}\" >>/var/log/auth.log");
    machine.run(&format!("for i in 1 2 3 4 5; do {line}; done")).map(drop)
}

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("fail2ban", [debian("fail2ban")?])?;
    *version = machine.run("fail2ban-client --version | head -1")?.replace("Fail2Ban v", "");
    let action = Page::read("dist/fail2ban/limiter.conf")?;
    machine.put("/etc/fail2ban/action.d/limiter.conf", action.text())?;
    let mine = action.text().lines().filter_map(|line| line.strip_prefix("#   "));
    let mine: Vec<&str> = mine.filter(|line| line.starts_with("banaction")).collect();
    ensure!(mine.len() == 2, "the action has other lines for jail.local: {mine:?}");
    let jail = format!("[DEFAULT]\n{}\n{JAIL}", mine.join("\n"));
    machine.put("/etc/fail2ban/jail.local", &jail)?;
    machine.run("mkdir -p /run/fail2ban /var/lib/fail2ban; touch /var/log/auth.log")?;
    let [one, other] = ["192.0.2.7", "192.0.2.8"];
    for address in [one, other] {
        machine.add_peer(address)?;
    }
    start_daemon(&machine)?;
    let start = || -> Result<()> {
        machine.start("fail2ban", "fail2ban-server -xf start")?;
        machine.until("fail2ban-client ping && fail2ban-client status sshd")
    };
    start()?;
    is_banned(&machine, one, false)?;
    fail(&machine, one)?;
    is_banned(&machine, one, true)?;
    // Others are for the limits alone, and the daemon keeps what it was told.
    is_banned(&machine, other, false)?;
    machine.end("limiter", "TERM")?;
    ensure!(!machine.pings(one) && machine.pings(other), "without a daemon another verdict");
    start_daemon(&machine)?;
    is_banned(&machine, one, true)?;
    machine.signal("fail2ban", "STOP")?;
    is_banned(&machine, one, true)?;
    machine.end("fail2ban", "KILL")?;
    is_banned(&machine, one, true)?;
    start()?;
    is_banned(&machine, one, true)?;
    machine.run(&format!("fail2ban-client set sshd unbanip {one}"))?;
    is_banned(&machine, one, false)?;
    // fail2ban calls an action once: what it could not do, it does at its next start.
    machine.end("limiter", "TERM")?;
    fail(&machine, other)?;
    machine.until("grep 'Failed to execute ban' /var/log/fail2ban.log")?;
    start_daemon(&machine)?;
    is_banned(&machine, other, false)?;
    machine.end("fail2ban", "KILL")?;
    start()?;
    is_banned(&machine, other, true)?;
    // A stop in order takes its bans off.
    machine.end("fail2ban", "TERM")?;
    is_banned(&machine, other, false)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn bans_of_fail2ban_drop_packets() -> Result<()> {
    tried("fail2ban", TRIED, try_it)
}
