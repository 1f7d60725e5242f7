use super::super::os_release::OsRelease;
use super::*;

fn candidate(name: &str, fault: Option<Fault>) -> Candidate {
    Candidate { name: name.to_owned(), fault }
}

/// A fresh Debian machine: rustup, apt, root.
fn fresh() -> Facts {
    Facts {
        rustup: true,
        other_rustc: None,
        named: None,
        nightlies: Vec::new(),
        debian: candidate(DEBIAN_TOOLCHAIN, Some(Fault::DoesNotRun("not installed".to_owned()))),
        packages: vec!["rustc-web".to_owned(), "libllvm22".to_owned()],
        linker: false,
        release: OsRelease::parse("ID=debian\nPRETTY_NAME=Debian"),
        apt: true,
        rustup_package: false,
        privilege: Privilege::Root,
        notes: Vec::new(),
    }
}

fn used(facts: &Facts) -> String {
    match choose(facts) {
        Choice::Use(name) => name,
        other => panic!("{other:?}"),
    }
}

fn blocked(facts: &Facts) -> String {
    match choose(facts) {
        Choice::Blocked(refused) => refused.to_string(),
        other => panic!("{other:?}"),
    }
}

fn installed(facts: &Facts) -> Plan {
    match choose(facts) {
        Choice::Install(plan) => plan,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_needed_version_is_the_workspace_s() {
    assert_eq!(Version::parse(env!("CARGO_PKG_RUST_VERSION")), Some(Version::NEEDED));
}

#[test]
fn versions_are_read_and_ordered() {
    assert_eq!(Version::of_rustc("rustc 1.97.0-nightly (e50a 2026-05-19)"), Some(Version(1, 97)));
    assert_eq!(Version::of_rustc("cargo 1.97.0"), None);
    assert!(Version(1, 100) > Version(1, 95) && Version(2, 0) > Version(1, 100));
}

#[test]
fn the_order_is_named_nightly_debian() {
    let mut facts = fresh();
    facts.debian.fault = None;
    assert_eq!(used(&facts), DEBIAN_TOOLCHAIN);
    facts.nightlies = vec![
        candidate("nightly-1", Some(Fault::NoSource)),
        candidate("nightly-2", None),
        candidate("nightly-3", None),
    ];
    assert_eq!(used(&facts), "nightly-2");
    facts.named = Some(candidate("mine", None));
    assert_eq!(used(&facts), "mine");
}

#[test]
fn a_nightly_without_rust_src_is_passed_over() {
    let mut facts = fresh();
    facts.nightlies = vec![candidate("nightly", Some(Fault::NoSource))];
    facts.debian.fault = None;
    assert_eq!(used(&facts), DEBIAN_TOOLCHAIN);
}

#[test]
fn a_named_toolchain_is_taken_or_refused_never_replaced() {
    let mut facts = fresh();
    facts.debian.fault = None;
    facts.named = Some(candidate("mine", Some(Fault::NoSource)));
    let error = blocked(&facts);
    assert!(error.contains("LIMITER_BPF_TOOLCHAIN"), "{error}");
    assert!(error.contains("rustup component add rust-src --toolchain mine"), "{error}");
}

#[test]
fn a_fresh_debian_gets_all_of_it() {
    let plan = installed(&fresh());
    assert_eq!(plan.packages, ["rustc-web", "libllvm22"]);
    assert!(plan.linker && plan.link);
    plan.may(&fresh()).unwrap();
    let text = plan.to_string();
    assert!(text.contains("rustc-web libllvm22") && text.contains("bpf-linker 0.13.0"), "{text}");
}

#[test]
fn only_what_is_missing_is_installed() {
    let mut facts = fresh();
    facts.packages.clear();
    facts.debian.fault = Some(Fault::NoLinker);
    let expected = Plan { linker: true, ..Plan::default() };
    assert_eq!(installed(&facts), expected);
    // cargo install needs neither root nor apt.
    facts.privilege = Privilege::None;
    expected.may(&facts).unwrap();

    facts.linker = true;
    facts.debian.fault = Some(Fault::DoesNotRun("not installed".to_owned()));
    assert_eq!(installed(&facts), Plan { link: true, ..Plan::default() });
}

#[test]
fn without_root_the_packages_are_named() {
    let mut facts = fresh();
    facts.privilege = Privilege::None;
    let error = installed(&facts).may(&facts).unwrap_err().to_string();
    assert!(
        error.contains("apt-get install --no-install-recommends rustc-web libllvm22"),
        "{error}"
    );
}

#[test]
fn without_rustup_a_lone_rustc_is_named() {
    let mut facts = fresh();
    facts.rustup = false;
    facts.other_rustc = Some("/usr/bin/rustc".into());
    let error = blocked(&facts);
    assert!(error.contains("/usr/bin/rustc") && error.contains("https://rustup.rs"), "{error}");
}

#[test]
fn elsewhere_the_nightly_is_the_remedy() {
    let mut facts = fresh();
    facts.release = OsRelease::parse("ID=fedora\nPRETTY_NAME=\"Fedora 44\"");
    let error = blocked(&facts);
    assert!(
        error.contains("Fedora 44") && error.contains("rustup toolchain install nightly"),
        "{error}"
    );
    facts.nightlies = vec![candidate("nightly", Some(Fault::NoLinker))];
    let error = blocked(&facts);
    assert!(error.contains("nightly: there is no bpf-linker"), "{error}");
}

#[test]
fn a_linker_of_somebody_else_is_not_overwritten() {
    let mut facts = fresh();
    facts.packages.clear();
    facts.linker = true;
    facts.debian.fault = Some(Fault::DoesNotLink("Invalid record".to_owned()));
    let error = blocked(&facts);
    assert!(error.contains("Invalid record") && error.contains("out of PATH"), "{error}");
}

#[test]
fn debian_s_own_rustup_is_not_removed() {
    let mut facts = fresh();
    facts.rustup_package = true;
    assert!(blocked(&facts).contains("https://rustup.rs"));
}
