#!/bin/bash
# previous.sh: make what the end-to-end test upgrades from: an earlier version of podnas, of
# this repository's own history. Its manifest and its image, tagged "previous", go into a folder.
#
# usage: previous.sh FOLDER     (podnas.yaml, podnas-previous.tar)
#
# Environment: PODNAS_PREVIOUS  another commit; "none" takes the present code
#
# A clone without history, or a tree without git, lacks the commit. Then the present code
# takes its place, which is said on standard error: a weaker test, of the replacing alone.
# Where the variable CI is set that is an error.
set -euo pipefail
# The oldest commit that counts as a version until there is a release: the native engine by
# default, StorageClass parameters, quotas on any disk, and the docs that promise them to users.
commit=${PODNAS_PREVIOUS:-36805d0418befa906156449b89b7778e38fffc21}
out=$(realpath "$1")
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-previous.XXXXXX")
trap 'rm -rf "$work"' EXIT

if git -C "$top" archive --output="$work/tree.tar" "$commit" 2>"$work/why"; then
	tree=$work/tree
	mkdir "$tree"
	tar -xf "$work/tree.tar" -C "$tree"
	echo "previous.sh: the version to upgrade from is commit $commit" >&2
else
	tree=$top
	echo "previous.sh: no commit $commit here, so THE UPGRADE IS FROM THE PRESENT CODE, under another tag: $(cat "$work/why")" >&2
	[ -z "${CI:-}" ] || { echo "previous.sh: CI is set, where the upgrade must be from an earlier version: clone with history" >&2; exit 1; }
fi
arch=$(go env GOARCH)
(cd "$tree" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=previous' -o "$work/podnas" ./cmd/podnas)
(cd "$top" && go run ./deploy/image -ref ghcr.io/podnas/podnas:previous -version previous -out "$out" "$arch=$work/podnas" >&2)
sed 's|\(image: ghcr\.io/podnas/podnas\):.*|\1:previous|' "$tree/deploy/podnas.yaml" >"$out/podnas.yaml"
[ "$(grep -c 'image: ghcr.io/podnas/podnas:previous$' "$out/podnas.yaml")" = 1 ] ||
	{ echo "previous.sh: the manifest of $commit does not have one image of podnas" >&2; exit 1; }
