//! Keys, and what they lead to.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use limiter_api::sources::By;
use limiter_api::sources::top::Top;

use super::{Fake, episode, fake, row, seen};
use crate::top::keys::{Flow, press};
use crate::top::link::Action;
use crate::top::state::{Dialog, State, Tab};

fn key(state: &mut State, code: KeyCode, fake: &Fake) -> Flow {
    let flow = press(state, KeyEvent::new(code, KeyModifiers::NONE), fake);
    if flow == Flow::Refresh {
        state.refresh(fake);
    }
    flow
}

/// Types; a line break is Enter.
fn keys(state: &mut State, text: &str, fake: &Fake) {
    for letter in text.chars() {
        let code = match letter {
            '\n' => KeyCode::Enter,
            '\u{8}' => KeyCode::Backspace,
            '\u{1b}' => KeyCode::Esc,
            '\t' => KeyCode::Tab,
            letter => KeyCode::Char(letter),
        };
        key(state, code, fake);
    }
}

fn started(fake: &Fake) -> State {
    let mut state = State::new(By::DropRate, None);
    state.refresh(fake);
    assert!(state.lost.is_none());
    state
}

#[test]
fn nothing_is_done_without_a_yes() {
    let fake = fake();
    let mut state = started(&fake);
    for typed in ["\nd\u{1b}", "dn", "dq", "b\u{1b}", "a\u{1b}", "l\u{1b}", "dx\u{1b}", "d\n\u{1b}"]
    {
        keys(&mut state, typed, &fake);
        assert!(fake.done.borrow().is_empty(), "{typed:?}");
        assert!(state.dialog.is_none(), "{typed:?}");
    }
    assert_eq!(state.source.as_deref(), Some("192.0.2.1"));
}

#[test]
fn a_source_is_dealt_with() {
    let fake = fake();
    let mut state = started(&fake);
    let source = "192.0.2.1".to_owned();
    keys(&mut state, "\ndy", &fake);
    keys(&mut state, "b\n", &fake);
    keys(&mut state, "a2h\n", &fake);
    keys(&mut state, "l5/min\n", &fake);
    let expected = [
        Action::Deny { source: source.clone(), seconds: None },
        Action::Deny { source: source.clone(), seconds: Some(600) },
        Action::Allow { source: source.clone(), seconds: 7200 },
        Action::Limit { source, rate: "5/min".to_owned() },
    ];
    assert_eq!(*fake.done.borrow(), expected);
    assert!(state.message.as_ref().is_some_and(|message| !message.bad));
    // The source is watched as long as it is shown.
    let watched = || fake.asked.borrow().last().and_then(|asking| asking.watch.clone());
    assert_eq!(watched().as_deref(), Some("192.0.2.1"));
    keys(&mut state, "\u{1b}", &fake);
    assert_eq!((state.source.clone(), watched()), (None, None));
}

#[test]
fn what_came_filled_in_can_be_changed() {
    let fake = fake();
    let mut state = started(&fake);
    keys(&mut state, "\nl", &fake);
    let with = |state: &mut State, code, modifiers| {
        press(state, KeyEvent::new(code, modifiers), &fake);
    };
    // The rate was 100/s.
    with(&mut state, KeyCode::Home, KeyModifiers::NONE);
    keys(&mut state, "2\n", &fake);
    keys(&mut state, "l", &fake);
    with(&mut state, KeyCode::End, KeyModifiers::NONE);
    keys(&mut state, "\u{8}min\n", &fake);
    keys(&mut state, "l", &fake);
    with(&mut state, KeyCode::End, KeyModifiers::NONE);
    with(&mut state, KeyCode::Char('u'), KeyModifiers::CONTROL);
    keys(&mut state, "3/s\n", &fake);
    let limited = |rate: &str| Action::Limit { source: "192.0.2.1".into(), rate: rate.into() };
    let expected = ["2100/s", "100/min", "3/s"].map(limited);
    assert_eq!(*fake.done.borrow(), expected);
    // The key does nothing elsewhere.
    with(&mut state, KeyCode::Char('u'), KeyModifiers::CONTROL);
    assert!(state.dialog.is_none());
    // An error stays to be seen until something is typed.
    keys(&mut state, "lx\n", &fake);
    let wrong = |state: &State| matches!(&state.dialog, Some(Dialog::Input { wrong: Some(_), .. }));
    with(&mut state, KeyCode::Left, KeyModifiers::NONE);
    assert!(wrong(&state));
    keys(&mut state, "5", &fake);
    assert!(!wrong(&state));
}

