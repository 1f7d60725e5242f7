//! The servers, each a process on one CPU, but for the one with two threads.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::asked::Ask;
use crate::requests::served::{Served, free_address, limiter_serve};

/// Names throttlecrab-server.
const THROTTLECRAB: &str = "LIMITER_THROTTLECRAB";

/// Keys that there is room for: those of a run, and the million of the measurement of memory.
const ROOM: usize = 2_000_000;

/// Who answers, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// `limiter serve`.
    Limiter,
    /// The same, asked for nothing: the least that its loop costs.
    Ping,
    /// `limiter serve` with two threads, on all CPUs: what threads cost each other.
    Two,
    /// throttlecrab-server.
    Throttlecrab,
    /// Redis, with the decision in a script.
    Redis,
}

/// The decision of the others: as much time as the hits that are not drained yet take, in
/// microseconds.
const SCRIPT: &str = "
local burst, count, period = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local each = period * 1000000 / count
local free = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now)
local left = math.floor((burst * each - (free - now)) / each)
if left < 1 then
    local wait = math.ceil((free + each - burst * each - now) / 1000000)
    return {0, burst, 0, math.ceil((free - now) / 1000000), wait}
end
free = free + each
redis.call('SET', KEYS[1], string.format('%.0f', free), 'PX', math.ceil((free - now) / 1000))
return {1, burst, left - 1, math.ceil((free - now) / 1000000), 0}
";

impl Peer {
    pub(super) const ALL: [Self; 5] =
        [Self::Limiter, Self::Ping, Self::Two, Self::Throttlecrab, Self::Redis];

    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Limiter => "`limiter serve`",
            Self::Ping => "`limiter serve`, `PING`",
            Self::Two => "`limiter serve`, two threads",
            Self::Throttlecrab => "throttlecrab-server 0.4.40",
            Self::Redis => "Redis, a script",
        }
    }

    /// True if it decides, with a CPU of its own.
    pub(super) fn decides_alone(self) -> bool {
        !matches!(self, Self::Ping | Self::Two)
    }

    /// Starts its server, and says what it is asked.
    pub(super) fn start(self, cpu: usize) -> Result<(Served, Ask)> {
        let directory = tempfile::tempdir()?;
        let address = free_address()?;
        let port = address.port().to_string();
        let mut command = match self {
            Self::Limiter | Self::Ping | Self::Two => {
                let threads = if self == Self::Two { 2 } else { 1 };
                let mut command = limiter_serve(threads, ROOM, &directory)?;
                command.args(["--listen", "127.0.0.1:0", "--resp", &address.to_string()]);
                command
            }
            Self::Throttlecrab => {
                let program = env::var_os(THROTTLECRAB).with_context(|| {
                    format!("name throttlecrab-server in {THROTTLECRAB}: `cargo xtask bench` does")
                })?;
                let mut command = Command::new(program);
                command.args(["--redis", "--redis-host", "127.0.0.1", "--redis-port", &port]);
                command.args(["--log-level", "warn"]);
                command
            }
            Self::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
                command.arg("--dir").arg(directory.path());
                command
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let cpu = (self != Self::Two).then_some(cpu);
        let served = Served::run(command, cpu, address, directory);
        let served = served.with_context(|| self.shown())?;
        let ask = match self {
            Self::Limiter | Self::Two | Self::Throttlecrab => Ask::Throttle,
            Self::Ping => Ask::Ping,
            Self::Redis => {
                let client = redis::Client::open(format!("redis://{address}"))?;
                let mut load = redis::cmd("SCRIPT");
                Ask::Script(load.arg("LOAD").arg(SCRIPT).query(&mut client.get_connection()?)?)
            }
        };
        Ok((served, ask))
    }
}
