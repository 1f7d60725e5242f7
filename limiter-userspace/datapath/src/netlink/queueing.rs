//! The queueing discipline of an interface, by rtnetlink. In Linux only `fq` holds packets back
//! until their departure time.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::generic::attribute;
use crate::{DatapathError, Interface, netlink};

/// `TCA_FQ_PLIMIT` and `TCA_FQ_FLOW_PLIMIT` of `include/uapi/linux/pkt_sched.h`.
pub(crate) const TCA_FQ_PLIMIT: u16 = 1;
pub(crate) const TCA_FQ_FLOW_PLIMIT: u16 = 2;
const TCA_FQ_QUANTUM: u16 = 3;

/// Queueing disciplines that the kernel sets by default: nobody uses them as a limit.
const NOBODYS: [&str; 7] = ["noqueue", "pfifo_fast", "pfifo", "bfifo", "fq_codel", "mq", "noop"];

/// The queueing discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// `fq`, on every queue.
    Fq(Fq),
    /// Another discipline on some queue, by its name: packets do not wait in it.
    Other(String),
    /// Like [`Queueing::Other`], in a kernel without `fq`.
    NoFq(String),
}

/// Why this kernel cannot give an interface an `fq`, and the remedy.
pub(crate) const NO_FQ: &str =
    "this kernel has no fq: load the module sch_fq, or boot one with CONFIG_NET_SCH_FQ";

impl Queueing {
    /// How to let packets wait on an interface, with room for so many of one flow.
    pub fn remedy(&self, interface: &str, flow_packets: u64) -> String {
        let command = hold_packets(interface, flow_packets);
        match self {
            Self::NoFq(_) => format!("{NO_FQ}; then {command}"),
            Self::Other(kind) if !NOBODYS.contains(&kind.as_str()) => format!(
                "{kind} may be somebody's limit, as that of a pod by the bandwidth plugin of CNI: \
                 see tc qdisc show dev {interface}; {command} ends it"
            ),
            Self::Other(_) | Self::Fq(_) => command,
        }
    }
}

/// Capacity of an `fq`; if there are several, the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fq {
    /// Waiting packets per flow: `flow_limit` of `tc`.
    pub flow_packets: u32,
    /// Waiting packets in all: `limit` of `tc`.
    pub packets: u32,
}

struct Listed {
    handle: TcHandle,
    parent: TcHandle,
    kind: String,
    fq: Fq,
}

/// The queueing discipline of an interface's outgoing packets.
pub fn queueing(interface: &str) -> Result<Queueing, DatapathError> {
    let index = Interface::query(interface)?.index;
    let found = listed(index)
        .map_err(|source| DatapathError::Netlink { interface: interface.to_owned(), source })?;
    Ok(match judged(&found) {
        Queueing::Other(kind) if !has_fq() => Queueing::NoFq(kind),
        queueing => queueing,
    })
}

/// False only if the kernel reports that it has no `fq`. A kernel without it searches for the
/// module each time, so the answer is cached for a minute.
fn has_fq() -> bool {
    const OFTEN: Duration = Duration::from_mins(1);
    static ASKED: Mutex<Option<(Instant, bool)>> = Mutex::new(None);
    let Ok(mut asked) = ASKED.lock() else { return true };
    match *asked {
        Some((at, has)) if has || at.elapsed() < OFTEN => has,
        _ => {
            let has = !ask_for_fq().is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT));
            *asked = Some((Instant::now(), has));
            has
        }
    }
}

/// Requests an `fq` on the loopback with a quantum of 0, which every `fq` rejects before it is
/// installed.
fn ask_for_fq() -> io::Result<()> {
    /// Index of the loopback in every network namespace.
    const LOOPBACK: i32 = 1;
    let mut asked = TcMessage::with_index(LOOPBACK);
    asked.header.parent = TcHandle::ROOT;
    let quantum = DefaultNla::new(TCA_FQ_QUANTUM, 0_u32.to_ne_bytes().to_vec());
    asked.attributes.push(TcAttribute::Kind("fq".to_owned()));
    asked.attributes.push(TcAttribute::Options(vec![TcOption::Other(quantum)]));
    let asked = RouteNetlinkMessage::NewQueueDiscipline(asked);
    netlink::change(&netlink::open(NETLINK_ROUTE)?, asked, NLM_F_CREATE | NLM_F_REPLACE)
}

