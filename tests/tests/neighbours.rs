//! Programs of others on the interface that limiter is on: their places at tc, and another limiter.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use aya::programs::SchedClassifier;
use aya::programs::links::LinkOrder;
use aya::programs::tc::TcAttachType;
use limiter_common::wire::ABI_VERSION;
use limiter_tests::doctor::{follow, report};
use limiter_tests::foreign::AtTc;
use limiter_tests::limiter::Limiter;
use limiter_tests::root::require_root;
use limiter_tests::testbed::Testbed;
use limiter_tests::veth::{RECEIVER, SENDER};

use crate::succession::age;

/// Answers of a program at tc: ask the next one, and let it by.
const NEXT: i32 = -1;
const PASS: i32 = 0;

/// The two sides of tc: the options of a start there, the direction of a rule, the place, its name.
const SIDES: [([&str; 2], &str, TcAttachType, &str); 2] = [
    (["--hook", "tc"], "in", TcAttachType::Ingress, "tc in"),
    (["--direction", "out"], "out", TcAttachType::Egress, "tc out"),
];

/// A quota of pings for the sender that no time refills.
fn quota(direction: &str, packets: u32) -> String {
    format!(
        "domain: test\ndescriptors:\n  - key: protocol\n    value: icmp\n    direction: {direction}\n    \
         descriptors:\n      - key: remote_address\n        \
         rate_limit: {{rate: {packets}/week, algorithm: fixed_window}}\n"
    )
}

/// Pings the sender so often from the machine with limits; says how many answers came.
fn answers(bed: &Testbed, requests: u32) -> Result<usize> {
    let (target, count) = (SENDER.ipv4.to_string(), requests.to_string());
    let ping = ["-n", "-c", &count, "-i", "0.01", "-W", "1", &target];
    let output = bed.receiver.output(Command::new("ping").args(ping))?;
    Ok(String::from_utf8_lossy(&output.stdout).matches("bytes from").count())
}

fn foreign(bed: &Testbed, place: TcAttachType, order: LinkOrder, answer: i32) -> Result<AtTc> {
    bed.receiver.enter(|| AtTc::attach(RECEIVER.interface, place, order, answer))?
}

/// The programs at tc, in the order in which they run; 0 stands for limiter's.
fn order(bed: &Testbed, limiter: &Limiter, place: TcAttachType) -> Result<Vec<u32>> {
    let status = limiter.json(&["status"])?;
    let attached = status["interfaces"].as_array().context("no interfaces")?;
    let is_own = |id: u32| attached.iter().any(|at| at["program_id"] == id);
    let (_, programs) =
        bed.receiver.enter(|| SchedClassifier::query_tcx(RECEIVER.interface, place))??;
    let ids = programs.iter().map(aya::programs::ProgramInfo::id);
    Ok(ids.map(|id| if is_own(id) { 0 } else { id }).collect())
}

/// Restarts the daemon, and upgrades it to another layout of its maps; says the order after each.
fn orders_after(
    bed: &Testbed,
    limiter: &mut Limiter,
    place: TcAttachType,
) -> Result<[Vec<u32>; 2]> {
    limiter.terminate()?;
    limiter.start()?;
    let restarted = order(bed, limiter, place)?;
    limiter.terminate()?;
    age(limiter, ABI_VERSION - 1)?;
    limiter.start()?;
    ensure!(limiter.said().contains("begin anew"), "no upgrade: {}", limiter.said());
    Ok([restarted, order(bed, limiter, place)?])
}

