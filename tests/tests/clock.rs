//! The shipped program by the kernel's clock, which it does not read for each packet.

#![expect(clippy::unwrap_used, reason = "a test fails where its machinery does")]

use std::thread;
use std::time::{Duration, Instant};

use limiter_common::verdict::Reason;
use limiter_datapath::{Framing, Kernel, Observed as _, Options, SourceTable, TcOrder};
use limiter_tests::bpffs::Bpffs;
use limiter_tests::cpu;
use limiter_tests::packet::Frame;
use limiter_tests::program::{self, SHIPPED, SOURCE_STORES};
use limiter_tests::root::require_root;
use limiter_tests::test_run::Runner;
use limiter_tests::work_dir::WorkDir;

const SOURCE: [u8; 4] = [192, 0, 2, 1];

/// How long each limit is flooded.
const TIME: Duration = Duration::from_secs(1);

fn passed(kernel: &Kernel) -> u64 {
    kernel.reasons().unwrap()[Reason::Conforming.index() as usize].packets
}

/// Packets of one source from every CPU, as fast as they can: exactly as many pass as its limit
/// says, where packets are 1 ms apart, about as far as an old reading is allowed to be, and much
/// further.
#[test]
fn a_flooding_source_gets_its_rate_to_the_packet() {
    require_root();
    for source_table in SOURCE_STORES {
        gets_its_rate(source_table);
    }
}

fn gets_its_rate(source_table: SourceTable) {
    let dir = WorkDir::create("clock").unwrap();
    let bpffs = Bpffs::mount(dir.path().join("bpf")).unwrap();
    let pin_dir = bpffs.path().join("limiter");
    let (max_sources, max_rules, max_keys) = (1024, 64, 64);
    let options = Options {
        pin_dir,
        source_table,
        max_sources,
        max_rules,
        max_keys,
        kernel_log: 0,
        tc_order: TcOrder::First,
        then: None,
    };
    let mut kernel = Kernel::open(SHIPPED, &options).unwrap();
    let program = Runner::open(&mut kernel, Framing::Ethernet).unwrap();
    for (rate, burst) in [(1_000, 200), (60, 12), (40, 8), (10, 2)] {
        let limit =
            format!("rate_limit: {{unit: second, requests_per_unit: {rate}, burst: {burst}}}");
        // No rule: the bucket of the limit before is forgotten.
        program::commit(&mut kernel, &program::rule_set("descriptors: []").unwrap()).unwrap();
        program.run(&frame(), 1).unwrap();
        let rules = format!("descriptors: [{{key: remote_address, {limit}}}]");
        program::commit(&mut kernel, &program::rule_set(&rules).unwrap()).unwrap();
        let before = passed(&kernel);
        let begin = Instant::now();
        let (program, end) = (&program, begin + TIME);
        // When a CPU had sent some.
        let mut sent = vec![begin, end];
        thread::scope(|scope| {
            let cpus = 0..thread::available_parallelism().unwrap().get();
            let senders = cpus.map(|cpu| {
                scope.spawn(move || {
                    cpu::pin(None, cpu).unwrap();
                    let (frame, mut sent) = (frame(), Vec::new());
                    while sent.last().is_none_or(|last| *last < end) {
                        program.run(&frame, 1_000).unwrap();
                        sent.push(Instant::now());
                    }
                    sent
                })
            });
            // All of them are started before the first is waited for.
            for sender in senders.collect::<Vec<_>>() {
                sent.extend(sender.join().unwrap());
            }
        });
        let most = begin.elapsed().as_secs_f64() * f64::from(rate) + f64::from(burst);
        let count = passed(&kernel) - before;
        #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
        let got = count as f64;
        assert!(got <= most, "{count} of {most} passed at {rate} a second");
        // A full bucket lasts for a fifth of a second; all CPUs may be held up for longer than
        // that.
        let saved = f64::from(burst) / f64::from(rate);
        sent.sort_unstable();
        let held_up: f64 =
            sent.windows(2).map(|two| ((two[1] - two[0]).as_secs_f64() - saved).max(0.0)).sum();
        let least = (TIME.as_secs_f64() - held_up) * f64::from(rate);
        assert!(held_up < TIME.as_secs_f64() / 2.0, "nothing was sent for {held_up} s");
        assert!(got >= least.floor(), "{count} of {least} passed at {rate} a second");
    }
}

fn frame() -> Vec<u8> {
    Frame::ipv4(SOURCE, [192, 0, 2, 254]).payload(&[0; 18]).build()
}
