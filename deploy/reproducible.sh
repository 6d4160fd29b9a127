#!/bin/bash
# reproducible.sh: builds the images twice and fails if a byte differs, so that
# everybody can check that a published image is made of this source.
#
# The second time all is different that should not matter: the path of the tree, the
# times of its files, the time zone, the language, the umask, and in how many threads
# it is built. Both use Go's build cache, so podnas is linked and packed twice, but its
# packages are compiled once; with --fresh the second build has an empty cache, which
# takes some minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-reproducible.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
version=$(git describe --tags --always --dirty)
epoch=$(git log -1 --format=%ct)

# build TREE VARIABLE=VALUE...: what is not ignored here, built there.
build() {
	local tree=$1
	shift
	mkdir -p "$tree"
	git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --touch --directory="$tree"
	(cd "$tree" && env SOURCE_DATE_EPOCH="$epoch" "$@" make --silent image VERSION="$version" >/dev/null)
}
build "$work/one" TZ=UTC LC_ALL=C
fresh=()
[ "${1:-}" != --fresh ] || fresh=(GOCACHE="$work/cache")
(umask 077 && build "$work/second/and deeper" TZ=Asia/Kathmandu LC_ALL=C.UTF-8 GOMAXPROCS=1 GOFLAGS=-p=1 "${fresh[@]}")

sums() { (cd "$1/dist" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }
sums "$work/one" >"$work/first.sums"
sums "$work/second/and deeper" >"$work/second.sums"
if ! diff -u "$work/first.sums" "$work/second.sums"; then
	echo 'reproducible.sh: the same source gave other bytes (above)' >&2
	exit 1
fi
cat "$work/first.sums"
