//! The program's own log (`run --kernel-log LEVEL`), forwarded to the daemon's.

use std::os::fd::{AsFd, BorrowedFd};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Level, Log, Metadata, Record};

/// The ring buffer that the program writes to. Readable when it has an entry.
pub struct KernelLog(EbpfLogger<Forward>);

impl KernelLog {
    /// Takes the log from a loaded object; `None` if the verifier removed the logging.
    pub(super) fn take(ebpf: &mut Ebpf) -> Option<Self> {
        EbpfLogger::init_with_logger(ebpf, Forward).ok().map(Self)
    }

    /// Forwards all new entries.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

struct Forward;

impl Log for Forward {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let text = record.args();
        match record.level() {
            Level::Error => tracing::error!(target: "kernel", "{text}"),
            Level::Warn => tracing::warn!(target: "kernel", "{text}"),
            Level::Info => tracing::info!(target: "kernel", "{text}"),
            Level::Debug => tracing::debug!(target: "kernel", "{text}"),
            Level::Trace => tracing::trace!(target: "kernel", "{text}"),
        }
    }

    fn flush(&self) {}
}
