#!/bin/bash
# vm.sh: run shell commands as root under a real Linux kernel (User-Mode Linux,
# Debian's user-mode-linux package) that has what a build machine's own kernel
# may lack: the NFSv3 client, and XFS with project quotas. No KVM is needed, only
# root and ptrace.
#
# usage: test/vm/vm.sh [options] 'COMMANDS'
#        test/vm/vm.sh [options] PROGRAM ARG...
#   -m MB     guest memory (default 1024)
#   -t SEC    kill the guest after SEC seconds (default 300; exit status 124)
#   -x SIZE   attach a fresh XFS of SIZE (512M, 4G, ...), mounted with prjquota
#             on /xfs; its block device is $XFS_DEV
#   -i FILE   with -x: the disk is this file, which outlives the guest; what is on
#             it already is mounted as it is
#   -n        network: tap0 of the enclosing network namespace; the guest is
#             10.9.0.2/24 on vec0, its gateway 10.9.0.1. Without -n: loopback only
#   -N N      the same for another guest: tapN, 10.9.N.2/24 and 10.9.N.1
#   -s DIR    share this machine's DIR read-write, at the same path (repeatable)
#   -e K=V    pass an environment variable (repeatable)
#   -o        what runs there needs NAT, for which setup.sh builds modules of the newer kernel. Where it
#             can't: the kernel of this machine's own Debian
#   -k        keep the job folder, with the kernel's console.log, and name it
#
# Standard output and error of the commands come out here, merged; the exit
# status is the commands' own. The commands find a folder $JOB, empty but for
# this script's files, that is shared with this machine while the guest runs.
# Where the guest dies without a status, the last kernel messages go to stderr
# and the exit status is 125.
#
# How it works:
#   hostfs   The guest kernel is a process of this machine, and its hostfs mounts
#            this machine's own root, read-only: every program and file is there
#            under the same path, and no image is built.
#   overlay  A first init lays two things over that: the packages that setup.sh
#            unpacked, and a tmpfs that takes all writes. Nothing the guest
#            writes reaches this machine, -s folders and $JOB apart.
#   seal     Should it try, the guest's kernel itself runs in a mount namespace
#            where all of this machine's disks but these folders are read-only.
#   pivot    It then makes the overlay the root and starts the second init there,
#            which mounts the rest, runs the commands and leaves their status.
#   ubd      The XFS is a sparse file in $JOB, which the guest sees as the block
#            device /dev/ubda.
#   console  tty1 is this script's stdout, tty0 and the kernel's messages are
#            console.log.
#
# What to expect of its speed: 2 s for 'true'; one CPU; system calls and page
# faults are many times slower than outside and starting a program takes
# 16 ms, so put work into one long-running process, not into a shell loop.
# With OLDER_KERNEL=1 in the environment, and so with Linux 6.1 in Debian 12, all that takes
# four times as long.
set -euo pipefail
{ # read whole before running, so that editing this file meanwhile is harmless
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
layer=$cache/uml
PATH=$PATH:/usr/sbin:/sbin
mem=1024 limit=300 xfs='' image='' net='' keep='' nat=''
shares=() envs=()
usage() { sed -n '2,/^set -e/p' "$0" | grep '^#' | cut -c3- >&2; exit 2; }
cannot() { echo "test/vm/vm.sh: $*" >&2; exit 2; }
older=${OLDER_KERNEL:-}
while getopts m:t:x:i:nN:s:e:ok o; do
	case $o in
	m) mem=$OPTARG ;; t) limit=$OPTARG ;; x) xfs=$OPTARG ;; i) image=$(realpath "$OPTARG") ;;
	n) net=0 ;; N) net=$OPTARG ;;
	s) shares+=("$(realpath "$OPTARG")") ;; e) envs+=("$OPTARG") ;; o) nat=1 ;; k) keep=1 ;;
	*) usage ;;
	esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
