#!/bin/bash
# san.sh: makes a storage machine of the guest that runs it: LIO, the kernel's own target, exports a disk of MIB MiB, a file on
# /xfs, to any initiator. /var/target/pr is where LIO writes reservations down.
#
# usage: san.sh IQN ADDRESS MIB
set -euo pipefail
for module in configfs target_core_mod target_core_file iscsi_target_mod; do modprobe $module; done
mount -t configfs none /sys/kernel/config
mkdir -p /sys/kernel/config/target/core/fileio_0/disk /var/target/pr
cd /sys/kernel/config/target/core/fileio_0/disk
truncate -s "$3M" /xfs/disk
echo "fd_dev_name=/xfs/disk,fd_dev_size=$(($3 << 20))" >control
echo 1 >enable
target=/sys/kernel/config/target/iscsi/$1/tpgt_1
mkdir -p "$target/lun/lun_0"
ln -s "$PWD" "$target/lun/lun_0/disk"
mkdir "$target/np/$2:3260"
cd "$target/attrib"
echo 0 >authentication
echo 1 >generate_node_acls
echo 1 >cache_dynamic_acls
echo 0 >demo_mode_write_protect
echo 1 >../enable
