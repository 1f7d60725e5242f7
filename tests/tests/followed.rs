//! Pages that are followed word for word: `limiter_tests::page` says how.

use anyhow::Result;
use limiter_tests::page::follow::{Page, follow, follow_as};
use limiter_tests::root::require_root;

const PACKAGE: &str = "dist/debian/try-package does so in a root and under a systemd of its own";
const CARGO: &str = "it builds or runs this repository, as was done to run this test";
const DEMO: &str = "the test `the_demo_is_the_sandbox_where_packages_have_it` runs it";
const TERMINAL: &str = "it takes a terminal, which the tests `top` have";
const CABLE: &str = "it takes a second cable, which the tests `beside` and `links` have";

const README: Page = Page {
    path: "README.md",
    peers: &["192.0.2.7/32"],
    not_typed: &[
        ("apt-get install -y git gcc curl dpkg-dev", CARGO),
        ("curl -sSf https://sh.rustup.rs | sh -s -- -y && . ~/.cargo/env", CARGO),
        ("cargo xtask run", CARGO),
        ("cargo xtask test", CARGO),
        (
            "cargo xtask dist --only deb --arch amd64 && dpkg -i target/packages/limiter_*.deb",
            PACKAGE,
        ),
    ],
};

const FIRST_HOUR: Page = Page {
    path: "docs/first-hour.md",
    peers: &["192.0.2.7/32"],
    not_typed: &[
        ("dpkg -i target/packages/limiter_*.deb", PACKAGE),
        ("limiter demo", DEMO),
        ("limiter doctor --iface eth0", "its answer is of the machine: the tests `doctor` have it"),
        ("limiter top", TERMINAL),
        ("editor /etc/limiter/limiter.env", PACKAGE),
        ("systemctl enable --now limiter", PACKAGE),
        ("dpkg -P limiter", PACKAGE),
    ],
};

const UNDER_ATTACK: Page =
    Page { path: "docs/under-attack.md", peers: &["192.0.2.7/32"], not_typed: &[] };

const FQ: &str = "without `fq` nothing waits: the tests `delay_kernels` and `lane_figures` have it";

const SHAPING: Page = Page {
    path: "docs/shaping.md",
    peers: &["192.0.2.7/32"],
    not_typed: &[
        ("limiter run --iface 'veth*' --hook tc --rules guests.yaml", FQ),
        ("tc qdisc replace dev eth0 root fq flow_limit 8334 limit 10000", FQ),
        ("limiter run --iface eth0 --direction out --rules download.yaml", FQ),
        ("tc qdisc replace dev eth0 root handle 1: htb default 10", FQ),
        ("tc class replace dev eth0 parent 1: classid 1:1 htb rate 4800kbit", FQ),
        (
            "tc class replace dev eth0 parent 1:1 classid 1:10 htb rate 4mbit ceil 4800kbit prio 0",
            FQ,
        ),
        (
            "tc class replace dev eth0 parent 1:1 classid 1:20 htb rate 250kbit ceil 4800kbit prio 1",
            FQ,
        ),
        (
            "tc filter replace dev eth0 parent 1: protocol ip prio 1 u32 match ip dsfield 0x20 0xfc \
             flowid 1:20",
            FQ,
        ),
        ("limiter run --iface eth0 --direction out --rules lane.yaml", FQ),
    ],
};

const CONTAINERS: Page = Page { path: "docs/containers.md", peers: &[], not_typed: &[] };

const SERVICE: Page = Page {
    path: "docs/service.md",
    peers: &[],
    not_typed: &[
        ("dpkg -i target/packages/limiter_*.deb", PACKAGE),
        ("editor /etc/limiter/limiter.env /etc/limiter/rules.yaml", PACKAGE),
        ("limiter check /etc/limiter/rules.yaml && systemctl enable --now limiter", PACKAGE),
        ("limiter run --iface eth0 --iface eth1 --rules /etc/limiter/rules.yaml", CABLE),
        (
            "limiter run --iface eth1 --rules /etc/limiter/eth1.yaml --state-dir \
             /var/lib/limiter-eth1 \\\n    \
             --pin-dir /sys/fs/bpf/limiter-eth1 --socket /run/limiter-eth1/limiter.sock",
            CABLE,
        ),
        ("limiter --socket /run/limiter-eth1/limiter.sock status", CABLE),
        (
            "limiter --socket /run/limiter-eth1/limiter.sock off --pin-dir \
             /sys/fs/bpf/limiter-eth1",
            CABLE,
        ),
    ],
};

const CHANGE_RULES: Page =
    Page { path: "docs/change-rules.md", peers: &["192.0.2.7/32"], not_typed: &[] };

