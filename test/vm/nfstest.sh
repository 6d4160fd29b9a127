#!/bin/bash
# nfstest.sh: programs of NFStest, a suite for NFS clients and servers of others, before podnas by the kernel's client in a
# guest ('make nfstest').
#
# usage: test/vm/nfstest.sh [PROGRAM...]     such as nfstest_lock; without any, those that have a line below
#
#   NFS=4.1, NFS=3   the version, instead of 4.2
#   TESTS=LIST       of one program, the tests that its --runtest takes
#
# It fails if a program has more failures than are known. Debian's packages of it and of what it needs are unpacked into
# $cache/nfstest, and only the guest has them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
cannot() { echo "test/vm/nfstest.sh: $*" >&2; exit 2; }
nfs=${NFS:-4.2}

# What each is asked for, and how many failures of how many checks are known.
programs=(nfstest_lock nfstest_posix)
declare -A tests=(
	# mmap and munmap end NFStest's own python with a signal, before every server.
	[nfstest_posix]='^mmap,munmap'
)
declare -A known=(
	# O_CREAT with O_DIRECTORY, which knfsd fails, too: the kernel refuses it by itself.
	[nfstest_posix]=2
)

if [ -z "${IN_GUEST:-}" ]; then
	"$here/setup.sh"
	source "$here/../goflags.sh"
	unpacked=$cache/nfstest
	exec 9>"$cache/setup.lock"
	flock 9
	if [ ! -e "$unpacked" ]; then
		work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-nfstest.XXXXXX")
		trap 'rm -rf "$work"' EXIT
		mkdir -p "$work/debs/partial" "$work/root"
		# Debian 12 has it not, and it is the same for all.
		version=3.2-5 sum=325891e147ba36b235896025c7605e2a3e46090171e89ec9ce29b5a73583eaa3
		for from in http://deb.debian.org/debian https://snapshot.debian.org/archive/debian/20261101T000000Z; do
			curl -fsSL -m 120 -o "$work/debs/nfstest.deb" "$from/pool/main/n/nfstest/nfstest_${version}_all.deb" && break
		done
		echo "$sum  $work/debs/nfstest.deb" | sha256sum -c --quiet || cannot "can't fetch Debian's nfstest $version"
		fetch() {
			DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root install --yes --download-only --reinstall --no-install-recommends \
				-o Debug::NoLocking=1 -o Dir::Cache::archives="$work/debs" python3.11 libpython3.11-stdlib tcpdump >"$work/log" 2>&1
		}
		fetch || { apt-get -qq update >"$work/log" 2>&1 && fetch; } || { tail -n 20 "$work/log" >&2; exit 1; }
		for deb in "$work"/debs/*.deb; do
			dpkg-deb -x "$deb" "$work/root"
		done
		mv "$work/root" "$unpacked"
	fi
	exec 9>&-
	bin=$(mktemp -d "${TMPDIR:-/tmp}/podnas-bin.XXXXXX")
	trap 'rm -rf "$bin"' EXIT
	(cd "$here/../.." && CGO_ENABLED=0 go build -o "$bin/podnas" ./cmd/podnas)
	[ $# -gt 0 ] || set -- "${programs[@]}"
	"$here/vm.sh" -m 2048 -t 5400 -x 4G -e IN_GUEST=1 -e "NFS=$nfs" -e "TESTS=${TESTS:-}" -e "PODNAS=$bin/podnas" -e "PODNAS_CACHE=$cache" \
		bash "$0" "$@"
	exit
fi

root=$cache/nfstest
mkdir -p /run/bin /run/nfstest
printf '#!/bin/sh\nexec "$@"\n' >/run/bin/sudo # root needs none
# Debian's would become a user that is not here.
printf '#!/bin/sh\nexec %s -Z root "$@"\n' "$root/usr/bin/tcpdump" >/run/bin/tcpdump
chmod +x /run/bin/sudo /run/bin/tcpdump
export PATH=/run/bin:$PATH:$root/usr/bin:$root/usr/sbin
export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu PYTHONHOME=$root/usr PYTHONPATH=$root/usr/lib/python3/dist-packages
# It wants to know by which interface it reaches the world.
ip link add dummy0 type dummy 2>/dev/null || true
ip addr add 192.0.2.1/24 dev dummy0 2>/dev/null || true
ip link set dummy0 up 2>/dev/null && ip route add default dev dummy0 || ip route add default dev lo

mkdir -p /xfs/root /run/claims
cat >/run/claims/claim.yaml <<'CLAIM'
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: podnas}
provisioner: podnas.io/nfs
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: nfstest, namespace: default}
spec:
  storageClassName: podnas
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
CLAIM
"$PODNAS" serve --standalone --root /xfs/root --claims /run/claims --listen :2049 --http 127.0.0.1:20491 >/run/podnas.log 2>&1 &
for ((i = 0; i < 100; i++)); do
	volume=$(ls -d /xfs/root/pvc-* 2>/dev/null) && break
	sleep 0.2
done
[ -n "${volume:-}" ] || { cat /run/podnas.log; cannot "no volume"; }

status=0
for program; do
	wanted=${TESTS:-${tests[$program]:-}}
	began=$SECONDS
	"$root/usr/bin/python3.11" "$root/usr/bin/$program" --server 127.0.0.1 --export "/${volume##*/}" --nfsversion "$nfs" --interface lo --client-ipaddr 127.0.0.1 --notty \
		--mtpoint /mnt/nfstest --tmpdir /run/nfstest ${wanted:+--runtest "$wanted"} >/run/nfstest.log 2>&1 || true
	result=$(grep -E '^[0-9]+ tests \(' /run/nfstest.log | tail -n 1) || true
	failed=$(sed -nE 's/.*, ([0-9]+) failed.*/\1/p' <<<"$result")
	echo "=== $program, NFS $nfs: ${result:-no result} in $((SECONDS - began)) s; known to fail: ${known[$program]:-0}"
	grep -E '^ *FAIL' /run/nfstest.log || true
	if [ -z "$result" ] || grep -q Traceback /run/nfstest.log || [ "${failed:-1}" -gt "${known[$program]:-0}" ]; then
		tail -n 30 /run/nfstest.log
		status=1
	fi
done
exit $status
