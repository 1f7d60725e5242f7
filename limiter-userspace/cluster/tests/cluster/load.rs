//! Load on the leases of nodes that run, in a thread of its own, and a meter of what each limit
//! passes on all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::node::{Node, meter};
use crate::simulator::meter::Meter;

/// Units that a limit was offered and that it passed, so far.
pub(crate) type Count = (u64, u64);

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    counts: Arc<std::sync::Mutex<Vec<Count>>>,
    thread: JoinHandle<Vec<Meter>>,
}

impl Load {
    /// Offers so many units a second of each limit to each of the nodes.
    pub(crate) fn start(nodes: &[Node], rates: &[u64]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let leases: Vec<_> = nodes.iter().map(|node| node.leases.clone()).collect();
        let counts = Arc::new(std::sync::Mutex::new(vec![(0, 0); rates.len()]));
        let (is_over, counted) = (Arc::clone(&stop), Arc::clone(&counts));
        let rates = rates.to_vec();
        let thread = std::thread::spawn(move || {
            let mut meters: Vec<Meter> = rates.iter().map(|_| meter()).collect();
            let begin = Instant::now();
            let mut offered = vec![0; rates.len()];
            while !is_over.load(Ordering::Relaxed) {
                let now = begin.elapsed().as_micros() as u64;
                for (limit, rate) in rates.iter().enumerate() {
                    while offered[limit] < now * rate / 1_000_000 {
                        offered[limit] += 1;
                        for leases in &leases {
                            if leases.packet(limit as u32, 1) {
                                meters[limit].pass(begin.elapsed().as_micros() as u64, 1);
                            }
                        }
                    }
                }
                let reported = offered.iter().map(|offered| offered * leases.len() as u64);
                let passed = meters.iter().map(Meter::admitted);
                *counted.lock().expect("nobody panicked") = reported.zip(passed).collect();
                sleep(Duration::from_millis(1));
            }
            meters
        });
        Self { stop, counts, thread }
    }

    pub(crate) fn counts(&self) -> Vec<Count> {
        self.counts.lock().expect("nobody panicked").clone()
    }

    /// Units of each limit that were offered and passed since `before`.
    pub(crate) fn since(&self, before: &[Count]) -> Vec<Count> {
        let now = self.counts();
        now.iter().zip(before).map(|(now, before)| (now.0 - before.0, now.1 - before.1)).collect()
    }

    pub(crate) fn end(self) -> Vec<Meter> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("it ended")
    }
}

/// Waits until each node passes units of each of these limits.
pub(crate) fn passes(nodes: &[Node], limits: &[u32]) {
    let used = |node: &Node| -> Vec<u64> {
        let status = node.cluster.status();
        let of = |limit: &u32| {
            let lease = status.leases.iter().find(|lease| lease.lease == *limit);
            lease.map_or(0, |lease| lease.used)
        };
        limits.iter().map(of).collect()
    };
    let before: Vec<_> = nodes.iter().map(used).collect();
    let end = Instant::now() + Duration::from_secs(20);
    let passes = |(node, before): (&Node, &Vec<u64>)| {
        used(node).iter().zip(before).all(|(now, before)| now > before)
    };
    while !nodes.iter().zip(&before).all(passes) {
        assert!(Instant::now() < end, "not all passes: {:?}", nodes[0].cluster.status());
        sleep(Duration::from_millis(50));
    }
}