[ "$(id -u)" = 0 ] || cannot "needs root (for the guest to read all of this machine's files, and for unshare)"
unshare --pid --mount --fork true || cannot "unshare --pid --mount is not allowed here (a container needs CAP_SYS_ADMIN for it)"
newer=$cache/uml-newer
with=$newer/modules
if [ -n "$nat" ]; then
	with=$cache/uml-nat
	[ -e "$with/$(ls "$newer/modules" 2>/dev/null)" ] || older=1
fi
if [ -x "$newer/linux.uml" ] && [ -z "$older" ]; then
	# Its interpreter is a file of this folder: setup.sh.
	kernel=(env -C "$newer" "LD_LIBRARY_PATH=$newer/lib" ./linux.uml seccomp=auto) modules=$with
else
	modules=/usr/lib/uml/modules uml=$(command -v linux.uml) || true
	if [ -x "$layer/usr/bin/linux.uml" ]; then
		modules=$layer$modules uml=$layer/usr/bin/linux.uml
	fi
	[ -n "$uml" ] || cannot "no User-Mode Linux kernel: run test/vm/setup.sh first"
	kernel=(env "$uml")
	[ ! -e "$cache/xstate.so" ] || kernel=(env "LD_PRELOAD=$cache/xstate.so" "$uml") # xstate/xstate.c says why
fi

