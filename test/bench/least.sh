#!/bin/bash
# least.sh PODNAS CEILING [FLAGS]: native beside the server that does least, on the XFS
# at /xfs. run.sh starts it in a box.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/servers.sh"
podnas=$1 ceiling=$2
shift 2
work=/xfs/bench servers=()
mkdir -p $work/least
serve native
"$ceiling" -listen 127.0.0.1:0 -dir $work/least ${COUNTS:+-counts} >$work/least.out &
servers+=($!)
until [ -s $work/least.out ]; do sleep 0.1; done
status=0
"$podnas" bench "$(target native fast)" --against "$(<$work/least.out):/least" "$@" 2>&1 || status=$?
kill "${servers[@]}"
wait
exit $status
