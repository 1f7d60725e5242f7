#!/bin/sh
# /etc/libvirt/hooks/qemu: gives the host's end of each guest's cable the name of the guest as its
# alias, which limiter shows. libvirt passes the name, what happens, and the guest's XML.
if [ "$2" = started ]; then
    sed -n "/<interface /,/<\/interface>/s/.*<target dev=[\"']\([^\"']*\)[\"'].*/\1/p" |
        while read -r interface; do
            ip link set dev "$interface" alias "$1"
        done
fi
# Another exit code would stop the guest.
exit 0
