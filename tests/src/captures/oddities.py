"""Sends one frame of every odd kind: oddities.py INTERFACE V4 V4-TO V6 V6-TO."""

import sys

import scapy.config

scapy.config.conf.ipv6_enabled = True
from scapy.all import (
    AH, ARP, DNS, DNSQR, ESP, GRE, ICMP, TCP, UDP, Dot1AD, Dot1Q, Ether, ICMPv6EchoRequest,
    ICMPv6ND_NS, ICMPv6ND_RA, IP, IPOption_RR, IPOption_Router_Alert, IPv6, IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, Raw, VXLAN, fragment, fragment6,
    sendp,
)

interface, v4, v4_to, v6, v6_to = sys.argv[1:]
ether = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
udp = UDP(sport=1111, dport=53) / DNS(qd=DNSQR(qname="example.org"))
syn = TCP(sport=2222, dport=443, flags="S")
inner4 = IP(src="10.9.8.7", dst="10.9.8.6")
inner6 = IPv6(src="fd00::7", dst="fd00::6")
ip4 = IP(src=v4, dst=v4_to)
ip6 = IPv6(src=v6, dst=v6_to)

frames = [
    # Tags.
    ether / Dot1Q(vlan=7) / ip4 / udp,
    ether / Dot1Q(vlan=0, prio=5) / ip6 / udp,
    ether / Dot1AD(vlan=100) / Dot1Q(vlan=7) / ip4 / syn,
    ether / Dot1Q(vlan=100) / Dot1Q(vlan=7) / ip6 / syn,
    ether / Dot1AD(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / ip4 / udp,
    Ether(src=ether.src, dst=ether.dst, type=0x9100) / Dot1Q(vlan=9) / ip4 / udp,
    # IPv4.
    ether / IP(src=v4, dst=v4_to, options=[IPOption_RR(), IPOption_Router_Alert()]) / udp,
    ether / IP(src=v4, dst=v4_to, options=[b"\x01" * 40]) / syn,
    ether / ip4 / AH(spi=1, seq=1, icv=b"\0" * 12, nh=17) / udp,
    ether / ip4 / ESP(spi=1, seq=1, data=b"\0" * 32),
    ether / IP(src=v4, dst=v4_to, proto=132) / Raw(b"\x04\xd2\x0b\xb8" + b"\0" * 20),
    ether / IP(src=v4, dst=v4_to, ihl=3, len=60) / udp,
    ether / IP(src=v4, dst=v4_to, len=1400) / udp,
    ether / IP(src=v4, dst=v4_to, ttl=1, tos=0xB9) / ICMP(),
    *[ether / part for part in fragment(ip4 / UDP(dport=9) / Raw(b"x" * 600), fragsize=256)],
    # IPv6.
    ether / ip6 / IPv6ExtHdrHopByHop() / udp,
    ether / ip6 / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / IPv6ExtHdrRouting() / syn,
    ether / ip6 / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt()
    / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / IPv6ExtHdrDestOpt() / syn,
    ether / ip6 / IPv6ExtHdrFragment(id=5) / syn,
    *[
        ether / part
        for part in fragment6(
            ip6 / IPv6ExtHdrFragment(id=7) / UDP(dport=9) / Raw(b"x" * 1500), 800
        )
    ],
    ether / ip6 / AH(spi=1, seq=1, icv=b"\0" * 12, nh=17) / udp,
    ether / IPv6(src=v6, dst=v6_to, nh=59),
    ether / IPv6(src=v6, dst=v6_to, hlim=255) / ICMPv6EchoRequest(),
    ether / IPv6(src=v6, dst=v6_to, hlim=255) / ICMPv6ND_NS(tgt=v6_to),
    ether / IPv6(src="fe80::1", dst="ff02::1", hlim=255) / ICMPv6ND_RA(),
    ether / IPv6(src=v6, dst=v6_to, hlim=64) / ICMPv6ND_NS(tgt=v6_to),
    ether / IPv6(src="::ffff:203.0.113.9", dst=v6_to) / udp,
    # Tunnels: the outer source counts.
    ether / ip4 / GRE() / inner4 / udp,
    ether / ip4 / GRE(key_present=1, key=42) / inner6 / syn,
    ether / ip6 / GRE() / inner4 / udp,
    ether / ip4 / UDP(sport=5555, dport=4789) / VXLAN(vni=7) / Ether() / inner4 / udp,
    ether / ip6 / UDP(sport=5555, dport=4789) / VXLAN(vni=7) / Ether() / inner6 / syn,
    ether / ip4 / inner6 / udp,
    ether / ip4 / inner4 / syn,
    ether / ip6 / inner4 / udp,
    # An error with the packet that caused it.
    ether / ip4 / ICMP(type=3, code=3) / inner4 / udp,
    # Neither.
    ether / ARP(psrc=v4, pdst=v4_to),
    Ether(src=ether.src, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"\x02\x07\x04" + b"\0" * 40),
    # Cut, and of another version than the type says.
    Ether(bytes(ether / ip4 / udp)[:33]),
    Ether(bytes(ether / ip6 / udp)[:53]),
    Ether(src=ether.src, dst=ether.dst, type=0x0800) / Raw(bytes(ip6 / udp)),
    Ether(src=ether.src, dst=ether.dst, type=0x86DD) / Raw(bytes(ip4 / udp)),
]
sendp(frames, iface=interface, verbose=False)
