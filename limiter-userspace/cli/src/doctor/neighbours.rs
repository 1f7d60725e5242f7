//! Programs of others at tc of an interface, before limiter and behind it.

use limiter_datapath::{DatapathError, Hook, Neighbour};

use super::finding::Finding;

/// Programs of others on an interface; the error if the kernel did not say.
pub(super) type Neighbours = Result<Vec<Neighbour>, DatapathError>;

fn list(neighbours: &[&Neighbour]) -> String {
    let named = |it: &&Neighbour| format!("{it} at {}", it.hook.name());
    neighbours.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// True for a program at tc that is not limiter's.
fn is_of_tc(neighbour: &Neighbour) -> bool {
    matches!(neighbour.hook, Hook::Tc(_)) && !neighbour.is_limiter()
}

/// Judges filters of tc, and programs at tc (TCX) that are not before limiter.
pub(super) fn behind(
    name: &str,
    filters: &Result<Vec<String>, DatapathError>,
    neighbours: &Neighbours,
    may_bpf: bool,
) -> Finding {
    let check = "tc";
    let finding = match (filters, neighbours) {
        (Ok(filters), Ok(neighbours)) => {
            let mut found = filters.clone();
            let behind: Vec<_> =
                neighbours.iter().filter(|it| is_of_tc(it) && !it.is_before).collect();
            found.extend(Some(list(&behind)).filter(|list| !list.is_empty()));
            if found.is_empty() {
                Finding::ok(check, "no filters and no other programs are at tc behind limiter")
            } else {
                Finding::note(
                    check,
                    format!(
                        "tc has filters or programs ({}): they come after the limits, and see what \
                         those let pass; a start puts limiter before them, unless --tc-order says \
                         otherwise",
                        found.join(", ")
                    ),
                )
            }
        }
        (Err(error), _) | (_, Err(error)) if may_bpf => Finding::unseen(check, error),
        (Err(_), _) | (_, Err(_)) => Finding::unprivileged(check, "whether TCX programs are on it"),
    };
    finding.on(name)
}

/// Judges programs at tc that run before limiter.
pub(super) fn before(name: &str, neighbours: &Neighbours, may_bpf: bool) -> Finding {
    let check = "tc-before";
    let finding = match neighbours {
        Ok(neighbours) => {
            let before: Vec<_> =
                neighbours.iter().filter(|it| is_of_tc(it) && it.is_before).collect();
            if before.is_empty() {
                Finding::ok(check, "no other program runs before limiter at tc")
            } else {
                Finding::warning(
                    check,
                    format!(
                        "programs run before limiter ({}): each of them can let packets by, with \
                         any answer but -1 (TCX_NEXT), which limiter does not see then",
                        list(&before)
                    ),
                )
                .remedy("free the interface, and start the daemon again with --tc-order first")
                .command(format!("limiter detach --iface {name}"))
            }
        }
        Err(error) if may_bpf => Finding::unseen(check, error),
        Err(_) => Finding::unprivileged(check, "whether programs run before limiter at tc"),
    };
    finding.on(name)
}

/// Judges limiters at tc with other pins: one at XDP is a program of somebody else there.
pub(super) fn limiters(name: &str, neighbours: &Neighbours, may_bpf: bool) -> Finding {
    let check = "other-limiter";
    let finding = match neighbours {
        Ok(neighbours) => {
            let is_one = |it: &&Neighbour| it.is_limiter() && matches!(it.hook, Hook::Tc(_));
            let others: Vec<_> = neighbours.iter().filter(is_one).collect();
            match others.first() {
                None => Finding::ok(check, "no other limiter is at tc"),
                Some(first) => {
                    let finding = Finding::warning(
                        check,
                        format!(
                            "another limiter is on it ({}): what both see is charged and counted \
                             by both",
                            list(&others)
                        ),
                    );
                    match &first.pins {
                        Some(pins) => {
                            finding.remedy("end one of them, if both are not meant").command(
                                format!("limiter detach --pin-dir {}", pins.directory.display()),
                            )
                        }
                        None => finding.remedy(
                            "end one of them, if both are not meant: `limiter detach --pin-dir \
                             THAT`, where THAT is the --pin-dir that it was started with",
                        ),
                    }
                }
            }
        }
        Err(error) if may_bpf => Finding::unseen(check, error),
        Err(_) => Finding::unprivileged(check, "whether another limiter is at tc"),
    };
    finding.on(name)
}
