//! A disk without room, down to the last byte.

use std::ffi::CStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;

use super::scene::{
    DRAINING, MANAGEMENT, contents, drain, ensure_clean, ensure_clear_output, ensure_in_force,
};

pub(crate) struct SmallDisk(pub(crate) PathBuf);

/// 64 KiB.
const SMALL: &CStr = c"size=64k,nr_inodes=64,mode=0750";

impl SmallDisk {
    pub(crate) fn mount(path: PathBuf, size: &CStr) -> Result<Self> {
        fs::create_dir(&path)?;
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), size)?;
        Ok(Self(path))
    }

    /// Takes all that is left of it.
    fn fill(&self) -> Result<()> {
        let mut file = OpenOptions::new().create(true).append(true).open(self.ballast())?;
        let mut block = 4096;
        while block > 0 {
            match file.write(&vec![0; block]) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => block /= 2,
                Err(error) => bail!(error),
            }
        }
        Ok(())
    }

    fn make_room(&self) -> Result<()> {
        Ok(fs::remove_file(self.ballast())?)
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    fn files(&self) -> Result<Vec<(String, Vec<u8>)>> {
        Ok(contents(&self.0)?.into_iter().filter(|(name, _)| name != "ballast").collect())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("cannot unmount {0}: {error}: `umount {0}`", self.0.display());
        }
    }
}

fn scene(tag: &str) -> Result<(Testbed, SmallDisk, Limiter)> {
    let bed = Testbed::create(tag)?;
    let disk = SmallDisk::mount(bed.dir.path().join("state"), SMALL)?;
    let mut limiter = bed.limiter(DRAINING)?;
    let management = std::net::Ipv4Addr::from(MANAGEMENT).to_string();
    limiter.options(["--management", &management, "--watch", "off"]);
    Ok((bed, disk, limiter))
}

fn seen(limiter: &Limiter) -> Result<[String; 2]> {
    Ok([limiter.ok(["export"])?, limiter.ok(["lists"])?])
}

#[test]
fn on_a_full_disk_nothing_changes_and_nothing_is_lost() -> Result<()> {
    require_root();
    let (bed, disk, mut limiter) = scene("fulldisk")?;
    limiter.start()?;
    limiter.ok(["set", "192.0.2.7", "5/s"])?;
    drain(&bed)?;
    let other = bed.dir.write("other.yaml", DRAINING.replace("burst: 5", "burst: 3"))?;
    let other = other.to_str().context("path")?.to_owned();
    let before = seen(&limiter)?;
    disk.fill()?;
    let files = disk.files()?;
    for words in [
        vec!["set", "192.0.2.8", "5/s"],
        vec!["set", "192.0.2.7", "6/s"],
        vec!["unset", "192.0.2.7"],
        vec!["apply", "--force", &other],
    ] {
        let when = words.join(" ");
        ensure_clear_output(&limiter.cli(&words)?, &when)?;
        ensure!(seen(&limiter)? == before, "{when}: something changed");
        ensure!(disk.files()? == files, "{when}: other files");
        ensure_in_force(&bed, 0, &when)?;
    }
    // A trial needs no disk; its confirmation does.
    limiter.ok(["apply", "--force", "--confirm", "600s", &other])?;
    ensure_clear_output(&limiter.cli(["confirm"])?, "confirm")?;
    ensure!(!limiter.json(&["status"])?["trial"].is_null(), "the trial goes on");
    ensure_in_force(&bed, 0, "a confirmation that failed")?;
    limiter.ok(["revert"])?;
    ensure!(seen(&limiter)? == before);
    // Commands that need no disk work.
    limiter.ok(["reload"])?;
    limiter.ok(["off"])?;
    limiter.ok(["on"])?;
    limiter.ok(["deny", "192.0.2.99"])?;
    limiter.ok(["unlist", "192.0.2.99"])?;
    ensure!(disk.files()? == files, "other files");
    ensure_in_force(&bed, 0, "on a full disk")?;
    // So does a start: it takes over what is in force.
    limiter.kill()?;
    limiter.start().context("the start on a full disk")?;
    ensure!(seen(&limiter)? == before, "the start has other rules: {:?}", seen(&limiter)?);
    ensure_in_force(&bed, 0, "after the start")?;
    disk.make_room()?;
    limiter.ok(["set", "192.0.2.8", "5/s"])?;
    limiter.ok(["apply", "--force", &other])?;
    ensure_clean(&disk.0, "when there is room again")?;
    ensure!(disk.files()? != files);
    limiter.close()?;
    drop(disk);
    bed.close()
}