#[test]
fn what_is_wrong_is_said_and_can_be_mended() {
    let fake = fake();
    let mut state = started(&fake);
    for typed in ["\nbx\n", "l\u{8}\u{8}\n", "a\u{8}\u{8}\u{8}0s\n"] {
        keys(&mut state, typed, &fake);
        let wrong = matches!(&state.dialog, Some(Dialog::Input { wrong: Some(_), .. }));
        assert!(wrong, "{typed:?}: {:?}", state.dialog);
        keys(&mut state, "\u{1b}", &fake);
    }
    assert!(fake.done.borrow().is_empty());
}

#[test]
fn the_daemons_own_words_are_shown() {
    let fake = Fake { refuses: true, ..fake() };
    let mut state = started(&fake);
    keys(&mut state, "\ndy", &fake);
    let message = state.message.clone().unwrap();
    assert!(message.bad && message.text.contains("management prefix"), "{message:?}");
    // Until the next key.
    keys(&mut state, "x", &fake);
    assert_eq!(state.message, None);
}

#[test]
fn undo_takes_back_what_there_is() {
    let fake = fake();
    let mut state = started(&fake);
    keys(&mut state, "\nu", &fake);
    assert!(state.dialog.is_none() && state.message.as_ref().is_some_and(|message| message.bad));
    keys(&mut state, "\u{1b}j\nuy", &fake);
    keys(&mut state, "\u{1b}j\nuy", &fake);
    let mut own = row("192.0.2.1", 100);
    own.rule = Some("192.0.2.1".to_owned());
    fake.top.borrow_mut().sources = vec![own];
    keys(&mut state, "\u{1b}g\nuy", &fake);
    let expected = [
        Action::Unlist { source: "2001:db8:1234:5678::/64".to_owned() },
        Action::Unban { source: "198.51.100.3".to_owned() },
        Action::Unset { source: "192.0.2.1".to_owned() },
    ];
    assert_eq!(*fake.done.borrow(), expected);
}

#[test]
fn the_list_is_gone_through() {
    let fake = fake();
    let mut state = started(&fake);
    keys(&mut state, "jjjjj", &fake);
    assert_eq!(state.cursor, 2);
    keys(&mut state, "k", &fake);
    assert_eq!(state.row().unwrap().source, "2001:db8:1234:5678::/64");
    // A chosen source stays chosen where it goes.
    fake.top.borrow_mut().sources.reverse();
    fake.top.borrow_mut().sources.insert(0, row("10.0.0.1", 9));
    state.refresh(&fake);
    assert_eq!(state.row().unwrap().source, "2001:db8:1234:5678::/64");
    // A source that is gone is not chosen any more, and a shorter list has a last row.
    fake.top.borrow_mut().sources.truncate(1);
    state.refresh(&fake);
    assert_eq!(state.row().unwrap().source, "10.0.0.1");
    fake.top.borrow_mut().sources.clear();
    state.refresh(&fake);
    assert_eq!(state.row(), None);
    keys(&mut state, "\njkG", &fake);
    assert_eq!(state.source, None);
}

#[test]
fn order_prefix_and_lists_are_chosen() {
    let fake = fake();
    let mut state = started(&fake);
    let asked = || fake.asked.borrow().last().cloned().unwrap();
    let mut orders = Vec::new();
    for _ in By::ALL {
        keys(&mut state, "s", &fake);
        orders.push(asked().by);
    }
    let expected = [By::Dropped, By::Rate, By::Passed, By::Utilization, By::DropRate];
    assert_eq!(orders, expected);
    keys(&mut state, "/192.0.2.0/2\n", &fake);
    assert!(matches!(&state.dialog, Some(Dialog::Input { wrong: Some(_), .. })));
    keys(&mut state, "4\n", &fake);
    assert_eq!(asked().within.as_deref(), Some("192.0.2.0/24"));
    keys(&mut state, "\u{1b}", &fake);
    assert_eq!(asked().within, None);
    let mut tabs = Vec::new();
    for typed in ["\t", "\t", "\t", "\t", "4", "3", "2", "1"] {
        keys(&mut state, typed, &fake);
        tabs.push(state.tab);
    }
    let there = [Tab::Events, Tab::Rules, Tab::Interfaces];
    let back = [Tab::Interfaces, Tab::Rules, Tab::Events, Tab::Sources];
    assert_eq!(tabs, [&there[..], &[Tab::Sources], &back].concat());
    key(&mut state, KeyCode::BackTab, &fake);
    assert_eq!(state.tab, Tab::Interfaces);
    // Back through the orders.
    keys(&mut state, "1SS", &fake);
    assert_eq!(asked().by, By::Passed);
}

