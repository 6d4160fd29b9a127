#!/bin/bash
# inside.sh COMMAND...: runs in the box of test/bench/box.sh, or in the guest of
# test/vm/vm.sh. The attacks make their own disks, so there are loop devices, and the
# server and its clients have addresses of their own.
set -euo pipefail
if [ "${ATTACK_KERNEL_QUOTA:-}" ]; then
	modprobe loop
else # the box's /dev has no devices
	mknod /dev/loop-control c 10 237
	for i in {0..63}; do mknod "/dev/loop$i" b 7 "$i"; done
fi
mkdir -p /sys/fs/cgroup # for the memory limit of the server's container
mount -t cgroup -o memory cgroup /sys/fs/cgroup || mount -t cgroup2 cgroup /sys/fs/cgroup || echo "no control groups: no memory limit" >&2
ip addr add 10.77.0.1/16 dev lo # on a loopback all of the network is this machine's
export ATTACK_BOX=1
exec "$@"
