#!/bin/bash
# cut.sh: run TestGuestPowerCut, for which two guests are needed: one serves, from
# a disk that outlives it, and its power is cut; in the other is the client.
#
# usage: test/vm/cut.sh PODNAS ENGINE TEST-BINARY ARG...   (go test -exec)
#
# With NFS=4.1 or 4.2 in the environment the volume is mounted with that. SHORT=1 is for one cut.
#
# The test writes its orders into a folder that all share: "cut" kills the serving
# guest as it is, "boot" starts the next one on its disk. The order is carried out
# when its file is gone. What a killed guest had not yet given to its disk, page
# cache and all, is lost; what it had is in the page cache of this machine.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -z "${CUT_DIR:-}" ]; then
	CUT_DIR=$(mktemp -d "${TMPDIR:-/tmp}/podnas-cut.XXXXXX")
	export CUT_DIR
	trap 'rm -rf "$CUT_DIR"' EXIT
	status=0
	"$here/taps.sh" "$0" "$@" & # in the background, so that a signal ends it
	inner=$!
	trap 'kill -TERM $inner; exit 1' INT TERM
	wait $inner || status=$?
	exit $status
fi
podnas=$1 engine=$2
shift 2
shared=$CUT_DIR/shared
mkdir -p "$shared/claims"
touch "$CUT_DIR/disk"
cat >"$shared/claims/cut.yaml" <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: standard
provisioner: podnas.io/nfs
mountOptions: [${NFS:+nfsvers=$NFS}]
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: cut
  namespace: default
spec:
  storageClassName: standard
  accessModes: [ReadWriteMany]
  resources:
    requests:
      storage: 1Gi
YAML
boot() { # in a session of its own, to be killed as one
	TMPDIR=$CUT_DIR setsid "$here/vm.sh" -n -t 900 -x 2G -i "$CUT_DIR/disk" -s "$shared" "
		mkdir -p /xfs/root
		exec $podnas serve --standalone --root /xfs/root --claims $shared/claims \
			--listen 10.9.0.2:20490 --http 127.0.0.1:20491 --engine $engine --handles ${FINDER:-auto}" </dev/null >>"$CUT_DIR/log" 2>&1 &
	server=$!
}
boot
"$here/vm.sh" -N 1 -m 1024 -t 900 -s "$shared" -e "PODNAS=$podnas" -e "ENGINE=$engine" -e "NFS=${NFS:-}" -e "FINDER=${FINDER:-}" -e "SHORT=${SHORT:-}" -e "SERVING_GUEST=$shared" "$@" &
client=$!
order=$shared/order
while kill -0 "$client" 2>/dev/null; do
	case $(cat "$order" 2>/dev/null) in
	cut)
		kill -KILL -- "-$server"
		{ wait "$server"; } 2>/dev/null || true # it says that it was killed
		rm "$order"
		;;
	boot)
		boot
		rm "$order"
		;;
	esac
	sleep 0.05
done
status=0
wait "$client" || status=$?
if [ $status != 0 ]; then
	echo "the serving guests said:"
	cat "$CUT_DIR/log"
fi
exit $status