job=$(mktemp -d "${TMPDIR:-/tmp}/podnas-vm.XXXXXX")
if [ -n "$keep" ]; then trap 'echo "vm.sh: kept $job" >&2' EXIT; else trap 'rm -rf "$job"' EXIT; fi
if [ $# = 1 ]; then printf '%s\n' "$1"; else printf '%q ' "$@"; fi >"$job/commands"
printf '%s\n' "${shares[@]}" >"$job/shares"
{
	printf 'export %s=%q\n' PATH "$PATH" HOME /root LANG C.UTF-8 JOB "$job" XFS_DEV /dev/ubda
	for kv in "${envs[@]}"; do
		printf 'export %s=%q\n' "${kv%%=*}" "${kv#*=}"
	done
	printf '%s=%q\n' layer "$layer" modules "$modules" cwd "$PWD" net "$net" xfs "$xfs"
} >"$job/env"

args=()
if [ -n "$xfs" ]; then
	: "${image:=$job/xfs.img}"
	truncate -s "$xfs" "$image"
	args+=("ubd0=$image")
fi
[ -z "$net" ] || args+=("vec0:transport=tap,ifname=tap$net,depth=128,gro=1")

cat >"$job/init" <<'INIT'
#!/bin/bash
# On the read-only hostfs root.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
job=${0%/*}
. "$job/env"
busybox=$(command -v busybox || echo "$layer/usr/bin/busybox")
"$busybox" insmod "$modules/$(uname -r)/kernel/fs/overlayfs/overlay.ko"
mount -t tmpfs -o size=75%,mode=755 up /mnt
mkdir /mnt/upper /mnt/work /mnt/layer /mnt/root
lower=/
if [ -d "$layer" ]; then
	# A mount of its own, since overlayfs wants no layer to lie inside another.
	mount -t hostfs none /mnt/layer -o "$layer"
	lower=/mnt/layer:/
fi
mount -t overlay -o "lowerdir=$lower,upperdir=/mnt/upper,workdir=/mnt/work" root /mnt/root
umount /proc
cd /mnt/root && "$busybox" pivot_root . mnt && exec /mnt"$busybox" chroot . /bin/bash "$job/init2"
INIT
cat >"$job/init2" <<'INIT'
# In the overlay.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
job=${0%/*}
cd /
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
ln -s /proc/self/fd /dev/fd
ln -s fd/0 /dev/stdin
ln -s fd/1 /dev/stdout
ln -s fd/2 /dev/stderr
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
umount -l /mnt/mnt /mnt 2>/dev/null
exec </dev/null >/dev/tty1 2>&1
busybox stty -F /dev/tty1 raw
. "$job/env"
mkdir -p /lib/modules /run/lock
[ -e "/lib/modules/$(uname -r)" ] || ln -s "$modules/$(uname -r)" /lib/modules/
# That of busybox, which reads modules.dep itself: setup.sh adds to it.
ln -sf "$(command -v busybox)" /usr/sbin/modprobe
echo /usr/sbin/modprobe >/proc/sys/kernel/modprobe
mount -t hostfs none "$job" -o "$job"
while read -r dir; do
	[ -z "$dir" ] || mount -t hostfs none "$dir" -o "$dir" || exit 1
done <"$job/shares"
ip link set lo up
busybox hostname vm
echo "127.0.0.1 localhost vm" >>/etc/hosts
if [ -n "$net" ]; then
	ip addr add "10.9.$net.2/24" dev vec0
	ip link set vec0 up
	ip route add default via "10.9.$net.1"
fi
if [ -n "$xfs" ]; then
	mkdir -p /xfs
	[ "$(head -c 4 "$XFS_DEV" | tr -d '\0')" = XFSB ] || mkfs.xfs -q "$XFS_DEV" || exit 1
	mount -t xfs -o prjquota "$XFS_DEV" /xfs || exit 1
fi
cd "$cwd" 2>/dev/null || cd /
bash "$job/commands"
echo $? >"$job/status.tmp"
cd /
[ -z "$xfs" ] || umount /xfs 2>/dev/null || mount -o remount,ro /xfs 2>/dev/null
sync
mv "$job/status.tmp" "$job/status"
exec busybox poweroff -f
INIT
chmod +x "$job/init"

cat >"$job/seal" <<'SEAL'
#!/bin/bash
# seal DIR... -- COMMAND...: run it with all disks read-only but for these folders.
set -e
writable=()
while [ "$1" != -- ]; do
	mount --rbind "$1" "$1"
	writable+=("$1")
	shift
done
shift
while read -r _ _ _ _ at _; do
	case $at in /proc* | /sys* | /dev* | /run*) continue ;; esac
	for dir in "${writable[@]}"; do
		case $at/ in "$dir"/*) continue 2 ;; esac
	done
	mount -o remount,bind,ro "$at" || [ "$at" != / ]
done < <(tac /proc/self/mountinfo)
exec "$@"
SEAL
chmod +x "$job/seal"
writable=("$job" "${shares[@]}")
[ -z "$image" ] || writable+=("$image")
# Where the guest's memory is: a file that has no name.
memory=$job
[ "$(stat -f -c %T /dev/shm)" != tmpfs ] || memory=/dev/shm

# The guest has one processor, and each of its system calls is a switch between two
# processes of this machine: on one processor here they take a third of the time.
processors=()
for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
	processors+=($(seq "${range%-*}" "${range#*-}"))
done

# On a busy machine the guest's kernel may lose its timer, and then is idle for ever with work to do (seen
# with 6.1). One tick more now and then does nothing, or wakes it.
while sleep 10; do
	pkill -ALRM --oldest --full "^[^ ]*linux.uml .*uml_dir=$job/" || true
done >/dev/null 2>&1 </dev/null &
ticks=$!
trap 'kill $ticks 2>/dev/null; '"$(trap -p EXIT | sed "s/^trap -- '//; s/' EXIT$//")" EXIT

# In a pid namespace of its own: whatever the guest kernel starts on this
# machine ends with it. In the foreground, so that Ctrl-C reaches it.
host=0
TMPDIR=$memory unshare --pid --mount --fork --kill-child "$job/seal" "${writable[@]}" -- \
	taskset -c "${processors[RANDOM % ${#processors[@]}]}" timeout --foreground -k 5 "$limit" "${kernel[@]}" mem="${mem}M" umid=vm uml_dir="$job/" \
	root=/dev/root rootfstype=hostfs rootflags=/ ro init="$job/init" \
	con=null con0=null,fd:3 con1=null,fd:1 quiet "${args[@]}" \
	</dev/null 3>"$job/console.log" 2>>"$job/console.log" || host=$?
if [ -s "$job/status" ]; then
	exit "$(cat "$job/status")"
fi
echo "vm.sh: the guest ended without a status (status $host here); its last kernel messages:" >&2
tail -n 25 "$job/console.log" >&2
case $host in 124 | 137) exit 124 ;; esac
exit 125
}
