#!/bin/bash
# run.sh: the suite of this folder: podnas before a real Linux NFS client and a
# real XFS, both in a User-Mode Linux guest ('make vm').
#
#   ENGINE=NAME  one engine, native or go-nfs; without it all of the suite is for
#                native, and what an engine can get wrong for go-nfs too. Or ganesha:
#                NFS-Ganesha before the conformance suite, as a check on that; or knfsd,
#                the kernel's server, before that of version 4.1
#   SHORT=1      what each change runs (.ci/run): without what another version, another engine or
#                another suite has as well; version_test.go has the lists
#   NFS=4.2      only what mounts volumes with NFSv4, and all of that, with 4.2, as new volumes have it; NFS=4.1: with
#                4.1; NFS=3: without both. Without NFS with 3 and 4.2, and some of 4.1 (version_test.go)
#   FINDER=NAME  how native finds files: kernel, or index. Without it, version 4 is with the index, as
#                deploy/podnas.yaml has both, and version 3 with the kernel's handles; a few tests run
#                with the other one, too
#   RUN=REGEX    only the tests that match, as go test -run takes it
#   KILLS=N      how often TestKillUnderLocks kills the server
#   CHAOS=TIME   how long TestChaos goes on: 1h, 10m; SEED=N draws the faults of that seed
#   FSX=TIME     how long TestTwoMounts42 goes on, a third of it on each file system: 1h; SEED=N draws the same steps
#   CUTS=N       how many cuts TestCutAtAnyFlush tries, which SEED=N draws, too
#   GUESTS=TIME  how long TestTwoGuests appends: 5m; it also cuts a guest off for longer than a lease then
#   KEEP=1       keep the guest's job folder with the kernel's console.log
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
source test/goflags.sh
PATH=$PATH:/usr/sbin:/sbin

"$here/setup.sh"
layer=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/uml
bin=$(mktemp -d "${TMPDIR:-/tmp}/podnas-bin.XXXXXX")
found=$(mktemp -d "${TMPDIR:-/tmp}/podnas-found.XXXXXX") # by TestChaos, and kept if there is something
trap 'rm -rf "$bin"; rmdir --ignore-fail-on-non-empty "$found"' EXIT
chmod 755 "$bin" # one test runs podnas as an ordinary user
export CGO_ENABLED=0
go build -o "$bin/podnas" ./cmd/podnas
wanted() { # $1: a test, by its name as RUN has it
	[[ $1 =~ ${RUN:-.} ]]
}
# go test builds the test binary as 'go test -c' does and hands it, with its
# flags, to the command of -exec: one long process in a guest.
suite() { # $1: the engine, $2: the command, then flags and packages
	local engine=$1 command=$2
	shift 2
	echo "=== engine $engine"
	go test -tags vm -count 1 -p 1 -v -timeout "$((limit - 60))s" -exec "$command" "$@"
}
alone='TestThroughService|TestSAN|TestDRBD|TestHA|TestGuestPowerCut|TestTwoGuests|TestGanesha|TestKnfsd|TestFaultyDisk' # these have guests of their own
limit=7260 # seconds
for duration in "${CHAOS:-}" "${FSX:-}"; do
	case $duration in
	*[0-9]h) limit=$((limit + 5400 * ${duration%h})) ;; # with the time that it takes to check
	*[0-9]m) limit=$((limit + 90 * ${duration%m})) ;;
	'' | *[0-9]s) ;;
	*)
		echo "test/vm/run.sh: CHAOS and FSX are numbers of hours, minutes or seconds: 1h, 10m, 90s" >&2
		exit 2
		;;
	esac
done
if [ -n "${SHORT:-}" ]; then
	limit=2460
	CHAOS=${CHAOS:-40s} CUTS=${CUTS:-5}
fi
guest="'$here/vm.sh' ${KEEP:+-k} -m 2048 -t $limit -x 4G -s '$found' -e 'FOUND=$found' -e 'PODNAS=$bin/podnas' -e PODNAS_TEST_XFS=/xfs ${SHORT:+-e SHORT=1}"
guest3="$guest -e ENGINE=native ${FINDER:+-e FINDER=$FINDER}"
finder4=${FINDER:-index}
nfs4=4.2
if [ "${NFS:-}" = 4.1 ]; then
	nfs4=4.1