const WATCH: Page = Page {
    path: "docs/watch.md",
    peers: &["203.0.113.5/32"],
    not_typed: &[
        ("limiter top", TERMINAL),
        ("tcpdump -Q in -i eth0 -w attack.pcap", "a capture of the tests is in its place"),
    ],
};

const CROWDSEC: &str = "tests/partners/crowdsec.rs types it beside CrowdSec";

const RECIPES: Page = Page {
    path: "docs/recipes.md",
    peers: &["192.0.2.7/32", "192.0.2.8/32"],
    not_typed: &[
        ("(umask 077; cscli bouncers add limiter -o raw > /etc/limiter/crowdsec.key)", CROWDSEC),
        ("limiter crowdsec --key-file /etc/limiter/crowdsec.key", CROWDSEC),
    ],
};

const DEVICES: Page =
    Page { path: "docs/where-to-attach.md", peers: &["192.0.2.7/32"], not_typed: &[] };

const REQUESTS: Page = Page { path: "docs/requests.md", peers: &[], not_typed: &[] };

const TUNING: Page = Page {
    path: "docs/tuning.md",
    peers: &["192.0.2.7/32"],
    not_typed: &[
        (
            "tcpdump -Q in -s 128 -i eth0 -w players.pcap udp port 27015",
            "a load is in the place of the capture",
        ),
        (
            "limiter tune --for 10m --spare 99% --to live.yaml",
            "the test `a_proposal_from_live_traffic_does_what_it_promised` does, in three seconds",
        ),
    ],
};

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_page_of_tuning_is_followed() -> Result<()> {
    require_root();
    follow(&TUNING)?;
    Ok(())
}

#[test]
fn the_readme_is_followed() -> Result<()> {
    require_root();
    follow(&README)?;
    Ok(())
}

#[test]
fn the_page_for_an_attack_is_followed() -> Result<()> {
    require_root();
    follow(&UNDER_ATTACK)?;
    Ok(())
}

#[test]
fn the_page_of_shaping_is_followed() -> Result<()> {
    require_root();
    follow(&SHAPING)?;
    Ok(())
}

#[test]
fn the_page_of_containers_is_followed() -> Result<()> {
    require_root();
    follow(&CONTAINERS)?;
    Ok(())
}

#[test]
fn the_page_of_requests_is_followed() -> Result<()> {
    require_root();
    follow(&REQUESTS)?;
    Ok(())
}

#[test]
fn the_first_hour_is_followed() -> Result<()> {
    require_root();
    follow(&FIRST_HOUR)?;
    Ok(())
}

#[test]
fn the_page_of_the_service_is_followed() -> Result<()> {
    require_root();
    follow(&SERVICE)?;
    Ok(())
}

#[test]
fn the_page_of_changes_is_followed() -> Result<()> {
    require_root();
    follow(&CHANGE_RULES)?;
    Ok(())
}

#[test]
fn the_page_for_watching_is_followed() -> Result<()> {
    require_root();
    follow(&WATCH)?;
    Ok(())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_recipes_are_followed() -> Result<()> {
    require_root();
    follow(&RECIPES)?;
    Ok(())
}

#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn the_page_of_devices_is_followed() -> Result<()> {
    require_root();
    follow(&DEVICES)?;
    Ok(())
}

/// A wrong line of a page is found.
#[test]
#[ignore = "long: `cargo xtask test --long`"]
fn a_page_that_is_wrong_is_found() -> Result<()> {
    require_root();
    let page = Page { path: "no page", peers: &[], not_typed: &[] };
    let right = "```yaml\n# rules.yaml\ndescriptors: []\n```\n```console\n# limiter run --iface \
                 eth0 --rules rules.yaml\n...\nlimiter: ready: eth0 native, 1 rule, generation \
                 1\n# limiter off\nlimits are off: every packet passes until `limiter on`\npeer$ \
                 echo one\none\n```\n<!-- here: limiter --version -->\n<!-- tried: `this SSH session` \
                 passed 0, dropped 0. -->\n";
    assert_eq!(follow_as(&page, right)?, 3);
    for (from, to) in [
        ("until `limiter on`", "until limiter on"),
        ("generation 1", "generation 2"),
        ("--version", "--vversion"),
        ("passed 0, dropped 0", "passed 1, dropped 0"),
        ("limiter off", "limiter of"),
        ("\none\n", "\ntwo\n"),
        ("descriptors", "descriptor"),
    ] {
        let wrong = right.replacen(from, to, 1);
        assert_ne!(wrong, right);
        assert!(follow_as(&page, &wrong).is_err(), "{wrong}");
    }
    let stale = Page { not_typed: &[("limiter status", "no reason")], ..page };
    assert!(follow_as(&stale, right).is_err());
    let left_out = Page { not_typed: &[("limiter off", "a reason")], ..page };
    assert_eq!(follow_as(&left_out, right)?, 2);
    Ok(())
}
