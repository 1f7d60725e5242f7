//! Drawings of the screen.

use limiter_api::requests::{
    OtherRequestRules, RequestCounts, RequestProcess, RequestRates, RequestRow, Requests,
};
use limiter_api::sources::By;
use limiter_api::sources::top::Top;
use limiter_api::status::history::{Mark, MarkKind};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::{Color, Modifier};

use super::{Fake, HEADLINE, by, episode, fake, row, seen};
use crate::top::draw::draw;
use crate::top::line::Line;
use crate::top::link::Action;
use crate::top::state::{Dialog, Prompt, State, Tab};

fn drawn(state: &State, width: u16, height: u16, plain: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, plain)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let rows = buffer.content.chunks(width.max(1));
    let line =
        |cells: &[ratatui::buffer::Cell]| cells.iter().map(ratatui::buffer::Cell::symbol).collect();
    rows.map(line).map(|line: String| line.trim_end().to_owned() + "\n").collect()
}

/// A view that has looked twice.
fn looked(fake: &Fake) -> State {
    let mut state = State::new(By::DropRate, None);
    state.refresh(fake);
    *fake.top.borrow_mut() = seen(3);
    state.refresh(fake);
    state
}

#[test]
fn sources_are_listed() {
    let state = looked(&fake());
    let shown = text(&drawn(&state, 130, 12, false));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(
        lines[0],
        "limiter 1.2.3  limits on  up 1 h 2 min  generation 4  1,000,000 IPv4, 7 IPv6 sources"
    );
    assert!(lines[2].starts_with("passed      1,000/s"), "{shown}");
    assert!(lines[3].starts_with("dropped        50/s"), "{shown}");
    assert!(lines[2].contains(" 1.0 Mbit/s ") && lines[3].contains(" 50.0 kbit/s "), "{shown}");
    // One scale, which is written behind: a twentieth of what passed is no full bar.
    assert!(lines[2].contains("█▏1k") && !lines[3].contains('█'), "{shown}");
    let tabs = "1:sources  2:events  3:rules  4:interfaces   by drops a second";
    assert_eq!(lines[4].trim(), tabs);
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let head = "SOURCE ▼DROPPED/S BY REASON PASSED/S SINCE STATE DROPPED";
    assert_eq!(words(lines[5]), head);
    assert_eq!(words(lines[6]), "192.0.2.1 3,457 game over-limit 12 11-27 03:40 100");
    assert!(lines[7].starts_with("2001:db8:1234:5678::/64 "), "{shown}");
    assert!(lines[7].contains(" denied ") && lines[8].contains(" banned 59 s "), "{shown}");
    assert!(lines[11].contains("q quit"), "{shown}");
}

/// Of a name that has no room the end is marked, and the direction has room.
#[test]
fn a_name_that_is_cut_is_marked() {
    let fake = fake();
    let mut top = seen(3);
    let [row, ..] = top.sources.as_mut_slice() else { panic!("no source") };
    row.direction = "out".to_owned();
    row.by = vec![by("direction=out protocol=udp destination_port=27015 remote_address", None, 9)];
    *fake.top.borrow_mut() = top;
    let mut state = State::new(By::DropRate, None);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 120, 12, false));
    let row = shown.lines().find(|line| line.starts_with("192.0.2.1 out ")).unwrap();
    assert!(row.contains(" direction=out 27") && row.contains("… over-limit"), "{shown}");
    let shown = text(&drawn(&state, 200, 12, false));
    assert!(shown.contains(" direction=out 27015/udp remote_address "), "{shown}");
}

