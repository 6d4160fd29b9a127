#!/bin/bash
# node.sh: makes a Kubernetes node of the User-Mode Linux guest that runs it:
# containerd, kubelet and kube-proxy, on an XFS with project quotas at /xfs.
# It returns when there is a file $RUN/stop.
#
# Environment: RUN  a folder shared with the machine: kubeconfigs, the folder pki
#              LOGS a folder shared with the machine, for logs
#              BIN  the Kubernetes binaries
#              NODE what setup.sh unpacked
#              NAME this node's name
#              IP   its address (default: 10.9.0.2)
#              PODS the range of its pods' addresses (default: 10.244.0.0/24)
#              DISKS  what test/vm/disks.sh has unpacked, for a node with iSCSI (default: none)
#              IMAGES  archives to load, separated by blanks
set -euo pipefail
ip=${IP:-10.9.0.2}
disk=/xfs/node # all the node's own state; the guest's root is in memory
log=$LOGS/$NAME
export PATH=/run/bin:$NODE/usr/bin:$NODE/usr/sbin:$BIN:$PATH
export LD_LIBRARY_PATH=$NODE/usr/lib/x86_64-linux-gnu XTABLES_LIBDIR=$NODE/usr/lib/x86_64-linux-gnu/xtables
mkdir -p "$disk/cni" "$log" /run/bin /run/netns

mount -t cgroup2 cgroup2 /sys/fs/cgroup
for controller in cpu memory pids io; do
	echo "+$controller" >/sys/fs/cgroup/cgroup.subtree_control || true # not all are in this kernel
done
for module in veth bridge br_netfilter nf_conntrack ip_tables iptable_nat iptable_filter iptable_mangle \
	xt_comment xt_MASQUERADE xt_conntrack xt_mark xt_statistic xt_addrtype xt_nat nfsv3 nfsv4 loop; do
	modprobe "$module" || echo "node.sh: no kernel module $module" >&2
done
echo 1 >/proc/sys/net/ipv4/ip_forward
# kube-proxy stops to refuse connections to a Service, and then sends them to its pod, in two steps,
# which here are far apart. What connects between them goes nowhere, and as long as the node
# remembers that, for two minutes after the last attempt, no further one has the rules applied.
echo 1 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_syn_sent
if [ -n "${DISKS:-}" ]; then
	# Kubelet runs iscsiadm, and waits for the name that udev would give the disk.
	PATH+=:$DISKS/usr/sbin:$DISKS/sbin:$DISKS/usr/bin:$DISKS/bin
	LD_LIBRARY_PATH+=:$DISKS/usr/lib/x86_64-linux-gnu:$DISKS/lib/x86_64-linux-gnu
	modprobe iscsi_tcp
	modprobe sd_mod
	mkdir -p /etc/iscsi /run/lock/iscsi /var/lib/iscsi/ifaces /dev/disk/by-path
	echo "InitiatorName=iqn.2026-01.io.podnas:$NAME" >/etc/iscsi/initiatorname.iscsi
	echo >/etc/iscsi/iscsid.conf
	iscsid
	while sleep 0.2; do
		for session in /sys/class/iscsi_session/session*; do
			for disk in "$session"/device/target*/*/block/*; do
				[ -e "$disk" ] || continue
				portal=$(cat "$session"/device/connection*/iscsi_connection/*/persistent_address):3260
				ln -sfn "/dev/${disk##*/}" "/dev/disk/by-path/ip-$portal-iscsi-$(cat "$session/targetname")-lun-0"
			done
		done
		for name in /dev/disk/by-path/*; do
			[ -e "$name" ] || rm -f "$name"
		done
	done &
fi
# This kernel has no nftables, which Debian's iptables uses by default.
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -sf "$NODE/usr/sbin/xtables-legacy-multi" "/run/bin/$name"
done
# kubelet does not start without a clock rate, and this kernel names none.
{ sed '/^$/d' /proc/cpuinfo; echo "cpu MHz : 3000.000"; } >/run/cpuinfo
mount --bind /run/cpuinfo /proc/cpuinfo

cat >"$disk/containerd.toml" <<T
version = 2
root = "$disk/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[ttrpc]
  address = "/run/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "podnas.test/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$NODE/usr/sbin/runc"
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$NODE/usr/lib/cni"
    conf_dir = "$disk/cni"
T
cat >"$disk/cni/10-bridge.conflist" <<T
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "isDefaultGateway": true, "hairpinMode": true, "ipMasq": true,
  "ipam": {"type": "host-local", "dataDir": "$disk/ipam", "ranges": [[{"subnet": "${PODS:-10.244.0.0/24}"}]]}}]}
T
cat >"$disk/kubelet.yaml" <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd.sock
imageServiceEndpoint: unix:///run/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /
enforceNodeAllocatable: []
failSwapOn: false
podLogsDir: $disk/pod-logs
volumePluginDir: $disk/volume-plugins
resolvConf: /dev/null
clusterDNS: [10.96.0.10] # nothing is there; kubelet warns without
evictionHard: {"memory.available": "50Mi"}
imageGCHighThresholdPercent: 100
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $RUN/pki/ca.crt}}
authorization: {mode: Webhook}
syncFrequency: 5s
T

spawn() {
	local name=$1
	shift
	setsid "$@" >"$log/$name.log" 2>&1 </dev/null &
}
spawn containerd containerd -c "$disk/containerd.toml"
ctr() { command ctr -a /run/containerd.sock -n k8s.io "$@"; }
tries=0
until ctr version >/dev/null 2>&1; do
	[ $((tries += 1)) -lt 100 ] || { echo "node.sh: containerd does not answer" >&2; exit 1; }
	sleep 0.2
done
for image in $IMAGES; do
	# As "kind load image-archive" does it.
	ctr images import --all-platforms --digests "$image" >"$log/import.log" 2>&1 ||
		{ echo "node.sh: cannot load $image: $(cat "$log/import.log")" >&2; exit 1; }
done
ctr images ls >"$log/images.log"
spawn kubelet kubelet --config="$disk/kubelet.yaml" --kubeconfig="$RUN/kubelet-$NAME.kubeconfig" --root-dir="$disk/kubelet" \
	--cert-dir="$disk/kubelet-pki" --hostname-override="$NAME" --node-ip="$ip"
spawn kube-proxy kube-proxy --kubeconfig="$RUN/kube-proxy.kubeconfig" --proxy-mode=iptables --cluster-cidr=10.244.0.0/16 \
	--hostname-override="$NAME" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0

# A pipe that nothing comes from: reading it sleeps without starting a program,
# which is slow here.
exec 8<> <(:)
until [ -e "$RUN/stop" ]; do
	read -rt 1 -u 8 || true
done

# What only the node can tell about a failure.
{
	for command in 'conntrack -L' 'ss -tanop' 'iptables-save -t nat' 'mount' 'dmesg'; do
		echo "# $command"
		$command || true # a failing one shows itself
	done
} >"$log/state.log" 2>&1
cp -r "$disk/pod-logs" "$log/pods"
