#!/bin/bash
# taps.sh: run a command in a network namespace with four taps, for guests of
# 'vm.sh -N 0' to '-N 3': each has this side as 10.9.N.1, and the other guests behind it.
# Nothing there can reach any other network.
#
# usage: test/vm/taps.sh COMMAND ARG...
#
# What a guest sends is taken only if it can be answered (rp_filter), so 'ip route add
# blackhole 10.9.N.2' cuts it off both ways. When the command ends, or a signal comes, all
# dies that it has started.
set -euo pipefail
if [ -z "${TAPS:-}" ]; then
	[ -c /dev/net/tun ] || { echo "test/vm/taps.sh: no /dev/net/tun here, and the guests' network are taps" >&2; exit 2; }
	status=0
	# In the background, so that a signal ends it.
	TAPS=1 unshare --net --pid --fork --kill-child --mount-proc "$0" "$@" &
	inner=$!
	trap 'kill -KILL $inner; exit 1' INT TERM
	wait $inner || status=$?
	exit $status
fi
unset TAPS
PATH=$PATH:/usr/sbin:/sbin
ip link set lo up
for n in 0 1 2 3; do
	ip tuntap add "tap$n" mode tap
	ip addr add "10.9.$n.1/24" dev "tap$n"
	ip link set "tap$n" up
	echo 1 >"/proc/sys/net/ipv4/conf/tap$n/rp_filter"
done
echo 1 >/proc/sys/net/ipv4/ip_forward
exec "$@"