/// A part of the packets is marked as one, and a rate that is not known is none, and no 0.
#[test]
fn a_part_is_no_whole_and_what_is_not_known_is_not_0() {
    let fake = fake();
    let mut top = seen(3);
    let [row, ..] = top.sources.as_mut_slice() else { panic!("no source") };
    (row.dropped_at_least, row.passed_per_second) = (true, None);
    *fake.top.borrow_mut() = top;
    let mut state = State::new(By::DropRate, None);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 130, 12, false));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let row = shown.lines().map(words).find(|line| line.starts_with("192.0.2.1 ")).unwrap();
    assert!(row.starts_with("192.0.2.1 ≥3,457 game over-limit - 11-27 03:40 ≥100"), "{row}");
    assert_eq!(state.totals.dropped.now, None);
    // Other rules leave the sums as they are; of another run of the daemon they are others.
    for (generation, began_ns, rates) in [(5, 7, true), (5, 8, false), (5, 8, true)] {
        let seconds = fake.top.borrow().clock_ns / 1_000_000_000 + 2;
        *fake.top.borrow_mut() = Top { generation, began_ns, ..seen(seconds) };
        state.refresh(&fake);
        assert_eq!(state.totals.dropped.now, rates.then_some(50.0), "{began_ns}");
        let [(_, newest)] = state.totals.dropped.points(1)[..] else { panic!("no point") };
        assert_eq!(newest, rates.then_some(50));
    }
    // Counters that began anew.
    *fake.top.borrow_mut() =
        Top { began_ns: 8, generation: 5, clock_ns: 99_000_000_000, ..seen(1) };
    state.refresh(&fake);
    assert_eq!((state.totals.passed.now, state.totals.dropped.now), (None, None));
}

/// The rates of rules are of one rule set: the same name may have another counter under others.
#[test]
fn rates_of_rules_end_with_their_rule_set() {
    let fake = fake();
    let mut state = looked(&fake);
    state.open(Tab::Rules);
    let mut dropped = |generation, began_ns, packets| {
        let seconds = fake.top.borrow().clock_ns / 1_000_000_000 + 1;
        *fake.top.borrow_mut() = Top { generation, began_ns, ..seen(seconds) };
        *fake.counted.borrow_mut() = packets;
        state.refresh(&fake);
        state.rules[0].rates[1]
    };
    assert_eq!(dropped(4, 7, 100), None);
    assert_eq!(dropped(4, 7, 130), Some(30.0));
    assert_eq!(dropped(5, 7, 50_000), None, "other rules");
    assert_eq!(dropped(5, 7, 50_020), Some(20.0));
    assert_eq!(dropped(5, 8, 90_000), None, "another run of the daemon");
    assert_eq!(dropped(5, 8, 10), None, "began anew");
}

/// The sentence stands above the charts, and nothing of it is cut where it takes two lines.
#[test]
fn the_headline_stands_above_the_charts() {
    let state = looked(&fake());
    let shown = text(&drawn(&state, 130, 12, false));
    assert_eq!(shown.lines().nth(1), Some(HEADLINE), "{shown}");
    let lines = |headline: &str, width| {
        let mut state = looked(&fake());
        state.top.headline = Some(headline.to_owned());
        let shown = text(&drawn(&state, width, 24, false));
        shown.lines().skip(1).take(2).map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
    };
    // A part of it stays whole.
    let parts = ["356 of 1,823 packets/s are dropped,", "222 of them from 192.0.2.1 by game"];
    assert_eq!(lines(HEADLINE, 60), parts);
    let long = format!("{HEADLINE}, 134 by lists and bans (≥1 source)");
    assert_eq!(lines(&long, 118)[0], long);
    assert_eq!(lines(&long, 80), [&format!("{HEADLINE},"), "134 by lists and bans (≥1 source)"]);
    // Unless that took a third line.
    assert_eq!(lines(&long, 60).join(" "), long);
}

/// A row names what drops most of the source, and how many others do; those of which no
/// drop was seen are one line.
#[test]
fn a_row_names_what_drops_and_the_rest_is_one_line() {
    let fake = fake();
    let mut top = seen(3);
    let mut several = row("203.0.113.7", 1234);
    several.by.extend([by("every source", Some("every\u{1b}body"), 9), by("budget up", None, 3)]);
    several.by.rotate_left(1);
    several.direction = "out".to_owned();
    top.sources.push(several);
    *fake.top.borrow_mut() = top;
    let mut state = State::new(By::DropRate, None);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 130, 24, false));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = shown.lines().map(words).collect();
    let row = lines.iter().position(|line| line.starts_with("203.0.113.7 out ")).unwrap();
    assert!(lines[row].contains(" every\u{fffd}body +2 over-limit "), "{shown}");
    assert_eq!(lines[row + 1], "and 34,745 of which no drop was seen", "{shown}");
    // What lists and bans dropped is one sum.
    fake.top.borrow_mut().dropped_by.lists = 4_266;
    state.refresh(&fake);
    let shown = text(&drawn(&state, 130, 24, false));
    let sum =
        "seen; lists and bans dropped 4,266 in all, of which the rows have what events reported";
    assert!(shown.contains(sum), "{shown}");
    let shown = text(&drawn(&state, 80, 24, false));
    assert!(shown.contains("what events") && shown.contains("reported"), "{shown}");
    // Under another order they are among the rows.
    let mut state = State::new(By::Passed, None);
    state.refresh(&fake);
    assert!(!text(&drawn(&state, 130, 24, false)).contains("no drop was seen"));
}

