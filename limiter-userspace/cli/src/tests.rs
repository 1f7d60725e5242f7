//! Arguments and answers, as users meet them.

mod check;
mod documents;
#[cfg(feature = "replay")]
mod explain;
#[cfg(feature = "import")]
mod import;
mod names;
#[cfg(feature = "replay")]
mod replay;
mod rule_sets;
mod service;

use clap::CommandFactory as _;
use clap::Parser as _;
use limiter_api::Counts;
use limiter_api::bypass::BypassNow;
use limiter_api::limits::{LimitEntry, LimitView, Limits, Origin, UpperView};
use limiter_api::render;
use limiter_api::sources::source::SourceView;
use limiter_api::sources::{AskSources, By, RuleDrops, SOURCES, SourceRow};
use limiter_datapath::fake::Fake;

use super::args::{Args, Command};
use super::commands::execute;

pub(crate) fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(line.split(' '))
}

fn failure(line: &str) -> String {
    execute(&parse(line).unwrap(), &Fake::default()).unwrap_err().to_string()
}

#[test]
fn the_definition_is_sound() {
    Args::command().debug_assert();
}

#[test]
fn global_options_go_before_and_after_the_command() {
    for line in [
        "limiter --socket /x --output json status",
        "limiter status --socket /x --output json",
        "limiter --socket /x status --output json",
    ] {
        let args = parse(line).unwrap();
        assert_eq!(args.socket.to_str(), Some("/x"), "{line}");
    }
}

#[test]
fn a_request_has_what_was_typed_and_the_defaults() {
    let Command::Set(set) = parse("limiter set 192.0.2.7 --for 90500ms 5/min").unwrap().command
    else {
        panic!("no `set`")
    };
    let limit = set.limit();
    assert_eq!((limit.source.as_deref(), limit.rate.as_str()), (Some("192.0.2.7"), "5/min"));
    assert_eq!((limit.seconds, limit.direction.as_deref()), (Some(91), Some("in")));
    // Of one word alone it is the rate.
    let Command::Set(set) = parse("limiter set --port 22/tcp 5/min").unwrap().command else {
        panic!("no `set`")
    };
    assert_eq!((set.limit().source, set.limit().rate.as_str()), (None, "5/min"));
    let Command::Sources(asked) = parse("limiter sources").unwrap().command else {
        panic!("no `sources`")
    };
    assert_eq!(asked, AskSources { by: By::DropRate, limit: Some(SOURCES), prefix: None });
    for line in ["limiter explain 192.0.2.7", "limiter explain --from 192.0.2.7"] {
        let Command::Explain(what) = parse(line).unwrap().command else { panic!("{line}") };
        let asked = what.asked().unwrap();
        assert!(asked.from == "192.0.2.7" && asked.is_of_source(), "{asked:?}");
    }
    for (line, drops) in [("--follow", true), ("--follow --episodes", false)] {
        let parsed = parse(&format!("limiter events {line}")).unwrap();
        let Command::Events(ask) = parsed.command else { panic!("{line}") };
        assert_eq!((ask.asked.follow, ask.asked.drops), (true, drops));
    }
}

#[test]
fn run_has_the_documented_defaults() {
    let args = parse("limiter run --iface eth0 --rules r.yaml").unwrap();
    let Command::Run(run) = &args.command else { panic!("{args:?}") };
    let options = run.options(args.socket.clone()).unwrap();
    assert_eq!(options.socket.to_str(), Some("/run/limiter/limiter.sock"));
    assert_eq!(options.state_dir.to_str(), Some("/var/lib/limiter"));
    assert_eq!(options.datapath.pin_dir.to_str(), Some("/sys/fs/bpf/limiter"));
    assert_eq!((options.datapath.max_sources, options.datapath.max_rules), (262_144, 16_384));
    assert_eq!((options.datapath.kernel_log, options.detach_on_exit), (0, false));
}

