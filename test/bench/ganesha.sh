#!/bin/bash
# ganesha.sh PODNAS VERSION [FLAGS]: native beside NFS-Ganesha, both with a version of NFS,
# on the XFS at /xfs. run.sh starts it in a box or a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/peers.sh"
source "$here/servers.sh"
podnas=$1 version=$2
shift 2
work=/xfs/bench servers=()
mkdir -p $work
register
ganesha $work/ganesha
serve native
if [ $version = 3 ]; then mount=--against-mountport=20048; fi
"$podnas" bench "$(target native fast)" --nfs=$version --against 127.0.0.1:20490:/xfs/bench/ganesha ${mount:-} "$@" 2>&1 | cat # the console is no person