#[test]
fn what_matters_most_stays_where_there_is_little_room() {
    let state = looked(&fake());
    let head = |width| {
        let shown = text(&drawn(&state, width, 12, false));
        let head = shown.lines().find(|line| line.starts_with("SOURCE")).unwrap();
        head.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(head(40), "SOURCE ▼DROPPED/S");
    assert_eq!(head(60), "SOURCE ▼DROPPED/S BY");
    assert_eq!(head(80), "SOURCE ▼DROPPED/S BY PASSED/S STATE");
}

/// Parts of a line that do not fit are left out whole: first those that matter least.
#[test]
fn the_first_line_and_the_keys_are_never_cut() {
    let mut state = looked(&fake());
    state.paused = true;
    let lines = |state: &State, width| {
        let shown = text(&drawn(state, width, 24, false));
        let lines: Vec<_> = shown.lines().map(str::to_owned).collect();
        (lines[0].clone(), lines[23].clone())
    };
    let head = |width| lines(&state, width).0;
    let whole = "limiter 1.2.3  limits on  up 1 h 2 min  generation 4   PAUSED   \
                 1,000,000 IPv4, 7 IPv6 sources";
    assert_eq!(head(120), whole);
    assert_eq!(
        head(80),
        "limiter 1.2.3  limits on  up 1 h 2 min   PAUSED   1,000,000 IPv4, 7 IPv6 sources"
    );
    assert_eq!(head(24), "limits on   PAUSED");
    assert_eq!(lines(&state, 24).1, "? help   q quit");
    state.show(Some("192.0.2.1".to_owned()));
    let keys = lines(&state, 80).1;
    assert!(keys.starts_with("b deny for a time   a allow ") && keys.ends_with("q quit"), "{keys}");
}

/// Without an answer the first line says so, and when the last one came, as long as that lasts; the
/// last numbers stay, and nothing of the remedy is cut.
#[test]
fn a_daemon_that_is_gone_is_said_in_the_first_line() {
    let mut fake = fake();
    let mut state = looked(&fake);
    fake.gone = true;
    // It is the last answer that counts, however long the next one was waited for.
    let since = "25:04:05".to_owned();
    state.answered = Some(since.clone());
    state.refresh(&fake);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 60, 24, false));
    let head = shown.lines().next().unwrap();
    assert!(head.contains(&format!(" NO ANSWER since {since}: old numbers")), "{shown}");
    assert!(!head.contains("limits on") && shown.contains("192.0.2.1"), "{shown}");
    let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.ends_with(&state.lost.as_ref().unwrap().to_string()), "{shown}");
    fake.gone = false;
    state.refresh(&fake);
    assert!(state.answered != Some(since) && state.lost.is_none());
    assert!(text(&drawn(&state, 60, 24, false)).contains("limits on"));
}