#[test]
fn usage_errors_have_exit_code_2() {
    for line in [
        "limiter",
        "limiter run --iface eth0",
        "limiter run --rules r.yaml --limit 5/s",
        "limiter run --iface eth0 --rules r.yaml --mode fast",
        "limiter run --iface eth0 --rules r.yaml --max-rules 0",
        "limiter run --iface eth0 --rules r.yaml --max-rules 524288",
        "limiter set",
        "limiter set 192.0.2.7 5/s --direction up",
        "limiter explain 192.0.2.7 --direction both",
        "limiter statsu",
        "limiter explain",
        "limiter explain --pcap x --max-frame 100",
        "limiter explain --from 192.0.2.1 --summary",
        "limiter explain --pcap x --top 3",
    ] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
}

#[test]
fn bad_texts_need_no_daemon_to_be_reported() {
    let socket = "--socket /nowhere/limiter.sock";
    assert!(
        failure(&format!("limiter set 192.0.2.7/24 5/s {socket}")).contains("write 192.0.2.0/24")
    );
    assert_eq!(
        failure(&format!("limiter set 192.0.2.7 {socket}")),
        "how much 192.0.2.7 may send is not said: write a rate behind it, as in 100/s"
    );
    assert!(failure(&format!("limiter set 5/s {socket}")).starts_with("whom to limit is not said"));
    assert!(failure(&format!("limiter set --port sshd 5/s {socket}")).contains("is no port"));
    assert!(failure(&format!("limiter set --port ssh 5/s {socket}")).contains("write 22/tcp"));
    for line in ["block 22/tcp", "deny ssh --for 1h", "unblock ssh"] {
        let said = failure(&format!("limiter {line} {socket}"));
        assert!(
            said.contains("is a port, and the lists are of addresses: `action: drop`"),
            "{said}"
        );
    }
    assert!(failure(&format!("limiter set --port -1 5/s {socket}")).contains("is no port"));
    assert!(
        failure(&format!("limiter set 192.0.2.7 5/s --burst -1 {socket}"))
            .contains("is not a burst")
    );
    assert!(failure(&format!("limiter set 192.0.2.7 5 {socket}")).contains("is not a rate"));
    assert!(
        failure(&format!("limiter show 192.0.2.0/24 {socket}")).contains("is more than one source")
    );
    // A text that is printed is no bad text.
    assert!(failure(&format!("limiter show 2001:db8::/64 {socket}")).contains("no daemon at"));
    assert_eq!(
        failure(&format!("limiter status {socket}")),
        "no daemon at /nowhere/limiter.sock: start one with `limiter run --limit 1000/s` or \
         `limiter run --rules FILE`, or name its socket with --socket"
    );
}

#[test]
fn the_bypass_works_without_a_daemon() {
    let fake = Fake::default();
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().display();
    for name in ["pinned", "other"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let go = |line: String| {
        execute(&parse(&format!("limiter {line} --socket /nowhere/s")).unwrap(), &fake)
    };
    assert_eq!(
        go(format!("off --pin-dir {at}/pinned")).unwrap().text,
        "limits are off: every packet passes until `limiter on`\n"
    );
    assert!(fake.state().is_off());
    assert_eq!(
        go(format!("on --pin-dir {at}/pinned --output json")).unwrap().text,
        "{\"engaged\":false,\"then\":null}\n"
    );
    assert!(!fake.state().is_off());
    let refused = go(format!("off --pin-dir {at}/other")).unwrap_err().to_string();
    assert!(refused.contains(&format!("nothing is pinned under {at}/other")), "{refused}");
    for command in ["off", "on", "detach"] {
        let refused = go(format!("{command} --pin-dir {at}/none")).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("nothing is pinned under {at}/none: there is no such")),
            "{refused}"
        );
        // Nobody knows that the maps at the default place are those of this socket.
        let refused = go(command.to_owned()).unwrap_err().to_string();
        assert!(refused.ends_with("name the directory with --pin-dir"), "{refused}");
    }
    let state = fake.state();
    assert!(!state.is_off() && !state.detached, "nothing was done");
    drop(state);
    assert_eq!(go(format!("detach --pin-dir {at}/pinned")).unwrap().text, "detached from fake0\n");
}

