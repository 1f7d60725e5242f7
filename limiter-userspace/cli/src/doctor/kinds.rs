//! What the kernel takes on each kind of device, by docs/devices.md, with which a test compares.

use limiter_datapath::machine::{Link, forgets_program};

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

/// Drivers of cards in which no kernel has native XDP, by the same page.
const WITHOUT: [&str; 2] = ["e1000", "e1000e"];

/// True if a program does not stay on the device, by docs/devices.md.
pub(super) fn forgets(link: &Link) -> bool {
    link.driver.as_deref().is_some_and(forgets_program)
}

/// Native XDP on a device; `None` if its kind was not tried, or if its driver may have it.
pub(super) fn native(link: &Link) -> Option<Native> {
    let of_kind = KINDS.iter().find(|(name, ..)| link.kind.as_deref() == Some(*name));
    let driver = link.driver.as_deref();
    let without = WITHOUT.iter().find(|name| driver == Some(**name)).map(|_| Native::No);
    of_kind.map(|(.., native)| *native).or(without)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/devices.md");

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
                assert!(!tried.is_empty(), "{row}: docs/devices.md has no kernel with it");
                for [_, at_native, at_generic, at_tc @ ..] in tried {
                    // A cell that was not run implies nothing.
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

    #[test]
    fn the_drivers_without_native_mode_are_as_the_page_has_them() {
        let rows = |way: &str| -> Vec<(&str, &str)> {
            let cells = |line: &'static str| {
                let mut cells = line.strip_prefix("| ")?.split(" | ");
                let driver = cells.next()?.strip_suffix(way)?;
                Some((driver, cells.nth(1)?))
            };
            PAGE.lines().filter_map(cells).collect()
        };
        let all = rows(", XDP native");
        let drivers: BTreeSet<&str> = all.iter().map(|(driver, _)| *driver).collect();
        let is_never =
            |driver: &&str| all.iter().all(|(of, cell)| of != driver || *cell == "refused");
        let without: Vec<&str> = drivers.into_iter().filter(is_never).collect();
        assert_eq!(without, WITHOUT);
        for way in [", XDP generic", ", tc in", ", tc out"] {
            for (driver, cell) in rows(way) {
                assert!(["yes", "-"].contains(&cell), "{driver}{way}: {cell}");
            }
        }
    }

    #[test]
    fn the_driver_that_forgets_is_the_one_of_the_page() {
        let forgetful =
            |line: &&str| line.contains(", XDP native |") && line.contains("limit lost");
        let drivers: Vec<&str> = PAGE
            .lines()
            .filter(forgetful)
            .filter_map(|line| line.trim_start_matches("| ").split(',').next())
            .collect();
        assert!(!drivers.is_empty());
        assert!(drivers.into_iter().all(forgets_program));
    }
}