fi
guest4="$guest -e ENGINE=native -e NFS=$nfs4 -e FINDER=$finder4"
native() {
	# These packages have tests of their own that need this disk.
	local tree="${RUN:-.}"
	suite native "$guest3" -run "${RUN:-.}" -skip "$alone" ./test/vm ./quota || status=1
	if [ -n "${SHORT:-}" ] && [ -z "${RUN:-}" ]; then
		tree='^(TestCopyFull|TestCopySharesBlocks)$' # the others ran where make test did
	fi
	suite native "$guest3" -run "$tree" ./internal/tree || status=1
	if wanted TestRestoreOfAFullVolume; then
		suite native "$guest3" -run 'TestRestore.*/^the_kernel_counts$' ./internal/app || status=1
	fi
}
# Of version 4: they go with the other half, which takes as long then. By name they run with the rest.
programs4='TestVersion42|TestACLs4|TestXattrs|TestXattrsTwoNodes'
native4() {
	local skip=$alone
	[ -n "${RUN:-}" ] || skip+="|$programs4"
	local guest="$guest4 ${KILLS:+-e KILLS=$KILLS} ${CHAOS:+-e CHAOS=$CHAOS} ${FSX:+-e FSX=$FSX} ${SEED:+-e SEED=$SEED} ${CUTS:+-e CUTS=$CUTS}"
	suite "native, NFS $nfs4" "$guest" -run "${RUN:-.}" -skip "$skip" ./test/vm || status=1
	[ -n "${SHORT:-}" ] || disks4
}
disks4() { # those of version 4 that fail, or lose power
	if wanted TestFaultyDisk; then
		suite "native, NFS $nfs4" "$guest4" -run TestFaultyDisk ./test/vm || status=1
	fi
	if wanted TestGuestPowerCut; then
		suite "native, NFS $nfs4" "env NFS=$nfs4 FINDER=$finder4 '$here/cut.sh' '$bin/podnas' native" -run TestGuestPowerCut ./test/vm || status=1
	fi
}
apart4() { # the rest of version 4, most of it in guests of another kind
	[ -n "${RUN:-}" ] || suite "native, NFS $nfs4" "$guest4" -run "^($programs4)\$" ./test/vm || status=1
	[ -z "${SHORT:-}" ] || disks4 # what is beside native4 takes less time then
	if wanted TestThroughService; then # it has NAT
		suite "native, NFS $nfs4" "${guest4/vm.sh\'/vm.sh\' -o}" -run TestThroughService ./test/vm || status=1
	fi
	if wanted TestTwoGuests; then
		suite "native, NFS $nfs4" "env 'PODNAS=$bin/podnas' ENGINE=native NFS=$nfs4 ${FINDER:+FINDER=$FINDER} ${GUESTS:+GUESTS=$GUESTS} '$here/taps.sh'" -run TestTwoGuests ./test/vm || status=1
	fi
	local moves
	for moves in TestSAN TestDRBD TestHA; do
		if wanted $moves && { [ $moves = TestHA ] || alsoShort $moves 'what podnas does of it by itself, TestGuestPowerCut and test/attack have'; }; then
			suite "native, NFS $nfs4" "env 'PODNAS=$bin/podnas' ENGINE=native NFS=$nfs4 FINDER=$finder4 '$here/disks.sh'" -run $moves ./test/vm || status=1
		fi
	done
}
# Whether a part that SHORT=1 leaves out is wanted: only in a run that asks for tests or an engine by name.
alsoShort() { # $1: the part, $2: where else what it proves is proven
	[ -z "${SHORT:-}" ] || [ -n "${RUN:-}${ENGINE:-}" ] || { echo "SHORT=1 leaves out $1: $2"; return 1; }
}
otherFinder() { # what depends most on how files are found, once more
	if [ -z "${FINDER:-}${RUN:-}" ]; then
		alsoShort 'version 3 by index, and version 4 by handles' 'version 4 is by index, and version 3 by handles' || return 0
		suite 'native, by index' "$guest -e ENGINE=native -e FINDER=index" -run '^(TestRestart|TestKillUnderLoad)$' ./test/vm || status=1
		suite "native, NFS 4.2, by the kernel's handles" "$guest -e ENGINE=native -e NFS=4.2 -e FINDER=kernel" -run '^(TestRemovedWhileOpen|TestRestartUnderLocks)$' ./test/vm || status=1
	fi
}
nativeAlone() {
	if [ -n "${SHORT:-}" ]; then
		return
	fi
	# Not in a guest: what one is too slow for.
	echo "=== engine native, on this machine"
	go test -tags vm -count 1 -v -run "${RUN:-.}" ./test/vm/large || status=1
	# Disks of this machine's own kernel: some that fail, and an XFS on which the server counts.
	if [ "$(command -v mkfs.ext4 mkfs.xfs mkfs.btrfs | wc -l)" = 3 ]; then
		echo "run.sh: CI=true make test, as root, has these disks here: they are not tested twice"
	else # with the programs that setup.sh has unpacked
		local programs=(env CI=true "PATH=$PATH:$layer/usr/sbin" "LD_LIBRARY_PATH=$layer/usr/lib/x86_64-linux-gnu")
		if wanted TestSyncFails; then
			"${programs[@]}" go test -count 1 -v -run 'TestSyncFails|TestAfterFailedSync' ./server ./test/faultydisk || status=1
		fi
		"${programs[@]}" go test -count 1 -v -run "${RUN:-.}" ./server/inode ./server/exports ./server/locate ./server/durable ./server/actas ./server/disk || status=1
	fi
	if wanted TestFaultyDisk; then
		suite native "$guest3" -run 'TestFaultyDisk|TestAfterFailedSync' ./test/vm ./test/faultydisk || status=1
	fi
	if wanted TestGuestPowerCut; then
		suite native "'$here/cut.sh' '$bin/podnas' native" -run TestGuestPowerCut ./test/vm || status=1
	fi
}
gonfs() {
	suite go-nfs "$guest -e ENGINE=go-nfs" -run "${RUN:-.}" -skip "$alone" ./test/vm || status=1
}
ganesha() {
	alsoShort NFS-Ganesha 'it is a check on the conformance suite, which seldom changes' || return 0
	if [ "${RUN:-}" = TestGaneshaPause ]; then # for docs/upgrading.md alone: it takes minutes
		suite ganesha "$guest -e ENGINE=ganesha" -run "$RUN" ./test/vm || status=1
		return
	fi
	wanted TestGanesha || return 0
	go test -c -o "$bin/nfstest" ./test/conformance/nfstest
	suite ganesha "$guest -e ENGINE=ganesha -e 'NFSTEST=$bin/nfstest'" -run '^TestGanesha$' ./test/vm || status=1
}
knfsd() {
	alsoShort knfsd 'it is a check on the conformance suite, which seldom changes' || return 0
	if wanted TestKnfsd4; then
		go test -c -o "$bin/nfstest4" ./test/conformance/nfstest4
		suite knfsd "$guest -e ENGINE=knfsd -e 'NFSTEST=$bin/nfstest4'" -run TestKnfsd4 ./test/vm || status=1
	fi
	if [ -n "${RUN:-}" ] && wanted TestKnfsdChaos; then # by hand
		suite knfsd "$guest -e ENGINE=knfsd ${CHAOS:+-e CHAOS=$CHAOS} ${SEED:+-e SEED=$SEED}" -run TestKnfsdChaos ./test/vm || status=1
	fi
}
# A guest has one processor, and each of the two halves of the suite takes about as long: side
# by side, on a processor each, they take half the time. What the second prints comes after it.
sideBySide() { # $1: what the first runs, $2: the second
	local allowed
	allowed=($(processors))
	if [ ${#allowed[@]} -lt 2 ]; then
		$1
		$2
		return
	fi
	set -m # a process group of its own, to be ended as one
	(
		taskset -cp "${allowed[1]}" $BASHPID >/dev/null
		status=0
		$2
		exit $status
	) >"$bin/second" 2>&1 &
	second=$!
	set +m
	trap 'kill -- -$second 2>/dev/null || true; rm -rf "$bin"; rmdir --ignore-fail-on-non-empty "$found"' EXIT
	taskset -cp "${allowed[0]}" $$ >/dev/null
	$1
	wait $second || status=1
	cat "$bin/second"
}
processors() { # those that this may run on
	local range
	for range in $(taskset -cp $$ | sed 's/.*: //; s/,/ /g'); do
		seq "${range%-*}" "${range#*-}"
	done
}
otherMinor() { # what volumes have that were made for 4.1
	if [ -z "${NFS:-}${RUN:-}" ]; then
		alsoShort 'version 4.1' 'version 4.2 is served by the same code, and TestNodeWithBothMinors has both' || return 0
		suite 'native, NFS 4.1' "$guest -e ENGINE=native -e NFS=4.1 -e FINDER=$finder4" -run '^(TestTwoNodes|TestRemovedWhileOpen|TestRestartUnderLocks|TestDieUnderLocks|TestNativeFiles)$' ./test/vm || status=1
	fi
}
rest() {
	nativeAlone
	otherFinder
	otherMinor
	gonfs
	ganesha
}
others() { # about as long as the rest of version 4
	native
	knfsd
	apart4
	rest
}
others4() {
	knfsd
	apart4
}
status=0
case ${NFS:-}:${ENGINE:-} in
:) sideBySide others native4 ;;
4.[12]:) sideBySide native4 others4 ;;
4.[12]:native) sideBySide native4 apart4 ;;
4.[12]:knfsd | :knfsd) knfsd ;;
3:) sideBySide native rest ;;
3:native | :native) sideBySide native nativeAlone ;;
3:go-nfs | :go-nfs) gonfs ;;
3:ganesha | :ganesha) ganesha ;;
*)
	echo "test/vm/run.sh: there is no engine '${ENGINE:-}' with NFS ${NFS:-3}: native, go-nfs or ganesha with 3, native or knfsd with 4.1 and 4.2" >&2
	exit 2
	;;
esac
exit $status
