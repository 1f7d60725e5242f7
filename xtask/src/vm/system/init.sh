#!/busybox/busybox sh
# The first process of a machine with a disk: loads what the disk needs, and goes on with its systemd.
/busybox/busybox --install -s /busybox
export PATH=/busybox
mount -t proc proc /proc
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do
    insmod "$module" || echo "cannot load $module"
done
mount -t ext4 /dev/vda /disk || poweroff -f
mount -o move /dev /disk/dev
umount /proc
exec switch_root /disk /lib/systemd/systemd
