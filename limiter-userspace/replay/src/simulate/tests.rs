//! Simulations of loads whose answers are known.

use limiter_rules::RuleFile;

use super::*;
use crate::load;

const SETTINGS: Settings = Settings { interface: None, max_frame: 1522 };

fn rules(text: &str) -> RuleSet {
    RuleFile::parse("r.yaml", text.as_bytes(), 1522).unwrap().rules
}

fn every(limit: &str) -> RuleSet {
    rules(&format!("descriptors: [{{key: remote_address, rate_limit: {{{limit}}}}}]"))
}

fn run(sets: &[(String, RuleSet)], load: &str) -> Report {
    let mut simulation = Simulation::new(sets, &SETTINGS).unwrap();
    for packet in load::parse("l.yaml", load).unwrap().packets() {
        simulation.packet(&packet).unwrap();
    }
    simulation.report()
}

fn one(set: RuleSet, load: &str) -> Row {
    run(&[("one".to_owned(), set)], load).candidates.remove(0)
}

/// The result of each algorithm for a stall of a source within its limit, computed by hand.
#[test]
fn a_stall_is_known() {
    let limit = "unit: second, requests_per_unit: 20";
    let load =
        "duration: 4s\nsenders:\n  - {pattern: stall, rate: 18/s, stall_from: 1s, stall_for: 1s}\n";
    let sets: Vec<_> = in_every_algorithm(&every(limit))
        .into_iter()
        .map(|(name, set)| (name.to_owned(), set))
        .collect();
    let report = run(&sets, load);
    assert_eq!((report.packets, report.candidates.len()), (72, 6));
    for row in &report.candidates {
        assert_eq!(row.passed + row.dropped, 72);
        // In the second after the stall, 19 packets come at once and 17 after them, each 1/18 s.
        let known = match row.name.as_str() {
            "token_bucket" => 0,
            "leaky_bucket" => 18,
            "fixed_window" | "sliding_log" => 16,
            _ => row.dropped.max(1),
        };
        assert_eq!(row.dropped, known, "{row:?}");
        let [bucket, leaky] = [row.name == "token_bucket", row.name == "leaky_bucket"];
        if bucket {
            assert_eq!((row.most_in_10ms, row.sources_hit), (19, 0), "{row:?}");
        }
        if leaky {
            assert_eq!((row.dropped, row.most_in_10ms), (18, 1), "{row:?}");
            // 19 that come at once leave 50 ms apart.
            assert_eq!(row.longest_wait_seconds, Some(0.9), "{row:?}");
        }
    }
}

#[test]
fn a_source_over_its_limit_passes_what_the_limit_says() {
    let row = one(
        every("unit: second, requests_per_unit: 50, burst: 20"),
        "duration: 10s\nsenders:\n  - {pattern: steady, rate: 100/s}\n  - {pattern: steady, rate: \
         40/s, sources: 3}\n",
    );
    assert_eq!((row.sources, row.sources_hit, row.packets_of_hit), (4, 1, 1000));
    // 20 at once and 50 in each second, to the last packet at 9.99 s.
    assert_eq!(row.passed, 3 * 400 + 20 + 499);
    assert_eq!(row.reasons["over-limit"], row.dropped);
    // Sources that send too much are not reported as starving.
    assert!(row.starved_seconds.abs() < f64::EPSILON);
    // The 1,000th packet would be 980 intervals of 20 ms behind, and is there after 9.99 s.
    assert!((row.longest_wait_seconds.unwrap() - (980.0 * 0.02 - 9.99)).abs() < 1e-6, "{row:?}");
}

/// A source within its limit on average whose burst is dropped for a time.
#[test]
fn starvation_is_of_those_within_their_limit() {
    let row = one(
        every("unit: minute, requests_per_unit: 60, burst: 1"),
        "duration: 60s\nsenders:\n  - {pattern: steady, rate: 10/s, to: 2s}\n",
    );
    // Of 20 packets in 2 s, the first and the 11th pass.
    assert_eq!((row.passed, row.dropped), (2, 18));
    assert!((row.starved_seconds - 0.9).abs() < 1e-6, "{row:?}");
}

