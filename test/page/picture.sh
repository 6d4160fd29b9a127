#!/bin/bash
# picture.sh: take the picture of the status page for README.md, into docs/page.png.
#
# podnas, its clients and the browser are in a network of their own, where the addresses
# of the clients are this machine's, and on a disk of their own, of 2 GiB in memory.
# It takes six minutes. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
source test/goflags.sh
CHROMIUM=$(test/page/setup.sh)
PAGE_PICTURES=$(mktemp -d "${TMPDIR:-/tmp}/podnas-picture.XXXXXX")
export CHROMIUM PAGE_PICTURES
unshare --net --mount -- bash -euc '
	mkdir "$PAGE_PICTURES/disk"
	mount -t tmpfs -o size=2g podnas "$PAGE_PICTURES/disk"
	export TMPDIR=$PAGE_PICTURES/disk
	ip link set lo up
	for n in 11 12 13 14; do ip address add 10.0.0.$n/32 dev lo; done
	exec go test -tags "page picture" -count=1 -timeout 15m -v -run TestPictureForReadme ./test/page'
mv "$PAGE_PICTURES/page.png" docs/page.png
rmdir "$PAGE_PICTURES/disk"
echo "docs/page.png is new; the page in other looks is in $PAGE_PICTURES" >&2
