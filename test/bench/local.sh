#!/bin/bash
# local.sh PODNAS LOCAL DIR [FLAGS of LOCAL]: native that syncs, beside the disk of
# DIR itself. run.sh starts it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
podnas=$1 local=$2 work=$(mktemp -d "$3/local.XXXXXX")
shift 3
source "$here/servers.sh"
endWithServers
serve native
mkdir "$work/disk"
"$local" --dir="$work/disk" "$@" "$(target native safe)"
