#!/bin/bash
# previous.sh: make what the end-to-end test upgrades from: an earlier version of podnas, of
# this repository's own history. Its manifest and its image go into a folder.
#
# usage: previous.sh FOLDER     (previous.yaml, podnas-previous.tar)
#
# Environment: PODNAS_PREVIOUS  another commit; "none" takes the present code
#
# A clone without history, or a tree without git, lacks the commit. Then the present code
# takes its place, which is said on standard error: a weaker test, of the replacing alone.
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
# The oldest commit that counts as a version until there is a release: the first one whose files on the disk
# have the formats of this version. Its records have checksums and the form of handles, and what clients have open
# and locked is handed over with their leases.
version previous "${PODNAS_PREVIOUS:-0176ea098ae243de08f41395b33ce6841771c22a}"
