#!/bin/bash
# run.sh: the suite of this folder: podnas before a real Linux NFS client and a
# real XFS, both in a User-Mode Linux guest ('make vm').
#
#   ENGINE=NAME  one engine, native or go-nfs; without it all of the suite is for
#                native, and what an engine can get wrong for go-nfs too
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
# flags, to vm.sh: one long process in the guest.
suite() { # $1: the engine, then packages
	local engine=$1
	shift
	echo "=== engine $engine"
	go test -tags vm -count 1 -p 1 -v -timeout 14m -run "${RUN:-.}" \
		-exec "'$here/vm.sh' ${KEEP:+-k} -m 2048 -t 900 -x 4G -e 'PODNAS=$bin/podnas' -e ENGINE=$engine -e PODNAS_TEST_XFS=/xfs" "$@"
}
status=0
case ${ENGINE:-} in
go-nfs) suite go-nfs ./test/vm || status=1 ;;
# The quota package has a test of its own that needs this disk.
native) suite native ./test/vm ./quota || status=1 ;;
'')
	suite native ./test/vm ./quota || status=1
	suite go-nfs ./test/vm || status=1
	;;
*)
	echo "test/vm/run.sh: there is no engine '$ENGINE': native or go-nfs" >&2
	exit 2
	;;
esac
exit $status
