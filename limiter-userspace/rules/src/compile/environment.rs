//! Facts about the machine that a plan has to know.

/// The machine, as far as rules name parts of it.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The largest frame of the interfaces in bytes, as in [`crate::compile::limit`].
    pub max_frame: u64,
    /// The index of an interface by its name.
    pub interface_index: &'a dyn Fn(&str) -> Option<u32>,
    /// Number of CPUs: they are 0 to one less.
    pub cpus: u32,
    /// Number of nodes that share limits, this one among them: 1 to 65,535. None without a cluster:
    /// a shared limit is then one of this node alone.
    pub cluster: Option<u64>,
    /// Whether packets that come in are met at tc, behind the driver's queues, if that is known: a
    /// frame may be many packets there, and no CPU or interface can be chosen any more; but packets
    /// can wait.
    pub in_at_tc: Option<bool>,
}

impl std::fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Environment")
            .field("max_frame", &self.max_frame)
            .field("cpus", &self.cpus)
            .field("cluster", &self.cluster)
            .field("in_at_tc", &self.in_at_tc)
            .finish_non_exhaustive()
    }
}

impl Environment<'_> {
    /// A machine of which only the frames are known: rules that name interfaces or CPUs are
    /// refused.
    pub fn of_frame(max_frame: u64) -> Self {
        const fn none(_name: &str) -> Option<u32> {
            None
        }
        Self { max_frame, interface_index: &none, cpus: 0, cluster: None, in_at_tc: Some(false) }
    }
}
