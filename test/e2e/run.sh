#!/bin/bash
# run.sh: the end-to-end test: a whole cluster, and in it what a user does.
#
# usage: run.sh [TEST-FLAGS...]     flags of a Go test binary, such as
#                                   -test.run=TestName or -test.v=false
#
# Environment: PODNAS_IMAGE  the image archive to test (default: the one that
#                            "make image" leaves in dist/)
#              PODNAS_XFS_IMAGE  that of its variant with mkfs.xfs (default: the
#                            one that "make image-xfs" leaves there)
#              SHORT=1       what each change runs: without the steps that take long, and without three nodes
#              NODES=1       TestNodeDies and TestTakesOver alone, on three nodes; RUN=TestTakesOver one of them
#              PODNAS_PREVIOUS  the commit to upgrade from (default: see previous.sh)
#              PODNAS_PAGE   a file to save the status page in, as it is in the pod
#              PODNAS_LOGS   an absolute path of a folder for all logs (default:
#                            a temporary one, kept only if the test fails)
#
# It builds and fetches what the cluster needs (once; see ../cluster/build.sh,
# setup.sh and ../vm/setup.sh) and then runs the Go test of this folder in a
# network namespace of its own, where tap0 leads to the node. Nothing in it can
# reach a real network, and everything started in it ends with it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../goflags.sh"
cannot() { echo "test/e2e/run.sh: $*" >&2; exit 2; }
step() { echo "=== $*" >&2; }
PATH=$PATH:/usr/sbin:/sbin

[ "$(id -u)" = 0 ] || cannot "needs root, for the node's kernel and the network namespace"
unshare --net --mount --pid --fork true || cannot "unshare is not allowed here (a container needs CAP_SYS_ADMIN for it)"
[ -c /dev/net/tun ] || cannot "no /dev/net/tun here, and the node's network is a tap"
if [ -z "${PODNAS_IMAGE:-}" ]; then
	# Beside the archive of all architectures lie some of one each.
	images=()
	for archive in "$here"/../../dist/podnas-*.tar; do
		case $archive in *-amd64.tar | *-arm64.tar | */podnas-xfs-* | *'*'*) ;; *) images+=("$archive") ;; esac
	done
	[ ${#images[@]} = 1 ] || cannot "want one image archive in dist/, found ${#images[@]}: run 'make image' first, or set PODNAS_IMAGE"
	PODNAS_IMAGE=${images[0]}
fi
[ -f "$PODNAS_IMAGE" ] || cannot "no image archive $PODNAS_IMAGE"
xfs_image=${PODNAS_XFS_IMAGE:-${PODNAS_IMAGE/podnas-/podnas-xfs-}}
[ -f "$xfs_image" ] || cannot "no image archive $xfs_image: run 'make image-xfs' first, or set PODNAS_XFS_IMAGE"

step "the node's kernel and programs"
"$here/../vm/setup.sh"
"$here/setup.sh"
step "Kubernetes"
bin=$("$here/../cluster/build.sh")
step "the test"
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-e2e.XXXXXX")
trap 'rm -rf "$work"' EXIT
(cd "$here" && go test -c -tags e2e -o "$work/e2e.test" .)
mkdir "$work/previous"
if [ -z "${NODES:-}" ]; then
	step "the version to upgrade from"
	"$here/previous.sh" "$work/previous"
fi
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
step "the image of the pods that lock"
mkdir -p "$work/locker"/{bin,dev,mnt,proc,sys,tmp}
(cd "$here" && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$work/locker/bin/locker" ./locker)
"$here/mkimage.sh" podnas.test/locker:1 "$work/locker" "$work/locker.tar" /bin/locker
export E2E_RESTIC=
if [ -z "${SHORT:-}${NODES:-}" ]; then
	step "the image of restic"
	restic=$(command -v restic) || cannot "no restic here: install Debian's package"
	mkdir -p "$work/restic"/{bin,dev,etc,proc,sys,tmp}
	chmod 1777 "$work/restic/tmp"
	cp "$cache/node/bin/busybox" "$work/restic/bin/" 2>/dev/null || cp "$cache/node/usr/bin/busybox" "$work/restic/bin/"
	while read -r applet; do
		[ "$applet" = busybox ] || ln -s busybox "$work/restic/bin/$applet"
	done < <("$work/restic/bin/busybox" --list)
	cp "$restic" "$work/restic/bin/"
	ldd "$restic" | grep -o '/[^ ]*' | while read -r library; do cp -L --parents "$library" "$work/restic"; done
	E2E_RESTIC=$work/restic.tar
	"$here/mkimage.sh" -e docker.io/restic/restic:0.18.0 "$work/restic" "$E2E_RESTIC" /bin/restic
fi

step "the plug-in of kubectl"
mkdir "$work/plugin"
(cd "$here/../.." && CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$work/plugin/kubectl-podnas" ./cmd/podnas)
export PATH=$work/plugin:$PATH

logs=${PODNAS_LOGS:-$work/logs}
mkdir -p "$logs" "$work/run"
export E2E_BIN=$bin E2E_NODE=$cache/node E2E_IMAGE=$PODNAS_IMAGE E2E_XFS_IMAGE=$xfs_image E2E_PREVIOUS=$work/previous
export E2E_LOCKER=$work/locker.tar
export E2E_RUN=$work/run E2E_LOGS=$logs
status=0
nodes='TestNodeDies|TestTakesOver' # these have a cluster of their own
if [ -z "${NODES:-}" ]; then
# In the background, so that a signal ends it: with unshare dies all it started.
# shellcheck disable=SC2016 # the inner shell expands it
unshare --net --mount --pid --fork --kill-child --mount-proc bash -euc '
	ip link set lo up
	ip tuntap add tap0 mode tap
	ip addr add 10.9.0.1/24 dev tap0
	ip link set tap0 up
	cd "$1" && shift
	exec "$@"
' e2e "$here" "$work/e2e.test" -test.v -test.timeout=60m "-test.skip=^($nodes)\$" "$@" &
trap 'kill -KILL $!; exit 1' INT TERM
wait $! || status=$?
fi
if [ -n "${SHORT:-}" ]; then
	step "SHORT=1 leaves out three nodes of which one dies"
elif [ $status = 0 ]; then
	step "three nodes, of which one dies"
	mkdir -p "$work/nodes" "$logs/nodes"
	(cd "$here" && E2E_NODES=1 E2E_RUN=$work/nodes E2E_LOGS=$logs/nodes ../vm/disks.sh "$work/e2e.test" -test.v -test.timeout=30m -test.run="^(${RUN:-$nodes})\$") || status=$?
fi
if [ $status != 0 ] && [ -z "${PODNAS_LOGS:-}" ]; then
	kept=$(mktemp -d "${TMPDIR:-/tmp}/podnas-e2e-logs.XXXXXX")
	cp -r "$logs/." "$kept"
	echo "run.sh: all logs are in $kept" >&2
fi
exit $status
