//! Settings of a data path.

use std::path::PathBuf;

use super::hooks::tc_order::TcOrder;
use super::sources::source_table::SourceTable;

/// Settings of a data path.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory on a BPF file system for maps, programs and links; made if missing.
    pub pin_dir: PathBuf,
    /// Sources tracked per family.
    pub max_sources: u32,
    /// Store of the buckets of sources.
    pub source_table: SourceTable,
    /// Largest number of rules, including those being replaced.
    pub max_rules: u32,
    /// Keys of tables tracked, over all tables except the source table.
    pub max_keys: u32,
    /// Level of the program's own log: 0 off, 1 error to 5 trace.
    pub kernel_log: u8,
    /// Place among the programs at tc of an interface, for new attachments.
    pub tc_order: TcOrder,
    /// Pin of another XDP program that continues with the packets that pass.
    pub then: Option<PathBuf>,
}
