//! Cards that the emulator has, for `cargo xtask bench cards`: of each driver one for limiter to be
//! on, and at the other end of its cable one that sends and receives.
//!
//! A cable is two taps and a bridge in a network namespace of the emulator's own. Of what an
//! emulator can put behind a card without another program, only a tap has several queues, and
//! takes the super-frames that a card may join or part.

use std::collections::BTreeSet;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};
use xtask::arch::Arch;
use xtask::failure::Refused;
use xtask::process;
use xtask::vm::{Emulator, Prepared, Scope};

use crate::devices::{Page, Run};

/// Options of `bench cards`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    run: Run,
}

/// Runs the tests on kernels with these cards; writes their table or compares it.
pub(crate) fn main(arguments: &Arguments) -> Result<ExitCode> {
    let run = &arguments.run;
    let mut prepared = Prepared::new(Arch::Amd64, Scope::Cards, run.filter())?;
    let cards = Cards::of(&prepared.emulator)?;
    let variable = cards.variable();
    prepared.wire(variable, Box::new(move |emulator| cards.plugged_in(emulator)));
    let mut page = Page::default();
    page.measure(&prepared, &run.kernels())?;
    page.end(run)
}

/// A card.
#[derive(Clone, Copy, Debug)]
struct Card {
    /// The kernel's driver for it.
    driver: &'static str,
    /// The emulator's name for it, and options.
    model: &'static str,
    options: &'static str,
    /// Queues of the tap: those that a card is to have for each direction, where the emulator asks
    /// the tap.
    queues: u32,
}

/// Every card, in the order in which the tests try them.
const CARDS: [Card; 5] = [
    // As many queues as CPUs, which is usual. With more, Linux is never done with removing a card
    // in native mode: see docs/limitations.md.
    Card { driver: "virtio_net", model: "virtio-net-pci", options: ",mq=on,vectors=6", queues: 2 },
    Card { driver: "vmxnet3", model: "vmxnet3", options: "", queues: 1 },
    Card { driver: "e1000e", model: "e1000e", options: "", queues: 1 },
    Card { driver: "igb", model: "igb", options: "", queues: 1 },
    Card { driver: "e1000", model: "e1000", options: "", queues: 1 },
];

/// The card at the other end of every cable.
const FAR: Card = Card { driver: "virtio_net", model: "virtio-net-pci", options: "", queues: 1 };

/// The variable that tells the tests about them: `DRIVER=ADDRESS,ADDRESS` of each.
const VARIABLE: &str = "LIMITER_CARDS";

/// The largest frame of the cables, without its header.
const MTU: u32 = 9_000;

/// The cards that an emulator has, by their places among [`CARDS`].
#[derive(Debug)]
pub(super) struct Cards(Vec<(usize, Card)>);

impl Cards {
    /// Asks the emulator.
    pub(super) fn of(emulator: &Emulator) -> Result<Self> {
        let output = emulator.command().args(["-device", "help"]).output();
        let output = output.context("the emulator could not be started")?;
        anyhow::ensure!(output.status.success(), "the emulator does not list its devices");
        let said = String::from_utf8_lossy(&output.stdout);
        let models = models(&said);
        for Card { driver, .. } in CARDS.iter().filter(|card| !models.contains(card.model)) {
            eprintln!("xtask: not run: the emulator has no card for {driver}");
        }
        Ok(Self::found(&models))
    }

    fn found(models: &BTreeSet<&str>) -> Self {
        let all = CARDS.into_iter().enumerate();
        Self(all.filter(|(_, card)| models.contains(card.model)).collect())
    }

    /// What the tests are told.
    pub(super) fn variable(&self) -> (&'static str, String) {
        let ends = |place| End::ALL.map(|end| end.mac(place)).join(",");
        let pair = |(place, card): &(usize, Card)| format!("{}={}", card.driver, ends(*place));
        (VARIABLE, self.0.iter().map(pair).collect::<Vec<_>>().join(" "))
    }