/// A source whose counters left keeps the last ones, and the view says so; of one of which nothing
/// is counted exactly, no drop is denied.
#[test]
fn a_source_that_vanishes_keeps_its_last_counts() {
    let fake = fake();
    let mut state = looked(&fake);
    state.show(Some("192.0.2.1".to_owned()));
    state.refresh(&fake);
    assert_eq!(state.left, None);
    let mut gone = row("192.0.2.1", 0);
    (gone.passed, gone.by, gone.dropped_per_second) = (0, Vec::new(), None);
    fake.top.borrow_mut().sources[0] = gone;
    state.refresh(&fake);
    state.refresh(&fake);
    let flat = |state: &State| {
        let shown = text(&drawn(state, 100, 24, false));
        shown.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let shown = flat(&state);
    let said = "until then 1,234,567 packets had passed and 100 were dropped";
    assert!(shown.contains(said) && shown.contains("nothing of it is dropped"), "{shown}");
    fake.top.borrow_mut().sources[0].dropped_at_least = true;
    state.refresh(&fake);
    let shown = flat(&state);
    assert!(shown.contains(said) && shown.contains("no drop of it is seen now"), "{shown}");
    // Of another source they say nothing.
    state.show(Some("198.51.100.3".to_owned()));
    state.refresh(&fake);
    assert!(!flat(&state).contains("left the tables"));
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let fake = fake();
    *fake.requests.borrow_mut() = requests(&[1, 2]);
    let mut state = looked(&fake);
    let question = "Drop everything from 2001:db8:1234:5678::/64?".to_owned();
    let action = Action::Deny { source: "192.0.2.1".to_owned(), seconds: None };
    let dialogs = [
        None,
        Some(Dialog::Help),
        Some(Dialog::Confirm { action, question }),
        Some(Dialog::Input {
            prompt: Prompt::Rule,
            line: Line::of(&"x".repeat(60)),
            wrong: Some("y".repeat(300)),
        }),
    ];
    for tab in Tab::ALL {
        for source in [None, Some("192.0.2.1".to_owned())] {
            state.open(tab);
            state.show(source);
            state.refresh(&fake);
            for dialog in &dialogs {
                state.dialog.clone_from(dialog);
                for (width, height) in [
                    (1, 1),
                    (1, 60),
                    (2, 2),
                    (3, 5),
                    (7, 7),
                    (10, 3),
                    (40, 10),
                    (300, 1),
                    (500, 90),
                ] {
                    let buffer = drawn(&state, width, height, false);
                    assert_eq!((buffer.area.width, buffer.area.height), (width, height));
                }
            }
        }
    }
}

#[test]
fn nothing_that_steers_a_terminal_is_drawn() {
    let fake = fake();
    for row in &mut fake.top.borrow_mut().sources {
        row.rule = Some("a\u{1b}[2J\u{9b}31m\u{202e}z\n".to_owned());
        row.limit = Some("\u{7}100/s".to_owned());
    }
    *fake.requests.borrow_mut() = requests(&[1]);
    let mut state = State::new(By::Rate, None);
    state.refresh(&fake);
    state.say("\u{1b}]0;title\u{7}", true);
    for tab in Tab::ALL {
        state.open(tab);
        state.refresh(&fake);
        let buffer = drawn(&state, 200, 12, false);
        let harmful = |c: char| c.is_control() || c == '\u{202e}';
        let cell = buffer.content.iter().find(|cell| cell.symbol().contains(harmful));
        assert!(cell.is_none(), "{cell:?}");
        assert!(text(&buffer).contains('\u{fffd}'), "{}", text(&buffer));
    }
}

#[test]
fn one_source_is_reported() {
    let fake = fake();
    let mut state = looked(&fake);
    state.show(Some("192.0.2.1".to_owned()));
    state.refresh(&fake);
    let shown = text(&drawn(&state, 80, 24, false));
    for line in [
        "192.0.2.1",
        "list      on none",
        "ban       none",
        "rule      every source",
        "dropped: 3,457/s by game (over-limit)",
        "limit     100/s burst 20",
        " 15 of 20 packets used",
        "          all of it is there again in 1 s",
        "in all    at least 5 passed, 9 dropped",
        "dropped   7 by every source (over-limit)",
        "          at least 2 by deny list (denied)",
    ] {
        assert!(shown.contains(line), "{line}:\n{shown}");
    }
    assert_eq!(shown.matches('█').count() - shown.matches("█▏").count(), 23, "{shown}");
}

#[test]
fn one_source_names_the_rule_for_requests_that_banned_it() {
    let fake = fake();
    let mut state = looked(&fake);
    state.show(Some("198.51.100.3".to_owned()));
    state.refresh(&fake);
    let shown = text(&drawn(&state, 100, 24, false));
    let ban = "ban       banned for 59 s more, by requests of auth: auth_type=login remote_address";
    assert!(shown.contains(ban), "{shown}");
}

#[test]
fn rules_and_interfaces_are_listed() {
    let fake = fake();
    let mut state = looked(&fake);
    state.open(Tab::Rules);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 100, 12, false));
    assert!(shown.contains("RULE ") && shown.contains("every source"), "{shown}");
    state.open(Tab::Interfaces);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 100, 12, false));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = shown.lines().map(words).collect();
    assert!(lines[5].starts_with("▼INTERFACE STATE DROPPED/S DROPPED BITS PASSED/S"), "{shown}");
    assert_eq!(lines[6], "eth0 limited 50 50.0 kbit/s 1,000 1.0 Mbit/s native 77", "{shown}");
    assert!(lines[7].ends_with("9 no: packets pass - - - - native 77"), "{shown}");
}

