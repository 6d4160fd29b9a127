#!/bin/bash
# local.sh PODNAS LOCAL DIR [FLAGS of LOCAL]: native that syncs, beside the disk of
# DIR itself. run.sh starts it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
podnas=$1 local=$2 work=$(mktemp -d "$3/local.XXXXXX")
shift 3
servers=()
finish() {
	for pid in "${servers[@]}"; do kill "$pid" 2>/dev/null || true; done
	wait
	rm -rf "$work"
}
trap finish EXIT
source "$here/servers.sh"
serve native
mkdir "$work/disk"
"$local" --dir="$work/disk" "$@" "$(target native safe)"
