//! Clients of Redis: redis-py, and redis-cli and redis-benchmark of Debian.

use anyhow::{Context as _, Result, ensure};

use crate::machine::Machine;
use crate::package::{MODULES, debian, modules};
use crate::page::Page;
use crate::partner::tried;

const TRIED: &str = "the page's lines; RESP2 and RESP3, a pipeline, four processes; redis-cli and \
                     redis-benchmark; `limiter serve` killed, stopped, restarted";

/// redis-py for Debian's Python 3.11.2, which also needs the second one.
const PACKAGES: [&str; 2] = ["redis==8.1.0", "async-timeout==5.0.1"];

/// What passes of a limit of 100, asked for by four processes, in both versions and in pipelines.
const MANY: &str = r#"
from multiprocessing import Pool
import redis

def ask(protocol):
    limiter = redis.Redis(port=6380, protocol=protocol, client_name="asks")
    assert limiter.ping() and limiter.client_getname() in (b"asks", "asks")
    pipe = limiter.pipeline(transaction=False)
    for _ in range(100):
        pipe.execute_command("CL.THROTTLE", "many", 99, 1, 86400)
    return sum(1 - answer[0] for answer in pipe.execute())

if __name__ == "__main__":
    with Pool(4) as pool:
        print(sum(pool.map(ask, [2, 3, 2, 3])))
"#;

/// Asks with little patience: whether an answer comes.
const ASK: &str = "python3 -c 'import redis; print(redis.Redis(port=6380, socket_timeout=1, \
                   retry=None).execute_command(\"LIMITER.ASK\", \"mail\", \"sender\", \
                   \"bob\")[0])'";

fn try_it(version: &mut String) -> Result<()> {
    let machine = Machine::create("redis-py", [Some(modules(&PACKAGES)?), debian("redis-tools")?])?;
    let python = |line: &str| machine.run(&format!("export PYTHONPATH={MODULES}; {line}"));
    *version = python("python3 -c 'import redis; print(redis.__version__)'")?;
    let page = Page::read("docs/redis.md")?;
    let typed = |begins: &str| {
        let mut lines = page.text().lines().map(|line| line.trim_start_matches("$ "));
        lines.find(|line| line.starts_with(begins)).with_context(|| format!("no line {begins}"))
    };
    let path = "/etc/limiter/mail.yaml";
    machine.put(path, page.file(path)?)?;
    let serve = || machine.start("serve", typed("limiter serve --rules ")?);
    serve()?;
    machine.until("redis-cli -p 6380 PING | grep -x PONG")?;
    for begins in ["redis-cli -p 6380 CL.THROTTLE", "redis-cli -p 6380 LIMITER.ASK"] {
        let line = typed(begins)?;
        let (_, wanted) = page.text().split_once(line).context("it is there")?;
        let said = machine.run(&format!("{line} </dev/null"))?;
        let numbers = |text: &str| -> Vec<String> {
            let numbers = text.lines().filter_map(|line| line.split_once("(integer) "));
            numbers.map(|(_, number)| number.to_owned()).take(5).collect()
        };
        let said: Vec<String> = match numbers(&said) {
            // Without a terminal it writes the numbers alone.
            none if none.is_empty() => said.lines().map(str::to_owned).collect(),
            numbers => numbers,
        };
        ensure!(said == numbers(wanted), "{line}: {said:?}");
    }
    let first = "print([allowed('ann') for _ in range(17)].count(True))";
    machine.put("/run/page.py", &format!("{}\n{first}\n", page.block("```python\n")?))?;
    let passed = python("python3 /run/page.py")?;
    // 16, and one more each two seconds.
    ensure!(["16", "17"].contains(&passed.trim()), "{passed} of 17 passed");
    machine.put("/run/many.py", MANY)?;
    let passed = python("python3 /run/many.py")?;
    ensure!(passed.trim() == "100", "{passed} of 400 passed, and 100 may");
    let benchmark = "redis-benchmark -p 6380 -q -n 20000 -c 16 -P 16 CL.THROTTLE \
                     key:__rand_int__ 9 1 60";
    machine.run(&format!("{benchmark} | grep 'requests per second'"))?;

    let ask = || python(ASK).map(drop);
    ask()?;
    machine.end("serve", "KILL")?;
    let said = machine.fails(&format!("export PYTHONPATH={MODULES}; {ASK}"))?;
    ensure!(said.contains("ConnectionError"), "{said}");
    serve()?;
    machine.until("redis-cli -p 6380 PING | grep -x PONG")?;
    machine.signal("serve", "STOP")?;
    let said = machine.fails(&format!("export PYTHONPATH={MODULES}; {ASK}"))?;
    ensure!(said.contains("TimeoutError"), "{said}");
    machine.signal("serve", "CONT")?;
    ask()?;
    machine.end("serve", "TERM")?;
    serve()?;
    machine.until("redis-cli -p 6380 PING | grep -x PONG")?;
    ask()
}

#[test]
#[ignore = "a partner: `cargo xtask partners`"]
fn redis_py_is_answered_as_by_redis() -> Result<()> {
    tried("redis-py", TRIED, try_it)
}
