#!/bin/bash
# manifests.sh: writes deploy/podnas.yaml from deploy/base, or with --check says
# whether it would change.
#
# The file is the base's files one after the other, and not kustomize's own
# output, which loses the comments: the reasons for each permission belong in
# what people apply. --check has kustomize build both, and compares.
#
# The label app.kubernetes.io/version of all objects is set to the tag of the image, whose one place is
# the StatefulSet.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-manifests.XXXXXX")
trap 'rm -rf "$work"' EXIT
kustomize() { go tool -modfile=test/tools/go.mod kustomize "$@"; }

tag=$(sed -n 's/^ *image: .*://p' deploy/base/statefulset.yaml)
version='app\.kubernetes\.io/version: '
labelled=$(grep -rl --include='*.yaml' "$version" deploy/{base,components,overlays,monitoring,helm/podnas/monitoring})
# shellcheck disable=SC2086 # a list of files without spaces
if [ "${1:-}" != --check ]; then
	sed -i "s|\($version\).*|\1$tag|" $labelled
elif grep -n "$version" $labelled | grep -v ": $tag\$"; then
	echo "these versions are not that of the image, $tag: run \"make manifests\"" >&2
	exit 1
fi

{
	echo '# Code generated from deploy/base by "make manifests". DO NOT EDIT.'
	echo '#'
	echo '# podnas: shared storage in one pod. kubectl apply -f podnas.yaml'
	sed -n 's/^  - \(.*\.yaml\)$/\1/p' deploy/base/kustomization.yaml | while read -r file; do
		echo ---
		cat "deploy/base/$file"
	done
} >"$work/podnas.yaml"

if [ "${1:-}" != --check ]; then
	mv "$work/podnas.yaml" deploy/podnas.yaml
	chmod 644 deploy/podnas.yaml
	exit
fi
if ! diff -u deploy/podnas.yaml "$work/podnas.yaml"; then
	echo 'deploy/podnas.yaml is stale: run "make manifests"' >&2
	exit 1
fi
printf '%s\n' 'resources: [podnas.yaml]' >"$work/kustomization.yaml"
kustomize build "$work" >"$work/from-file"
kustomize build deploy/base >"$work/from-base"
if ! diff -u "$work/from-base" "$work/from-file"; then
	echo 'deploy/podnas.yaml is not what kustomize makes of deploy/base (above): set it in the files, not in kustomization.yaml' >&2
	exit 1
fi
for overlay in deploy/overlays/*/ deploy/monitoring; do
	kustomize build "$overlay" >/dev/null || { echo "$overlay does not build" >&2; exit 1; }
done
# Nothing else builds the components that no overlay uses.
cp -r deploy/base deploy/components "$work"
mkdir "$work/all"
{
	echo 'resources: [../base]'
	echo 'components:'
	for component in deploy/components/*/; do
		# It takes away the claim that others change. overlays/ha builds it.
		[ "$component" = deploy/components/ha/ ] || echo "  - ../${component#deploy/}"
	done
} >"$work/all/kustomization.yaml"
kustomize build "$work/all" >/dev/null || { echo 'the components do not build together' >&2; exit 1; }
