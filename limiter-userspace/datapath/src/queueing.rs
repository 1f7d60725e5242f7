//! The queueing discipline of an interface, over rtnetlink: of all that Linux has, `fq` alone holds
//! packets back until their time of departure.

use std::io;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use netlink_packet_core::{DefaultNla, NLM_F_CREATE, NLM_F_REPLACE, Nla as _};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};
use netlink_sys::protocols::NETLINK_ROUTE;

use super::generic::attribute;
use super::{DatapathError, Interface, netlink};

/// `TCA_FQ_PLIMIT` and `TCA_FQ_FLOW_PLIMIT` of `include/uapi/linux/pkt_sched.h`.
pub(super) const TCA_FQ_PLIMIT: u16 = 1;
pub(super) const TCA_FQ_FLOW_PLIMIT: u16 = 2;
const TCA_FQ_QUANTUM: u16 = 3;

/// Queueing disciplines that the kernel gives an interface by itself: nobody limits by them.
const NOBODYS: [&str; 7] = ["noqueue", "pfifo_fast", "pfifo", "bfifo", "fq_codel", "mq", "noop"];

/// The queueing discipline of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queueing {
    /// `fq`, on every queue.
    Fq(Fq),
    /// Another one on some queue, by its name: packets do not wait in it.
    Other(String),
    /// The same, in a kernel that has no `fq`.
    NoFq(String),
}

/// Why this kernel gives no interface an `fq`, and what to do.
pub(super) const NO_FQ: &str =
    "this kernel has no fq: load the module sch_fq, or boot one with CONFIG_NET_SCH_FQ";

impl Queueing {
    /// How to have packets wait on an interface, so many of one flow.
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

/// Room of an `fq`; of several, the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fq {
    /// Packets of a flow that wait: `flow_limit` of `tc`.
    pub flow_packets: u32,
    /// Packets that wait in all: `limit` of `tc`.
    pub packets: u32,
}

/// One queueing discipline as the kernel lists it.
struct Listed {
    handle: TcHandle,
    parent: TcHandle,
    kind: String,
    fq: Fq,
}

/// The queueing discipline of what goes out by an interface.
pub fn queueing(interface: &str) -> Result<Queueing, DatapathError> {
    let index = Interface::query(interface)?.index;
    let found = listed(index)
        .map_err(|source| DatapathError::Netlink { interface: interface.to_owned(), source })?;
    Ok(match judged(&found) {
        Queueing::Other(kind) if !has_fq() => Queueing::NoFq(kind),
        queueing => queueing,
    })
}

/// True unless the kernel says that it has no `fq`. A kernel without it looks for the module each
/// time, so it is not asked often.
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

/// Asks for an `fq` on the loopback with a quantum of 0, which every `fq` refuses before it is put
/// in place.
fn ask_for_fq() -> io::Result<()> {
    /// The loopback of every network namespace.
    const LOOPBACK: i32 = 1;
    let mut asked = TcMessage::with_index(LOOPBACK);
    asked.header.parent = TcHandle::ROOT;
    let quantum = DefaultNla::new(TCA_FQ_QUANTUM, 0_u32.to_ne_bytes().to_vec());
    asked.attributes.push(TcAttribute::Kind("fq".to_owned()));
    asked.attributes.push(TcAttribute::Options(vec![TcOption::Other(quantum)]));
    let asked = RouteNetlinkMessage::NewQueueDiscipline(asked);
    netlink::change(&netlink::open(NETLINK_ROUTE)?, asked, NLM_F_CREATE | NLM_F_REPLACE)
}

/// The command that makes packets wait on an interface, with room for so many of one flow.
///
/// The room is for every flow of the interface, also of those without a limit: it is never less
/// than fq gives by itself.
fn hold_packets(interface: &str, flow_packets: u64) -> String {
    /// `flow_limit` of an `fq` of which nothing was said.
    const USUAL: u64 = 100;
    let flow_packets = flow_packets.max(USUAL);
    let all = room_for(flow_packets);
    format!("tc qdisc replace dev {interface} root fq flow_limit {flow_packets} limit {all}")
}

/// Room of an `fq` in all that has room for so many packets of a flow: what it has by itself, or as
/// many.
pub(super) fn room_for(flow_packets: u64) -> u64 {
    /// `limit` of an `fq` of which nothing was said.
    const USUAL: u64 = 10_000;
    flow_packets.max(USUAL)
}

fn listed(index: u32) -> io::Result<Vec<Listed>> {
    let index = i32::try_from(index).map_err(io::Error::other)?;
    let socket = netlink::open(NETLINK_ROUTE)?;
    let asked = RouteNetlinkMessage::GetQueueDiscipline(TcMessage::with_index(index));
    let answers = netlink::dump(&socket, asked)?;
    // The kernel lists those of all interfaces.
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
            // Of kinds that the library does not know, among them fq, this is all of it.
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

/// Room of an fq by its options; none of what is not said.
fn room(options: &[u8]) -> Fq {
    let packets = |kind| {
        let value = attribute(options, kind).ok().flatten();
        value.and_then(|value| value.try_into().ok()).map_or(0, u32::from_ne_bytes)
    };
    Fq { flow_packets: packets(TCA_FQ_FLOW_PLIMIT), packets: packets(TCA_FQ_PLIMIT) }
}

/// What holds of all queues: of a root, or of everything right below `mq`.
fn judged(listed: &[Listed]) -> Queueing {
    let none = || Queueing::Other("noqueue".to_owned());
    let Some(root) = listed.iter().find(|of| of.parent == TcHandle::ROOT) else {
        return none();
    };
    let leaves: Vec<&Listed> = match root.kind.as_str() {
        // A leaf's parent is the class of its queue: the handle of the root, and a number.
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

/// Memory of the kernel that so many packets take which wait, each of 1,500 bytes: 2,304 bytes for
/// one (`skb->truesize`, as `ss -uam` shows it on Linux 6.18), which are 2,048 of a buffer that has
/// room for it and 256 of its `sk_buff`. One of 46 bytes takes 832; a super-frame is one packet,
/// and takes up to some 70 kB.
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
        // The mq that the kernel makes by itself has no number.
        let usual = [
            of("mq", (0, 0), TcHandle::ROOT, u32::MAX),
            of("fq", (0, 0), class(0, 1), 100),
            of("fq", (0, 0), class(0, 2), 200),
            of("clsact", (0xffff, 0), class(0xffff, 0xfff1), u32::MAX),
        ];
        assert_eq!(judged(&usual), fq(100));
        // An fq below something else holds what that gives it, in another order.
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

    /// A limit of somebody else is not taken away without a word, and where a command cannot work
    /// it is not given alone.
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

    /// Asking changes nothing, whether the kernel has `fq` or not.
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
