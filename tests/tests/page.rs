//! The page of `limiter run --page-listen` in a browser, beside a real daemon and live traffic.
//!
//! With `LIMITER_PAGE_PICTURES=DIRECTORY` pictures of it are written there, as PNG.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context as _, Result, ensure};
use limiter_tests::browser::Browser;
use limiter_tests::generator::{Generator, Pattern, Stream};
use limiter_tests::limiter::Limiter;
use limiter_tests::packet::Frame;
use limiter_tests::root::require_root;
use limiter_tests::serve::Serve;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};
use limiter_tests::{command, work_dir::WorkDir};

const URL: &str = "http://127.0.0.1:9465/";

/// A name that is markup, and words of a shell.
const NAME: &str = r#"<img src=x onerror="document.title='$(id)'">"#;

const RULES: &str = r#"descriptors:
  - key: remote_address
    rate_limit:
      name: "<img src=x onerror=\"document.title='$(id)'\">"
      unit: second
      requests_per_unit: 20
      burst: 5
"#;

/// The key of `WebDriver` for the arrow to the right.
const RIGHT: &str = "\u{e014}";

const VIEWS: [&str; 5] = ["sources", "events", "rules", "interfaces", "requests"];

/// A rule for requests, with a name that is markup.
const REQUESTS: &str = r#"domain: auth
descriptors:
  - key: auth_type
    value: login
    descriptors:
      - key: remote_address
        rate_limit: {unit: hour, requests_per_unit: 2}
  - key: <b>
    rate_limit: {name: "<img src=x onerror=1>", unit: hour, requests_per_unit: 1}
"#;

/// Packets of one source, ten times its limit, for longer than a test takes.
fn sender(bed: &Testbed) -> Result<Generator> {
    let frame = Frame::ipv4([203, 0, 113, 5], RECEIVER.ipv4.octets());
    let frames = vec![frame.macs(SENDER.mac, RECEIVER.mac).build()];
    let stream = Stream { frames, pattern: Pattern::Paced { per_second: 200.0 } };
    Generator::start(&bed.sender, SENDER.interface, vec![stream], Duration::from_mins(10), 1 << 20)
}

/// A daemon that serves the page, and a browser that shows it.
fn open(bed: &Testbed) -> Result<(Limiter, Browser)> {
    let mut limiter = bed.limiter(RULES)?;
    limiter.options(["--page-listen", "127.0.0.1:9465"]);
    limiter.start()?;
    let browser = Browser::start(&bed.receiver, &bed.dir.path().join("browser"))?;
    browser.open(URL)?;
    browser.wait("the page is live", LIVE)?;
    Ok((limiter, browser))
}

const LIVE: &str = "return document.getElementById('link').textContent === 'live'";

/// The number in a column of the first row of a table.
fn cell(head: &str) -> String {
    format!(
        "const cell = document.querySelector('#sources-table td[data-head=\"{head}\"]'); \
         return cell === null ? 0 : Number(cell.textContent.replaceAll(',', ''))"
    )
}

/// True if every text in the tables that are shown is whole: of `.number` cells all of it in one
/// line, of the others each word.
const WHOLE: &str = r"
    const tables = document.querySelectorAll('[role=tabpanel]:not([hidden]) table:not([hidden])');
    const broken = [];
    for (const table of tables) {
        const texts = document.createTreeWalker(table, NodeFilter.SHOW_TEXT);
        for (let text = texts.nextNode(); text; text = texts.nextNode()) {
            const number = text.parentElement.closest('.number') !== null;
            const words = number ? [text.data] : text.data.split(' ');
            let from = 0;
            for (const word of words) {
                const range = document.createRange();
                range.setStart(text, from);
                range.setEnd(text, from + word.length);
                const tops = new Set([...range.getClientRects()].map((rect) => rect.top));
                if (tops.size > 1) broken.push(word);
                from += word.length + 1;
            }
        }
    }
    return broken.join(', ');";

/// True if the first source is on the screen, without scrolling.
const FIRST_ROW_IS_SEEN: &str = r"
    scrollTo(0, 0);
    const row = document.querySelector('#sources-table tbody tr').getBoundingClientRect();
    const head = document.querySelector('header').getBoundingClientRect();
    return row.top >= head.bottom && row.bottom <= innerHeight;";

/// Picture, if somebody wants them.
fn picture(browser: &Browser, name: &str) -> Result<()> {
    if let Some(directory) = env::var_os("LIMITER_PAGE_PICTURES") {
        fs::write(PathBuf::from(directory).join(name), browser.picture()?)?;
    }
    Ok(())
}

