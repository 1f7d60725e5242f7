//! Changes of which a call fails: of the daemon that makes them.

use std::fs;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;

use super::inject::{self, BPF, Calls, Counted, FILES, OPEN, Tally, WRITE};
use super::scene::{
    DRAINING, MANAGEMENT, arrive, contents, drain, ensure_clean, ensure_clear_output,
    ensure_in_force,
};

/// Whom the changes are about: the rules before let five pass, the changed ones three.
const OTHER: &str = "203.0.113.88";

/// A change, and how it is taken back.
struct Change {
    name: &'static str,
    /// Done before, without a fault.
    before: Vec<String>,
    words: Vec<String>,
    back: Vec<String>,
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// Everything that a user sees of the rules and the lists.
fn seen(limiter: &Limiter) -> Result<[String; 2]> {
    Ok([limiter.ok(["export"])?, limiter.ok(["lists"])?])
}

struct Scene {
    bed: Testbed,
    limiter: Limiter,
    seen: [String; 2],
}

impl Scene {
    fn new(tag: &str) -> Result<Self> {
        let bed = Testbed::create(tag)?;
        let mut limiter = bed.limiter(DRAINING)?;
        let management = std::net::Ipv4Addr::from(MANAGEMENT).to_string();
        // No reload but those asked for.
        limiter.options(["--management", &management, "--watch", "off"]);
        limiter.start()?;
        drain(&bed)?;
        let seen = seen(&limiter)?;
        Ok(Self { bed, limiter, seen })
    }

    fn run(&self, words: &[String]) -> Result<Output> {
        self.limiter.cli(words)
    }

    fn ok(&self, words: &[String]) -> Result<()> {
        if words.is_empty() { Ok(()) } else { self.limiter.ok(words).map(drop) }
    }

    /// The change fails and nothing is different, or it works and is in force. Says whether it
    /// failed.
    fn try_with(
        &mut self,
        change: &Change,
        calls: Calls,
        (number, error): (usize, &str),
    ) -> Result<Option<bool>> {
        let state = self.bed.dir.path().join("state");
        self.ok(&change.before)?;
        let files = contents(&state)?;
        let log = self.bed.dir.path().join("strace");
        let strace = inject::attach(&self.limiter, calls, number, error, &log)?;
        let output = self.run(&change.words)?;
        let injected = strace.end()?;
        let name = change.name;
        let when = format!("{name}: {error} at call {number}: {}", injected.join("; "));
        let failed = !output.status.success();
        if failed {
            ensure!(!injected.is_empty(), "{when}: failed without a fault: {output:?}");
            ensure_clear_output(&output, &when)?;
            let trial = !self.limiter.json(&["status"])?["trial"].is_null();
            if trial {
                // The trial goes on: the confirmation failed, and nothing else.
                self.ok(&words("revert"))?;
            }
            let now = seen(&self.limiter)?;
            ensure!(now == self.seen, "{when}: was {:?}, is {now:?}", self.seen);
            let now = contents(&state)?;
            ensure!(now == files, "{when}: other files: {:?}", now.keys());
            ensure_in_force(&self.bed, 0, &when)?;
            self.ok(&change.before)?;
            self.ok(&change.words).with_context(|| format!("{when}: again, without a fault"))?;
        }
        let changed = seen(&self.limiter)?;
        ensure!(changed != self.seen, "{when}: nothing changed");
        ensure_in_force(&self.bed, 0, &when)?;
        self.ok(&change.back)?;
        let now = seen(&self.limiter)?;
        ensure!(now == self.seen, "{when}: taken back, it was {:?}, is {now:?}", self.seen);
        ensure_clean(&state, &when)?;
        Ok((!injected.is_empty()).then_some(failed))
    }

    /// Every fault of a sample.
    fn all(&mut self, change: &Change, kinds: &[Calls]) -> Result<Tally> {
        self.ok(&change.before)?;
        let counted = self.count(&change.words, kinds)?;
        self.ok(&change.back)?;
        let mut tally = Tally::default();
        for (calls, case) in inject::cases(kinds, &counted) {
            if let Some(failed) = self.try_with(change, calls, case)? {
                tally.count(true, failed);
            }
        }
        Ok(tally)
    }

    /// Runs a command without a fault, and counts the daemon's calls.
    fn count(&self, words: &[String], kinds: &[Calls]) -> Result<Counted> {
        let watched = inject::watch(&self.limiter, kinds, &self.bed.dir.path().join("strace"))?;
        self.ok(words)?;
        watched.count()
    }

