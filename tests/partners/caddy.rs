//! Caddy of Debian.

use anyhow::Result;

use crate::machine::Machine;
use crate::package::debian;
use crate::partner::tried;
use crate::proxy::{Proxy, TRIED};

const CADDY: Proxy = Proxy {
    column: 3,
    headers: ["\r\nratelimit: \"logins\";r=LEFT;t=", "\r\nretry-after: "],
    start: |machine, page, refusing| {
        let lines = page.block("In Caddy:\n\n```\n")?;
        let open = page.block("504:\n\n```\n")?;
        let open = if refusing { "" } else { open };
        let site = format!("http://:80 {{\n{lines}reverse_proxy application:80\n{open}}}\n");
        machine.put("/etc/caddy/Caddyfile", &format!("{{\n    admin off\n}}\n{site}"))?;
        machine.start("proxy", "caddy run --config /etc/caddy/Caddyfile")
    },
};

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("caddy", [debian("caddy")?])?;
    *version = machine.run("caddy version | cut -d ' ' -f 1")?;
    CADDY.follows_the_page(&machine)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn caddy_limits_log_ins_by_the_files_of_the_page() -> Result<()> {
    tried("Caddy", TRIED, try_it)
}