/// Against an attempt to run a script in the page by a name or an address. Live traffic, a lost
/// daemon and its restart.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_page_follows_traffic_and_a_restart() -> Result<()> {
    require_root();
    let bed = Testbed::create("page")?;
    let (mut limiter, browser) = open(&bed)?;
    let title = browser.run("return document.title")?;
    let traffic = sender(&bed)?;
    let dropped = format!("return (() => {{ {} }})() > 0", cell("Dropped"));
    browser.wait("the sender's drops are seen", &dropped)?;
    ensure!(browser.text("#sources-table td")? == "203.0.113.5");
    let before = browser.run(&cell("Dropped"))?;
    browser
        .wait("drops grow", &format!("return (() => {{ {} }})() > {before}", cell("Dropped")))?;
    browser
        .wait("the rate is seen", &format!("return (() => {{ {} }})() > 0", cell("Dropped/s")))?;

    // Nothing of a name is markup.
    let by = browser.text("#sources-table td[data-head=By]")?;
    ensure!(by == NAME, "{by}");
    let headline = browser.text("#headline")?;
    ensure!(headline.contains(&format!("from 203.0.113.5 by {NAME}")), "{headline}");
    ensure!(browser.run("return document.querySelector('img') === null")? == true);
    ensure!(browser.run("return document.title")? == title);

    browser.run("document.querySelector('#sources-table button.name').click()")?;
    browser.wait(
        "the source's own view",
        "return document.querySelector('#source dl')?.textContent.includes('20/s burst 5')",
    )?;
    let commands = browser.text("#source ul.copies")?;
    for command in ["limiter show 203.0.113.5", "limiter ban 203.0.113.5 --for 10m"] {
        ensure!(commands.contains(command), "{commands}");
    }
    browser.run("document.getElementById('tab-events').click()")?;
    browser.wait(
        "the drops as events",
        "return document.querySelector('#events-table tbody')?.textContent.includes('over-limit')",
    )?;
    let said = browser.console()?;
    ensure!(said.is_empty(), "the console has errors: {said:?}");

    limiter.terminate()?;
    browser.wait(
        "the loss of the daemon is reported",
        "return document.getElementById('link').textContent.includes('no answer')",
    )?;
    // It stays said, in the sentence and in the title, and the last rows stay.
    let said = browser.text("#headline")?;
    ensure!(
        said.contains("no answer from the daemon. All numbers below are from before"),
        "{said}"
    );
    ensure!(browser.run("return document.title")? == "limiter: no answer");
    ensure!(browser.text("#sources-table td")? == "203.0.113.5");
    limiter.start()?;
    browser.wait("the page is live again", LIVE)?;
    browser.wait(
        "the new start is reported",
        "return document.getElementById('facts').textContent.includes('started again')",
    )?;
    browser.run("document.getElementById('tab-sources').click()")?;
    browser
        .wait("drops go on", &format!("return (() => {{ {} }})() > {before}", cell("Dropped")))?;
    let said = browser.console()?;
    let of_the_loss = |said: &String| said.contains("Failed to load resource: net::ERR_");
    ensure!(!said.is_empty() && said.iter().all(of_the_loss), "{said:?}");

    // The policy holds, and the console is where that is seen.
    browser.run("document.body.append(Object.assign(new Image(), {src: '/v1/status'}))")?;
    let said = browser.console()?.concat();
    ensure!(said.contains("Content Security Policy"), "{said}");
    drop(traffic);
    drop(browser);
    limiter.close()?;
    bed.close()
}

/// Looks at every view in a colour scheme at three widths, by keys. Returns the colour behind them.
fn views_at_all_widths(browser: &Browser, scheme: &str) -> Result<String> {
    for (width, height) in [(390, 844), (1400, 900), (2560, 1300)] {
        browser.look_as(width, height, scheme)?;
        browser.run("document.getElementById('tab-sources').focus()")?;
        for (index, view) in VIEWS.iter().enumerate() {
            shown(browser, view)?;
            picture(browser, &format!("{view}-{width}-{scheme}.png"))?;
            let wide = "return document.documentElement.scrollWidth > innerWidth";
            ensure!(browser.run(wide)? == false, "{view} is wider than {width}");
            if *view == "sources" {
                let seen = browser.run(FIRST_ROW_IS_SEEN)?;
                ensure!(seen == true, "the first source is below {width} x {height}");
            }
            let broken = browser.run(WHOLE)?;
            ensure!(broken == "", "broken at {width}: {broken}");
            if index + 1 < VIEWS.len() {
                browser.enter(&format!("#tab-{view}"), RIGHT)?;
            }
        }
        // A file of `tune` is looked at by its link, and has a tab as long as it is shown.
        browser.run("document.querySelector('footer a').click()")?;
        shown(browser, "tune")?;
        picture(browser, &format!("tune-{width}-{scheme}.png"))?;
        let wide = "return document.documentElement.scrollWidth > innerWidth";
        ensure!(browser.run(wide)? == false, "tune is wider than {width}");
        browser.run("document.getElementById('tab-sources').click()")?;
        ensure!(browser.run("return document.getElementById('tab-tune').hidden")? == true);
    }
    let ground = "return getComputedStyle(document.body).backgroundColor";
    Ok(browser.run(ground)?.to_string())
}

