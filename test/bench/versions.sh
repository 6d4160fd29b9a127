#!/bin/bash
# versions.sh PODNAS DIR [FLAGS]: native with NFSv4.1 beside itself with version 3, and with 4.2
# beside 4.1, in DIR. run.sh starts it.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
podnas=$1 work=$(mktemp -d "$2/versions.XXXXXX")
shift 2
source "$here/servers.sh"
endWithServers
serve native
for pair in '4.1 3' '4.2 4.1'; do
	"$podnas" bench "$(target native fast)" --nfs="${pair% *}" --against "$(target native fast)" --against-nfs="${pair#* }" "$@" 2>&1 | cat # no terminal
done
