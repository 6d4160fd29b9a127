#!/bin/bash
# run.sh: the suite of this folder: podnas before a real Linux NFS client and a
# real XFS, both in a User-Mode Linux guest ('make vm').
#
#   RUN=REGEX    only the tests that match, as go test -run takes it
#   KEEP=1       keep the guest's job folder with the kernel's console.log
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

"$here/setup.sh"
bin=$(mktemp -d "${TMPDIR:-/tmp}/podnas-bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
chmod 755 "$bin" # one test runs podnas as an ordinary user
export CGO_ENABLED=0
go build -o "$bin/podnas" ./cmd/podnas
# go test builds the test binary as 'go test -c' does and hands it, with its
# flags, to vm.sh: one long process in the guest. The quota package has a test of
# its own that needs this disk.
go test -tags vm -count 1 -p 1 -v -timeout 14m -run "${RUN:-.}" \
	-exec "'$here/vm.sh' ${KEEP:+-k} -m 2048 -t 900 -x 4G -e 'PODNAS=$bin/podnas' -e PODNAS_TEST_XFS=/xfs" ./test/vm ./quota
