#!/bin/bash
# client.sh PODNAS VERSION CLIENT CEILING TREE [FLAGS]: native, NFS-Ganesha, the server that does
# least and the kernel's own server on the XFS at /xfs, and the kernel's own client before
# each. With version 4.1 the last two columns are native and the kernel's server with version 3,
# in place of the one that does least; with 4.2 they are native with 4.1 and with 3. CLIENT and CEILING are the programs of these folders, TREE
# a tar with sources, the flags are CLIENT's. With SYNC=1 in the environment native and the kernel's
# server sync each change before they answer, as they do by default. run.sh starts it in a guest.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
source "$here/peers.sh"
source "$here/servers.sh"
podnas=$1 version=$2 client=$3 ceiling=$4 tree=$5
shift 5
work=/xfs/bench servers=()
mkdir -p $work/least
options=async volume=fast
if [ "${SYNC:-}" ]; then options=sync volume=safe; fi
register
# The kernel's server goes before Ganesha, which registers the same program and takes its place.
if [ $version = 3 ]; then
	knfsd $work/knfsd
	knfsd="$work/knfsd,$work/knfsd"
else
	knfsd4 $work /knfsd /hidden
	knfsd="/knfsd,$work/knfsd"
fi
ganesha $work/ganesha
serve native
native=$(target native $volume)
port=${native#*:} port=${port%%:*}
all=(
	"native,$port,$port,/$volume,$work/native/root/$volume,$version"
	"ganesha,20490,20048,$work/ganesha,$work/ganesha,$version"
)
if [ $version = 3 ]; then
	"$ceiling" -listen 127.0.0.1:20500 -dir $work/least >/dev/null &
	servers+=($!)
	answers 20500
	all+=("least,20500,20500,/least,$work/least,3" "knfsd,2049,20049,$knfsd,3")
else
	all+=("knfsd,2049,20049,$knfsd,$version")
	if [ $version = 4.2 ]; then
		all+=("native-4.1,$port,$port,/$volume,$work/native/root/$volume,4.1" "native-3,$port,$port,/$volume,$work/native/root/$volume,3")
	else
		all+=("native-3,$port,$port,/$volume,$work/native/root/$volume,3" "knfsd-3,2049,20049,$knfsd,3")
	fi
fi
"$client" -tree "$tree" "$@" "${all[@]}" 2>&1