/// A rule's name is typed, or taken from the list of rules; Esc shows all again.
#[test]
fn a_rule_filters_its_sources() {
    let fake = fake();
    fake.top.borrow_mut().sources[1].rule_name = Some("Office".to_owned());
    let mut state = started(&fake);
    let sources =
        |state: &State| state.top.sources.iter().map(|row| row.source.clone()).collect::<Vec<_>>();
    keys(&mut state, "foffi\n", &fake);
    assert_eq!(sources(&state), ["2001:db8:1234:5678::/64"]);
    assert!(fake.asked.borrow().last().unwrap().many, "all that stand out are asked for");
    keys(&mut state, "\u{1b}", &fake);
    assert_eq!(sources(&state).len(), 3);
    keys(&mut state, "3\n", &fake);
    assert_eq!((state.tab, state.filter.rule.as_deref()), (Tab::Sources, Some("every source")));
    assert_eq!(sources(&state).len(), 3);
    // An empty line is no filter.
    keys(&mut state, "f", &fake);
    for _ in 0.."every source".len() {
        key(&mut state, KeyCode::Backspace, &fake);
    }
    keys(&mut state, "\n", &fake);
    assert_eq!(state.filter.rule, None);
}

/// In a pause the numbers stay until it ends, or until something else is asked for.
#[test]
fn a_pause_ends_with_the_key_that_began_it() {
    let fake = fake();
    let mut state = started(&fake);
    for typed in ["p", " "] {
        assert_eq!(key(&mut state, KeyCode::Char(typed.chars().next().unwrap()), &fake), Flow::Go);
        assert!(state.paused);
        assert_eq!(key(&mut state, KeyCode::Char('p'), &fake), Flow::Refresh);
        assert!(!state.paused);
    }
}

/// The source of an event is shown, and a chosen row stays chosen wherever it goes.
#[test]
fn an_event_leads_to_its_source() {
    let fake = fake();
    *fake.episodes.borrow_mut() =
        vec![episode("192.0.2.1", "every source", 3), episode("198.51.100.3", "web", 9)];
    let mut state = started(&fake);
    keys(&mut state, "2j", &fake);
    assert_eq!(state.cursor, 1);
    fake.episodes.borrow_mut().push(episode("203.0.113.9", "web", 7));
    state.refresh(&fake);
    assert_eq!(state.cursor, 2);
    keys(&mut state, "\n", &fake);
    assert_eq!(state.source.as_deref(), Some("192.0.2.1"));
}

#[test]
fn rates_are_between_two_looks() {
    let fake = fake();
    let mut state = started(&fake);
    assert_eq!(state.totals.passed.now, None);
    *fake.top.borrow_mut() = seen(3);
    state.refresh(&fake);
    assert_eq!((state.totals.passed.now, state.totals.dropped.now), (Some(1000.0), Some(50.0)));
    keys(&mut state, "3", &fake);
    assert_eq!(state.rules[0].rates, [None; 3]);
    *fake.counted.borrow_mut() = 400;
    *fake.top.borrow_mut() = seen(5);
    state.refresh(&fake);
    assert_eq!(state.rules[0].rates, [Some(0.0), Some(200.0), Some(0.0)]);
    // Counters that begin anew are no rate.
    *fake.top.borrow_mut() = Top { clock_ns: 7_000_000_000, ..seen(1) };
    state.refresh(&fake);
    assert_eq!(state.totals.passed.now, None);
    *fake.top.borrow_mut() = Top { clock_ns: 8_000_000_000, ..seen(2) };
    state.refresh(&fake);
    assert_eq!(state.totals.passed.now, Some(1000.0));
}

#[test]
fn the_last_answer_stays_while_the_daemon_is_gone() {
    let mut fake = fake();
    let mut state = started(&fake);
    fake.gone = true;
    state.refresh(&fake);
    assert!(state.lost.is_some() && state.top.sources.len() == 3);
    keys(&mut state, "\ndy", &fake);
    assert!(state.message.as_ref().is_some_and(|message| message.bad));
    fake.gone = false;
    state.refresh(&fake);
    assert!(state.lost.is_none());
}

#[test]
fn it_ends_when_asked() {
    let fake = fake();
    for opened in ["", "\n", "3"] {
        let mut state = started(&fake);
        keys(&mut state, opened, &fake);
        assert_eq!(key(&mut state, KeyCode::Char('q'), &fake), Flow::Quit);
    }
    let mut state = started(&fake);
    keys(&mut state, "\nb", &fake);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(press(&mut state, interrupt, &fake), Flow::Quit);
}
