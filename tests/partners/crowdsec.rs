//! `CrowdSec`'s local API, whose decisions become a list.

use anyhow::{Result, ensure};

use crate::machine::{Machine, start_daemon};
use crate::package::debian;
use crate::page::Page;
use crate::partner::tried;

const TRIED: &str = "the page's pipe from `cscli` into the deny list: a decision comes and goes; \
                     the API killed, stopped, restarted: the list stays";

/// Debian's package makes the account of the machine in its own script, and registers at
/// CrowdSec's service, which nobody needs here.
const SET_UP: &str = "mkdir -p /var/lib/crowdsec/data /var/lib/crowdsec/hub
cp -r /usr/share/crowdsec/hub/. /var/lib/crowdsec/hub/
sed -i 's/daemonize: true/daemonize: false/; /online_client/d; /online_api/d' \
                      /etc/crowdsec/config.yaml
touch /etc/crowdsec/console.yaml
cscli machines add --auto --force 2>&1";

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("crowdsec", [debian("crowdsec")?])?;
    *version = machine.run("cscli version 2>&1 | sed -n 's/.*version: *//p'")?;
    let page = Page::read("docs/import.md")?;
    let [begins, ends] = ["`cscli decisions list", "`"];
    let line = page.text().split(begins).find_map(|rest| {
        let (command, _) = rest.split_once(ends)?;
        let words = command.split_whitespace().collect::<Vec<_>>().join(" ");
        command.contains("limiter deny").then(|| format!("cscli decisions list {words}"))
    });
    let Some(line) = line else { anyhow::bail!("the page has no pipe") };
    start_daemon(&machine)?;
    machine.run(SET_UP)?;
    let start = || -> Result<()> {
        machine.start("crowdsec", "crowdsec -no-cs")?;
        machine.until("cscli decisions list -o json")
    };
    start()?;
    machine.run("ping -c 1 -W 1 192.0.2.1")?;
    let denied = || Ok::<_, anyhow::Error>(machine.run("limiter lists")?.contains("crowdsec"));
    machine.run("cscli decisions add --ip 192.0.2.1 --duration 4h 2>&1")?;
    machine.run(&line)?;
    ensure!(denied()? && !machine.pings("192.0.2.1"), "a decision denies nobody");
    // No answer is no empty list, whatever ended it.
    machine.signal("crowdsec", "STOP")?;
    machine.fails(&line.replace("cscli", "timeout 3 cscli"))?;
    ensure!(denied()?, "the list is gone while the API hangs");
    machine.signal("crowdsec", "CONT")?;
    machine.run(&line)?;
    machine.end("crowdsec", "KILL")?;
    machine.fails(&line)?;
    ensure!(denied()? && !machine.pings("192.0.2.1"), "the list is gone without the API");
    start()?;
    machine.run(&line)?;
    ensure!(denied()?, "the list is gone after a restart");
    machine.run("cscli decisions delete --all 2>&1")?;
    machine.run(&line)?;
    ensure!(!denied()? && machine.pings("192.0.2.1"), "the end of a decision ends nothing");
    Ok(())
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn decisions_of_crowdsec_become_a_list() -> Result<()> {
    tried("CrowdSec, local API", TRIED, try_it)
}