/// By default limiter is first, whatever the one behind it answers, and stays there.
#[test]
fn limiter_is_first_at_tc_and_stays_first() -> Result<()> {
    require_root();
    for (options, direction, place, _) in SIDES {
        let bed = Testbed::create("tcfirst")?;
        let other = foreign(&bed, place, LinkOrder::first(), PASS)?;
        let mut limiter = bed.limiter(&quota(direction, 10))?;
        limiter.options(options);
        limiter.start()?;
        let expected = vec![0, other.id];
        ensure!(order(&bed, &limiter, place)? == expected);
        ensure!(answers(&bed, 20)? == 10, "the quota does not hold, {direction}");
        ensure!(other.asked()? >= 10, "the program behind limiter was not asked");
        ensure!(report(&limiter, RECEIVER.interface)?.level("tc-before", &[])? == "ok");
        for after in orders_after(&bed, &mut limiter, place)? {
            ensure!(after == expected, "{after:?}, {direction}");
        }
        // New buckets with the new maps.
        ensure!(answers(&bed, 20)? == 10, "the quota does not hold after the upgrade");
        // What others do is not undone.
        let before = foreign(&bed, place, LinkOrder::first(), PASS)?;
        limiter.terminate()?;
        limiter.start()?;
        ensure!(order(&bed, &limiter, place)? == [before.id, 0, other.id]);
        ensure!(answers(&bed, 20)? == 20, "a program before limiter lets packets by");
        let said = limiter.said();
        let warning = format!("program {} (foreign_tc) runs before limiter", before.id);
        ensure!(said.contains(&warning), "{said}");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Behind one that lets packets by there are no limits: `status` and `doctor` say so, and following
/// the doctor ends it.
#[test]
fn a_program_before_limiter_is_named_and_left_behind_as_the_doctor_says() -> Result<()> {
    require_root();
    for (options, direction, place, hook) in SIDES {
        let bed = Testbed::create("tclast")?;
        let other = foreign(&bed, place, LinkOrder::first(), PASS)?;
        let mut limiter = bed.limiter(&quota(direction, 10))?;
        limiter.options(options).options(["--tc-order", "last"]);
        limiter.start()?;
        let expected = vec![other.id, 0];
        ensure!(order(&bed, &limiter, place)? == expected);
        for after in orders_after(&bed, &mut limiter, place)? {
            ensure!(after == expected, "{after:?}, {direction}");
        }
        ensure!(answers(&bed, 20)? == 20, "limiter saw packets behind one that lets them by");
        let named = format!("program {} (foreign_tc) runs before limiter at {hook}", other.id);
        let status = limiter.ok(["status"])?;
        ensure!(status.contains(&named), "no {named:?} in {status}");
        let json = limiter.json(&["status"])?;
        let entry = &json["interfaces"][0]["others"][0];
        ensure!(entry["program_id"] == other.id && entry["before"] == true, "{json}");
        let found = report(&limiter, RECEIVER.interface)?;
        let words = [&format!("program {} (foreign_tc) at {hook}", other.id), "--tc-order first"];
        ensure!(found.level("tc-before", &words)? == "warning", "{}", found.json);
        let command = found.command("tc-before")?.to_owned();
        let socket = limiter.socket().display().to_string();
        follow(
            &bed.receiver,
            &command.replace("limiter ", &format!("limiter --socket {socket} ")),
        )?;
        limiter.terminate()?;
        limiter.without_options().options(options).options(["--tc-order", "first"]);
        limiter.start()?;
        ensure!(order(&bed, &limiter, place)? == [0, other.id]);
        ensure!(answers(&bed, 20)? == 10, "the quota does not hold, {direction}");
        ensure!(report(&limiter, RECEIVER.interface)?.level("tc-before", &[])? == "ok");
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

#[test]
fn a_place_beside_a_program_is_taken_kept_and_refused_without_it() -> Result<()> {
    require_root();
    for (is_before, (options, direction, place, hook)) in [true, false].into_iter().zip(SIDES) {
        let bed = Testbed::create("tcbeside")?;
        let first = foreign(&bed, place, LinkOrder::last(), NEXT)?;
        let second = foreign(&bed, place, LinkOrder::last(), NEXT)?;
        let third = foreign(&bed, place, LinkOrder::last(), NEXT)?;
        let [one, two, three] = [&first, &second, &third].map(|at| at.id);
        let mut limiter = bed.limiter(&quota(direction, 10))?;
        let (word, expected) = if is_before {
            (format!("before:{two}"), [one, 0, two, three])
        } else {
            (format!("after:{two}"), [one, two, 0, three])
        };
        limiter.options(options).options(["--tc-order", &word]);
        limiter.start()?;
        ensure!(order(&bed, &limiter, place)? == expected, "{word}");
        for after in orders_after(&bed, &mut limiter, place)? {
            ensure!(after == expected, "{word}: {after:?}");
        }
        // Those before it ask the next one.
        ensure!(answers(&bed, 20)? == 10, "{word}");
        limiter.terminate()?;
        // Another place is none for a link that is there.
        limiter.without_options().options(options).options(["--tc-order", "last"]);
        limiter.start()?;
        ensure!(order(&bed, &limiter, place)? == expected, "{word}");
        let said = limiter.said();
        ensure!(said.contains("--tc-order last has no effect on recv0"), "{said}");
        limiter.terminate()?;
        limiter.on_pins("detach")?;

        let word = format!("after:{}", u32::MAX);
        limiter.without_options().options(options).options(["--tc-order", &word]);
        let output = limiter.run_to_end()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2), "{said}");
        let there = format!("there: {one} (foreign_tc), {two} (foreign_tc), {three} (foreign_tc)");
        for part in [&word, &there, RECEIVER.interface, hook] {
            ensure!(said.contains(part), "no {part:?} in {said}");
        }
        ensure!(!limiter.pins().exists(), "a refused start left {}", limiter.pins().display());
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Where limiter is at both hooks of tc, a place beside a program that is at one of them is taken
/// there, and at the other hook limiter is first.
#[test]
fn a_place_beside_a_program_of_one_hook_is_taken_at_that_hook() -> Result<()> {
    require_root();
    let options = ["--hook", "tc", "--direction", "both"];
    for (_, direction, place, hook) in SIDES {
        let (_, _, elsewhere, other_hook) = SIDES[usize::from(hook == "tc in")];
        let bed = Testbed::create("tconehook")?;
        let [first, second] = [0, 1].map(|_| foreign(&bed, place, LinkOrder::last(), NEXT));
        let [one, two] = [first?, second?];
        let beyond = foreign(&bed, elsewhere, LinkOrder::last(), NEXT)?;
        let mut limiter = bed.limiter(&quota(direction, 10))?;
        let word = format!("before:{}", two.id);
        limiter.options(options).options(["--tc-order", &word]);
        limiter.start()?;
        let said = limiter.said();
        let named = format!("--tc-order {word} is for the other hook of recv0");
        ensure!(said.contains(&named) && said.contains(other_hook), "no {named:?} in {said}");
        for _ in 0..2 {
            ensure!(order(&bed, &limiter, place)? == [one.id, 0, two.id], "{direction}");
            ensure!(order(&bed, &limiter, elsewhere)? == [0, beyond.id], "{direction}");
            limiter.terminate()?;
            limiter.start()?;
        }
        ensure!(!limiter.said().contains("has no effect"), "{}", limiter.said());
        limiter.terminate()?;
        limiter.on_pins("detach")?;
        let word = format!("after:{}", u32::MAX);
        limiter.without_options().options(options).options(["--tc-order", &word]);
        let output = limiter.run_to_end()?;
        let said = String::from_utf8(output.stderr)?;
        ensure!(output.status.code() == Some(2) && said.contains(&word), "{said}");
        ensure!(!limiter.pins().exists(), "a refused start left {}", limiter.pins().display());
        limiter.close()?;
        bed.close()?;
    }
    Ok(())
}

/// Each names the other, where a packet meets both.
#[test]
fn another_limiter_on_the_interface_is_reported_by_both() -> Result<()> {
    require_root();
    for (at_first, first_hook) in [(&["--hook", "tc"][..], "tc in"), (&[], "XDP")] {
        let bed = Testbed::create("tclimiters")?;
        let mut first = bed.limiter(&quota("in", 30))?;
        first.options(at_first.iter().copied());
        first.start()?;
        let mut second = bed.limiter(&quota("in", 10))?;
        second.apart("second").options(["--hook", "tc"]);
        second.start()?;
        let pins = [&first, &second].map(|limiter| limiter.pins().display().to_string());
        for (limiter, hook, pins) in [(&first, "tc in", &pins[1]), (&second, first_hook, &pins[0])]
        {
            let status = limiter.ok(["status"])?;
            let named = format!("another limiter is at {hook}, too");
            for part in [&named, &format!("limiter detach --pin-dir {pins}")] {
                ensure!(status.contains(part), "no {part:?} in {status}");
            }
        }
        let named = format!("another limiter is at {first_hook}, too");
        ensure!(second.said().contains(&named), "{}", second.said());
        let found = report(&first, RECEIVER.interface)?;
        ensure!(found.level("other-limiter", &["at tc in"])? == "warning", "{}", found.json);
        // Its command ends the other one.
        follow(&bed.receiver, found.command("other-limiter")?)?;
        second.wait_until_ended()?;
        ensure!(report(&first, RECEIVER.interface)?.level("other-limiter", &[])? == "ok");
        let status = first.ok(["status"])?;
        ensure!(!status.contains("another limiter"), "{status}");
        second.close()?;
        first.close()?;
        bed.close()?;
    }
    Ok(())
}
