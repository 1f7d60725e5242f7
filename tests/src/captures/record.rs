//! Records the captures: tools in a network namespace, dumpcap at the end of the cable.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::{answer_of, ask, tshark};
use crate::command;
use crate::testbed::Testbed;
use crate::veth::{RECEIVER, SENDER};
use crate::work_dir::WorkDir;

/// Script for scapy, which sends headers that no ordinary tool makes.
const ODDITIES: &str = include_str!("oddities.py");

/// Debian's python, which Debian's scapy is for; another one may come first in PATH.
const PYTHON: &str = "/usr/bin/python3";

/// All captures together, in bytes: they are in the checkout.
const MOST: u64 = 100_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// pcap, microseconds.
    Micros,
    /// pcap, nanoseconds.
    Nanos,
    /// pcapng, nanoseconds.
    Ng,
}

struct Recording {
    name: &'static str,
    format: Format,
    /// Bytes of every packet; 0 for all.
    snap: u32,
    traffic: fn(&Testbed, &Path) -> Result<()>,
}

const RECORDINGS: &[Recording] = &[
    Recording { name: "ping", format: Format::Ng, snap: 0, traffic: ping },
    Recording { name: "query", format: Format::Micros, snap: 0, traffic: query },
    Recording { name: "iperf3-tcp", format: Format::Micros, snap: 96, traffic: iperf3_tcp },
    Recording { name: "iperf3-udp", format: Format::Ng, snap: 96, traffic: iperf3_udp },
    Recording { name: "hping3", format: Format::Nanos, snap: 0, traffic: hping3 },
    Recording { name: "oddities", format: Format::Ng, snap: 0, traffic: oddities },
];

/// Records everything into `output`, with tshark's answers beside.
///
/// # Errors
///
/// Without root, without a tool, or when the captures are too large for the checkout.
pub fn all(output: &Path) -> Result<()> {
    let version = tshark().context("tshark was not found: install it (Debian package tshark)")?;
    fs::create_dir_all(output).with_context(|| format!("cannot make {}", output.display()))?;
    let mut sum = 0;
    for recording in RECORDINGS {
        let capture = one(recording, output)?;
        let answer = format!("# {version}\n# {}\n{}", super::FIELDS.join(" "), ask(&capture)?);
        super::rows(&answer)?;
        let answer_file = answer_of(&capture);
        fs::write(&answer_file, &answer)
            .with_context(|| format!("cannot write {}", answer_file.display()))?;
        let bytes = fs::metadata(&capture)?.len() + answer.len() as u64;
        println!("{}: {bytes} bytes with its answer", capture.display());
        sum += bytes;
    }
    ensure!(
        sum <= MOST,
        "{sum} bytes of captures and answers: at most {MOST} go into the checkout"
    );
    Ok(())
}

fn one(recording: &Recording, output: &Path) -> Result<PathBuf> {
    let work = WorkDir::create("captures")?;
    let bed = Testbed::create("captures")?;
    let raw = work.path().join("raw");
    let dumpcap = Dumpcap::start(&bed, &raw, recording)?;
    (recording.traffic)(&bed, work.path())?;
    dumpcap.finish()?;
    let kind = if recording.format == Format::Ng { "pcapng" } else { "pcap" };
    let capture = output.join(format!("{}.{kind}", recording.name));
    let convert = |format: &str, from: &Path, to: &Path| {
        command::checked(Command::new("editcap").args(["-F", format]).arg(from).arg(to))
    };
    match recording.format {
        Format::Nanos => drop(convert("nsecpcap", &raw, &capture)?),
        Format::Ng => {
            // Processor, kernel and interface are nobody's business; pcap has no room for them.
            let bare = work.path().join("bare");
            convert("nsecpcap", &raw, &bare)?;
            convert("pcapng", &bare, &capture)?;
        }
        Format::Micros => {
            fs::copy(&raw, &capture)
                .with_context(|| format!("cannot write {}", capture.display()))?;
        }
    }
    bed.close()?;
    Ok(capture)
}

/// A running capture at the receiving end.
struct Dumpcap(Child);

