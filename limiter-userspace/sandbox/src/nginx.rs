//! A real nginx of its own for a run, with its files in a directory.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

use crate::command;
use crate::netns::Netns;

/// A running nginx, ended on drop.
#[derive(Debug)]
pub struct Nginx(Child);

impl Nginx {
    /// Fails if nginx is not installed, and names the package.
    ///
    /// # Errors
    ///
    /// When there is no nginx.
    pub fn check() -> Result<()> {
        command::run("nginx", ["-v"]).map(drop)
    }

    /// Starts nginx in a namespace, with the contents of `http` in its configuration.
    ///
    /// # Errors
    ///
    /// When nginx cannot be started. It may end by itself if the configuration is bad.
    pub fn start(netns: &Netns, dir: &Path, http: &str) -> Result<Self> {
        let path = |name: &str| dir.join(name).display().to_string();
        // The workers run as root, because the run's directory belongs to root.
        let config = format!(
            "daemon off; user root; worker_processes 1; pid {}; error_log {};\nevents {{}}\nhttp \
             {{\n\
             access_log off;\nclient_body_temp_path {}; proxy_temp_path {};\nfastcgi_temp_path {}; \
             uwsgi_temp_path {}; scgi_temp_path {};\n{http}\n}}\n",
            path("nginx.pid"),
            path("nginx.log"),
            path("body"),
            path("proxy"),
            path("fastcgi"),
            path("uwsgi"),
            path("scgi"),
        );
        let file = dir.join("nginx.conf");
        fs::write(&file, config).with_context(|| format!("cannot write {}", file.display()))?;
        let mut command = Command::new("nginx");
        command.arg("-e").arg(dir.join("nginx.log")).arg("-p").arg(dir).arg("-c").arg(&file);
        // Ctrl-C at the terminal must reach this process only.
        command.stdin(Stdio::null()).process_group(0);
        Ok(Self(netns.spawn(&mut command)?))
    }

    /// Ends nginx.
    ///
    /// # Errors
    ///
    /// When the system does not report its end.
    pub fn close(mut self) -> Result<()> {
        self.end()
    }

    /// Sends SIGTERM: the master then ends its workers.
    fn end(&mut self) -> Result<()> {
        if self.0.try_wait()?.is_none() {
            let pid = Pid::from_raw(i32::try_from(self.0.id())?).context("no process id")?;
            kill_process(pid, Signal::TERM)?;
            self.0.wait()?;
        }
        Ok(())
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("while ending nginx: {error:#}");
        }
    }
}
