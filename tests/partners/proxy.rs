//! What a client of a proxy sees, as docs/behind-a-proxy.md says it: with `limiter serve`, without
//! it, and while that hangs or restarts.

use anyhow::{Context as _, Result, ensure};

use crate::machine::{Machine, until};
use crate::page::Page;

/// What is tried of each proxy.
pub(crate) const TRIED: &str = "the page's lines, letting pass and refusing; `limiter serve` \
                                killed, stopped, restarted";

pub(crate) fn page() -> Result<Page> {
    Page::read("docs/behind-a-proxy.md")
}

/// Starts `limiter serve` as the page does, with state over a restart, and waits until it answers.
pub(crate) fn serve(machine: &Machine, page: &Page) -> Result<()> {
    let command = page.block("```console\n$ ")?.trim();
    machine.start("serve", &format!("{command} --state-dir /var/lib/limiter"))?;
    machine.until("curl -fsS http://127.0.0.1:8081/healthcheck")
}

/// A proxy that is asked for `/login`, as a page has it.
pub(crate) struct Proxy {
    /// Its column in the table of the page.
    pub(crate) column: usize,
    /// Headers of an answer that passes, and of one that is refused, in lower case.
    pub(crate) headers: [&'static str; 2],
    /// Writes its files, with the lines that refuse without `limiter serve` or those that let pass,
    /// and starts it as `proxy`.
    pub(crate) start: fn(&Machine, &Page, bool) -> Result<()>,
}

impl Proxy {
    pub(crate) fn follows_the_page(&self, machine: &Machine) -> Result<()> {
        let page = page()?;
        let rules = "/etc/limiter/requests.d/auth.yaml";
        machine.put(rules, page.file(rules)?)?;
        machine.application("")?;
        serve(machine, &page)?;
        let start = |refusing| -> Result<()> {
            (self.start)(machine, &page, refusing)?;
            machine.until("exec 3<>/dev/tcp/192.0.2.254/80")
        };
        start(false)?;
        self.limits(machine)?;
        machine.end("serve", "TERM")?;
        serve(machine, &page)?;
        still_limits(machine, "after a restart")?;
        let expected = |row: &str| page.cell(row, self.column);
        machine.signal("serve", "STOP")?;
        status(machine, expected("hangs")?, "while it hangs")?;
        machine.signal("serve", "CONT")?;
        still_limits(machine, "after it went on")?;
        machine.end("serve", "KILL")?;
        status(machine, expected("is away (connection refused)")?, "while it is away")?;
        machine.end("proxy", "TERM")?;
        start(true)?;
        status(machine, expected("is away, refusing lines")?, "refusing")?;
        serve(machine, &page)?;
        still_limits(machine, "refusing, after it came back")?;
        machine.signal("serve", "STOP")?;
        status(machine, "5", "refusing, while it hangs")?;
        machine.signal("serve", "CONT")?;
        still_limits(machine, "refusing, after it went on")
    }

    /// Three log-ins pass, and the fourth waits. Each client sees what is left.
    fn limits(&self, machine: &Machine) -> Result<()> {
        let [passed, refused] = self.headers;
        for left in [2, 1, 0] {
            let answer = machine.get("/login", "")?.to_ascii_lowercase();
            let header = passed.replace("LEFT", &left.to_string());
            ensure!(answer.starts_with("http/1.1 200 ") && answer.contains(&header), "{answer}");
            ensure!(answer.ends_with("application"), "{answer}");
        }
        let answer = machine.get("/login", "")?.to_ascii_lowercase();
        ensure!(answer.starts_with("http/1.1 429 ") && answer.contains(refused), "{answer}");
        Ok(())
    }
}

/// An answer has the status that a cell of the page begins with.
fn status(machine: &Machine, cell: &str, when: &str) -> Result<()> {
    let answer = machine.get("/login", "")?;
    let wanted = cell.split(' ').next().filter(|wanted| !wanted.is_empty());
    let wanted = wanted.with_context(|| format!("{when}: the page has no status"))?;
    ensure!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{when}, not {cell}: {answer}");
    Ok(())
}

/// A proxy that found nobody may ask nobody for a moment; then it limits again.
fn still_limits(machine: &Machine, when: &str) -> Result<()> {
    until(when, || {
        let answer = machine.get("/login", "")?;
        ensure!(answer.starts_with("HTTP/1.1 429 "), "{when} log-ins are not limited: {answer}");
        Ok(())
    })
}
