//! `CrowdSec`'s local API, whose decisions the bouncer keeps on the deny list.

use anyhow::{Result, ensure};

use crate::machine::{Machine, start_daemon, until};
use crate::package::debian;
use crate::page::Page;
use crate::partner::tried;

const TRIED: &str = "the page's bouncer: decisions on an address and a range come with their \
                     reason and go, a captcha and the own address deny nobody; the API hanging, \
                     killed, restarted, with a deleted key; the bouncer and the daemon restarted \
                     and away";

/// Debian's package makes the account of the machine in its own script, and registers at
/// CrowdSec's service, which nobody needs here.
const SET_UP: &str = "mkdir -p /var/lib/crowdsec/data /var/lib/crowdsec/hub
cp -r /usr/share/crowdsec/hub/. /var/lib/crowdsec/hub/
sed -i 's/daemonize: true/daemonize: false/; /online_client/d; /online_api/d' \
                      /etc/crowdsec/config.yaml
touch /etc/crowdsec/console.yaml
cscli machines add --auto --force 2>&1";

/// Waits until these are the sources of the author `crowdsec` on the deny list, with reasons.
fn denies(machine: &Machine, wanted: &[(&str, &str)]) -> Result<()> {
    until("the bouncer has changed the list", || {
        let said = machine.run("limiter lists")?;
        let listed: Vec<&str> = said.lines().filter(|line| line.contains(" crowdsec ")).collect();
        let is = |line: &&str, (source, reason): (&str, &str)| {
            line.starts_with(&format!("{source} ")) && line.trim_end().ends_with(reason)
        };
        let all = wanted.iter().all(|wanted| listed.iter().any(|line| is(line, *wanted)));
        ensure!(all && listed.len() == wanted.len(), "not {wanted:?}: {said}");
        Ok(())
    })
}

/// Waits until the bouncer has said something since the last time; and that it said it once.
fn says(machine: &Machine, what: &str) -> Result<()> {
    let said = |what: &str| Ok::<_, anyhow::Error>(machine.said("bouncer")?.matches(what).count());
    until(what, || Ok(ensure!(said(what)? > 0, "{}", machine.said("bouncer")?)))?;
    ensure!(said(what)? == 1, "it says {what:?} again: {}", machine.said("bouncer")?);
    machine.run(": >/run/partners/bouncer.log").map(drop)
}

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("crowdsec", [debian("crowdsec")?])?;
    *version = machine.run("cscli version 2>&1 | sed -n 's/.*version: *//p'")?;
    let page = Page::read("docs/recipes.md")?;
    let block = page.block("## CrowdSec\n\n```console\n")?;
    let lines: Vec<&str> = block.lines().filter_map(|line| line.strip_prefix("# ")).collect();
    let [key, bouncer] = lines[..] else { anyhow::bail!("other lines: {block}") };
    start_daemon(&machine)?;
    machine.run(SET_UP)?;
    let start = || -> Result<()> {
        machine.start("crowdsec", "crowdsec -no-cs")?;
        machine.until("cscli decisions list -o json")
    };
    start()?;
    machine.run(key)?;
    let start_bouncer = || machine.start("bouncer", &format!("{bouncer} --interval 1s"));
    start_bouncer()?;
    says(&machine, "CrowdSec has no bans")?;
    let decide = |what: &str| machine.run(&format!("cscli decisions {what} 2>&1")).map(drop);

    // A decision comes with its reason, and goes.
    ensure!(machine.pings("192.0.2.1"), "somebody is denied");
    decide("add --ip 192.0.2.1 --duration 4h --reason crowdsecurity/ssh-bf")?;
    decide("add --range 198.51.100.0/24 --duration 100h --reason scan")?;
    decide("add --ip 192.0.2.3 --duration 4h --type captcha --reason crawl")?;
    let both = [("192.0.2.1", "crowdsecurity/ssh-bf"), ("198.51.100.0/24", "scan")];
    denies(&machine, &both)?;
    says(&machine, "its remedy is captcha")?;
    ensure!(!machine.pings("192.0.2.1"), "an entry denies nobody");
    decide("add --ip 192.0.2.254 --duration 4h")?;
    says(&machine, "192.0.2.254 is not denied: it has 192.0.2.254, the own address of eth0")?;
    decide("delete --range 198.51.100.0/24")?;
    denies(&machine, &both[..1])?;

    // Without an answer the list stays, whatever the reason.
    machine.signal("crowdsec", "STOP")?;
    machine.end("bouncer", "KILL")?;
    start_bouncer()?;
    machine.run("sleep 3")?;
    denies(&machine, &both[..1])?;
    machine.signal("crowdsec", "CONT")?;
    says(&machine, "bans of CrowdSec are in force")?;
    machine.end("crowdsec", "KILL")?;
    machine.run("sleep 5")?;
    says(&machine, "entries of the deny list stay until their ends")?;
    denies(&machine, &both[..1])?;
    ensure!(!machine.pings("192.0.2.1"), "nobody is denied without the API");
    start()?;
    says(&machine, "it works again")?;
    denies(&machine, &both[..1])?;

    // A deleted key is not for ever: the list stays, and the next key serves.
    machine.run("cscli bouncers delete limiter 2>&1")?;
    says(&machine, "it refuses the key (status 403)")?;
    denies(&machine, &both[..1])?;
    machine.run(key)?;
    machine.end("bouncer", "TERM")?;
    decide("add --ip 192.0.2.4 --duration 4h --reason later")?;
    start_bouncer()?;
    let three = [both[0], ("192.0.2.4", "later")];
    denies(&machine, &three)?;

    // The daemon away: what changes then is there when it is back.
    machine.end("limiter", "TERM")?;
    decide("delete --ip 192.0.2.1")?;
    says(&machine, "/run/limiter/limiter.sock")?;
    start_daemon(&machine)?;
    denies(&machine, &three[1..])?;
    ensure!(machine.pings("192.0.2.1"), "the end of a decision ends nothing");

    // All deleted while the bouncer is away: named as deleted, they go.
    machine.end("bouncer", "KILL")?;
    decide("delete --all")?;
    start_bouncer()?;
    denies(&machine, &[])
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn decisions_of_crowdsec_become_a_list() -> Result<()> {
    tried("CrowdSec, local API", TRIED, try_it)
}