fn entry(source: &str, limit: &str, passed: u64) -> LimitEntry {
    LimitEntry {
        source: source.into(),
        direction: None,
        name: None,
        origin: Origin::Cli,
        limit: limit.into(),
        burst: Some(1000),
        count: Some("packets".into()),
        effective_per_second: Some(1000.0),
        shadow: false,
        passed: Counts { packets: passed, bytes: 0 },
        dropped: Counts::default(),
        shadowed: Counts::default(),
        marked: Counts::default(),
        limits: Vec::new(),
        action: Some("drop".into()),
        budget: None,
        label: None,
        sharing: None,
        ends_in_seconds: None,
    }
}

#[test]
fn numbers_are_exact_and_stand_right() {
    let limits = Limits {
        generation: 1,
        limits: vec![
            entry("192.0.2.0/24", "1000/s", 1_234_567),
            entry("192.0.2.7", "60000/min", 12),
        ],
        budgets: Vec::new(),
        unknown: Vec::new(),
        warnings: vec!["careful".into()],
    };
    assert_eq!(
        render::text(&limits),
        "\
SOURCE        ORIGIN  LIMIT      BURST   ENFORCED  ACTION     PASSED  DROPPED  WOULD DROP  MARKED  NAME
192.0.2.0/24  set     1000/s     1,000     1000/s  drop    1,234,567        0
192.0.2.7     set     60000/min  1,000  60000/min  drop           12        0
1 warning: `limiter status` has it
"
    );
    // Of what 80 columns have no room for, nothing is lost.
    assert_eq!(
        render::text_within(&limits, Some(80)),
        "\
SOURCE        ORIGIN  LIMIT      BURST   ENFORCED  ACTION     PASSED  DROPPED
192.0.2.0/24  set     1000/s     1,000     1000/s  drop    1,234,567        0
192.0.2.7     set     60000/min  1,000  60000/min  drop           12        0
1 warning: `limiter status` has it
"
    );
    assert_eq!(
        render::text_within(&limits, Some(60)),
        "\
SOURCE        ORIGIN  LIMIT      BURST     PASSED  DROPPED
192.0.2.0/24  set     1000/s     1,000  1,234,567        0
    action drop
192.0.2.7     set     60000/min  1,000         12        0
    action drop
1 warning: `limiter status` has it
"
    );
    assert_eq!(
        render::text(&Limits { limits: Vec::new(), warnings: Vec::new(), ..limits }),
        "no rules: nothing is limited\n"
    );
}

#[test]
fn effective_rates_have_a_readable_unit() {
    for (per_second, shown) in [
        (1.25e8, "125000000.0/s"),
        (1000.0, "1000.0/s"),
        (99.999, "99.9990/s"),
        (0.999_999_9, "1.0000/s"),
        (5.0 / 60.0, "5.0000/min"),
        (5.0 / 86_400.0, "5.0000/day"),
        (1.0 / 604_800.0, "1.0000/week"),
    ] {
        let limits = Limits {
            generation: 1,
            limits: vec![LimitEntry {
                effective_per_second: Some(per_second),
                ..entry("::/0", "", 0)
            }],
            budgets: Vec::new(),
            unknown: Vec::new(),
            warnings: Vec::new(),
        };
        let text = render::text(&limits);
        assert!(text.contains(&format!(" {shown} ")), "{text}");
    }
}

fn view() -> SourceView {
    SourceView {
        source: "192.0.2.1".into(),
        tracked: true,
        rule: Some("192.0.2.0/24".into()),
        rule_name: Some("office".into()),
        limit: Some("1000/s".into()),
        burst: Some(100),
        count: Some("packets".into()),
        effective_per_second: Some(1000.0),
        shadow: false,
        listed: None,
        listed_reason: None,
        listed_by: None,
        listed_beside: Vec::new(),
        passed: 123,
        dropped: 4,
        passed_at_least: false,
        dropped_at_least: false,
        remaining: Some(57),
        of: Some(100),
        left: Vec::new(),
        full_in_ns: 43_000_000,
        here: None,
        remaining_here: None,
        limits: Vec::new(),
        action: Some("drop".into()),
        budget: None,
        banned_seconds: None,
        banned_by: None,
        martian: false,
        other_rules: Vec::new(),
        other_rules_in_all: 0,
        by_rule: Vec::new(),
        rows: Vec::new(),
    }
}

