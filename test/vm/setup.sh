#!/bin/bash
# setup.sh: fetch what vm.sh needs: the User-Mode Linux kernel, a newer one where there is
# one, and the few programs that its guest wants and this machine lacks.
#
# Nothing is installed on this machine: Debian packages (the missing ones with
# their missing dependencies) are only unpacked, into $cache/uml, and vm.sh lays
# that folder over the guest's root. So no service of theirs (rpcbind comes with
# nfs-common) ever starts here, now or at the next boot.
# Where the packages are installed already, those are used.
# Idempotent; with everything there it only looks.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}
layer=$cache/uml
PATH=$PATH:/usr/sbin:/sbin

cannot() { echo "test/vm/setup.sh: $*" >&2; exit 2; }
[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] ||
	cannot "User-Mode Linux runs on Linux on x86-64 only, this is $(uname -sm)"
for tool in mount unshare ip; do
	command -v $tool >/dev/null || cannot "no '$tool' here: install util-linux and iproute2"
done

# The program each package is wanted for, or a file of it.
fsal=usr/lib/x86_64-linux-gnu/ganesha/libfsalvfs.so
missing=()
need() { [ -e "$2" ] || command -v "$1" >/dev/null || missing+=("$3"); }
look() { # $1: a root to look in besides this machine's own
	missing=()
	need linux.uml "$1/usr/bin/linux.uml" user-mode-linux
	need mount.nfs "$1/usr/sbin/mount.nfs" nfs-common
	need mkfs.xfs "$1/usr/sbin/mkfs.xfs" xfsprogs
	need mkfs.btrfs "$1/usr/sbin/mkfs.btrfs" btrfs-progs
	need dmsetup "$1/usr/sbin/dmsetup" dmsetup
	need busybox "$1/usr/bin/busybox" busybox-static
	need sqlite3 "$1/usr/bin/sqlite3" sqlite3
	need git "$1/usr/bin/git" git
	need setfattr "$1/usr/bin/setfattr" attr
	need setfacl "$1/usr/bin/setfacl" acl
	need nfs4_setfacl "$1/usr/bin/nfs4_setfacl" nfs4-acl-tools
	need rsync "$1/usr/bin/rsync" rsync
	need qemu-img "$1/usr/bin/qemu-img" qemu-utils
	need gcc "$1/usr/bin/gcc" gcc
	need make "$1/usr/bin/make" make
	[ -e /usr/include/stdio.h ] || [ -e "$1/usr/include/stdio.h" ] || missing+=(libc6-dev)
	need ganesha.nfsd "$1/usr/bin/ganesha.nfsd" nfs-ganesha
	need rpcbind "$1/usr/sbin/rpcbind" rpcbind
	need rpc.nfsd "$1/usr/sbin/rpc.nfsd" nfs-kernel-server
	need iptables-legacy "$1/usr/sbin/iptables-legacy" iptables
	need ipvsadm "$1/usr/sbin/ipvsadm" ipvsadm
	need conntrack "$1/usr/sbin/conntrack" conntrack
	[ -e "/$fsal" ] || [ -e "$1/$fsal" ] || missing+=(nfs-ganesha-vfs)
	# mount.nfs can't tell tcp from udp without /etc/protocols.
	[ -e /etc/protocols ] || [ -e "$1/etc/protocols" ] || missing+=(netbase)
}
# One at a time: a second caller finds all of it when its turn comes.
mkdir -p "$cache"
exec 9>"$cache/setup.lock"
flock 9
look "$layer"
if [ ${#missing[@]} -gt 0 ]; then
	command -v apt-get >/dev/null ||
		cannot "no apt-get here to fetch Debian's ${missing[*]} with: install them, then run this again"
	look /nonexistent # the folder is made anew, so with all this machine lacks
	echo "fetching ${missing[*]} into $layer" >&2
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-setup.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work/debs/partial" "$work/root" "$cache"
	apt_get() {
		DEBIAN_FRONTEND=noninteractive apt-get -qq -o APT::Sandbox::User=root "$@" >"$work/log" 2>&1 ||
			{ tail -n 20 "$work/log" >&2; return 1; }
	}
	known() { [ -n "$(apt-cache show -q "$@" 2>/dev/null)" ]; }
	if ! known user-mode-linux; then
		[ "$(id -u)" = 0 ] || cannot "apt knows no package user-mode-linux: run 'apt-get update' as root"
		apt_get update
		known user-mode-linux || cannot "this system has no package user-mode-linux (Debian has it, in main)"
	fi
	# The lock is of no use, since nothing is installed.
	fetch() {
		apt_get install --yes --download-only --no-install-recommends -o Debug::NoLocking=1 \
			-o Dir::Cache::archives="$work/debs" "${missing[@]}"
	}
	if ! fetch; then
		# Lists that are some weeks old name packages that the mirror no longer has.
		[ "$(id -u)" = 0 ] || cannot "cannot fetch: run 'apt-get update' as root, then this again"
		echo "cannot fetch with the lists of packages that are here: updating them" >&2
		apt_get update
		fetch
	fi
	for deb in "$work"/debs/*.deb; do
		dpkg-deb -x "$deb" "$work/root"
	done
	# /sbin is a link to /usr/sbin on this machine and must stay one when the
	# folder lies over it.
	for dir in bin sbin lib lib64; do
		if [ -d "$work/root/$dir" ] && [ -L "/$dir" ]; then
			mkdir -p "$work/root/usr/$dir"
			cp -a "$work/root/$dir/." "$work/root/usr/$dir/"
			rm -rf "${work:?}/root/$dir"
		fi
	done
	rm -rf "$layer"
	mv "$work/root" "$layer"
	look "$layer"
	[ ${#missing[@]} = 0 ] || cannot "fetched, but there is still nothing of ${missing[*]} in $layer"
fi

# xstate.c says why. Where the processor has no AMX nothing is to be done.
if grep -qw amx_tile /proc/cpuinfo && [ "$here/xstate/xstate.c" -nt "$cache/xstate.so" ]; then
	command -v cc >/dev/null ||
		cannot "User-Mode Linux needs a helper on this processor, and there is no C compiler: install gcc and libc6-dev"
	mkdir -p "$cache"
	cc -O2 -Wall -Werror -shared -fPIC -o "$cache/xstate.so.new" "$here/xstate/xstate.c" -ldl
	mv "$cache/xstate.so.new" "$cache/xstate.so"
fi

# From Linux 6.16 on User-Mode Linux needs no ptrace (seccomp=), and system calls and page faults take
# a fourth of the time. Debian testing has such a kernel, for a newer C library than this machine's, so
# that comes with it. Where they can't be had, guests are only slower.
newer=$cache/uml-newer
fetchNewer() { # into $work
	local list=$work/testing.list
	echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian testing main' >"$list"
	mkdir -p "$work/lists/partial" "$work/root"
	apt_get() {
		timeout 120 apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$list" -o Dir::Etc::sourceparts=- \
			-o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none "$@"
	}
	(cd "$work" && apt_get update && apt_get download user-mode-linux libc6) || return 1
	for deb in "$work"/*.deb; do
		dpkg-deb -x "$deb" "$work/root" || return 1
	done
	mkdir -p "$work/newer/lib"
	mv "$work/root/usr/lib/uml/modules" "$work/newer/" &&
		cp -a "$work"/root/usr/lib/x86_64-linux-gnu/lib*.so* "$work/newer/lib/" &&
		cp "$work/root/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2" "$work/newer/ld.so" || return 1
	# That C library's own interpreter, in the working directory. Its name is as long as the other's.
	local theirs=/lib64/ld-linux-x86-64.so.2 ours=./////////////////////ld.so
	LC_ALL=C sed "s|$theirs|$ours|" "$work/root/usr/bin/linux.uml" >"$work/newer/linux.uml" || return 1
	chmod +x "$work/newer/linux.uml"
}
if [ ! -e "$newer" ] && [ "$(id -u)" = 0 ] && command -v apt-get dpkg-deb >/dev/null; then
	echo "fetching a newer kernel into $newer" >&2
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-setup.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	if fetchNewer >"$work/log" 2>&1 && mv "$work/newer" "$newer" && "$here/vm.sh" -t 60 true >"$work/log" 2>&1; then
		echo "guests have Linux $(ls "$newer/modules")" >&2
	else
		tail -n 5 "$work/log" >&2
		echo "test/vm/setup.sh: no newer kernel from Debian testing, so guests are four times slower" >&2
		rm -rf "$newer"
	fi
fi