    /// The command of an emulator, with the cards, and with the cables laid before it starts.
    pub(super) fn plugged_in(&self, emulator: &Command) -> Result<Command> {
        if process::find("unshare").is_none() {
            return Err(Refused::new(
                "unshare is not there, which makes the cards' network namespace",
                "install util-linux",
            )
            .into());
        }
        let mut command = process::command("unshare");
        // Root there, whoever runs it, and root of nothing else.
        command.args(["--user", "--map-root-user", "--net", "sh", "-ec"]);
        command.arg(format!("{}\nexec \"$@\"", self.cables())).arg("cables");
        command.arg(emulator.get_program()).args(emulator.get_args());
        for (name, value) in emulator.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        for (place, card) in &self.0 {
            for end in End::ALL {
                command.args(end.arguments(*place, end.card(card)));
            }
        }
        Ok(command)
    }

    /// Commands of a shell that lay them.
    fn cables(&self) -> String {
        let mut lines = Vec::new();
        for (place, card) in &self.0 {
            let bridge = format!("cable{place}");
            lines.push(format!("ip link add {bridge} type bridge mcast_snooping 0"));
            for end in End::ALL {
                let tap = end.tap(*place);
                let queues = if end.card(card).queues > 1 { " multi_queue" } else { "" };
                lines.push(format!("ip tuntap add dev {tap} mode tap vnet_hdr{queues}"));
                lines.push(format!("ip link set {tap} mtu {MTU} master {bridge} up"));
            }
            lines.push(format!("ip link set {bridge} up"));
        }
        lines.join("\n")
    }
}

/// An end of a cable.
#[derive(Clone, Copy, Debug)]
enum End {
    /// That of the card that limiter is on.
    Near,
    Far,
}

impl End {
    const ALL: [Self; 2] = [Self::Near, Self::Far];

    fn card(self, near: &Card) -> Card {
        match self {
            Self::Near => *near,
            Self::Far => FAR,
        }
    }

    fn tap(self, place: usize) -> String {
        match self {
            Self::Near => format!("near{place}"),
            Self::Far => format!("far{place}"),
        }
    }

    /// Address of the card, by which the tests find it.
    fn mac(self, place: usize) -> String {
        format!("52:54:00:00:0{}:0{place}", self as u8)
    }

    fn arguments(self, place: usize, card: Card) -> [String; 4] {
        let (tap, mac, Card { model, options, queues, .. }) =
            (self.tap(place), self.mac(place), card);
        let queues = if queues > 1 { format!(",queues={queues}") } else { String::new() };
        [
            "-netdev".to_owned(),
            format!("tap,id={tap},ifname={tap},script=no,downscript=no{queues}"),
            "-device".to_owned(),
            // Nothing is to be started from it.
            format!("{model},netdev={tap},mac={mac},romfile={options}"),
        ]
    }
}

/// The names in the emulator's list: `name "e1000e", bus PCI, desc "Intel 82574L GbE Controller"`.
fn models(list: &str) -> BTreeSet<&str> {
    list.lines()
        .filter_map(|line| line.strip_prefix("name \"")?.split_once('"'))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use xtask::vm::DEVICE_MODULES;

    use super::*;

    #[test]
    fn the_machine_has_the_cards_that_the_emulator_has() {
        let list = "Network devices:\nname \"virtio-net-pci\", bus PCI, alias \"virtio-net\"\n\
                    name \"e1000e\", bus PCI, desc \"Intel\"\n";
        let cards = Cards::found(&models(list));
        let (_, said) = cards.variable();
        let wanted = "virtio_net=52:54:00:00:00:00,52:54:00:00:01:00 \
                      e1000e=52:54:00:00:00:02,52:54:00:00:01:02";
        assert_eq!(said, wanted);
        let mut emulator = Command::new("emulator");
        emulator.args(["-m", "1"]).env("A", "b");
        let command = cards.plugged_in(&emulator).unwrap();
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
        assert!(words.windows(3).any(|words| *words == ["emulator", "-m", "1"]), "{words:?}");
        assert_eq!(words.iter().filter(|word| **word == "-device").count(), 4, "{words:?}");
        let script = cards.cables();
        assert!(script.contains("near0 mode tap vnet_hdr multi_queue\n"), "{script}");
        assert!(script.contains("far2 mode tap vnet_hdr\n") && !script.contains("far1 "));
    }

    #[test]
    fn every_driver_has_a_module() {
        for card in CARDS {
            assert!(DEVICE_MODULES.contains(&card.driver), "{}", card.driver);
        }
    }
}
