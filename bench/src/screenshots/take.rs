//! A daemon with traffic of all kinds, and `limiter top` on it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use limiter_tests::browser::Browser;
use limiter_tests::live_frames::{self, Family, LiveFrames, Load, Regular, Sources};
use limiter_tests::terminal::Session;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use super::svg;

const RULES: &str = "domain: pictures\ndescriptors:
  - {key: remote_address, rate_limit: {name: everybody, rate: 600/hour, burst: 40}}
  - {key: remote_address, value: 198.51.100.0/24, rate_limit: {name: partners, rate: 3000/s, \
  burst: 400}}
  - {key: remote_address, value: 203.0.113.0/24, rate_limit: {name: customers, rate: 200/s, \
  burst: 100}}\n";

const PAGE: &str = "127.0.0.1:9465";

/// Size of the picture of the page.
const SIZE: (u32, u32) = (1000, 620);

/// Addresses, neighbours 256 apart, and what they send a second together.
const SENDERS: [([u8; 4], u32, u32); 4] = [
    ([203, 0, 113, 66], 1, 6_400),
    ([198, 51, 100, 7], 1, 2_900),
    ([192, 0, 2, 41], 3, 900),
    ([100, 64, 0, 9], 12, 240),
];

const MANY: u64 = 120_000;

const ROWS: u16 = 26;
const COLUMNS: u16 = 118;

/// Time for which the views show traffic that changes.
const WHILE: Duration = Duration::from_mins(1);

/// Writes `top.svg`, `top-source.svg` and `page.png` into a directory.
///
/// # Errors
///
/// When the daemon, the traffic or the view does not come about.
pub fn run(output: &Path) -> Result<()> {
    let bed = Testbed::create("pictures")?;
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--max-sources", "1048576", "--page-listen", PAGE]);
    limiter.start()?;
    live_frames::accept(&bed.receiver, RECEIVER.interface)?;
    let crowd = Load {
        sources: Sources::New(0),
        family: Family::V4,
        length: 60,
        per_second: Some(100_000),
        frames: MANY,
        duration: Duration::from_mins(1),
        regular: Vec::new(),
        place: None,
    };
    LiveFrames::start(&bed.sender, SENDER.interface, &crowd)?.finish()?;
    let v6 = Load { family: Family::V6, length: 80, frames: 4_000, ..crowd.clone() };
    LiveFrames::start(&bed.sender, SENDER.interface, &v6)?.finish()?;
    // A new daemon adopts the sources, and its charts have nothing of how they came.
    limiter.terminate()?;
    limiter.start()?;
    let mut command = Command::new(limiter.binary());
    command.arg("--socket").arg(limiter.socket()).args(["top", "--interval", "500ms"]);
    command.env_remove("NO_COLOR");
    let mut session = Session::start(&bed.receiver, &mut command, ROWS, COLUMNS)?;
    session.wait_for("the view", |text| text.contains("limits on"))?;
    // In steps, so that the histories have a shape.
    let mut working = Vec::new();
    for (address, count, per_second) in SENDERS {
        let regular = vec![Regular { first: u32::from_be_bytes(address), count, per_second }];
        let load = Load { frames: 0, regular, duration: 3 * WHILE, ..crowd.clone() };
        working.push(LiveFrames::start(&bed.sender, SENDER.interface, &load)?);
        thread::sleep(WHILE / 5);
    }
    limiter.ok(["deny", "192.0.2.41", "--for", "15m"])?;
    thread::sleep(WHILE / 5);
    session.wait_for("the heaviest one", |text| text.contains("203.0.113.66"))?;
    save(&session, output, "top", "limiter top: the sources that stand out")?;
    session.keys("\r")?;
    session.wait_for("one source", |text| text.contains("bucket"))?;
    thread::sleep(WHILE / 3);
    save(&session, output, "top-source", "limiter top: one source")?;
    session.keys("q")?;
    session.ended()?;
    page(&bed, output)?;
    for generator in &mut working {
        generator.stop();
    }
    drop(working);
    limiter.close()?;
    bed.close()
}

/// The page, once it has rates.
fn page(bed: &Testbed, output: &Path) -> Result<()> {
    let browser = Browser::start(&bed.receiver, &bed.dir.path().join("browser"))?;
    let (width, height) = SIZE;
    browser.look_as(width, height, "light")?;
    browser.open(&format!("http://{PAGE}/"))?;
    let dropped = "return document.querySelector('tr.dropping') !== null";
    browser.wait("a source that is dropped", dropped)?;
    thread::sleep(WHILE / 6);
    let path = output.join("page.png");
    fs::write(&path, browser.picture()?).with_context(|| format!("cannot write {}", path.display()))
}

fn save(session: &Session, output: &Path, name: &str, title: &str) -> Result<()> {
    let path = output.join(name).with_extension("svg");
    let picture = session.with_screen(|screen| svg::picture(screen, title));
    fs::write(&path, picture).with_context(|| format!("cannot write {}", path.display()))
}