#[test]
fn a_source_is_shown_line_by_line() {
    let view = view();
    assert_eq!(
        render::text(&view),
        "\
source     192.0.2.1
rule       office (192.0.2.0/24)
limit      1000/s (enforced 1000/s)
remaining  57 of 100 packets
full in    43 ms
passed     123
dropped    4
"
    );
    let json = serde_json::to_string(&view).unwrap();
    assert_eq!(
        json,
        r#"{"source":"192.0.2.1","tracked":true,"rule":"192.0.2.0/24","rule_name":"office","limit":"1000/s","burst":100,"count":"packets","effective_per_second":1000.0,"shadow":false,"listed":null,"listed_reason":null,"listed_by":null,"listed_beside":[],"passed":123,"dropped":4,"passed_at_least":false,"dropped_at_least":false,"remaining":57,"of":100,"full_in_ns":43000000,"here":null,"remaining_here":null,"limits":[],"left":[],"action":"drop","budget":null,"banned_seconds":null,"banned_by":null,"martian":false,"other_rules":[],"other_rules_in_all":0,"by_rule":[],"rows":[]}"#
    );
    assert_eq!(render::text(&BypassNow { engaged: false, then: None }), "limits are on\n");
    // Each limit in its own unit, whichever has the least left.
    let limit = |count: &str| LimitView {
        text: "1000/s".into(),
        algorithm: "token_bucket".into(),
        rate: "1000/s".into(),
        count: count.into(),
        burst: Some(100),
        effective_per_second: Some(1000.0),
        upper: None,
    };
    let limits = vec![limit("packets"), limit("bytes")];
    let two = render::text(&SourceView { limits, count: Some("bytes".into()), ..view.clone() });
    assert!(two.contains("limit      1000/s (enforced 1000/s)\n"), "{two}");
    assert!(two.contains("and        1000/s (enforced 1000/s)\n"), "{two}");
    // Without a rule of its own, it is not said that nothing limits it, where something may.
    let none =
        SourceView { rule: None, limit: None, remaining: None, of: None, tracked: false, ..view };
    assert!(
        render::text(&none).contains("rule     none: not limited\n"),
        "{}",
        render::text(&none)
    );
    let other_rules = vec!["destination_port=53 remote_address".into(), "vl\u{1b}an".into()];
    let others =
        SourceView { other_rules, other_rules_in_all: 12, dropped_at_least: true, ..none.clone() };
    assert_eq!(
        render::text(&others),
        "\
source   192.0.2.1
rule     none on sources
passed   123
dropped  at least 4
tracked  no: it has no bucket for a rule on sources now
others   may drop packets of it, too: destination_port=53 remote_address; vl\u{fffd}an and 10 more
         what they would do with a packet: `limiter explain --from 192.0.2.1 --to PORT/PROTOCOL`
"
    );
    let banned = render::text(&SourceView { banned_seconds: Some(60), martian: true, ..none });
    assert!(!banned.contains("not limited"), "{banned}");
    assert!(banned.contains("ban      every packet is dropped for 1 min more"), "{banned}");
    assert!(banned.contains("no host can have this source"), "{banned}");
}

/// What comes in and what goes out are no sum, and what goes out is another question.
#[test]
fn a_source_is_shown_by_direction() {
    // A rule of which nothing is counted has no row.
    let before = RuleDrops {
        rule: Some("(rules before)".into()),
        rule_name: None,
        of: None,
        reason: "over-limit".into(),
        passed: Some(0),
        dropped: 0,
        dropped_per_second: None,
        since: None,
        keys: Some(1),
        exact: true,
        with_before: false,
    };
    let text = render::text(&SourceView { by_rule: vec![before], ..view() });
    assert!(!text.contains("BY RULE"), "{text}");
    let way = |direction: &str, passed, dropped| SourceRow {
        direction: direction.to_owned(),
        passed,
        dropped,
        ..SourceRow::default()
    };
    let rows = vec![way("in", 2111, 1605), way("out", 900, 3338)];
    let out = "direction=out destination_port=53 remote_address";
    let other_rules = vec![out.to_owned(), format!("dns (1) ({out})")];
    let ways = SourceView { rows, other_rules, other_rules_in_all: 2, ..view() };
    let text = render::text(&ways);
    assert!(
        text.contains("\npassed     2,111 in, 900 out\ndropped    1,605 in, 3,338 out\n"),
        "{text}"
    );
    assert!(text.contains("--to PORT/PROTOCOL --direction out`\n"), "{text}");
    let text = render::text(&SourceView { other_rules_in_all: 3, ..ways });
    assert!(text.contains("--to PORT/PROTOCOL [--direction out]`\n"), "{text}");
}

