#!/bin/bash
# fuzz.sh: fuzz every decoder ('make fuzz').
#
#   FUZZTIME=30s  for so long each; a count, such as 20000x, is of inputs
#   CHANGED=1     leave out those that have passed this and have not changed since, nor
#                 has anything that they are built from. They are named, and what their
#                 corpus has is part of make test all the same
#
# What has passed is remembered in ${PODNAS_CACHE:-~/.cache/podnas}/fuzzed.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source test/goflags.sh
: "${FUZZTIME:=30s}"
passed=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/fuzzed
mkdir -p "$passed"

# built_from prints a sum of all that the tests of a package are built from.
built_from() {
	local folders
	folders=$(go list -deps -test -f '{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}' "./$1" | sort -u)
	{
		go version
		cat go.mod go.sum
		# shellcheck disable=SC2086 # folders of packages have no blanks
		find $folders -maxdepth 1 -type f -name '*.go' -exec sha256sum {} + | sort
		[ ! -d "$1/testdata" ] || find "$1/testdata" -type f -exec sha256sum {} + | sort
	} | sha256sum | cut -d' ' -f1
}

grep -rHo --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' nfs provisioner quota server internal |
	while IFS=: read -r file func; do
		package=${file%/*} func=${func#func }
		echo "$package $func"
		mark="$passed/$(built_from "$package")-$func-$FUZZTIME"
		if [ -n "${CHANGED:-}" ] && [ -e "$mark" ]; then
			echo "not fuzzed: it has passed this, and has not changed since"
			continue
		fi
		go test -v -run '^$' -fuzz "^$func\$" -fuzztime "$FUZZTIME" "./$package" </dev/null
		touch "$mark"
	done
