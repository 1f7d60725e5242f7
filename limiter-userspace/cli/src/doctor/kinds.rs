//! What the kernel takes on each kind of device, by docs/tested-on.md, with which a test compares.

/// Native XDP on a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Native {
    Yes,
    /// No kernel has it. Generic mode and tc work.
    No,
    /// Some devices of the kind have it.
    Depends,
}

/// The kinds: the name of the kernel for it, the rows of the page, and native XDP.
const KINDS: [(&str, &[&str], Native); 11] = [
    ("veth", &["veth", "port of a bridge", "member of a bond"], Native::Yes),
    ("netkit", &["netkit, layer 2", "netkit, layer 3"], Native::No),
    ("tun", &["tun", "tap"], Native::Depends),
    ("wireguard", &["WireGuard"], Native::No),
    ("vxlan", &["vxlan"], Native::No),
    ("gretap", &["gretap"], Native::No),
    ("bridge", &["bridge"], Native::No),
    ("bond", &["bond, active-backup", "bond, balance-rr", "bond, `vlan+srcmac`"], Native::Depends),
    ("vlan", &["VLAN"], Native::No),
    ("macvlan", &["macvlan"], Native::No),
    ("dummy", &["dummy"], Native::No),
];

/// Native XDP on a kind; none of one that was not tried, or of a card.
pub(super) fn native(kind: Option<&str>) -> Option<Native> {
    let found = KINDS.iter().find(|(name, ..)| Some(*name) == kind);
    found.map(|(.., native)| *native)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/tested-on.md");

    /// The cells of native XDP, generic XDP and tc of a row, each with its kernels.
    fn cells(row: &str) -> Vec<[&'static str; 5]> {
        let of_row = |line: &&'static str| line.starts_with(&format!("| {row} |"));
        PAGE.lines()
            .filter(of_row)
            .map(|line| {
                let mut cells = line.split('|').skip(2).map(str::trim);
                [(); 5].map(|()| cells.next().unwrap())
            })
            .collect()
    }

    #[test]
    fn the_kinds_are_as_the_page_has_them() {
        for (kind, rows, native) in KINDS {
            let mut found = BTreeSet::new();
            for row in rows {
                let cells = cells(row);
                let is_tried = |cell: &&str| !matches!(*cell, "not there" | "-");
                let tried: Vec<_> =
                    cells.iter().filter(|[_, cells @ ..]| cells.iter().any(is_tried)).collect();
                assert!(!tried.is_empty(), "{row}: docs/tested-on.md has no kernel with it");
                for [_, at_native, at_generic, at_tc @ ..] in tried {
                    // Of a cell that was not run nothing follows.
                    if *at_native != "-" {
                        found.insert(*at_native == "yes");
                    }
                    let works = |cell: &str| matches!(cell, "yes" | "-" | "nothing comes in");
                    assert!(works(at_generic), "{row}: generic mode: {at_generic}");
                    for cell in at_tc {
                        assert!(works(cell), "{row}: tc: {cell}");
                    }
                }
            }
            let wanted: &[bool] = match native {
                Native::Yes => &[true],
                Native::No => &[false],
                Native::Depends => &[false, true],
            };
            assert!(found.iter().all(|is_native| wanted.contains(is_native)), "{kind}: {found:?}");
        }
    }
}
