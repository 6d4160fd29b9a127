#!/bin/bash
# run.sh: the tests, built for arm64 and run by QEMU's user mode ('make arm64').
#
#   PKG='./nfs/... ./quota'   only these packages
#   RUN=REGEX                 only these tests
#
# QEMU translates the program's instructions; the system calls are this machine's. So this
# finds what depends on the size and order of fields, the alignment of atomics, the numbers
# and arguments of system calls; it says nothing about time.
#
# Needs root, as the tests themselves do, and QEMU 9.2 or later, which knows openat2(2): that of
# this machine, else Debian's, which is unpacked into the cache and not installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/goflags.sh
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}

cannot() { echo "test/arm64/run.sh: $*" >&2; exit 2; }
recent() {
	local version
	version=$("$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\.[0-9]*\).*/\1/p')
	[ -n "$version" ] && [ "$(printf '9.2\n%s\n' "$version" | sort -V | head -n1)" = 9.2 ]
}
fetch() {
	[ "$(uname -m)" = x86_64 ] && command -v apt-get >/dev/null ||
		cannot "no qemu-aarch64 of 9.2 or later here, and no Debian on x86-64 to fetch it with: install it"
	local work keys=/usr/share/keyrings/debian-archive-keyring.gpg
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-arm64.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	[ -e $keys ] || cannot "no $keys: install debian-archive-keyring"
	mkdir -p "$work/lists/partial"
	printf 'Types: deb\nURIs: http://deb.debian.org/debian\nSuites: trixie\nComponents: main\nSigned-By: %s\n' $keys >"$work/debian.sources"
	# A list of packages of its own: what this machine's apt knows stays as it is.
	local apt=(-qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$work/debian.sources" -o Dir::Etc::sourceparts=/dev/null
		-o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=)
	echo "fetching qemu-user into $cache/arm64" >&2
	apt-get "${apt[@]}" update
	(cd "$work" && apt-get "${apt[@]}" download qemu-user)
	dpkg-deb --fsys-tarfile "$work"/qemu-user_*.deb | tar -x -C "$work" ./usr/bin/qemu-aarch64
	mkdir -p "$cache/arm64"
	mv "$work/usr/bin/qemu-aarch64" "$cache/arm64/"
	rm -rf "$work"
	trap - EXIT
}
qemu=$(command -v qemu-aarch64 || true)
if ! recent "$qemu"; then
	qemu=$cache/arm64/qemu-aarch64
	recent "$qemu" || fetch
	recent "$qemu" || cannot "$qemu does not run, or is too old"
fi
# What QEMU can't do. Its statx(2) has no stx_mnt_id, without which no attributes are remembered, and a
# LOOKUP takes another way.
skip='TestAllocations|TestDescribe|TestAttributesAfterEachChange|TestAttributesChangedOnDisk|TestAttributesUnderLoad'
skip+='|TestKilled|TestFailureInTheBackground|TestSet|TestCopyAsUser|TestTryRights' # start their own program, as this machine's
skip+='|TestTakenBack'                                                              # XFS_IOC_FREE_EOFBLOCKS
exec env GOARCH=arm64 CGO_ENABLED=0 go test -json -vet=off -count=1 -timeout 30m -exec "$qemu" \
	-run "${RUN:-.}" -skip "^($skip)\$" ${PKG:-./nfs/... ./server/... ./quota/... ./internal/volume/... ./internal/tree/... ./internal/latest/... ./internal/idle/... ./tools/...}