/// The command that lets packets wait on an interface, with room for so many of one flow.
///
/// The limit applies to every flow of the interface, limited or not, so it is never below fq's
/// default.
fn hold_packets(interface: &str, flow_packets: u64) -> String {
    /// Default `flow_limit` of an `fq`.
    const USUAL: u64 = 100;
    let flow_packets = flow_packets.max(USUAL);
    let all = room_for(flow_packets);
    format!("tc qdisc replace dev {interface} root fq flow_limit {flow_packets} limit {all}")
}

/// Total `limit` of an `fq` for so many packets of a flow: the default, or more if needed.
pub(crate) fn room_for(flow_packets: u64) -> u64 {
    /// Default `limit` of an `fq`.
    const USUAL: u64 = 10_000;
    flow_packets.max(USUAL)
}

fn listed(index: u32) -> io::Result<Vec<Listed>> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let socket = netlink::open(NETLINK_ROUTE)?;
    let asked = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    let answers = netlink::dump(&socket, asked)?;
    // The kernel lists the disciplines of all interfaces.
    let here = answers.into_iter().filter_map(|answer| match answer {
        RouteNetlinkMessage::NewQueueDiscipline(of) if of.header.index == index => Some(of),
        _ => None,
    });
    Ok(here.map(read).collect())
}

fn read(message: TcMessage) -> Listed {
    let TcMessage { header, attributes, .. } = message;
    let mut listed = Listed {
        handle: header.handle,
        parent: header.parent,
        kind: String::new(),
        fq: Fq { flow_packets: 0, packets: 0 },
    };
    for attribute in attributes {
        match attribute {
            TcAttribute::Kind(kind) => listed.kind = kind,
            // For kinds that the library does not know, among them fq, this holds all options.
            TcAttribute::Options(options) => {
                if let [TcOption::Other(all)] = options.as_slice() {
                    let mut bytes = vec![0; all.value_len()];
                    all.emit_value(&mut bytes);
                    listed.fq = room(&bytes);
                }
            }
            _ => {}
        }
    }
    listed
}

