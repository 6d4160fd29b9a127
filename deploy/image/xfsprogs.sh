#!/bin/bash
# xfsprogs.sh: put mkfs.xfs and xfs_repair, the libraries that they need, and their
# licenses into a folder, for the image variant of overlays/disk-image.
#
# usage: xfsprogs.sh FOLDER
#
# They are Debian's packages, only unpacked: nothing is installed on this machine. What is
# taken of each is noted as dpkg would: var/lib/dpkg/status.d/PACKAGE has what the package
# says of itself, PACKAGE.md5sums its files. Scanners of images look there, and the SBOM is
# made of it.
# For amd64; the Dockerfile's target xfs makes that image for other processors.
set -euo pipefail
umask 022 # modes are part of the image
out=$1
cannot() { echo "deploy/image/xfsprogs.sh: $*" >&2; exit 2; }
for tool in apt-get dpkg dpkg-deb; do
	command -v $tool >/dev/null || cannot "no $tool here to fetch Debian's packages with: build the Dockerfile's target xfs"
done
[ "$(dpkg --print-architecture)" = amd64 ] || cannot "this machine is no amd64: build the Dockerfile's target xfs"
packages=(xfsprogs libblkid1 libuuid1 libinih1 liburcu8 libc6 base-files)
libraries=lib/x86_64-linux-gnu

work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-xfsprogs.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/debs" "$work/root" "$work/lists"
fetch() { (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" >"$work/log" 2>&1); }
if ! fetch; then
	# The lists may be empty, or name versions that the mirror no longer has.
	[ "$(id -u)" = 0 ] || { cat "$work/log" >&2; cannot "cannot fetch: run 'apt-get update' as root, then this again"; }
	if ! { apt-get -qq update >"$work/log" 2>&1 && fetch; }; then
		tail -n 20 "$work/log" >&2
		cannot "cannot fetch Debian's ${packages[*]}"
	fi
fi
rm -rf "$out"
status=var/lib/dpkg/status.d
mkdir -p "$out/$status"
out=$(cd "$out" && pwd)
for deb in "$work"/debs/*.deb; do
	package=$(dpkg-deb --field "$deb" Package)
	dpkg-deb --field "$deb" >"$out/$status/$package"
	dpkg-deb --fsys-tarfile "$deb" | tar --list >"$work/lists/$package"
	dpkg-deb --extract "$deb" "$work/root"
done
cd "$work/root"

# put MODE FILE PATH: a file of a package into the folder.
put() {
	local package
	package=$(grep --line-regexp --fixed-strings --files-with-matches -- "./${2#"$PWD/"}" "$work"/lists/*) || cannot "$2 is in none of ${packages[*]}"
	install -D -m "$1" "$2" "$out/$3"
	(cd "$out" && md5sum "$3") >>"$out/$status/${package##*/}.md5sums"
}
path=$PWD/$libraries:$PWD/usr/$libraries
loader=$PWD/$libraries/ld-linux-x86-64.so.2
[ -e "$loader" ] || loader=$PWD/usr/$libraries/ld-linux-x86-64.so.2
put 0755 "$loader" lib64/ld-linux-x86-64.so.2
for program in mkfs.xfs xfs_repair; do
	file=$PWD/usr/sbin/$program
	[ -e "$file" ] || file=$PWD/sbin/$program
	put 0755 "$file" usr/sbin/$program
	# The loader tells what a program needs; of Debian's files, not of this machine's.
	"$loader" --library-path "$path" --list "$file" >"$work/needs"
	while read -r name _ found _; do
		case $name in */ld-linux* | linux-vdso*) continue ;; esac
		[ ! -e "$out/$libraries/$name" ] || continue
		case $found in
		"$PWD"/*) put 0644 "$found" "$libraries/$name" ;;
		*) cannot "$program needs $name, which is in none of ${packages[*]}" ;;
		esac
	done <"$work/needs"
done
for package in "${packages[@]}"; do
	put 0644 "$PWD/usr/share/doc/$package/copyright" "usr/share/doc/$package/copyright"
done
put 0644 "$PWD/usr/lib/os-release" usr/lib/os-release # which Debian it is
