#!/bin/bash
# versions.sh PODNAS DIR [FLAGS]: native with NFSv4.1 beside itself with version 3, in
# DIR. run.sh starts it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
podnas=$1 work=$(mktemp -d "$2/versions.XXXXXX")
shift 2
source "$here/servers.sh"
endWithServers
serve native
"$podnas" bench "$(target native fast)" --nfs=4.1 --against "$(target native fast)" --against-nfs=3 "$@" 2>&1 | cat # no terminal