/// Bits of a rule are of its bytes, and the list is sorted by the column that is chosen.
#[test]
fn rules_have_bits_and_an_order() {
    let fake = fake();
    let mut state = looked(&fake);
    state.open(Tab::Rules);
    state.refresh(&fake);
    *fake.counted.borrow_mut() = 400;
    *fake.top.borrow_mut() = seen(5);
    state.refresh(&fake);
    assert_eq!(state.rules[0].bits, [Some(0.0), Some(200.0 * 60.0 * 8.0)]);
    let shown = text(&drawn(&state, 140, 12, false));
    assert!(shown.contains("▼DROPPED/S") && shown.contains("96.0 kbit/s"), "{shown}");
    for _ in 0..6 {
        state.turn_order(false);
    }
    assert!(text(&drawn(&state, 140, 12, false)).contains("▼RULE"));
    assert_eq!(state.rules[0].rule, "every source");
    state.turn_round();
    assert_eq!(state.rules[1].rule, "every source");
    assert!(text(&drawn(&state, 140, 12, false)).contains("▲RULE"));
}

#[test]
fn events_are_listed_sorted_and_filtered() {
    let fake = fake();
    *fake.episodes.borrow_mut() = vec![
        episode("192.0.2.1", "every source", 3),
        episode("198.51.100.3", "web\u{1b}", 9),
        episode("2001:db8::/64", "every source", 5),
    ];
    let mut state = looked(&fake);
    state.open(Tab::Events);
    state.refresh(&fake);
    let sources =
        |state: &State| state.events.iter().map(|row| row.source.clone()).collect::<Vec<_>>();
    assert_eq!(sources(&state), ["198.51.100.3", "2001:db8::/64", "192.0.2.1"], "the latest first");
    let shown = text(&drawn(&state, 150, 12, false));
    assert!(shown.contains("▼BEGAN") && shown.contains(" 5 s ongoing "), "{shown}");
    assert!(shown.contains("udp 40000>53 60 bytes eth0") && !shown.contains('\u{1b}'), "{shown}");
    state.turn_order(true);
    state.refresh(&fake);
    assert_eq!(sources(&state)[2], "198.51.100.3", "by rule");
    state.filter.rule = Some("WEB".to_owned());
    state.refresh(&fake);
    assert_eq!(sources(&state), ["198.51.100.3"]);
    state.filter.within = Some("192.0.2.0/24".to_owned());
    state.refresh(&fake);
    assert!(text(&drawn(&state, 150, 12, false)).contains("passes the filter"));
    state.filter.rule = None;
    state.refresh(&fake);
    assert_eq!(sources(&state), ["192.0.2.1"]);
}

/// The axis has times and what changed, under the seconds that they are of.
#[test]
fn times_and_changes_stand_under_the_charts() {
    let fake = fake();
    let mut state = State::new(By::DropRate, None);
    for seconds in 1..=60 {
        *fake.top.borrow_mut() = seen(seconds);
        if seconds == 50 {
            let clock_ns = seconds * 1_000_000_000;
            let mark = Mark { clock_ns, change: MarkKind::Off, generation: 4 };
            fake.marks.borrow_mut().push(mark);
        }
        state.refresh(&fake);
    }
    let shown = text(&drawn(&state, 100, 24, false));
    let axis = shown.lines().nth(4).unwrap();
    // 33 columns of label, 60 of seconds, and the scale.
    let at = |text: &str| axis.chars().count() - axis.split(text).last().unwrap().chars().count();
    assert_eq!(at("now"), 93, "{shown}");
    assert_eq!(at("off ▲"), 83, "{shown}");
    assert_eq!(at("-20s"), 73, "{shown}");
    // A high terminal has room for a scale from 0.
    let high = text(&drawn(&state, 100, 50, false));
    assert!(high.contains("▏1k") && high.contains("▏0"), "{high}");
}

