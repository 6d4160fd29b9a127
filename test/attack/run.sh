#!/bin/bash
# run.sh: a hostile client before podnas, in a box ('make attack').
#
#   RUN=REGEX      only the attacks that match, as go test -run takes it: RUN=/ext4/fragments
#   SHORT=1        what each change runs (.ci/run): most attacks on one setup; main_test.go (notInShort) has the
#                  list. With ATTACKTIME it is not looked at
#   ATTACKTIME=1h  go on for so long, with more of everything
#   RACE=0         without the pass on a server with the race detector
#   KERNEL=0       without the pass on the kernel's own quotas, in a User-Mode Linux guest
#
# What follows on the command line are flags of the suite: -seed=N repeats a run, and
# -setups=REGEX runs on some disks and engines alone.
#
# Needs root, and the packages that test/vm/setup.sh unpacks.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
source test/goflags.sh

[ "$(id -u)" = 0 ] || { echo "test/attack/run.sh: needs root" >&2; exit 2; }
test/vm/setup.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-attack.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
CGO_ENABLED=0 go build -o "$work/podnas" ./cmd/podnas
CGO_ENABLED=0 go test -tags attack -c -o "$work/attack" ./test/attack
cp "$here/inside.sh" "$work"
race=()
if [ "${RACE:-}" = 0 ]; then
	echo "test/attack/run.sh: RACE=0, so nothing runs under the race detector" >&2
elif printf '#include <pthread.h>\nint main(void) { return 0; }\n' | $(go env CC) -x c -o /dev/null - 2>/dev/null; then
	CGO_ENABLED=1 go build -race -o "$work/podnas-race" ./cmd/podnas
	race=("-podnas-race=$work/podnas-race")
else
	echo "test/attack/run.sh: no working C compiler, so nothing runs under the race detector" >&2
	[ -z "${CI:-}" ] || exit 1
fi
[ -z "${ATTACKTIME:-}" ] || unset SHORT
suite=("$work/inside.sh" "$work/attack" -podnas="$work/podnas" -test.v -test.timeout=48h -test.run="${RUN:-.}"
	${ATTACKTIME:+"-attacktime=$ATTACKTIME"} "$@")
status=0
# What is measured is how long victims wait for the server. They are not to wait for what else runs on the
# machine, such as the linters.
priority=(nice -n -10)
"${priority[@]}" test/bench/box.sh "$work" "${suite[@]}" -dir="$work" "${race[@]}" || status=1
if [ "${KERNEL:-}" = 0 ]; then
	echo "test/attack/run.sh: KERNEL=0, so nothing runs on the kernel's own quotas" >&2
else
	chmod 755 "$work"
	"${priority[@]}" test/vm/vm.sh -m 1536 -t 172800 -x 4G -e ATTACK_KERNEL_QUOTA=1 ${SHORT:+-e SHORT=1} "${suite[@]}" -dir=/xfs || status=1
fi
exit $status