/// Capacity of an fq from its options; 0 for what is missing.
fn room(options: &[u8]) -> Fq {
    let packets = |kind| {
        let value = attribute(options, kind).ok().flatten();
        value.and_then(|value| value.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    Fq { flow_packets: packets(TCA_FQ_FLOW_PLIMIT), packets: packets(TCA_FQ_PLIMIT) }
}

/// The discipline that holds for all queues: the root, or everything directly below `mq`.
fn judged(listed: &[Listed]) -> Queueing {
    let none = || Queueing::Other("noqueue".to_owned());
    let Some(root) = listed.iter().find(|of| of.parent == TcHandle::ROOT) else {
        return none();
    };
    let leaves: Vec<&Listed> = match root.kind.as_str() {
        // A leaf's parent is the class of its queue: the root's handle, and a number.
        "mq" => listed
            .iter()
            .filter(|of| of.parent.major == root.handle.major && of.parent != TcHandle::ROOT)
            .filter(|of| of.parent.minor != 0)
            .collect(),
        _ => vec![root],
    };
    if let Some(other) = leaves.iter().find(|of| of.kind != "fq") {
        return Queueing::Other(other.kind.clone());
    }
    let least = |room: fn(&Fq) -> u32| leaves.iter().map(|of| room(&of.fq)).min();
    match (least(|fq| fq.flow_packets), least(|fq| fq.packets)) {
        (Some(flow_packets), Some(packets)) => Queueing::Fq(Fq { flow_packets, packets }),
        _ => none(),
    }
}

/// Kernel memory that so many waiting packets of 1,500 bytes take: 2,304 bytes for each
/// (`skb->truesize`, as `ss -uam` shows it on Linux 6.18), of which 2,048 are the buffer and 256
/// its `sk_buff`. A packet of 46 bytes takes 832; a crate-frame counts as one packet and takes up
/// to some 70 kB.
pub const fn memory_of(packets: u64) -> u64 {
    packets.saturating_mul(2_304)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, handle: (u16, u16), parent: TcHandle, flow_packets: u32) -> Listed {
        let handle = TcHandle { major: handle.0, minor: handle.1 };
        Listed { handle, parent, kind: kind.to_owned(), fq: Fq { flow_packets, packets: 10_000 } }
    }

    fn class(major: u16, minor: u16) -> TcHandle {
        TcHandle { major, minor }
    }

    #[test]
    fn packets_wait_where_every_queue_has_fq() {
        let fq = |flow_packets| Queueing::Fq(Fq { flow_packets, packets: 10_000 });
        let other = |kind: &str| Queueing::Other(kind.to_owned());
        assert_eq!(judged(&[of("fq", (1, 0), TcHandle::ROOT, 100)]), fq(100));
        let mq = || of("mq", (1, 0), TcHandle::ROOT, u32::MAX);
        let queues = |a: &str, b: &str| {
            [mq(), of(a, (2, 0), class(1, 1), 500), of(b, (3, 0), class(1, 2), 100)]
        };
        assert_eq!(judged(&queues("fq", "fq")), fq(100));
        assert_eq!(judged(&queues("fq", "fq_codel")), other("fq_codel"));
        // The default mq of the kernel has no handle number.
        let usual = [
            of("mq", (0, 0), TcHandle::ROOT, u32::MAX),
            of("fq", (0, 0), class(0, 1), 100),
            of("fq", (0, 0), class(0, 2), 200),
            of("clsact", (0xffff, 0), class(0xffff, 0xfff1), u32::MAX),
        ];
        assert_eq!(judged(&usual), fq(100));
        // An fq below another discipline holds only what that passes to it, in another order.
        let below = [of("htb", (1, 0), TcHandle::ROOT, 0), of("fq", (2, 0), class(1, 10), 100)];
        assert_eq!(judged(&below), other("htb"));
        assert_eq!(judged(&[]), other("noqueue"));
    }

    /// As Linux 6.12 lists an fq: attributes with a length and a kind.
    #[test]
    fn the_room_of_an_fq_is_read() {
        let option = |kind: u16, value: u32| {
            [&8u16.to_ne_bytes()[..], &kind.to_ne_bytes(), &value.to_ne_bytes()].concat()
        };
        let options = [option(1, 10_000), option(2, 100), option(3, 3_028)].concat();
        assert_eq!(room(&options), Fq { flow_packets: 100, packets: 10_000 });
        assert_eq!(room(&[]), Fq { flow_packets: 0, packets: 0 });
    }

    /// The remedy warns before it replaces somebody's limit, and is not only a command where the
    /// command cannot work.
    #[test]
    fn the_remedy_fits_what_is_there() {
        let kind = |kind: &str| kind.to_owned();
        let command = "tc qdisc replace dev eth0 root fq flow_limit 8334 limit 10000";
        for usual in ["noqueue", "pfifo_fast", "fq_codel", "mq"] {
            assert_eq!(Queueing::Other(kind(usual)).remedy("eth0", 8_334), command);
        }
        for limit in ["tbf", "htb", "hfsc", "cake", "netem", "prio"] {
            let remedy = Queueing::Other(kind(limit)).remedy("eth0", 8_334);
            assert!(remedy.starts_with(&format!("{limit} may be somebody's limit")), "{remedy}");
            assert!(remedy.ends_with(&format!("{command} ends it")), "{remedy}");
        }
        let none = Queueing::NoFq(kind("noqueue")).remedy("eth0", 8_334);
        assert!(none.starts_with("this kernel has no fq: load the module sch_fq"), "{none}");
    }

    /// The request changes nothing, whether the kernel has `fq` or not.
    #[test]
    fn the_kernel_answers_anybody() {
        let kind = "noqueue".to_owned();
        for _ in 0..2 {
            let found = queueing("lo").unwrap();
            assert!(
                [Queueing::Other(kind.clone()), Queueing::NoFq(kind.clone())].contains(&found),
                "{found:?}"
            );
        }
        let error = queueing("nosuch0").unwrap_err().to_string();
        assert!(error.contains("nosuch0"), "{error}");
    }
}
