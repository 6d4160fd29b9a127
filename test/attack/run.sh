#!/bin/bash
# run.sh: a hostile client before podnas, in a box ('make attack').
#
#   RUN=REGEX      only the attacks that match, as go test -run takes it: RUN=/ext4/fragments
#   ATTACKTIME=1h  go on for so long, with more of everything
#   RACE=0         without the pass on a server with the race detector
#
# What follows are flags of the suite, as -seed=N, which repeats a run.
#
# Needs root, and the packages that test/vm/setup.sh unpacks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."

[ "$(id -u)" = 0 ] || { echo "test/attack/run.sh: needs root" >&2; exit 2; }
test/vm/setup.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-attack.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
CGO_ENABLED=0 go build -o "$work/podnas" ./cmd/podnas
race=
if [ "${RACE:-}" = 0 ]; then
	echo "test/attack/run.sh: RACE=0, so nothing runs under the race detector" >&2
elif printf '#include <pthread.h>\nint main(void) { return 0; }\n' | $(go env CC) -x c -o /dev/null - 2>/dev/null; then
	CGO_ENABLED=1 go build -race -o "$work/podnas-race" ./cmd/podnas
	race=-podnas-race=$work/podnas-race
else
	echo "test/attack/run.sh: no working C compiler, so nothing runs under the race detector" >&2
fi
CGO_ENABLED=0 go test -tags attack -c -o "$work/attack" ./test/attack
cp "$here/inside.sh" "$work"

test/bench/box.sh "$work" "$work/inside.sh" "$work/attack" -podnas="$work/podnas" $race -dir="$work" \
	-test.v -test.timeout=24h -test.run="${RUN:-.}" ${ATTACKTIME:+-attacktime="$ATTACKTIME"} "$@"
