#!/bin/bash
# inside.sh COMMAND...: runs in the box of test/bench/box.sh, which has a network and
# disks of its own but no nodes of loop devices: the attacks make their own disks.
set -euo pipefail
mknod /dev/loop-control c 10 237
for i in {0..63}; do mknod "/dev/loop$i" b 7 "$i"; done
ip addr add 10.77.0.1/16 dev lo # on a loopback all of the network is this machine's
export ATTACK_BOX=1
exec "$@"
