#!/bin/bash
# axe.sh: fetch axe-core, which looks for what keeps people with disabilities from using a page, and print its path.
#
# It is npm's package, unpacked into $cache. Idempotent; with everything there it only looks.
set -euo pipefail
version=4.14.1
sum=1477dafa598d8d065f273d6af302aa203c02e83131707b7fa648cd41bd3d6b734f8c22a0dab86ee6a6f64b8afbe804b214d36db85a2826965edfb3a0b9d546b5
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
axe=$cache/axe-core-$version.js

cannot() { echo "test/page/axe.sh: $*" >&2; exit 2; }
if [ ! -s "$axe" ]; then
	echo "fetching axe-core $version into $axe" >&2
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/axe.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	package=axe-core-$version.tgz
	if command -v npm >/dev/null; then
		(cd "$work" && npm pack --silent "axe-core@$version" >/dev/null) || cannot "npm can't fetch axe-core"
	elif command -v curl >/dev/null; then
		curl -fsSL -o "$work/$package" "https://registry.npmjs.org/axe-core/-/$package" || cannot "can't fetch axe-core from registry.npmjs.org"
	else
		cannot "no npm and no curl to fetch axe-core with: install one of them"
	fi
	echo "$sum  $work/$package" | sha512sum --check --quiet || cannot "$package is not the one that this script knows"
	tar -xzf "$work/$package" -C "$work" package/axe.min.js
	mv "$work/package/axe.min.js" "$axe"
fi
echo "$axe"
