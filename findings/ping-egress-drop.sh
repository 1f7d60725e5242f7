#!/usr/bin/env bash
# ping counts a request once that the kernel dropped many times on its way out.
#
# iputils-ping 20221126 (Debian 12), nftables 1.0.6, Linux 6.18. A rule on the netdev egress hook
# lets 3 echo requests pass and drops the rest. `ping -c 10` reports "10 packets transmitted"; the
# rule has dropped about a hundred. A dropped packet makes sendmsg fail with ENOBUFS, because ping
# sets IP_RECVERR, and ping sends the same request again after a moment, up to some fifteen times.
# The same drop on the way in, at the other end, is one for each request. So the loss that ping
# reports says nothing about what a limit on the way out has counted.
#
# Needs root, apt and iproute2. Exits with 0 if ping still behaves so, with 1 if not.
set -euo pipefail

if [[ ${1-} != --inside ]]; then
    dir=$(mktemp -d)
    trap 'rm -rf -- "$dir"' EXIT
    (
        cd "$dir"
        apt-get -qq download iputils-ping=3:20221126-1+deb12u1 nftables=1.0.6-2+deb12u2 \
            libnftables1=1.0.6-2+deb12u2 libnftnl11=1.2.4-2 libmnl0 libjansson4 libedit2 \
            libgmp10 libidn2-0 libcap2 libxtables12 libbsd0 libmd0 libtinfo6 libunistring2
        for package in *.deb; do dpkg-deb -x "$package" root; done
    )
    unshare --net "$0" --inside "$dir/root"
    exit
fi

root=$2
export PATH=$root/bin:$root/usr/bin:$root/sbin:$root/usr/sbin:$PATH
export LD_LIBRARY_PATH=$root/lib/x86_64-linux-gnu:$root/usr/lib/x86_64-linux-gnu
ping -V
nft --version
uname -r

ip link add e0 type veth peer name e1
ip address add 192.0.2.1/24 dev e0
ip link set e0 up
ip link set e1 up
# Nobody answers, and nobody has to.
ip neighbour add 192.0.2.2 lladdr 02:00:00:00:00:02 dev e0 nud permanent
nft -f - <<'RULES'
table netdev t {
    chain e {
        type filter hook egress device "e0" priority 0;
        icmp type echo-request limit rate over 1/hour burst 3 packets counter drop
    }
}
RULES
said=$(ping -n -q -c 10 -i 0.02 -W 1 192.0.2.2 2>/dev/null || true)
grep -o '^[0-9]* packets transmitted' <<<"$said"
dropped=$(nft list table netdev t | grep -o 'counter packets [0-9]*' | grep -o '[0-9]*$')
echo "dropped by the rule: $dropped, with 3 let through"
# As many drops as requests, less those that passed, would be 7.
grep -q '^10 packets transmitted' <<<"$said" && ((dropped > 20))