/// They are in force at once, and on disk as soon as there is room.
#[test]
fn lists_are_saved_when_there_is_room_again() -> Result<()> {
    require_root();
    let (bed, disk, mut limiter) = scene("fulllists")?;
    limiter.start()?;
    disk.fill()?;
    limiter.ok(["deny", "203.0.113.77"])?;
    let report = "it is not possible to save the lists";
    wait(|| limiter.said().contains(report)).context("the full disk is not reported")?;
    ensure_in_force(&bed, 0, "denied")?;
    // Events and alarms go on, and a trouble that stays is reported once.
    std::thread::sleep(Duration::from_secs(3));
    // A change that comes meanwhile is no sign of room.
    limiter.ok(["deny", "203.0.113.78"])?;
    ensure!(limiter.said().matches(report).count() == 1, "{}", limiter.said());
    ensure!(!limiter.said().contains("it is possible again"), "{}", limiter.said());
    disk.make_room()?;
    wait(|| disk.0.join("lists.json").exists()).context("the lists are not saved")?;
    let saved = fs::read_to_string(disk.0.join("lists.json"))?;
    // The last line is the checksum.
    let (saved, _) = saved.trim_end().rsplit_once('\n').context("no checksum")?;
    let saved: Value = serde_json::from_str(saved)?;
    ensure!(saved["entries"][0]["source"] == "203.0.113.77", "{saved}");
    wait(|| limiter.said().contains("it is possible again to save the lists"))?;
    // From then on a change is a line of the journal.
    limiter.ok(["deny", "203.0.113.79"])?;
    let journal = fs::read_to_string(disk.0.join("lists.journal"))?;
    ensure!(journal.lines().count() == 2 && journal.contains("203.0.113.79"), "{journal}");
    // The rest of the journal's last page is filled first.
    disk.fill()?;
    for host in 0..120 {
        limiter.ok(["deny", &format!("192.0.2.{host}")])?;
    }
    wait(|| limiter.said().matches(report).count() == 2)
        .context("the full disk is not reported")?;
    limiter.kill()?;
    // As after a reboot: without what found no room, and whole otherwise.
    limiter.on_pins("detach")?;
    limiter.start()?;
    let lists = limiter.ok(["lists"])?;
    let is_listed =
        |source: &str| lists.lines().any(|line| line.starts_with(&format!("{source} ")));
    ensure!([77, 78, 79].iter().all(|host| is_listed(&format!("203.0.113.{host}"))), "{lists}");
    let stored = (0..120).take_while(|host| is_listed(&format!("192.0.2.{host}"))).count();
    ensure!((1..120).contains(&stored), "{stored} of 120 changes found room");
    ensure!(!(stored + 1..120).any(|host| is_listed(&format!("192.0.2.{host}"))), "{lists}");
    limiter.close()?;
    drop(disk);
    bed.close()
}

/// The machine is under limits all the same: a first start needs no room for anything but a name.
#[test]
fn a_first_start_needs_no_room() -> Result<()> {
    require_root();
    let (bed, disk, mut limiter) = scene("fullstart")?;
    disk.fill()?;
    limiter.start()?;
    ensure_in_force(&bed, 5, "started on a full disk")?;
    limiter.close()?;
    drop(disk);
    bed.close()
}

/// Nor does a log that cannot be written end the daemon, or a command.
#[test]
fn a_log_on_a_full_disk_ends_nothing() -> Result<()> {
    require_root();
    let bed = Testbed::create("fulllog")?;
    let mut limiter = bed.limiter(DRAINING)?;
    let full = || OpenOptions::new().write(true).open("/dev/full");
    let refused = Command::new(limiter.binary())
        .args(["--socket", "/nowhere", "status"])
        .stderr(full()?)
        .stdout(File::create("/dev/null")?)
        .status()?;
    ensure!(refused.code() == Some(2), "{refused}");
    limiter.through(["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"]);
    // The daemon cannot say that it is ready.
    let rules = limiter.rules().to_owned();
    let mut child = limiter.spawn()?;
    wait(|| limiter.cli(["status"]).is_ok_and(|output| output.status.success()))
        .context("the daemon does not answer")?;
    fs::write(&rules, "descriptors: [{}]")?;
    ensure_clear_output(&limiter.cli(["reload"])?, "reload")?;
    drain(&bed)?;
    ensure_in_force_alone(&bed)?;
    ensure!(child.try_wait()?.is_none(), "the daemon ended");
    limiter.on_pins("detach")?;
    let status = child.wait()?;
    ensure!(status.success(), "{status}");
    limiter.close()?;
    bed.close()
}

fn ensure_in_force_alone(bed: &Testbed) -> Result<()> {
    let passed = super::scene::arrive(bed, &[super::scene::SOURCE])?;
    ensure!(passed == [0], "{passed:?} passed");
    Ok(())
}

fn wait(done: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        ensure!(Instant::now() < deadline, "it did not happen within half a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The socket's directory: a node needs no byte, but a place in the directory.
#[test]
fn a_socket_that_cannot_be_made_is_reported() -> Result<()> {
    require_root();
    let bed = Testbed::create("fullsocket")?;
    let disk = SmallDisk::mount(bed.dir.path().join("run"), SMALL)?;
    disk.fill_places()?;
    let mut limiter = bed.limiter(DRAINING)?;
    limiter.listen_at(&disk.0.join("limiter.sock"));
    ensure_clear_output(&limiter.run_to_end()?, "no place for the socket")?;
    ensure!(!limiter.pins().exists(), "pins are left");
    disk.free_places()?;
    limiter.start()?;
    limiter.close()?;
    drop(disk);
    bed.close()
}

impl SmallDisk {
    fn fill_places(&self) -> Result<()> {
        for number in 0..100_000 {
            match File::create(self.place(number)) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(()),
                Err(error) => bail!(error),
            }
        }
        bail!("the disk does not fill up")
    }

    fn free_places(&self) -> Result<()> {
        (0..10).try_for_each(|number| Ok(fs::remove_file(self.place(number))?))
    }

    fn place(&self, number: u32) -> PathBuf {
        Path::new(&self.0).join(number.to_string())
    }
}
