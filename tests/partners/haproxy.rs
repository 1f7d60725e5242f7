//! `HAProxy` of Debian.

use anyhow::{Context as _, Result, ensure};

use crate::machine::Machine;
use crate::package::debian;
use crate::partner::tried;
use crate::proxy::{Proxy, TRIED};

const HAPROXY: Proxy = Proxy {
    column: 2,
    headers: ["\r\nratelimit: \"logins\";r=LEFT;t=", "\r\nretry-after: "],
    start: |machine, page, refusing| {
        machine.put("/etc/haproxy/limiter.lua", page.block("```lua\n")?)?;
        let lines = page.block("```haproxy\n")?;
        let refuse = "# http-request return status 503";
        ensure!(lines.contains(refuse), "the page has another line for closed");
        let lines = if refusing { lines.replace(refuse, &refuse[2..]) } else { lines.to_owned() };
        let mode = "defaults\n    mode http\n    timeout connect 5s\n    timeout client 50s\n    \
                    timeout server 50s\n";
        let application = "backend application\n    server one application:80\n";
        machine.put("/etc/haproxy/haproxy.cfg", &format!("{mode}{lines}{application}"))?;
        machine.start("proxy", "haproxy -db -f /etc/haproxy/haproxy.cfg")
    },
};

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("haproxy", [debian("haproxy")?])?;
    let said = machine.run("haproxy -v")?;
    said.split(' ').nth(2).context("no version")?.clone_into(version);
    HAPROXY.follows_the_page(&machine)?;
    // Other paths are not asked about.
    for _ in 0..5 {
        let answer = machine.get("/", "")?;
        ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    Ok(())
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn haproxy_limits_log_ins_by_the_files_of_the_page() -> Result<()> {
    tried("HAProxy", TRIED, try_it)
}