/// Every view, light and dark, at 390, 1400 and 2560 px, no word or number broken, by keys; search,
/// links, commands to copy.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_page_fits_every_screen_and_works_by_keys() -> Result<()> {
    require_root();
    let bed = Testbed::create("view")?;
    let (limiter, browser) = open(&bed)?;
    let traffic = sender(&bed)?;
    let dropped = format!("return (() => {{ {} }})() > 0", cell("Dropped"));
    browser.wait("the sender's drops are seen", &dropped)?;
    browser.enter("#tune-file", &tuned(&limiter, &bed.dir)?)?;
    browser.wait("the heat map", "return document.querySelectorAll('.heat').length === 2")?;
    // The tab of requests is there while they are reported, and the keys pass over it otherwise.
    ensure!(browser.run("return document.getElementById('tab-requests').hidden")? == true);
    browser.run("document.getElementById('tab-interfaces').focus()")?;
    browser.enter("#tab-interfaces", RIGHT)?;
    shown(&browser, "sources")?;
    let serve = Serve::start(&limiter, bed.dir.path(), &bed.dir.write("r.yaml", REQUESTS)?)?;
    let login = r#"{"domain": "auth", "descriptors": [{"entries": [
        {"key": "auth_type", "value": "login"},
        {"key": "remote_address", "value": "192.0.2.7"}]}]}"#;
    for status in [200, 200, 429] {
        ensure!(serve.ask("POST", "/json", login)?.0 == status);
    }
    let tab = "return !document.getElementById('tab-requests').hidden";
    browser.wait("the tab of requests", tab)?;
    browser.run("document.getElementById('tab-requests').click()")?;
    let refused = "return document.querySelector('#requests-table td[data-head=\"Refused\"]')\
                   ?.textContent === '1'";
    browser.wait("the request that was refused", refused)?;
    let first = browser.text("#requests-table td")?;
    ensure!(first == "auth: auth_type=login remote_address", "{first}");
    browser.run("document.getElementById('tab-sources').click()")?;
    let grounds: Result<BTreeSet<String>> =
        ["light", "dark"].into_iter().map(|scheme| views_at_all_widths(&browser, scheme)).collect();
    ensure!(grounds?.len() == 2, "light and dark are one");

    // Enter on a source opens its view, and Escape closes it and leaves the focus where it was.
    browser.run("document.querySelector('#sources-table button.name').focus()")?;
    browser.enter("#sources-table button.name", "\u{e007}")?;
    browser
        .wait("a view", "return document.activeElement === document.getElementById('source')")?;
    browser.enter("#source-close", "\u{e00c}")?;
    browser.wait("it is closed", "return document.activeElement.textContent === '203.0.113.5'")?;

    // The command of a row, as a shell reads it.
    browser.run("document.getElementById('tab-rules').click()")?;
    let button = "document.querySelector('#rules-table td button')";
    browser.wait("a rule", &format!("return {button} !== null"))?;
    let line = browser.run(&format!("return {button}.title"))?;
    let line = line.as_str().context("no command")?;
    let words =
        command::run("sh", ["-c", &format!("limiter() {{ printf '%s\\n' \"$@\"; }}\n{line}")])?;
    let option = format!("--rule={NAME}");
    let wanted = ["capture", "--dropped", &option, "--count", "100", "-w", "rule.pcapng"];
    ensure!(words.lines().eq(wanted), "{words}");

    // A search leaves the rows that have its words, and is a part of the address.
    let search = |text: &str| {
        browser.run(&format!(
            "const field = document.getElementById('search'); field.value = '{text}'; \
             field.dispatchEvent(new Event('input'))"
        ))
    };
    let rows = "document.querySelectorAll('#rules-table tbody tr').length";
    search("nosuchrule")?;
    browser.wait("no rule", &format!("return {rows} === 0"))?;
    browser.wait("the search in the address", "return location.hash === '#rules?q=nosuchrule'")?;
    search("onerror every")?;
    browser.wait("the rule", &format!("return {rows} === 1"))?;
    search("")?;

    // The address names what is shown, and a reload shows it again.
    browser.run("document.getElementById('tab-sources').click()")?;
    browser.run("document.querySelector('#sources-table button.name').click()")?;
    browser.wait("an address", "return location.hash === '#sources/203.0.113.5'")?;
    browser.run("document.getElementById('tab-events').click()")?;
    browser.run("location.reload()")?;
    browser.wait(
        "the source again",
        "return document.getElementById('source-title').textContent === '203.0.113.5'",
    )?;
    shown(&browser, "events")?;
    serve.close()?;
    browser.wait("no tab of requests", "return document.getElementById('tab-requests').hidden")?;
    let said = browser.console()?;
    ensure!(said.is_empty(), "the console has errors: {said:?}");
    drop(traffic);
    drop(browser);
    limiter.close()?;
    bed.close()
}

