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
fromTesting() { # what of apt-get
	timeout "$limit" apt-get -qq -o APT::Sandbox::User=root -o Dir::Etc::sourcelist="$work/testing.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::lists="$work/lists" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Languages=none "$@"
}
testing() {
	mkdir -p "$work/lists/partial" "$work/root"
	echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian testing main' >"$work/testing.list"
	limit=300 fromTesting update || { echo 'apt-get update of Debian testing failed, or took 5 minutes'; return 1; }
}
fetchNewer() { # into $work
	testing && (cd "$work" && limit=120 fromTesting download user-mode-linux libc6) || return 1
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
canFetch() { [ "$(id -u)" = 0 ] && command -v apt-get dpkg-deb >/dev/null; }
if [ ! -e "$newer" ] && canFetch; then
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
	rm -rf "$work"
fi

# Debian builds that kernel without the tables of iptables, which kube-proxy needs. They are modules, and those of
# the same version's source fit, built with the kernel's own configuration (NETFILTER_XTABLES_LEGACY changes
# nothing outside x_tables.c). They are only for tests in guests.
buildNAT() { # into $work
	local release source tree ext=$work/ext
	release=$(ls "$newer/modules")
	source=linux-source-${release%.*}
	tree=$work/$source
	testing && (cd "$work" && limit=600 fromTesting download "$source" && apt-get -qq download flex bison m4) || return 1
	for deb in "$work"/*.deb; do
		dpkg-deb -x "$deb" "$work/root" || return 1
	done
	# Without what only drivers and file systems are made of.
	tar -C "$work" -xf "$work/root/usr/src/$source.tar.xz" --anchored --exclude="$source/Documentation/*.*" --exclude="$source/drivers/*.[chS]" \
		--exclude="$source/sound/*.[chS]" --exclude="$source/fs/*.[chS]" --exclude="$source/tools/testing/*" --exclude="$source/arch/*/dts/*" || return 1
	command -v bc >/dev/null || ln -s "$(command -v busybox || echo "$layer/usr/bin/busybox")" "$work/root/usr/bin/bc"
	(
		export PATH=$work/root/usr/bin:$PATH:$layer/usr/bin M4=$work/root/usr/bin/m4 BISON_PKGDATADIR=$work/root/usr/share/bison MAKEFLAGS=
		kernel() { make -s -j2 -C "$tree" ARCH=um "$@"; }
		# The source in testing may be of a later fix.
		sed -i "s/^SUBLEVEL = .*/SUBLEVEL = ${release##*.}/" "$tree/Makefile" &&
			(cd "$newer" && LD_LIBRARY_PATH=$newer/lib ./linux.uml --showconfig) >"$tree/.config" &&
			"$tree/scripts/config" --file "$tree/.config" -e NETFILTER_XTABLES_LEGACY -m IP_NF_IPTABLES_LEGACY -m IP_NF_FILTER -m IP_NF_NAT -m IP_NF_MANGLE &&
			kernel olddefconfig && kernel modules_prepare && [ "$(kernel kernelrelease)" = "$release" ] || exit 1
		mkdir -p "$ext/net/netfilter" "$ext/net/ipv4/netfilter"
		cp "$tree"/net/netfilter/{x_tables.c,xt_repldata.h} "$ext/net/netfilter/" &&
			cp "$tree"/net/ipv4/netfilter/{ip_tables,iptable_filter,iptable_mangle,iptable_nat}.c "$ext/net/ipv4/netfilter/" || exit 1
		echo "obj-m := net/netfilter/x_tables.o $(echo net/ipv4/netfilter/{ip_tables,iptable_filter,iptable_mangle,iptable_nat}.o)" >"$ext/Kbuild"
		# Without a list of what the kernel has: loading them tells.
		kernel M="$ext" KBUILD_MODPOST_WARN=1 modules
	) || return 1
	local module to=$work/nat/$release below=kernel/net/ipv4/netfilter tables=kernel/net/netfilter/x_tables.ko
	mkdir "$work/nat" && cp -r "$newer/modules/$release" "$to" && mkdir -p "$to/$below" || return 1
	for module in net/netfilter/x_tables net/ipv4/netfilter/{ip_tables,iptable_filter,iptable_mangle,iptable_nat}; do
		strip --strip-debug -o "$to/kernel/$module.ko" "$ext/$module.ko" || return 1
	done
	{
		echo "$below/ip_tables.ko: $tables"
		echo "$below/iptable_filter.ko: $below/ip_tables.ko $tables"
		echo "$below/iptable_mangle.ko: $below/ip_tables.ko $tables"
		echo "$below/iptable_nat.ko: $below/ip_tables.ko $tables kernel/net/netfilter/nf_nat.ko$(sed -n 's|^kernel/net/netfilter/nf_nat.ko:||p' "$to/modules.dep")"
	} >>"$to/modules.dep"
}
# A connection to an address that nobody has gets to where a rule leads it.
tryNAT='
ip addr add 10.77.0.1/24 dev lo
busybox nc -ll -p 2049 -e echo here &
iptables-legacy -t nat -A OUTPUT -p tcp -d 10.96.0.1 --dport 2049 -j DNAT --to-destination 10.77.0.1:2049
iptables-legacy -t nat -A POSTROUTING -d 10.77.0.0/16 -j MASQUERADE
iptables-legacy -A OUTPUT -m conntrack --ctstate INVALID -j DROP
ip route add 10.96.0.0/16 dev lo
for try in 1 2 3; do [ "$(busybox nc -w 3 10.96.0.1 2049 </dev/null)" != here ] || exit 0; sleep 1; done
exit 1'
nat=$cache/uml-nat # its modules with those
if [ -e "$newer" ] && [ ! -e "$nat/$(ls "$newer/modules")" ] && canFetch; then
	echo "building the tables of iptables for Linux $(ls "$newer/modules")" >&2
	work=$(mktemp -d "${TMPDIR:-/tmp}/podnas-setup.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	rm -rf "$nat"
	if ! buildNAT >"$work/log" 2>&1 || ! mv "$work/nat" "$nat" || ! "$here/vm.sh" -o -t 180 "$tryNAT" >"$work/log" 2>&1; then
		tail -n 5 "$work/log" >&2
		echo "test/vm/setup.sh: no NAT with the newer kernel, so guests that need it have the older one and are four times slower" >&2
		rm -rf "$nat"
	fi
fi
