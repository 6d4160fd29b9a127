#!/bin/bash
# ports.sh: what becomes of source ports on the way from a node through a ClusterIP to a
# pod, by the rules that kube-proxy makes for it (DNAT, MASQUERADE --random-fully).
#
# It is for docs/security.md; no suite runs it. It needs root, iproute2, python3 and what
# setup.sh has unpacked, and works in network namespaces of its own.
set -euo pipefail
node=${PODNAS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podnas}/node
[ "${1:-}" = inside ] || exec unshare --net --mount "$0" inside
export LD_LIBRARY_PATH=$node/usr/lib/x86_64-linux-gnu XTABLES_LIBDIR=$node/usr/lib/x86_64-linux-gnu/xtables
iptables() { "$node/usr/sbin/xtables-nft-multi" iptables -t nat "$@"; }
mount -t tmpfs none /run

ip netns add pod
ip link set lo up
ip link add pod type veth peer name eth0 netns pod
ip addr add 10.244.0.1/24 dev pod
ip link set pod up
ip addr add 10.9.0.2/32 dev lo # the node's own address
ip route add 10.96.0.0/16 dev pod src 10.9.0.2
ip -n pod addr add 10.244.0.5/24 dev eth0
ip -n pod link set eth0 up
ip -n pod route add default via 10.244.0.1
iptables -A OUTPUT -d 10.96.0.20 -p tcp --dport 2049 -j MARK --set-mark 0x4000
iptables -A OUTPUT -d 10.96.0.20 -p tcp --dport 2049 -j DNAT --to-destination 10.244.0.5:2049
iptables -A POSTROUTING -m mark --mark 0x4000 -j MASQUERADE --random-fully

# It tells each client the port that it sees.
ip netns exec pod python3 -c '
import socket
server = socket.create_server(("10.244.0.5", 2049), backlog=64)
print("listens", flush=True)
while True:
    client, address = server.accept()
    client.sendall(str(address[1]).encode())
    client.close()
' >/run/server &
trap 'kill $!' EXIT
until grep -q listens /run/server; do sleep 0.1; done
python3 -c '
import socket
for low, high in ((1, 511), (512, 1023), (30000, 30511)):
    seen, changed = [], 0
    for port in range(low, high + 1):
        with socket.create_connection(("10.96.0.20", 2049), timeout=5, source_address=("10.9.0.2", port)) as client:
            seen.append(int(client.recv(5)))
        changed += seen[-1] != port
    print(f"from ports {low} to {high}: {len(seen)} connections, {changed} with another port, seen from {min(seen)} to {max(seen)}")
'