/// The largest windows against a count of every window.
#[test]
fn peaks_are_those_of_a_naive_count() {
    let mut random = fastrand::Rng::with_seed(9);
    for window in [SECOND / 2, SECOND, 3 * SECOND] {
        let mut recent = peaks::Recent::default();
        let mut most = peaks::Most::default();
        let (mut now, mut times) = (BEGAN, Vec::new());
        for _ in 0..800 {
            now += random.u64(0..8_000_000) * u64::from(random.bool());
            times.push(now);
            most = most.max(recent.add(now, window));
        }
        let naive = |length: u64| {
            let within = |end: &u64| {
                times.iter().filter(|time| **time <= *end && **time + length > *end).count() as u64
            };
            times.iter().map(within).max().unwrap()
        };
        assert_eq!((most.short, most.second), (naive(SECOND / 100), naive(SECOND)));
        if window <= SECOND {
            assert_eq!(most.window, naive(window));
        } else {
            let [less, whole] = [naive(window - window / 1024 - 1), naive(window)];
            assert!((less..=whole).contains(&most.window), "{less} {} {whole}", most.window);
        }
    }
}

const SECOND: u64 = 1_000_000_000;
const BEGAN: u64 = load::BEGAN;

#[test]
fn a_timeline_of_any_length_keeps_all_packets() {
    let mut timeline = Timeline::new(1);
    for packet in 0..5000u64 {
        let nanos = BEGAN + packet * packet * 1_000_000;
        timeline.offered(nanos);
        timeline.passed(nanos, 0);
    }
    // An older one, of another queue.
    timeline.offered(BEGAN - 7);
    assert_eq!(timeline.all_offered().iter().sum::<u64>(), 5001);
    assert_eq!(timeline.all_passed()[0].iter().sum::<u64>(), 5000);
    assert!(timeline.all_offered().len() <= 512);
}

/// A picture has all names in it, as text.
#[test]
fn hostile_names_are_text_in_the_picture() {
    let name = "<script>alert(1)</script>\u{1b}[31m".to_owned();
    let load = "duration: 1s\nsenders: [{pattern: steady, rate: 100/s}]\n";
    let report = run(&[(name, every("unit: second, requests_per_unit: 50"))], load);
    let svg = figure(&report, "\"a\" & <b>");
    assert!(!svg.contains("<script") && !svg.contains('\u{1b}'), "{svg}");
    assert!(
        svg.contains("&lt;script&gt;alert(1)&lt;/sc")
            && svg.contains("&quot;a&quot; &amp; &lt;b&gt;")
    );
    assert_eq!(svg.matches("<polyline").count(), 2);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

/// Even with the most rule sets, each has a line of its own style and its name in the picture.
#[test]
fn a_picture_of_many_has_every_name_and_no_two_lines_alike() {
    let set = || every("unit: second, requests_per_unit: 50");
    let sets: Vec<_> =
        (0..MAX_CANDIDATES).map(|number| (format!("rules-{number}"), set())).collect();
    let load = "duration: 1s\nsenders: [{pattern: steady, rate: 100/s}]\n";
    let svg = figure(&run(&sets, load), "many");
    let looks: std::collections::BTreeSet<&str> = svg
        .lines()
        .filter(|line| line.starts_with("<polyline"))
        .map(|line| line.split(" points").next().unwrap())
        .collect();
    assert_eq!(looks.len(), 1 + MAX_CANDIDATES, "{looks:?}");
    for number in 0..MAX_CANDIDATES {
        assert!(svg.contains(&format!(">rules-{number}</text>")), "{number}");
    }
    for line in svg.lines().filter(|line| line.starts_with("<text") && line.contains("rules-")) {
        let (_, y) = line.split_once(" y=\"").unwrap();
        let y: f64 = y.split('"').next().unwrap().parse().unwrap();
        assert!(y < 480.0, "{line}");
    }
}

#[test]
fn a_picture_of_nothing_is_one() {
    let simulation = Simulation::new(&[("none".to_owned(), rules("descriptors: []"))], &SETTINGS);
    let report = simulation.unwrap().report();
    let svg = figure(&report, "nothing");
    assert!(!svg.contains("NaN") && !svg.contains("inf") && svg.ends_with("</svg>\n"), "{svg}");
}
