//! What the table was measured on.

use std::fs;

use anyhow::{Context as _, Result};
use rustix::system::uname;
use rustix::time::{ClockId, clock_getres};

use super::contender::Tool;
use super::peers;
use crate::command;

/// The machine and its tools.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the processor.
    pub processor: String,
    /// Processors that this program may use.
    pub processors: usize,
    /// Kernel release and architecture.
    pub kernel: String,
    /// Ticks of the kernel a second (`CONFIG_HZ`), from the grain of the coarse clock.
    pub hz: i64,
    /// The day, in UTC.
    pub date: String,
    /// Programs of the peers: name, and version if it is there.
    pub tools: Vec<(&'static str, Option<String>)>,
}

impl Machine {
    /// Looks around.
    ///
    /// # Errors
    ///
    /// When the system does not tell what every Linux tells.
    pub fn look() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or_else(|| "not told by the kernel".to_owned(), |(_, name)| name.to_owned());
        let system = uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let grain = clock_getres(ClockId::MonotonicCoarse).tv_nsec;
        let mut programs: Vec<_> = Tool::ALL.iter().filter_map(|tool| tool.program()).collect();
        programs.dedup();
        Ok(Self {
            processor,
            processors: std::thread::available_parallelism()?.get(),
            kernel: format!("{} ({})", text(system.release()), text(system.machine())),
            hz: 1_000_000_000i64.checked_div(grain).context("the coarse clock has no grain")?,
            date: command::run("date", ["-u", "+%Y-%m-%d"])?.trim().to_owned(),
            tools: programs.into_iter().map(|name| (name, peers::version(name))).collect(),
        })
    }

    /// Whether the rules of a limiter can be installed here.
    pub fn has(&self, tool: Tool) -> bool {
        tool.program().is_none_or(|program| {
            self.tools.iter().any(|(name, version)| *name == program && version.is_some())
        })
    }
}