#[test]
fn the_bypass_and_a_lost_daemon_are_reported() {
    let mut fake = fake();
    fake.top.borrow_mut().bypass = true;
    let mut state = State::new(By::DropRate, None);
    state.refresh(&fake);
    fake.gone = true;
    state.refresh(&fake);
    let shown = text(&drawn(&state, 200, 12, true));
    assert!(shown.contains("limits OFF: every packet passes"), "{shown}");
    assert!(shown.contains("the daemon at /run/x.sock is gone"), "{shown}");
}

#[test]
fn without_colours_there_are_none() {
    let fake = fake();
    let mut state = looked(&fake);
    for source in [None, Some("192.0.2.1".to_owned())] {
        state.show(source);
        state.refresh(&fake);
        state.dialog = Some(Dialog::Help);
        let colored = |buffer: &Buffer| {
            buffer.content.iter().any(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset))
        };
        assert!(colored(&drawn(&state, 100, 30, false)));
        let plain = drawn(&state, 100, 30, true);
        assert!(!colored(&plain));
        assert!(plain.content.iter().any(|cell| cell.modifier.contains(Modifier::REVERSED)));
    }
}

fn requests(pids: &[u32]) -> Requests {
    let row = |domain: &str, name: Option<&str>, over, rates| RequestRow {
        domain: domain.to_owned(),
        rule: "auth_type=login remote_address".to_owned(),
        name: name.map(str::to_owned),
        counts: RequestCounts { within: 12_000, over, shadow: 7, ..RequestCounts::default() },
        rates,
    };
    let rates = RequestRates { passed: 40.0, refused: 2.5, over: 0.0 };
    let process = |pid: &u32| RequestProcess {
        pid: *pid,
        listen: vec!["http://127.0.0.1:8081".to_owned()],
        keys: 90,
        max_keys: 1_000_000,
        rules: vec![row("a\u{1b}pi", Some("keys"), 0, None), row("auth", None, 345, Some(rates))],
        others: OtherRequestRules::default(),
        ..RequestProcess::default()
    };
    Requests { processes: pids.iter().map(process).collect() }
}

/// Rules for requests are listed while somebody reports them, and there is no place for them
/// otherwise.
#[test]
fn rules_for_requests_are_listed_while_they_are_reported() {
    let fake = fake();
    let mut state = looked(&fake);
    assert!(!text(&drawn(&state, 100, 12, false)).contains("requests"));
    *fake.requests.borrow_mut() = requests(&[4242]);
    state.refresh(&fake);
    assert!(text(&drawn(&state, 100, 12, false)).contains("4:interfaces  5:requests"));
    state.open(Tab::Requests);
    state.refresh(&fake);
    let shown = text(&drawn(&state, 120, 12, false));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let lines: Vec<String> = shown.lines().map(words).collect();
    let process = "http://127.0.0.1:8081 (pid 4242): 2 rules, 90 of 1,000,000 keys in use";
    assert_eq!(lines[5], process, "{shown}");
    assert_eq!(lines[6], "RULE ▼REFUSED/S PASSED/S OVER/S REFUSED PASSED OVER", "{shown}");
    let rule = "auth: auth_type=login remote_address 2.5 40 0 345 12,007 7";
    assert_eq!(lines[7], rule, "{shown}");
    assert_eq!(lines[8], "a\u{fffd}pi: keys - - - 0 12,007 7", "{shown}");
    assert!(lines[11].contains("s sort") && !lines[11].contains("Enter"), "{shown}");

    // Two processes: which one it is, and whose numbers are old.
    *fake.requests.borrow_mut() = requests(&[4242, 4243]);
    let silent = |state: &mut State| {
        let mut requests = fake.requests.borrow_mut();
        (requests.processes[1].silent, requests.processes[1].age_ms) = (true, 7000);
        drop(requests);
        state.refresh(&fake);
    };
    silent(&mut state);
    let shown = text(&drawn(&state, 120, 14, false));
    assert!(shown.contains("no report for 7 s: these numbers are old"), "{shown}");
    assert!(shown.contains(" PROCESS") && shown.contains("    4243"), "{shown}");
    state.filter.rule = Some("KEYS".to_owned());
    state.refresh(&fake);
    assert_eq!(state.rows(), 2, "one of each process");

    *fake.requests.borrow_mut() = Requests::default();
    state.refresh(&fake);
    assert!(text(&drawn(&state, 100, 12, false)).contains("no `limiter serve` reports any more"));
    state.open(Tab::Sources);
    assert!(!text(&drawn(&state, 100, 12, false)).contains("requests"));
}
