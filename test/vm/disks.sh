#!/bin/bash
# disks.sh: run TestSAN, TestHA or TestDRBD, which need guests in a network of their own (taps.sh): two nodes that podnas moves
# between with its disk, a client, and a storage machine. The test, on this machine, boots and kills them.
#
# usage: test/vm/disks.sh TEST-BINARY ARG...   (go test -exec)
#
# The programs for the nodes' disks, Debian's open-iscsi and drbd-utils with what they depend on and this machine
# lacks, are unpacked into $cache/disks, as setup.sh does with its own, and only these guests have them in their PATH.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
disks=$cache/disks
mkdir -p "$cache"
exec 9>"$cache/setup.lock"
flock 9
if [ ! -e "$disks" ]; then
	command -v apt-get >/dev/null || { echo "test/vm/disks.sh: no apt-get here to fetch Debian's open-iscsi and drbd-utils with" >&2; exit 2; }
	echo "fetching open-iscsi and drbd-utils into $disks" >&2
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-disks.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/debs/partial" "$work/root"
	# The lock is of no use, since nothing is installed. What is installed already is fetched too.
	fetch() {
		DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root install --yes --download-only --reinstall --no-install-recommends \
			-o Debug::NoLocking=1 -o Dir::Cache::archives="$work/debs" open-iscsi drbd-utils >"$work/log" 2>&1
	}
	# The lists may be empty, or name versions that the mirror no longer has.
	fetch || { apt-get -qq update >"$work/log" 2>&1 && fetch; } || { tail -n 20 "$work/log" >&2; exit 1; }
	for deb in "$work"/debs/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	mv "$work/root" "$disks"
	rm -rf "$work"
	trap - EXIT
fi
exec 9>&-
export DISKS=$disks
exec "$here/taps.sh" "$@"
