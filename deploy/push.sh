#!/bin/bash
# push.sh: push what is in dist/ to a registry, as OCI artefacts: the images, with all their
# architectures, and the chart ('make push', after 'make image-xfs chart').
#
# usage: push.sh REGISTRY TAG    such as ghcr.io/podnas v1.2.3
#
# What was pushed is in dist/pushed then, a line NAME@DIGEST each, for what signs it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
registry=$1 tag=$2
crane() { go tool -modfile=test/tools/go.mod crane "$@"; }
helm() { go tool -modfile=test/tools/helm/go.mod helm "$@"; }
insecure=()
case $registry in 127.0.0.1:* | localhost:*) insecure=(--plain-http) ;; esac

work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-push.XXXXXX")
trap 'rm -rf "$work"' EXIT
for name in podnas podnas-xfs; do
	mkdir "$work/$name"
	tar -xf "dist/$name-$tag.tar" -C "$work/$name"
	crane push "$work/$name" "$registry/$name:$tag"
done
helm push "dist/podnas-${tag#v}.tgz" "oci://$registry/charts" "${insecure[@]}"
for ref in podnas:$tag podnas-xfs:$tag charts/podnas:${tag#v}; do
	digest=$(crane digest "$registry/$ref")
	echo "$registry/${ref%:*}@$digest"
done | tee dist/pushed
