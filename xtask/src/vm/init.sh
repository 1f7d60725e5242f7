#!/busybox/busybox sh
# The guest's first process. Runs what /plan lists (test, seconds it may take), each test
# in a process of its own, and says on a serial line of its own how each ended; see console.rs.
export PATH=/tools:/busybox
/busybox/busybox mount -t proc proc /proc
/busybox/busybox --install -s /busybox
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /tmp
mount -t tmpfs tmpfs /run
. /environment
stty -F "/dev/$LIMITER_VM_SERIAL" raw
exec </dev/null >"/dev/$LIMITER_VM_SERIAL" 2>&1
# Also when nobody is there any more to end the emulator.
(sleep "$LIMITER_VM_SECONDS"; poweroff -f) &
for module in /modules/*; do
    insmod "$module" || echo "limiter-vm: cannot load $module"
done
ip link set lo up
echo "limiter-vm: kernel $(uname -r)"
while read -r test seconds; do
    read -r before _ </proc/uptime
    echo "limiter-vm: start $test"
    timeout -s KILL "$seconds" /tests/kernel --exact "$test" $LIMITER_VM_OPTIONS --test-threads=1 \
        --nocapture </dev/null
    code=$?
    read -r after _ </proc/uptime
    # The test may have left a line open.
    echo
    echo "limiter-vm: end $code $before $after"
done </plan
echo "limiter-vm: done"
poweroff -f
