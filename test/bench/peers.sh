# peers.sh: other NFS servers, for a bench and for test/vm, on the XFS at /xfs. Sourced,
# in a box or a guest, which are the only places for them: they let clients out of what
# they export, as root.
[ -e /.sealed ] || grep -q 'User Mode Linux' /proc/cpuinfo || {
	echo "$0: runs in a box or a guest alone, use WITH=ganesha or WITH=client make bench" >&2
	exit 2
}

# answers PORT...: waits for a server on these ports.
answers() {
	local port i
	for port in "$@"; do
		for ((i = 0; ; i++)); do
			(: </dev/tcp/127.0.0.1/$port) 2>/dev/null && break
			[ $i -lt 60 ] || return 1
			sleep 0.5
		done
	done
}

# register: rpcbind, where these servers want to be known. It goes to the background
# when it is ready.
register() {
	echo '_rpc:x:118:65534::/run/rpcbind:/usr/sbin/nologin' >>/etc/passwd
	rpcbind
}

# ganesha DIR: NFS-Ganesha exports DIR by versions 3, 4.1 and 4.2, NFS on port 20490 and MOUNT
# on 20048. With graceless=false it has a grace period after each start, as it has by default:
# then the first SETATTR waits for 90 s.
ganesha() {
	mkdir -p "$1" /run/ganesha /var/lib/nfs/ganesha
	chmod 777 "$1"
	cat >/run/ganesha/conf <<-CONF
		NFS_CORE_PARAM {
			Protocols = 3, 4;
			NFS_Port = 20490;
			MNT_Port = 20048;
			Enable_NLM = false;
			Enable_RQUOTA = false;
			Enable_UDP = false;
		}
		NFS_KRB5 { Active_krb5 = false; }
		NFSV4 { Graceless = ${graceless:-true}; Minor_Versions = 1, 2; }
		LOG { Default_Log_Level = EVENT; }
		EXPORT_DEFAULTS { Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3, 4; }
		EXPORT {
			Export_Id = 1;
			Path = $1;
			Pseudo = $1;
			Access_Type = RW;
			FSAL { Name = VFS; }
		}
	CONF
	ganesha.nfsd -F -f /run/ganesha/conf -L /run/ganesha/log -p /run/ganesha/pid &
	answers 20490 20048 || { tail -n 20 /run/ganesha/log >&2; exit 1; }
}

# knfsd DIR: the guest's own kernel exports DIR, NFS on port 2049 and MOUNT on 20049.
# It need not sync anything (async), which makes it as fast as it can be, unless options=sync says
# otherwise.
knfsd() {
	mkdir -p "$1"
	chmod 777 "$1"
	mount -t tmpfs nfs /var/lib/nfs
	mkdir -p /var/lib/nfs/v4recovery
	touch /etc/exports /var/lib/nfs/etab /var/lib/nfs/rmtab
	modprobe nfsd
	mount -t nfsd nfsd /proc/fs/nfsd
	exportfs -o rw,${options:-async},no_root_squash,no_subtree_check,insecure,fsid=1 "127.0.0.1:$1"
	rpc.mountd -N 4 --port 20049
	rpc.nfsd -V 3 -N 4 --no-udp 8
	answers 2049 20049 || { echo "the kernel's server does not answer" >&2; exit 1; }
}

# knfsd4 DIR EXPORT HIDDEN: the same with version 4.1, for tests. The exports are in DIR, with
# NFS on port 2049 and MOUNT on 20049; nobody here may mount HIDDEN. With nfsdcld it knows which
# clients have said RECLAIM_COMPLETE, and ends its grace period when all have. With options=async
# it need not sync anything.
knfsd4() {
	mkdir -p "$1$2" "$1$3"
	chmod 777 "$1$2" "$1$3"
	printf '[exports]\nrootdir=%s\n' "$1" >/etc/nfs.conf # the overlay at / can't be exported
	mount -t tmpfs nfs /var/lib/nfs
	mkdir -p /var/lib/nfs/nfsdcld /var/lib/nfs/rpc_pipefs /run/rpc_pipefs
	touch /etc/exports /var/lib/nfs/etab /var/lib/nfs/rmtab
	modprobe lockd nlm_timeout=3 nlm_grace_period=3
	modprobe nfsd
	mount -t nfsd nfsd /proc/fs/nfsd
	mount -t rpc_pipefs rpc /run/rpc_pipefs
	mount --bind /run/rpc_pipefs /var/lib/nfs/rpc_pipefs
	nfsdcld
	echo 10 >/proc/fs/nfsd/nfsv4leasetime
	echo 10 >/proc/fs/nfsd/nfsv4gracetime
	exportfs -o rw,${options:-sync},no_root_squash,no_subtree_check,insecure,fsid=1 "127.0.0.1:$2"
	exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=2 "192.0.2.1:$3"
	rpc.mountd --port 20049
	begin_knfsd4
}
begin_knfsd4() {
	rpc.nfsd -V 3 -N 4.0 -V 4.1 -V 4.2 --no-udp 8
	answers 2049 20049
	sleep 3.1 # the grace period of lockd, which is beside its own
}

# share_knfsd4 EXPORT CLIENTS: these may mount it, too.
share_knfsd4() { exportfs -o rw,no_root_squash,no_subtree_check,insecure,fsid=1 "$2:$1"; }

# end_knfsd4: it serves nothing any more, and has nothing open.
end_knfsd4() {
	rpc.nfsd 0
	exportfs -ua
	kill $(busybox pidof rpc.mountd)
}

# restart_knfsd4: it counts the time of its start in seconds, and a restart within one is none.
restart_knfsd4() {
	rpc.nfsd 0
	sleep 1.1
	begin_knfsd4
}
