#!/bin/bash
# xfsprogs.sh: put mkfs.xfs and xfs_repair, the libraries that they need, and their
# licenses into a folder, for the image variant of overlays/disk-image.
#
# usage: xfsprogs.sh FOLDER
#
# They are Debian's packages, only unpacked: nothing is installed on this machine.
# For amd64; the Dockerfile's target xfs makes that image for other processors.
set -euo pipefail
out=$1
cannot() { echo "deploy/image/xfsprogs.sh: $*" >&2; exit 2; }
for tool in apt-get dpkg dpkg-deb; do
	command -v $tool >/dev/null || cannot "no $tool here to fetch Debian's packages with: build the Dockerfile's target xfs"
done
[ "$(dpkg --print-architecture)" = amd64 ] || cannot "this machine is no amd64: build the Dockerfile's target xfs"
packages=(xfsprogs libblkid1 libuuid1 libinih1 liburcu8 libc6)
libraries=lib/x86_64-linux-gnu

work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-xfsprogs.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/root"
fetch() { (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" >"$work/log" 2>&1); }
if ! fetch; then
	# The lists may be empty, or name versions that the mirror no longer has.
	[ "$(id -u)" = 0 ] || { cat "$work/log" >&2; cannot "cannot fetch: run 'apt-get update' as root, then this again"; }
	if ! { apt-get -qq update >"$work/log" 2>&1 && fetch; }; then
		tail -n 20 "$work/log" >&2
		cannot "cannot fetch Debian's ${packages[*]}"
	fi
fi
for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/root"
done

rm -rf "$out"
mkdir -p "$out"
out=$(cd "$out" && pwd)
mkdir -p "$out/usr/sbin" "$out/$libraries" "$out/lib64" "$out/usr/share/doc"
cd "$work/root"
path=$PWD/$libraries:$PWD/usr/$libraries
loader=$PWD/$libraries/ld-linux-x86-64.so.2
[ -e "$loader" ] || loader=$PWD/usr/$libraries/ld-linux-x86-64.so.2
install -m 0755 "$loader" "$out/lib64/ld-linux-x86-64.so.2"
for program in mkfs.xfs xfs_repair; do
	file=$PWD/usr/sbin/$program
	[ -e "$file" ] || file=$PWD/sbin/$program
	install -m 0755 "$file" "$out/usr/sbin/$program"
	# The loader tells what a program needs; of Debian's files, not of this machine's.
	"$loader" --library-path "$path" --list "$file" >"$work/needs"
	while read -r name _ found _; do
		case $name in */ld-linux* | linux-vdso*) continue ;; esac
		case $found in
		"$PWD"/*) install -m 0644 "$found" "$out/$libraries/$name" ;;
		*) cannot "$program needs $name, which is in none of ${packages[*]}" ;;
		esac
	done <"$work/needs"
done
for package in "${packages[@]}"; do
	install -D -m 0644 "usr/share/doc/$package/copyright" "$out/usr/share/doc/$package/copyright"
done
