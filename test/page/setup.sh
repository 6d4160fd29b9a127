#!/bin/bash
# setup.sh: find a Chromium for the page's test, and print the command's path.
#
# Where none is installed, Debian's package (with those of its dependencies that are
# missing) is unpacked into $cache/chromium. Nothing is installed on this machine.
# Idempotent; with everything there it only looks.
set -euo pipefail
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
layer=$cache/chromium

cannot() { echo "test/page/setup.sh: $*" >&2; exit 2; }
if [ -n "${CHROMIUM:-}" ]; then
	command -v "$CHROMIUM" || cannot "CHROMIUM=$CHROMIUM is no command"
	exit
fi
for name in chromium chromium-browser google-chrome; do
	if command -v $name; then exit; fi
done

run=$layer/run
if [ ! -x "$run" ]; then
	command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
		cannot "no Chromium here, and no apt-get to fetch Debian's with: install one, or say where it is by CHROMIUM=PATH"
	packages=(chromium fonts-dejavu-core fontconfig-config)
	echo "fetching ${packages[*]} into $layer" >&2
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-setup.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/debs/partial" "$work/root" "$cache"
	apt_get() {
		DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root "$@" >"$work/log" 2>&1 ||
			{ tail -n 20 "$work/log" >&2; return 1; }
	}
	# The lock is of no use, since nothing is installed.
	fetch() {
		apt_get install --yes --download-only --reinstall --no-install-recommends -o Debug::NoLocking=1 \
			-o Dir::Cache::archives="$work/debs" "${packages[@]}"
	}
	if ! apt-cache show -q chromium >/dev/null 2>&1 || ! fetch; then
		# There are no lists, or they name packages that the mirror no longer has.
		[ "$(id -u)" = 0 ] || cannot "cannot fetch Debian's chromium: run 'apt-get update' as root, then this again"
		apt_get update
		fetch || cannot "this system has no package chromium (Debian has it, in main): install one, or say where it is by CHROMIUM=PATH"
	fi
	for deb in "$work"/debs/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	[ -x "$work/root/usr/lib/chromium/chromium" ] || cannot "the package chromium has no usr/lib/chromium/chromium"
	# Fonts and libraries are where the package is, not where it would be installed.
	cat >"$work/root/fonts.conf" <<-FONTS
		<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
		<fontconfig><dir>$layer/usr/share/fonts</dir><dir>/usr/share/fonts</dir><cachedir>$layer/fontcache</cachedir></fontconfig>
	FONTS
	cat >"$work/root/run" <<-RUN
		#!/bin/bash
		export LD_LIBRARY_PATH=$(find "$work/root/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | sed "s|^$work/root|$layer|" | paste -sd:)
		export FONTCONFIG_FILE=$layer/fonts.conf
		exec $layer/usr/lib/chromium/chromium "\$@"
	RUN
	chmod 755 "$work/root" "$work/root/run"
	rm -rf "$layer"
	mv "$work/root" "$layer"
fi
"$run" --version >/dev/null || cannot "$run does not run on this system: install Chromium, or say where it is by CHROMIUM=PATH"
echo "$run"
