#!/bin/bash
# ganesha.sh PODNAS [FLAGS]: native beside NFS-Ganesha on the XFS at /xfs. run.sh
# starts it in a box or a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/peers.sh"
source "$here/servers.sh"
podnas=$1
shift
work=/xfs/bench servers=()
mkdir -p $work
register
ganesha $work/ganesha
serve native
"$podnas" bench "$(target native fast)" --against 127.0.0.1:20490:/xfs/bench/ganesha --against-mountport=20048 "$@" 2>&1 | cat # the console is no person
