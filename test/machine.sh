#!/bin/bash
# machine.sh prints what tests depend on besides this source: the user and its rights, the kernel, the file
# systems of temporary files, and the programs that tests start.
#
# make test gives a checksum of it to the tests as an argument that changes nothing (go test -skip), because Go's test cache
# has arguments in its key. So a result of another user, kernel or set of programs is not taken for one of this
# machine.
set -euo pipefail
id -u
grep CapEff /proc/self/status
uname -srvm
stat -f -c '%n is %T' "${TMPDIR:-/tmp}"
! [ -e /dev/shm ] || stat -f -c '%n is %T' /dev/shm
for program in mkfs.ext4 mkfs.xfs mkfs.btrfs xfs_quota losetup mount dmsetup unshare fsfreeze modprobe restic tar; do
	file=$(command -v "$program") || { echo "no $program"; continue; }
	stat -L -c '%n: %s bytes, of %Y' "$file"
done
