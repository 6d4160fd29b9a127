#!/bin/bash
# reproducible.sh: builds the images in dist/ again and fails if a byte differs, so that
# everybody can check that a published image is made of this source.
#
# All is different then that should not matter: the path of the tree, the times of its
# files, the time zone, the language, the umask, and in how many threads it is built. Both
# use Go's build cache, so podnas is linked and packed twice, but its packages are compiled
# once; with --fresh the second build has an empty cache, which takes some minutes.
#
# make reproducible builds dist/, and says what it was built as: VERSION, COMMIT and
# SOURCE_DATE_EPOCH.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-reproducible.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
fresh=()
[ "${1:-}" != --fresh ] || fresh=(GOCACHE="$work/cache")
tree="$work/second/and deeper" # what is not ignored here
(
	umask 077
	mkdir -p "$tree"
	git ls-files -z --cached --others --exclude-standard | tar --create --null --files-from=- | tar --extract --touch --directory="$tree"
	cd "$tree"
	env TZ=Asia/Kathmandu LC_ALL=C.UTF-8 GOMAXPROCS=1 GOFLAGS=-p=1 "${fresh[@]}" \
		make --silent image VERSION="$VERSION" COMMIT="$COMMIT" >/dev/null
)

# Without what make image-xfs adds, which may be there already.
sums() { (cd "$1/dist" && find . -path ./xfsprogs -prune -o -type f ! -name 'podnas-xfs-*' -print0 | sort -z | xargs -0 sha256sum); }
sums . >"$work/first.sums"
sums "$tree" >"$work/second.sums"
if ! diff -u "$work/first.sums" "$work/second.sums"; then
	echo 'reproducible.sh: the same source gave other bytes (above)' >&2
	exit 1
fi
cat "$work/first.sums"