    /// Checks that the rules on disk are those in force: a start does not change them.
    fn close(mut self) -> Result<()> {
        self.limiter.kill()?;
        self.limiter.start()?;
        ensure!(seen(&self.limiter)? == self.seen, "the start has other rules");
        ensure_in_force(&self.bed, 0, "after the last start")?;
        self.limiter.close()?;
        self.bed.close()
    }
}

fn rules_of(other: &str) -> String {
    format!(
        "{DRAINING}  - {{key: remote_address, value: {other}, rate_limit: {{unit: hour, \
         requests_per_unit: 20, burst: 3}}}}\n"
    )
}

fn set() -> Change {
    Change {
        name: "set",
        before: Vec::new(),
        words: words(&format!("set {OTHER} 20/hour --burst 3")),
        back: words(&format!("unset {OTHER}")),
    }
}

fn apply(bed: &Testbed) -> Result<Change> {
    let file = bed.dir.write("other.yaml", rules_of(OTHER))?.display().to_string();
    Ok(Change {
        name: "apply",
        before: Vec::new(),
        words: words(&format!("apply --force {file}")),
        back: words("reload"),
    })
}

fn confirm(bed: &Testbed) -> Result<Change> {
    let file = bed.dir.write("tried.yaml", rules_of(OTHER))?.display().to_string();
    Ok(Change {
        name: "confirm",
        before: words(&format!("apply --force --confirm 600s {file}")),
        words: words("confirm"),
        back: words("reload"),
    })
}

fn deny() -> Change {
    Change {
        name: "deny",
        before: Vec::new(),
        words: words(&format!("deny {OTHER} 192.0.2.66 203.0.113.99")),
        back: Vec::new(),
    }
}

#[test]
fn a_change_of_which_a_bpf_call_fails_changes_nothing() -> Result<()> {
    require_root();
    let mut scene = Scene::new("faultchange")?;
    for change in [set(), apply(&scene.bed)?, confirm(&scene.bed)?] {
        scene.all(&change, &[BPF])?.ensure_faults().context(change.name)?;
    }
    scene.close()
}

#[test]
fn a_change_of_which_a_file_call_fails_changes_nothing() -> Result<()> {
    require_root();
    let mut scene = Scene::new("faultstate")?;
    for change in [set(), apply(&scene.bed)?, confirm(&scene.bed)?] {
        let kinds: Vec<Calls> = FILES.into_iter().chain([WRITE]).collect();
        scene.all(&change, &kinds)?.ensure_faults().context(change.name)?;
    }
    scene.close()
}

/// A rule file that cannot be read, and rules that cannot be put in force, change nothing.
#[test]
fn a_reload_of_which_a_call_fails_changes_nothing() -> Result<()> {
    require_root();
    let scene = Scene::new("faultreload")?;
    reloads(&scene)?.ensure_faults()?;
    scene.close()
}

/// Reloads with every fault of a sample.
fn reloads(scene: &Scene) -> Result<Tally> {
    let rules = scene.limiter.rules().to_owned();
    let (reload, kinds) = (words("reload"), [BPF, OPEN]);
    fs::write(&rules, rules_of(OTHER))?;
    let counted = scene.count(&reload, &kinds)?;
    fs::write(&rules, DRAINING)?;
    scene.ok(&reload)?;
    let mut tally = Tally::default();
    for (calls, case) in inject::cases(&kinds, &counted) {
        fs::write(&rules, rules_of(OTHER))?;
        let log = scene.bed.dir.path().join("strace");
        let strace = inject::attach(&scene.limiter, calls, case.0, case.1, &log)?;
        let output = scene.run(&reload)?;
        let injected = strace.end()?;
        let when = format!("{case:?}: {}", injected.join("; "));
        tally.count(!injected.is_empty(), !output.status.success());
        if output.status.success() {
            ensure!(seen(&scene.limiter)? != scene.seen, "{when}: nothing changed");
        } else {
            ensure_clear_output(&output, &when)?;
            ensure!(seen(&scene.limiter)? == scene.seen, "{when}: something changed");
            scene.ok(&reload)?;
        }
        ensure_in_force(&scene.bed, 0, &when)?;
        fs::write(&rules, DRAINING)?;
        scene.ok(&reload)?;
    }
    Ok(tally)
}

/// All entries of a command or none; the allowed and the denied get what they should.
#[test]
fn a_list_of_which_a_call_fails_gets_all_entries_or_none() -> Result<()> {
    require_root();
    let mut scene = Scene::new("faultlist")?;
    lists(&scene)?.ensure_faults()?;
    scene.seen = seen(&scene.limiter)?;
    scene.close()
}

/// Runs the changes of lists with faults.
fn lists(scene: &Scene) -> Result<Tally> {
    let change = deny();
    let unlist = || -> Result<()> {
        let mut sources = change.words[1..].iter();
        sources.try_for_each(|source| scene.ok(&words(&format!("unlist {source}"))))
    };
    let counted = scene.count(&change.words, &[BPF])?;
    unlist()?;
    let mut tally = Tally::default();
    for (_, case) in inject::cases(&[BPF], &counted) {
        let log = scene.bed.dir.path().join("strace");
        let strace = inject::attach(&scene.limiter, BPF, case.0, case.1, &log)?;
        let output = scene.run(&change.words)?;
        let injected = strace.end()?;
        let when = format!("{case:?}: {}", injected.join("; "));
        tally.count(!injected.is_empty(), !output.status.success());
        if !output.status.success() {
            ensure_clear_output(&output, &when)?;
            ensure!(seen(&scene.limiter)? == scene.seen, "{when}: some are on the list");
            let passed = arrive(&scene.bed, &[[203, 0, 113, 99], [192, 0, 2, 66]])?;
            ensure!(passed.iter().all(|passed| *passed <= 5), "{when}: {passed:?}");
            scene.ok(&change.words)?;
        }
        let passed = arrive(&scene.bed, &[[203, 0, 113, 99], [192, 0, 2, 66]])?;
        ensure!(passed == [0, 0], "{when}: {passed:?} of the denied");
        ensure_in_force(&scene.bed, 0, &when)?;
        unlist()?;
    }
    Ok(tally)
}
