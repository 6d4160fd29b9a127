#!/bin/bash
# setup.sh: fetch what the node of the end-to-end test runs besides Kubernetes:
# containerd, runc, CNI plugins, iptables and conntrack, and the two images that
# are not podnas's (a pause image and busybox).
#
# They are Debian's packages, only unpacked, into $cache/node: nothing is
# installed on this machine. Idempotent; with everything there it only looks.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
node=$cache/node

cannot() { echo "test/e2e/setup.sh: $*" >&2; exit 2; }
# The libraries are those that this machine may lack; each is unpacked even where
# it is installed, so that the result doesn't depend on the machine.
packages=(containerd runc containernetworking-plugins iptables conntrack busybox-static
	libseccomp2 libxtables12 libnftnl11 libip4tc2 libip6tc2 libmnl0 libnfnetlink0 libnetfilter-conntrack3)
[ "$(cat "$node/packages" 2>/dev/null)" != "${packages[*]}" ] || exit 0
for tool in apt-get dpkg-deb; do
	command -v $tool >/dev/null || cannot "no $tool here to fetch Debian's ${packages[*]} with"
done
mkdir -p "$cache"
work=$(mktemp -d "$cache/.setup.XXXXXX") # there, so that the last step is a rename
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/debs" "$work/node/images"
fetch() { (cd "$work/debs" && apt-get -qq -o APT::Sandbox::User=root download "${packages[@]}" >"$work/log" 2>&1); }
echo "fetching ${packages[*]} into $node" >&2
if ! fetch; then
	# The lists may be empty, or name versions that the mirror no longer has.
	[ "$(id -u)" = 0 ] || { cat "$work/log" >&2; cannot "cannot fetch: run 'apt-get update' as root, then this again"; }
	if ! { apt-get -qq update >"$work/log" 2>&1 && fetch; }; then
		tail -n 20 "$work/log" >&2
		cannot "cannot fetch Debian's packages"
	fi
fi
for deb in "$work"/debs/*.deb; do
	dpkg-deb -x "$deb" "$work/node"
done

# busybox as people know it, and the image that holds a pod's namespaces.
busybox=$work/node/bin/busybox
[ -e "$busybox" ] || busybox=$work/node/usr/bin/busybox
root=$work/root
mkdir -p "$root"/{bin,etc,tmp,root,proc,dev,sys}
chmod 1777 "$root/tmp"
cp "$busybox" "$root/bin/busybox"
while read -r applet; do
	[ "$applet" = busybox ] || ln -s busybox "$root/bin/$applet"
done < <("$busybox" --list)
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
"$here/mkimage.sh" docker.io/library/busybox:stable "$root" "$work/node/images/busybox.tar" sh
"$here/mkimage.sh" podnas.test/pause:1 "$root" "$work/node/images/pause.tar" sleep infinity

echo "${packages[*]}" >"$work/node/packages"
rm -rf "$node"
mv "$work/node" "$node"
