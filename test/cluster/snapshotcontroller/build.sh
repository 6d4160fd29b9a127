#!/bin/bash
# Builds the stock snapshot-controller from its Go module (go.mod says which version) into the cache.
#
# usage: build.sh program   prints where it is
#        build.sh crds      prints the folder of its CustomResourceDefinitions, without those of groups
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
go mod download >&2
module=github.com/kubernetes-csi/external-snapshotter
version=$(go list -m -f '{{.Version}}' $module/v8)
dir=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/snapshot-controller-$version
mkdir -p "$dir/crds"
exec 9>"$dir/lock"
flock 9
case ${1:-} in
program)
	if [ ! -x "$dir/snapshot-controller" ]; then
		echo "build.sh: building snapshot-controller $version" >&2
		go build -trimpath -buildvcs=false -ldflags '-s -w' -o "$dir/new" $module/v8/cmd/snapshot-controller
		mv "$dir/new" "$dir/snapshot-controller"
	fi
	echo "$dir/snapshot-controller"
	;;
crds)
	install -m 644 "$(go list -m -f '{{.Dir}}' $module/client/v8)"/config/crd/snapshot.storage.k8s.io_*.yaml "$dir/crds"
	echo "$dir/crds"
	;;
*)
	echo 'usage: build.sh program|crds' >&2
	exit 2
	;;
esac
