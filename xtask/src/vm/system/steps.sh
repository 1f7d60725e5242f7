#!/bin/bash
# What the machine does: by its units (cable, sender, at-network-pre), and the steps of a boot, each of
# which says on the second serial line how it ended, as the tests of other machines do.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
self=192.0.2.254
drop_ins=/usr/share/doc/limiter/examples/limiter.service.d
to=/etc/systemd/system/limiter.service.d

fail() { echo "$*"; exit 1; }
now() { cut -d ' ' -f 1 /proc/uptime; }
of() { systemctl show limiter --property "$1" --value; }
attached() { ip link show v0 | grep -q prog/xdp; }
program() { ip link show v0 | sed -n 's/.*prog.xdp id \([0-9]*\).*/\1/p'; }
# Pings that the stack met since the boot: those that passed.
echos() { awk '/^Icmp:/ { if (!c) { for (i = 1; i <= NF; i++) if ($i == "InEchos") c = i } else print $c }' /proc/net/snmp; }
# How many of that many pings come back.
pings() { ip netns exec peer ping -q -n -c "$1" -i 0.02 -W 1 "$self" | sed -n 's/.* \([0-9]*\) received.*/\1/p'; }
some() { local came; came=$(pings 20); [[ $came == "$1" ]] || fail "$came of 20 pings came back, not $1: $2"; }
# Runs a command while somebody sends 50 pings a second, and says in $passed how many the stack met.
under_traffic() {
    local before
    systemctl start sender
    sleep 1
    before=$(echos)
    "$@"
    sleep 2
    systemctl is-active --quiet sender || fail 'the sender ended'
    systemctl stop sender
    passed=$(($(echos) - before))
}
is_active() { [[ $(of ActiveState) == active ]] || fail "the service is $(of ActiveState): $(of StatusText)"; }
has() { local said; said=$("${@:2}"); [[ $said == *"$1"* ]] || fail "no $1 in: $said"; }

installed() { # step
    some 20 'nobody is limited'
    dpkg -i /limiter-1.deb
    [[ $(of UnitFileState) == disabled && $(of ActiveState) == inactive ]] || fail 'an installation started it'
    if attached; then fail 'an installation attached'; fi
    some 20 'an installation limits'
    echo 'LIMITER_RUN=--iface v0 --rules /etc/limiter/rules.yaml' >/etc/limiter/limiter.env
    cat >/etc/limiter/rules.yaml <<'RULES'
descriptors:
  - {key: remote_address, rate_limit: {unit: week, requests_per_unit: 1, burst: 5}}
RULES
    limiter check /etc/limiter/rules.yaml
}

as_the_package_leaves_it() { # step
    # The generator has asked the kernel; nobody copied a drop-in.
    capabilities=$(systemctl show --property AmbientCapabilities --value limiter)
    if dpkg --compare-versions "$(uname -r)" lt 6.18; then
        [[ $capabilities == *cap_perfmon* ]] || fail "no CAP_PERFMON: $capabilities"
    else
        [[ $capabilities != *cap_perfmon* ]] || fail "CAP_PERFMON for nothing: $capabilities"
    fi
    systemctl start limiter || fail 'it does not start as the package leaves it'
    systemctl stop limiter
    limiter detach
}

enabled() { # step
    systemctl enable --now limiter
    is_active
    some 5 'the limits hold'
    has ' native' limiter status
}

metrics() { { exec 3<>/dev/tcp/127.0.0.1/9464 && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 && cat <&3; } 2>/dev/null; }
metrics_drop_in() { # step
    sed -i 's/$/ --metrics-listen 127.0.0.1:9464/' /etc/limiter/limiter.env
    if systemctl restart limiter; then fail 'metrics are served without the drop-in'; fi
    some 0 'the limits hold all the same'
    mkdir -p "$to"
    cp "$drop_ins/metrics.conf" "$to"
    systemctl daemon-reload
    systemctl restart limiter
    [[ $(metrics | grep -c '^limiter_packets') -gt 0 ]] || fail "no metrics: $(metrics | head -n 20)"
}

# Takes one request, writes it to a file, and answers.
hook() {
    perl -MIO::Socket::INET -e '
        my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8099", Listen => 5, ReuseAddr => 1) or die $!;
        my $client = $server->accept; my $text = ""; my $length = 0;
        while (my $line = <$client>) {
            $text .= $line; $length = $1 if $line =~ /^content-length: (\d+)/i; last if $line =~ /^\r?\n$/;
        }
        read($client, my $body, $length); print $text, $body, "\n";
        print $client "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";' >/run/hooked
}
hooks_drop_in() { # step
    hook & hooked=$!
    sed -i 's#$# --hook-url http://127.0.0.1:8099/#' /etc/limiter/limiter.env
    cp "$drop_ins/hooks.conf" "$to"
    systemctl daemon-reload
    systemctl restart limiter
    some 0 'the limits hold'
    for _ in {1..300}; do kill -0 "$hooked" 2>/dev/null || break; sleep 0.2; done
    if kill "$hooked" 2>/dev/null; then fail "nothing came: $(journalctl --no-pager -u limiter -n 5)"; fi
    has 'POST / HTTP/1.1' cat /run/hooked
    has '192.0.2.1' cat /run/hooked
    rm "$to/hooks.conf" "$to/metrics.conf"
    sed -i 's/ --metrics-listen.*//' /etc/limiter/limiter.env
    systemctl daemon-reload
    systemctl restart limiter
}