impl Dumpcap {
    fn start(bed: &Testbed, file: &Path, recording: &Recording) -> Result<Self> {
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-i", RECEIVER.interface, "-w"]).arg(file);
        if recording.format == Format::Micros {
            command.arg("-P");
        }
        if recording.snap > 0 {
            command.args(["-s", &recording.snap.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Self(bed.receiver.spawn(&mut command)?);
        // The header is written once the interface is open.
        let deadline = Instant::now() + Duration::from_secs(30);
        while fs::metadata(file).map_or(0, |metadata| metadata.len()) == 0 {
            ensure!(Instant::now() < deadline, "dumpcap writes nothing after half a minute");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(child)
    }

    fn finish(mut self) -> Result<()> {
        // The last packets are on their way through a buffer that is read twice a second.
        thread::sleep(Duration::from_secs(1));
        let pid = Pid::from_child(&self.0);
        kill_process(pid, Signal::INT).context("cannot end dumpcap")?;
        let status = self.0.wait().context("cannot wait for dumpcap")?;
        ensure!(status.success(), "dumpcap failed ({status})");
        Ok(())
    }
}

impl Drop for Dumpcap {
    fn drop(&mut self) {
        // The process has ended already, but for an error on the way.
        if matches!(self.0.try_wait(), Ok(None)) {
            let ended = self.0.kill().and_then(|()| self.0.wait());
            if let Err(error) = ended {
                eprintln!("cannot end dumpcap: {error}");
            }
        }
    }
}

/// Runs a tool in the sending namespace. Its exit code says whether it got answers, which is not
/// asked.
fn tool(bed: &Testbed, program: &str, args: &[&str]) -> Result<()> {
    let mut command = Command::new("timeout");
    command.arg("20").arg(program).args(args).stdin(Stdio::null());
    let output = bed.sender.output(&mut command)?;
    let code = output.status.code();
    ensure!(
        !matches!(code, Some(124..=127) | None),
        "{program}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

fn ping(bed: &Testbed, _work: &Path) -> Result<()> {
    for target in [RECEIVER.ipv4.to_string(), RECEIVER.ipv6.to_string()] {
        tool(bed, "ping", &["-c", "3", "-i", "0.05", &target])?;
    }
    Ok(())
}

fn query(bed: &Testbed, _work: &Path) -> Result<()> {
    for target in [RECEIVER.ipv4.to_string(), RECEIVER.ipv6.to_string()] {
        let server = format!("@{target}");
        tool(bed, "dig", &["+tries=1", "+time=1", &server, "www.example.org", "AAAA"])?;
    }
    Ok(())
}

fn iperf3(bed: &Testbed, args: &[&str]) -> Result<()> {
    let mut server = Command::new("timeout");
    server.args(["30", "iperf3", "-s", "-1"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut server = bed.receiver.spawn(&mut server)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !bed.receiver.run("ss", ["-Hltn", "sport = :5201"])?.contains("5201") {
        ensure!(Instant::now() < deadline, "iperf3 does not listen after half a minute");
        thread::sleep(Duration::from_millis(50));
    }
    let target = RECEIVER.ipv4.to_string();
    let sent = tool(bed, "iperf3", &[&["-c", &target], args].concat());
    // `-1` ends it after the one client.
    server.wait().context("cannot wait for iperf3")?;
    sent
}

fn iperf3_tcp(bed: &Testbed, _work: &Path) -> Result<()> {
    iperf3(bed, &["-n", "300K"])
}

fn iperf3_udp(bed: &Testbed, _work: &Path) -> Result<()> {
    iperf3(bed, &["-u", "-l", "1000", "-n", "20K", "-b", "2M"])
}

fn hping3(bed: &Testbed, _work: &Path) -> Result<()> {
    let target = RECEIVER.ipv4.to_string();
    let spoofed = "198.51.100.77";
    for args in [
        &["-S", "-p", "80", "-c", "5", "-i", "u10000"][..],
        &["-S", "-p", "443", "-c", "3", "-i", "u10000", "-a", spoofed],
        &["-F", "-P", "-U", "-p", "22", "-c", "2", "-i", "u10000"],
        &["--udp", "-p", "53", "-d", "200", "-f", "-c", "2", "-i", "u10000"],
        &["--udp", "-p", "53", "-d", "64", "-x", "-g", "64", "-c", "1", "-i", "u10000"],
        &["--icmp", "-d", "56", "-c", "2", "-i", "u10000"],
        &["--rawip", "-H", "253", "-d", "20", "-c", "2", "-i", "u10000"],
    ] {
        tool(bed, "hping3", &[args, &["-q", &target]].concat())?;
    }
    Ok(())
}

fn oddities(bed: &Testbed, work: &Path) -> Result<()> {
    let script = work.join("oddities.py");
    fs::write(&script, ODDITIES).with_context(|| format!("cannot write {}", script.display()))?;
    let script = script.to_str().context("the work directory's path is not UTF-8")?;
    let addresses = [
        SENDER.ipv4.to_string(),
        RECEIVER.ipv4.to_string(),
        SENDER.ipv6.to_string(),
        RECEIVER.ipv6.to_string(),
    ];
    let mut args = vec![script, SENDER.interface];
    args.extend(addresses.iter().map(String::as_str));
    let output = bed.sender.output(Command::new(PYTHON).args(&args).stdin(Stdio::null()))?;
    ensure!(
        output.status.success(),
        "{PYTHON} with scapy: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
