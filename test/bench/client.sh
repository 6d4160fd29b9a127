#!/bin/bash
# client.sh PODNAS CLIENT CEILING TREE [FLAGS]: native, NFS-Ganesha, the server that does
# least and the kernel's own server on the XFS at /xfs, and the kernel's own client before
# each. CLIENT and CEILING are the programs of these folders, TREE a tar with sources, the
# flags are CLIENT's. run.sh starts it in a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/peers.sh"
source "$here/servers.sh"
podnas=$1 client=$2 ceiling=$3 tree=$4
shift 4
work=/xfs/bench servers=()
mkdir -p $work/least
register
knfsd $work/knfsd # before Ganesha, which registers the same program and takes its place
ganesha $work/ganesha
serve native
"$ceiling" -listen 127.0.0.1:20500 -dir $work/least >/dev/null &
servers+=($!)
answers 20500
native=$(target native fast)
port=${native#*:} port=${port%%:*}
"$client" -tree "$tree" "$@" \
	"native,$port,$port,/fast,$work/native/root/fast" \
	"ganesha,20490,20048,$work/ganesha,$work/ganesha" \
	"least,20500,20500,/least,$work/least" \
	"knfsd,2049,20049,$work/knfsd,$work/knfsd" 2>&1