filled() { # step
    limiter deny 203.0.113.66
    limiter allow 203.0.113.10
    limiter set 203.0.113.7/32 7/week --burst 7
    limiter ban 203.0.113.8 --for 1d
}

remembered() {
    has 203.0.113.66 limiter lists
    has 203.0.113.10 limiter lists
    has 203.0.113.7 limiter list
}

after_boot() { # step
    for _ in {1..100}; do [[ $(of ActiveState) == activating ]] || break; sleep 0.1; done
    is_active
    sleep 2
    systemctl stop sender
    read -r up met </run/at-network-pre
    read -r from </run/sender
    all=$(echos)
    echo "measured: gap before network-pre.target: $met packets, of a sender that began $from s after the kernel;" \
        "the target was reached after $up s"
    echo "measured: after network-pre.target $((all - met)) passed, of a burst of 5"
    attached_at=$(systemctl show limiter --property ActiveEnterTimestampMonotonic --value)
    echo "measured: the service was ready $((attached_at / 1000)) ms after the kernel began"
    ((met > 0)) || fail 'nobody sent before network-pre.target, so nothing is measured'
    ((all - met <= 5)) || fail "$((all - met)) passed after network-pre.target"
    some 0 'the limits hold'
    remembered
    # Bans are in the kernel alone.
    [[ $(limiter bans) == *'nobody is banned'* ]] || fail "$(limiter bans)"
}

upgraded() { # step
    local pid before
    pid=$(of MainPID)
    before=$(program)
    under_traffic dpkg -i /limiter-2.deb
    [[ $passed == 0 ]] || fail "$passed passed during the upgrade"
    [[ $(of MainPID) != "$pid" && $(program) != "$before" ]] || fail 'the upgrade changed nothing'
    is_active
    has adopted limiter status
    remembered
    echo "measured: upgrade: 0 passed, program $before is $(program) now"
}

upgraded_to_another_layout() { # step
    limiter ban 203.0.113.8 --for 1h
    local before
    before=$(program)
    under_traffic dpkg -i /limiter-3.deb
    is_active
    # New buckets: a burst, and not one packet more.
    [[ $passed == 5 ]] || fail "$passed passed during the upgrade, not the burst of 5"
    [[ $(program) != "$before" ]] || fail 'the program is the old one'
    has adopted limiter status
    has 203.0.113.8 limiter bans
    has 'are replaced' journalctl --no-pager -u limiter -b
    remembered
    [[ $(ls /sys/fs/bpf/limiter) == $'links\nmaps' ]] || fail "$(ls /sys/fs/bpf/limiter)"
    echo "measured: upgrade to another layout: the burst of 5 passed once more, nothing else"
}

downgraded() { # step
    under_traffic dpkg -i /limiter-2.deb
    is_active
    [[ $passed == 5 ]] || fail "$passed passed during the change, not the burst of 5"
    has 'bans could not be read, and are forgotten' journalctl --no-pager -u limiter -b
    remembered
    echo "measured: back to the layout before: the burst of 5 passed once more, bans are forgotten, and that is said"
}

removed() { # step
    dpkg -r limiter
    if attached; then fail 'a removal left the program'; fi
    some 20 'a removal left the limits'
    [[ ! -e /sys/fs/bpf/limiter && ! -e /usr/bin/limiter ]] || fail 'a removal left pins or the binary'
    [[ -e /etc/limiter/rules.yaml && -d /var/lib/limiter ]] || fail 'a removal took rules or state'
}

installed_again() { # step
    dpkg -i /limiter-1.deb
    [[ $(of ActiveState) == inactive && $(of UnitFileState) == disabled ]] || fail 'installed again, and started'
    systemctl start limiter
    some 5 'the rules are those of before'
    remembered
}

purged() { # step
    dpkg -P limiter
    some 20 'a purge left the limits'
    left=$(find / -xdev -name '*limiter*' -not -path '/limiter-*.deb' -not -path '/var/log/*' -not -path "$to*")
    [[ -z $left ]] || fail "a purge left $left"
    getent passwd limiter
}

case ${1-} in
cable)
    ip netns add peer
    ip link add v0 type veth peer name v1 netns peer
    ip addr add "$self/24" dev v0
    ip link set v0 up
    ip -n peer addr add 192.0.2.1/24 dev v1
    ip -n peer link set v1 up
    exit
    ;;
sender)
    # None at the first boot, whose steps begin without a package.
    [[ -e /usr/bin/limiter ]] || exit 0
    now >/run/sender
    exec ip netns exec peer ping -q -n -i 0.02 -W 1 "$self"
    ;;
at-network-pre)
    echo "$(now) $(echos)" >/run/at-network-pre
    exit
    ;;
esac

stty -F /dev/ttyS1 raw
exec </dev/null >/dev/ttyS1 2>&1
boot=$(sed -n 's/.*limiter\.boot=\([0-9]*\).*/\1/p' /proc/cmdline)
echo "limiter-vm: kernel $(uname -r)"
while read -r step; do
    before=$(now)
    echo "limiter-vm: start boot$boot::$step"
    (
        set -eE
        trap 'echo "line $LINENO: $BASH_COMMAND"; systemctl status --no-pager limiter; journalctl --no-pager -n 20' ERR
        "$step"
        echo 'test result: ok. 1 passed; 0 failed; 0 ignored;'
    )
    code=$?
    if ((code)); then echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored;'; fi
    echo "limiter-vm: end $code $before $(now)"
done <"/plan-$boot"
echo 'limiter-vm: done'
systemctl reboot
