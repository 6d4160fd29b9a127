#!/bin/bash
# previous.sh: make what the end-to-end test upgrades from: two earlier versions of podnas, of
# this repository's own history. One is an early one, with NFSv3 alone. The other serves version
# 4.1 and hands over what clients have open and locked, so that a restart from it and to it is
# what is tested. The manifest and the image of each go into a folder.
#
# usage: previous.sh FOLDER     (previous.yaml, podnas-previous.tar, previous-nfs4.yaml,
#                               podnas-previous-nfs4.tar)
#
# Environment: PODNAS_PREVIOUS       another commit for the first; "none" takes the present code
#              PODNAS_PREVIOUS_NFS4  the same for the second
#
# A clone without history, or a tree without git, lacks the commits. Then the present code
# takes their place, which is said on standard error: a weaker test, of the replacing alone.
# Where the variable CI is set that is an error.
set -euo pipefail
out=$(realpath "$1")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-previous.XXXXXX")
trap 'rm -rf "$work"' EXIT
arch=$(go env GOARCH)

version() { # $1: its name and its image's tag, $2: the commit
	local tree=$work/$1
	if git -C "$top" archive --output="$work/tree.tar" "$2" 2>"$work/why"; then
		mkdir "$tree"
		tar -xf "$work/tree.tar" -C "$tree"
		echo "previous.sh: $1 is commit $2" >&2
	else
		tree=$top
		echo "previous.sh: no commit $2 here, so $1 IS THE PRESENT CODE, under another tag: $(cat "$work/why")" >&2
		[ -z "${CI:-}" ] || { echo "previous.sh: CI is set, where the upgrade must be from an earlier version: clone with history" >&2; exit 1; }
	fi
	(cd "$tree" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$1" -o "$work/podnas" ./cmd/podnas)
	(cd "$top" && go run ./deploy/image -ref "ghcr.io/podnas/podnas:$1" -version "$1" -out "$out" "$arch=$work/podnas" >&2)
	sed "s|\(image: ghcr\.io/podnas/podnas\):.*|\1:$1|" "$tree/deploy/podnas.yaml" >"$out/$1.yaml"
	[ "$(grep -c "image: ghcr.io/podnas/podnas:$1\$" "$out/$1.yaml")" = 1 ] ||
		{ echo "previous.sh: the manifest of $2 does not have one image of podnas" >&2; exit 1; }
}
# The oldest commit that counts as a version until there is a release: the native engine by
# default, StorageClass parameters, quotas on any disk, and the docs that promise them to users.
version previous "${PODNAS_PREVIOUS:-36805d0418befa906156449b89b7778e38fffc21}"
# The first one in which all of version 4.1 is served, and handed over. Neither knows files by an index:
# what they find is by the kernel's handles.
version previous-nfs4 "${PODNAS_PREVIOUS_NFS4:-f86d78c1d53548a528803534009a17ce6b668ce9}"
