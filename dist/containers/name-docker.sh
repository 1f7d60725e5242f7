#!/bin/sh
# Gives the host's end of each container's cable the name of the container as its alias, which
# limiter shows. To be run as root beside docker, as a service say: limiter needs neither.
set -u

name() {
    found=$(docker inspect --format '{{.State.Pid}} {{.Name}}' "$1") || return
    pid=${found%% *}
    # 0 of one that has ended by now.
    [ "$pid" -gt 0 ] || return
    # `eth0@if7`: the other end has the index 7 on the host.
    nsenter --target "$pid" --net ip -o link show type veth |
        sed -n 's/^[0-9]*: [^@]*@if\([0-9]*\):.*/\1/p' |
        while read -r index; do
            interface=$(ip -o link show type veth | sed -n "s/^$index: \([^@:]*\).*/\1/p")
            [ -z "$interface" ] || ip link set dev "$interface" alias "${found#* /}"
        done
}

# Whatever starts from now on is an event.
since=$(date +%s)
for container in $(docker ps --quiet --no-trunc); do
    name "$container"
done
docker events --since "$since" --filter type=container --filter event=start \
    --format '{{.Actor.ID}}' |
    while read -r container; do
        name "$container"
    done
