#!/bin/bash
# client.sh PODNAS CLIENT TREE [FLAGS]: native, NFS-Ganesha and the kernel's own
# server on the XFS at /xfs, and the kernel's own client before each. CLIENT is the
# program of the folder client, TREE a tar with sources, the flags are CLIENT's.
# run.sh starts it in a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/peers.sh"
source "$here/servers.sh"
podnas=$1 client=$2 tree=$3
shift 3
work=/xfs/bench servers=()
mkdir -p $work
register
knfsd $work/knfsd # before Ganesha, which registers the same program and takes its place
ganesha $work/ganesha
serve native
native=$(target native fast)
port=${native#*:} port=${port%%:*}
"$client" -tree "$tree" "$@" \
	"native,$port,$port,/fast,$work/native/root/fast" \
	"ganesha,20490,20048,$work/ganesha,$work/ganesha" \
	"knfsd,2049,20049,$work/knfsd,$work/knfsd" 2>&1
