#!/bin/bash
# Builds a real Kubernetes, and etcd, from their Go modules (kubernetes/go.mod
# says which version), and the snapshot-controller (snapshotcontroller/go.mod) into the cache, and prints the folder they are in.
#
# usage: build.sh [NAME...]     default: every name below
#
# What is there already is kept, so a second run takes no time. The first one
# takes 4 to 14 minutes on 2 cores, most of it in packages that all of them
# share; Go's build cache keeps those.
set -euo pipefail

all=(etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl snapshot-controller)
[ $# -gt 0 ] || set -- "${all[@]}"

cd "$(dirname "${BASH_SOURCE[0]}")/kubernetes"
# The module is read as it is: a workspace around it, or flags meant for
# podnas, would give other versions or miss the build cache.
export CGO_ENABLED=0 GOFLAGS=-mod=readonly GOWORK=off
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
bin=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/kubernetes-$version/bin
mkdir -p "$bin"
# One build at a time: a second caller finds the binaries when its turn comes.
exec 9>"$bin/../lock"
flock 9

# A server that doesn't know its version calls itself v0.0.0-master, and its
# clients then refuse to talk about features.
IFS=. read -r major minor _ <<<"${version#v}"
component=k8s.io/component-base/version
stamp="-X $component.gitVersion=$version -X $component.gitMajor=$major -X $component.gitMinor=$minor"
stamp+=" -X $component.gitTreeState=archive -X k8s.io/client-go/pkg/version.gitVersion=$version"

tmp=
trap 'rm -f "$tmp"' EXIT
for name; do
	case " ${all[*]} " in
	*" $name "*) ;;
	*) echo "build.sh: no program $name; there are: ${all[*]}" >&2; exit 2 ;;
	esac
	[ ! -x "$bin/$name" ] || continue
	case $name in
	etcd) package=go.etcd.io/etcd/server/v3 flags="-s -w" ;;
	*) package=k8s.io/kubernetes/cmd/$name flags="-s -w $stamp" ;;
	esac
	module=.
	if [ "$name" = snapshot-controller ]; then
		module=../snapshotcontroller flags="-s -w"
		package=github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller
	fi
	echo "build.sh: building $name of $version" >&2
	start=$SECONDS
	tmp=$bin/.$name.$$
	go -C "$module" build -trimpath -buildvcs=false -ldflags "$flags" -o "$tmp" "$package"
	mv "$tmp" "$bin/$name"
	echo "build.sh: $name took $((SECONDS - start)) s" >&2
done
echo "$bin"
