//! The machine that a table was measured on.

use std::fs;

use anyhow::{Context as _, Result};
use limiter_tests::command;
use rustix::system::uname;
use rustix::time::{ClockId, clock_getres};

/// The machine and its tools.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Model name of the processor.
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
    /// Looks around; `programs` are the peers' ones.
    ///
    /// # Errors
    ///
    /// When the system does not report what every Linux reports.
    pub fn look(programs: &[&'static str]) -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
        let processor = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
            .map_or_else(|| "not reported by the kernel".to_owned(), |(_, name)| name.to_owned());
        let system = uname();
        let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
        let grain = clock_getres(ClockId::MonotonicCoarse).tv_nsec;
        Ok(Self {
            processor,
            processors: std::thread::available_parallelism()?.get(),
            kernel: format!("{} ({})", text(system.release()), text(system.machine())),
            hz: 1_000_000_000i64.checked_div(grain).context("the coarse clock has no grain")?,
            date: command::run("date", ["-u", "+%Y-%m-%d"])?.trim().to_owned(),
            tools: programs.iter().map(|name| (*name, version(name))).collect(),
        })
    }

    /// True if a program is here; `None` needs none.
    pub fn has(&self, program: Option<&str>) -> bool {
        program.is_none_or(|program| {
            self.tools.iter().any(|(name, version)| *name == program && version.is_some())
        })
    }

    /// As a table in Markdown.
    pub fn markdown(&self) -> String {
        let mut rows = vec![
            ("date", self.date.clone()),
            ("processor", format!("{}, {} used", self.processor, self.processors)),
            ("kernel", format!("{}, HZ {}", self.kernel, self.hz)),
            ("limiter", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        for (name, version) in &self.tools {
            let version = version.as_deref().unwrap_or("not on this machine, so not measured");
            rows.push((name, version.to_owned()));
        }
        let rows = rows.iter().map(|(name, value)| format!("| {name} | {value} |\n"));
        let rows = rows.collect::<Vec<_>>().concat();
        format!("| | |\n|---|---|\n{rows}")
    }
}

/// The version of a tool as it reports it; `None` when the machine does not have it.
fn version(program: &str) -> Option<String> {
    let text = command::run(program, ["--version"]).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}
