//! A browser without a window, driven as W3C's `WebDriver` says: Debian's Chromium and its driver.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::netns::Netns;

/// Port of the driver, in a namespace where nobody else listens.
const PORT: u16 = 9515;

/// Longest time for a call: the first one starts the browser.
const CALL: Duration = Duration::from_mins(2);

/// Longest time that a page is waited for.
const WAIT: Duration = Duration::from_mins(1);

const LOOK: Duration = Duration::from_millis(50);

/// Options of Chromium: without a window, without the sandbox, which root cannot have, and without
/// anything that it asks of others by itself.
const OPTIONS: [&str; 12] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-quic",
];

/// A browser with one page. Dropping it ends the browser and all of its processes.
#[derive(Debug)]
pub struct Browser {
    netns: Arc<Netns>,
    driver: Child,
    session: String,
}

impl Browser {
    /// Starts it inside a namespace, with its files in `dir`, which is made.
    ///
    /// # Errors
    ///
    /// Without Chromium or its driver, or when they do not start.
    pub fn start(netns: &Arc<Netns>, dir: &Path) -> Result<Self> {
        std::fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        // The processes of a PID namespace end with the first of them, and that with `unshare`.
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "chromedriver"]);
        command.arg(format!("--port={PORT}")).env("HOME", dir).env("TMPDIR", dir);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = netns.spawn(&mut command)?;
        let netns = Arc::clone(netns);
        let mut browser = Self { netns, driver, session: String::new() };
        let deadline = Instant::now() + WAIT;
        while browser.call("GET", "/status", None).is_err() {
            if let Some(status) = browser.driver.try_wait()? {
                bail!("chromedriver ended ({status}): install chromium and chromium-driver");
            }
            ensure!(Instant::now() < deadline, "chromedriver does not answer");
            thread::sleep(LOOK);
        }
        let profile = format!("--user-data-dir={}", dir.join("profile").display());
        let options: Vec<&str> = OPTIONS.into_iter().chain([profile.as_str()]).collect();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": options},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let begun = browser.call("POST", "/session", Some(&wanted))?;
        let session = begun["sessionId"].as_str().context("the driver begins no session")?;
        browser.session = format!("/session/{session}");
        Ok(browser)
    }

    /// Opens a page.
    ///
    /// # Errors
    ///
    /// When it cannot be loaded.
    pub fn open(&self, url: &str) -> Result<()> {
        self.post("/url", &json!({"url": url})).map(drop)
    }

    /// Runs a script in the page, the body of a function; gives what it returns.
    ///
    /// # Errors
    ///
    /// When it throws.
    pub fn run(&self, script: &str) -> Result<Value> {
        self.post("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// The text of an element that a script finds, as it is seen.
    ///
    /// # Errors
    ///
    /// When there is none.
    pub fn text(&self, selector: &str) -> Result<String> {
        let quoted = serde_json::to_string(selector)?;
        let text = self.run(&format!("return document.querySelector({quoted}).textContent"))?;
        Ok(text.as_str().context("no text")?.to_owned())
    }

    /// Runs a script until what it returns is true; says what was waited for if it never is.
    ///
    /// # Errors
    ///
    /// When it throws, or is not true within a minute.
    pub fn wait(&self, what: &str, script: &str) -> Result<()> {
        let deadline = Instant::now() + WAIT;
        while self.run(script)? != Value::Bool(true) {
            if Instant::now() > deadline {
                bail!("{what}: not within {WAIT:?}; the page: {}", self.text("body")?);
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Types into an element, or chooses a file in a field for one: a path. The keys of
    /// `WebDriver` are private characters.
    ///
    /// # Errors
    ///
    /// When there is no such element.
    pub fn enter(&self, selector: &str, text: &str) -> Result<()> {
        let (using, value) = ("css selector", selector);
        let found = self.post("/element", &json!({"using": using, "value": value}))?;
        let element = found.as_object().and_then(|found| found.values().next()?.as_str());
        let element = element.with_context(|| format!("no {selector}"))?;
        self.post(&format!("/element/{element}/value"), &json!({"text": text})).map(drop)
    }

    /// Gives the page another size, in CSS pixels, and colours: `light` or `dark`.
    ///
    /// # Errors
    ///
    /// When the browser does not take them.
    pub fn look_as(&self, width: u32, height: u32, scheme: &str) -> Result<()> {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.send("Emulation.setDeviceMetricsOverride", &size)?;
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.send("Emulation.setEmulatedMedia", &json!({"features": [feature]}))
    }

    /// A picture of what is seen, as PNG.
    ///
    /// # Errors
    ///
    /// When the browser makes none.
    pub fn picture(&self) -> Result<Vec<u8>> {
        let picture = self.call("GET", &format!("{}/screenshot", self.session), None)?;
        let picture = picture.as_str().context("no picture")?;
        STANDARD.decode(picture).context("the picture is no base64")
    }

    /// The console's messages since the last call: errors, and violations of the page's policy.
    ///
    /// # Errors
    ///
    /// When the driver does not report it.
    pub fn console(&self) -> Result<Vec<String>> {
        let log = self.post("/se/log", &json!({"type": "browser"}))?;
        let entries = log.as_array().context("no log")?;
        let text = |entry: &Value| entry["message"].as_str().map(str::to_owned);
        Ok(entries.iter().filter_map(text).collect())
    }

    fn send(&self, command: &str, params: &Value) -> Result<()> {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": params})).map(drop)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.call("POST", &format!("{}{path}", self.session), Some(body))
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost:{PORT}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let (head, body) = self.netns.enter(|| -> Result<(String, Vec<u8>)> {
            let mut stream = TcpStream::connect(("127.0.0.1", PORT))?;
            stream.set_read_timeout(Some(CALL))?;
            stream.write_all(request.as_bytes())?;
            // The driver keeps the connection, whatever it is asked for.
            let (mut reader, mut head, mut length) = (BufReader::new(stream), String::new(), 0);
            while reader.read_line(&mut head)? > 2 {
                let line = head.lines().next_back().unwrap_or_default();
                if let Some(("content-length", value)) = line.to_lowercase().split_once(':') {
                    length = value.trim().parse()?;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            Ok((head, body))
        })??;
        let mut document: Value =
            serde_json::from_slice(&body).with_context(|| format!("{method} {path}: {head}"))?;
        let value = document["value"].take();
        ensure!(head.starts_with("HTTP/1.1 200 "), "{method} {path}: {value}");
        Ok(value)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // An error means that it has ended.
        let _ended = self.driver.kill().and_then(|()| self.driver.wait());
    }
}