/// Charts have a scale, times and values to look up; what changes is marked in them, and reported
/// until it is dismissed.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_charts_have_axes_values_and_marks() -> Result<()> {
    require_root();
    let bed = Testbed::create("charts")?;
    let (limiter, browser) = open(&bed)?;
    let traffic = sender(&bed)?;
    let red = "return document.querySelector('#sources-table tr.dropping') !== null";
    browser.wait("the row of the sender is coloured", red)?;
    let figure = "document.querySelector('#totals figure')";
    for chart in ["packets", "bits"] {
        browser.run(&format!(
            "const unit = document.getElementById('unit'); unit.value = '{chart}'; \
             unit.dispatchEvent(new Event('change'))"
        ))?;
        let kinds = ["passed", "dropped"]
            .map(|kind| format!("{figure}.querySelector('path.{kind}').getAttribute('d') !== ''"));
        browser.wait(chart, &format!("return {}", kinds.join(" && ")))?;
        for (axis, least) in [("y", 2), ("x", 1)] {
            let labels = format!("{figure}.querySelectorAll('.axis.{axis}').length >= {least}");
            browser.wait(&format!("the axis {axis} of {chart}"), &format!("return {labels}"))?;
        }
        // The pointer at the newest value.
        browser.run(&format!(
            "const svg = {figure}.querySelector('svg'); const at = svg.getBoundingClientRect(); \
             svg.dispatchEvent(new PointerEvent('pointermove', {{clientX: at.right - 12, clientY: \
             at.top + 50, bubbles: true}}))"
        ))?;
        let shown = "const tip = document.querySelector('#totals .tip'); return !tip.hidden && \
                     /passed .*dropped .*%/.test(tip.textContent)";
        browser.wait(&format!("the values of {chart}"), shown)?;
    }

    limiter.ok(["off"])?;
    let badge = "return document.getElementById('limits').textContent === 'limits are off'";
    browser.wait("limits are off", badge)?;
    let mark =
        |kind: &str| format!("return document.querySelector('#totals line.{kind}') !== null");
    browser.wait("a mark", &mark("off"))?;
    browser.wait("the band", "return document.querySelector('#totals .bypass') !== null")?;
    // As long as it is true, it cannot be dismissed.
    let kept = "return document.querySelector('#states .bad .dismiss') === null";
    ensure!(browser.run(kept)? == true);
    limiter.ok(["on"])?;
    browser.wait("a mark", &mark("on"))?;

    let other = bed.dir.write("other.yaml", RULES.replace("20", "30"))?;
    limiter.ok(["apply", &other.display().to_string()])?;
    browser.wait("a mark", &mark("rules"))?;
    let line = "[...document.querySelectorAll('.states li')]\
                .find((line) => line.textContent.includes('limiter apply'))";
    browser.wait("a line", &format!("return {line} !== undefined"))?;
    browser.run(&format!("{line}.querySelector('.dismiss').click()"))?;
    ensure!(browser.run(&format!("return {line} === undefined"))? == true);
    browser.run("document.getElementById('dismissed').click()")?;
    ensure!(browser.run(&format!("return {line} !== undefined"))? == true, "it does not come back");

    browser.run("document.getElementById('tab-interfaces').click()")?;
    let rates = "return /\\d.*bit\\/s/.test(document.querySelector('#interfaces-table tbody \
                 td[data-head=\"Dropped/s\"]')?.textContent)";
    browser.wait("the rates of the interface", rates)?;
    let said = browser.console()?;
    ensure!(said.is_empty(), "the console has errors: {said:?}");
    drop(traffic);
    drop(browser);
    limiter.close()?;
    bed.close()
}

/// Checks that one view is there, and no other.
fn shown(browser: &Browser, view: &str) -> Result<()> {
    browser.wait(
        view,
        &format!("return document.querySelector('[role=tabpanel]:not([hidden])').id === '{view}'"),
    )
}

/// A file with an answer of `limiter tune`.
fn tuned(limiter: &Limiter, dir: &WorkDir) -> Result<String> {
    let load = dir.write(
        "load.yaml",
        "duration: 2s\nsenders: [{pattern: poisson, rate: 20/s, sources: 20}]\n",
    )?;
    let load = load.display().to_string();
    let answer = limiter.ok(["tune", "--load", &load, "--json"])?;
    Ok(dir.write("tune.json", answer)?.display().to_string())
}
