#!/bin/bash
# box.sh DIR COMMAND...: runs a command as root where it can do no harm: this
# machine's root under an overlay whose writes are lost, DIR, no disks but a new XFS
# of 8 GiB on /xfs, whose image is in DIR, no network but a loopback, and its own
# processes. The packages that test/vm/setup.sh has unpacked are there.
set -euo pipefail
layer=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/uml
if [ "${1:-}" != --inside ]; then
	[ "$(id -u)" = 0 ] || { echo "test/bench/box.sh: needs root" >&2; exit 2; }
	exec unshare --mount --net --pid --fork --kill-child "$0" --inside "$@"
fi
dir=$2
shift 2
export PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
mount --make-rprivate /
truncate -s 8G "$dir/disk"
mkdir -p "$dir/box" # there is one if there was a box before
mount -t tmpfs -o mode=755 box "$dir/box"
cd "$dir/box"
mkdir upper work root
cp -a "$layer/." upper # not a layer of its own, since it may lie inside the other
mount -t overlay -o lowerdir=/,upperdir=upper,workdir=work root root
cd root
rm -rf run dev proc sys mnt xfs
mkdir run dev proc sys mnt xfs
for device in null zero full random urandom; do
	cp -a "/dev/$device" dev
done
ln -s /proc/self/fd dev/fd
mkdir dev/shm
: >.sealed # peers.sh asks for it
: >disk
mount --bind "$dir/disk" disk
mkdir -p ".$dir" # which may be on another file system than the root, as /tmp often is
mount --bind "$dir" ".$dir"
chroot . mkfs.xfs -q -f /disk
mount -o loop disk xfs
umount -l disk # the loop device has it open
mount -t proc proc proc
ip link set lo up
pivot_root . mnt
umount -l mnt
exec chroot . "$@"