/// Sources without drops are no sign that nothing is dropped.
#[test]
fn drops_that_sources_do_not_have_are_reported() {
    use limiter_api::sources::{DroppedBy, SourceList};
    let by = |sources, others, lists| {
        let dropped_by = DroppedBy { sources, others, lists, removed: 7 };
        render::text(&SourceList { dropped_by, ..SourceList::default() })
    };
    let none = "no drop of any source was seen; try: limiter set ADDRESS 5/min\n\
                0 IPv4 and 0 IPv6 sources are tracked\n";
    assert_eq!(by(Some(9), Some(0), 0), none);
    assert_eq!(
        by(Some(0), Some(5502), 3),
        format!(
            "{none}dropped in all: 0 by rules that count each source, 5,502 by other rules and \
             budgets, 3 by lists and bans, 7 by rules that were removed. Only the first is \
             counted by source; of the rest, rows have what events reported. See `limiter list`, \
             `limiter events`, `limiter explain --from ADDRESS`\n"
        )
    );
    // No number is no zero.
    assert!(
        by(Some(2), None, 0).contains(
            ": 2 by rules that count each source, by other rules and budgets: not added up"
        )
    );
}

#[test]
fn every_limit_has_a_line() {
    let view = |rate: &str, burst, upper: Option<UpperView>| LimitView {
        text: String::new(),
        algorithm: "token_bucket".into(),
        rate: rate.into(),
        count: "packets".into(),
        burst,
        effective_per_second: Some(100.0),
        upper,
    };
    let ceiling = UpperView {
        kind: "ceiling".into(),
        rate: "200/s".into(),
        burst: 200,
        effective_per_second: Some(200.0),
    };
    let limits = Limits {
        generation: 1,
        limits: vec![LimitEntry {
            limits: vec![
                view("100/s", Some(20), Some(ceiling)),
                view("sliding_log 9 syns/min", None, None),
            ],
            action: Some("class slow".into()),
            marked: Counts { packets: 3, bytes: 0 },
            label: Some("web".into()),
            ..entry("destination_port=443 remote_address", "100/s", 12)
        }],
        budgets: vec![entry("slow", "1000/s", 7)],
        unknown: Vec::new(),
        warnings: Vec::new(),
    };
    assert_eq!(
        render::text(&limits),
        "\
SOURCE                               ORIGIN  LIMIT                   BURST       ENFORCED  ACTION      PASSED  DROPPED  WOULD DROP  MARKED  NAME
destination_port=443 remote_address  set     100/s                      20          100/s  class slow      12        0                   3  web
                                             ceiling 200/s             200          200/s
                                             sliding_log 9 syns/min      -  6000 syns/min

BUDGET  ORIGIN  LIMIT   BURST  ENFORCED  ACTION  PASSED  DROPPED  WOULD DROP  MARKED  NAME
slow    set     1000/s  1,000    1000/s  drop         7        0
"
    );
    // Details of a rule stand below all of its limits.
    let narrow = render::text_within(&limits, Some(80));
    assert!(narrow.lines().all(|line| line.len() <= 80), "{narrow}");
    let (_, behind) = narrow.split_once("sliding_log 9 syns/min").unwrap();
    let details = ["origin set", "action class slow", "marked 3", "name web"];
    assert!(details.iter().all(|detail| behind.contains(detail)), "{narrow}");
}
