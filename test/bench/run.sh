#!/bin/bash
# run.sh: podnas's engines beside each other and beside other servers ('make bench').
#
# usage: test/bench/run.sh [FLAGS]   (of podnas bench, and of client or local)
#   WITH=LIST    what native is compared with, of: go-nfs durable ceiling least local
#                nfs3 ganesha guest client (default: go-nfs durable ceiling)
#                  go-nfs   the other engine; both sync each change, as go-nfs does
#                           whatever the class says
#                  durable  native with sync: "false" beside native that syncs
#                  ceiling  a server that answers at once, from memory
#                  least    a server that makes the system calls that no server of files
#                           can do without, and checks nothing; where ganesha is
#                  local    native that syncs beside the disk itself: as many threads
#                           make the same system calls and syncs. In BENCH_DIR if
#                           that is given, else on an XFS in a file, in a box. Takes
#                           flags of test/bench/local, and its loads alone
#                  nfs3     native with NFSv4.1 beside itself with version 3, and with 4.2 beside 4.1
#                  ganesha  native with sync: "false" beside NFS-Ganesha, which syncs
#                           no names either; on an XFS in a file, in a box (box.sh)
#                  guest    the same in a User-Mode Linux guest. A system call costs
#                           much more there than outside
#                  client   native with sync: "false" (with SYNC=1 as by default), NFS-Ganesha, the server of least
#                           and the kernel's own in one such guest, and the kernel's own
#                           client: flags and loads are those of test/bench/client
#   SYNC=1       client: native and the kernel's own server sync each change before they answer
#   NFS=VERSION  of NFS, 3, 4.1 or 4.2, for ganesha, guest and client (default: 3)
#   COUNTS=1     least also looks at a file before it is removed, as who counts space must, and
#                keeps what CREATE has opened, until then
#   LOADS=LIST   as --loads; without it all that both servers know
#   BENCH_DIR=DIR  an existing directory on the disk to measure (default: TMPDIR)
#
# All data is in a temporary directory, and all servers are on 127.0.0.1. Native
# needs root, as it does elsewhere.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
source test/goflags.sh
with=${WITH:-go-nfs durable ceiling}
for one in $with; do
	case $one in go-nfs | durable | ceiling | least | local | nfs3 | ganesha | guest | client) ;; *)
		echo "test/bench/run.sh: WITH=$one: there are go-nfs, durable, ceiling, least, local, nfs3, ganesha, guest and client" >&2
		exit 2
		;;
	esac
done

work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/podnas-bench.XXXXXX")
source "$here/servers.sh"
endWithServers
trap 'exit 130' INT TERM
export CGO_ENABLED=0
go build -o "$work/podnas" ./cmd/podnas
go build -o "$work/ceiling" ./test/bench/ceiling
go build -o "$work/local" ./test/bench/local
podnas=$work/podnas
loads=(${LOADS:+"--loads=$LOADS"})

echo "$(nproc) processors, load $(cut -d' ' -f1-3 /proc/loadavg), Linux $(uname -r), $(stat -f -c %T "$work"), $(git describe --always --dirty)"
case " $with " in *" go-nfs "* | *" durable "* | *" ceiling "*) serve native ;; esac
status=0
for one in $with; do
	echo
	echo "=== native beside $one"
	case $one in
	go-nfs)
		serve go-nfs
		"$podnas" bench "$(target native safe)" --against "$(target go-nfs safe)" "${loads[@]}" "$@" || status=1
		;;
	durable) "$podnas" bench "$(target native fast)" --against "$(target native safe)" "${loads[@]}" "$@" || status=1 ;;
	ceiling)
		"$work/ceiling" -listen 127.0.0.1:0 >"$work/$one.out" &
		servers+=($!)
		until [ -s "$work/$one.out" ]; do sleep 0.1; done
		"$podnas" bench "$(target native fast)" --against "$(<"$work/$one.out"):/memory" \
			--loads="${LOADS:-null,getattr,access,lookup,read-*,write-*-unstable}" "$@" || status=1
		;;
	least)
		test/vm/setup.sh
		"$here/box.sh" "$work" "$here/least.sh" "$podnas" "$work/ceiling" "${loads[@]}" "$@" || status=1
		;;
	local)
		if [ "${BENCH_DIR:-}" ]; then
			bash "$here/local.sh" "$podnas" "$work/local" "$work" "${loads[@]}" "$@" || status=1
		else
			test/vm/setup.sh
			"$here/box.sh" "$work" "$here/local.sh" "$podnas" "$work/local" /xfs "${loads[@]}" "$@" || status=1
		fi
		;;
	nfs3)
		if [ "${BENCH_DIR:-}" ]; then
			bash "$here/versions.sh" "$podnas" "$work" "${loads[@]}" "$@" || status=1
		else
			test/vm/setup.sh
			"$here/box.sh" "$work" "$here/versions.sh" "$podnas" /xfs "${loads[@]}" "$@" || status=1
		fi
		;;
	ganesha)
		test/vm/setup.sh
		"$here/box.sh" "$work" "$here/ganesha.sh" "$podnas" "${NFS:-3}" "${loads[@]}" "$@" || status=1
		;;
	guest)
		test/vm/setup.sh
		chmod 755 "$work"
		test/vm/vm.sh -m 2048 -t 3600 -x 8G "$here/ganesha.sh" "$podnas" "${NFS:-3}" "${loads[@]}" "$@" || status=1
		;;
	client)
		test/vm/setup.sh
		go build -o "$work/client" ./test/bench/client
		git archive --format=tar -o "$work/tree.tar" HEAD
		test/vm/vm.sh -m 2048 -t 1800 -x 8G -e SYNC="${SYNC:-}" "$here/client.sh" "$podnas" "${NFS:-3}" "$work/client" "$work/ceiling" "$work/tree.tar" "${loads[@]}" "$@" || status=1
		;;
	esac
done
exit $status
