//! Rules on trial: confirmed, taken back, or ended after their time.

use super::*;

impl Daemon {
    fn try_out(&mut self, text: &str, seconds: u32) -> Result<Changed, Refusal> {
        self.service.apply_rules(&ApplyRules {
            documents: documents(&[text]),
            force: false,
            confirm_seconds: std::num::NonZeroU32::new(seconds),
            session: None,
        })
    }

    fn pass(&self, seconds: u64) {
        let mut state = self.fake.state();
        state.now = Ticks::from_nanos(state.now.as_nanos() + seconds * 1_000_000_000);
    }

    fn seconds_left(&self) -> Option<u64> {
        self.service.status().unwrap().trial.map(|trial| trial.seconds_left)
    }

    fn last_trial(&self) -> (bool, Option<String>) {
        let end = self.service.status().unwrap().last_trial.unwrap();
        (end.confirmed, end.reason)
    }
}

#[test]
fn rules_on_trial_go_when_their_time_is_over() {
    let mut daemon = Daemon::start(&[]);
    daemon.try_out(OTHER, 60).unwrap();
    assert_eq!(daemon.rules(), OTHER_RULES);
    assert!(!daemon.applied(), "nothing is on disk yet");
    daemon.pass(59);
    daemon.service.housekeep().unwrap();
    assert_eq!(
        (daemon.rules(), daemon.seconds_left()),
        (OTHER_RULES.map(String::from).into(), Some(1))
    );
    daemon.pass(1);
    daemon.service.housekeep().unwrap();
    assert_eq!(
        (daemon.rules(), daemon.seconds_left()),
        (FILE_RULES.map(String::from).into(), None)
    );
    let (confirmed, reason) = daemon.last_trial();
    assert!(!confirmed && reason.unwrap().contains("nobody confirmed"));
    let metrics = daemon.service.metrics().unwrap();
    assert!(metrics.contains("limiter_trial_seconds_left 0\n"));
    assert!(metrics.contains("limiter_trials_total{outcome=\"expired\"} 1\n"));
    assert!(matches!(daemon.service.confirm(), Err(Refusal::Conflict(_))));
}

#[test]
fn confirmed_rules_stay_over_a_restart() {
    let mut daemon = Daemon::start(&[]);
    daemon.try_out(OTHER, 60).unwrap();
    daemon.service.confirm().unwrap();
    assert!(daemon.applied());
    assert_eq!(daemon.last_trial(), (true, None));
    daemon.pass(100);
    daemon.service.housekeep().unwrap();
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), OTHER_RULES);
}

#[test]
fn unconfirmed_rules_do_not_outlive_the_daemon() {
    let mut daemon = Daemon::start(&[]);
    daemon.try_out(OTHER, 60).unwrap();
    let daemon = daemon.restart(&[]);
    assert_eq!(daemon.rules(), FILE_RULES);
    assert!(!daemon.applied());
}

#[test]
fn a_late_confirmation_is_none() {
    let mut daemon = Daemon::start(&[]);
    daemon.try_out(OTHER, 60).unwrap();
    daemon.pass(60);
    let error = daemon.service.confirm().unwrap_err();
    assert!(matches!(&error, Refusal::Conflict(_)), "{error}");
    assert_eq!(daemon.rules(), FILE_RULES);
    assert!(!daemon.applied());
}

#[test]
fn a_trial_can_be_taken_back() {
    let mut daemon = Daemon::start(&[]);
    assert!(matches!(daemon.service.revert(), Err(Refusal::Conflict(_))));
    daemon.try_out(OTHER, 60).unwrap();
    assert!(daemon.service.metrics().unwrap().contains("limiter_trial_seconds_left 60\n"));
    daemon.service.revert().unwrap();
    let metrics = daemon.service.metrics().unwrap();
    assert!(metrics.contains("limiter_trials_total{outcome=\"reverted\"} 1\n"));
    assert_eq!(daemon.rules(), FILE_RULES);
    assert_eq!(daemon.last_trial(), (false, Some("`limiter revert`".into())));
    assert_eq!(daemon.apply(&[OTHER]).map(drop), Ok(()));
}

#[test]
fn nothing_else_changes_the_rules_meanwhile() {
    let mut daemon = Daemon::start(&[]);
    daemon.try_out(OTHER, 60).unwrap();
    let refused = |answer: Result<Changed, Refusal>| {
        let error = answer.unwrap_err().to_string();
        assert!(error.contains("`limiter confirm` or `limiter revert`"), "{error}");
    };
    refused(daemon.set("203.0.113.9", "1/s", None));
    refused(daemon.apply(&[RULES]));
    refused(daemon.try_out(RULES, 5));
    refused(daemon.service.reload());
    assert_eq!(daemon.rules(), OTHER_RULES);
    // Once its time is over, everything is as before, also if no clock has struck yet.
    daemon.pass(60);
    daemon.set("203.0.113.9", "1/s", None).unwrap();
    let with_edit = [&FILE_RULES[..], &["203.0.113.9 1/s cli"]].concat();
    assert_eq!(daemon.rules(), with_edit);
}

/// The new index of an interface is learnt once the trial is over, however it ends.
#[test]
fn an_interface_that_comes_back_does_not_end_a_trial() {
    for confirmed in [false, true] {
        let mut daemon = Daemon::start(&[]);
        daemon.try_out(OTHER, 60).unwrap();
        let commits = daemon.fake.state().commits;
        daemon.fake.state().link_changes = vec![limiter_datapath::LinkChange::Back("fake0".into())];
        daemon.service.look_after_links();
        daemon.service.look_after_links();
        let meanwhile = daemon.fake.state().commits;
        assert_eq!((meanwhile, daemon.seconds_left()), (commits, Some(60)));
        if confirmed {
            daemon.service.confirm().unwrap();
        } else {
            daemon.service.revert().unwrap();
        }
        daemon.service.look_after_links();
        daemon.service.look_after_links();
        let afterwards = daemon.fake.state().commits;
        // A confirmed smaller limit is put in force again.
        assert_eq!(afterwards, commits + if confirmed { 2 } else { 1 });
        assert_eq!(daemon.rules(), if confirmed { OTHER_RULES } else { FILE_RULES });
    }
}
