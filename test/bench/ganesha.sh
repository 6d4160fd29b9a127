#!/bin/bash
# ganesha.sh PODNAS [FLAGS]: native beside NFS-Ganesha on the XFS at /xfs. run.sh
# starts it in a box or a guest, which are the only places for Ganesha: it lets
# clients out of what it exports, as root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ -e /.sealed ] || grep -q 'User Mode Linux' /proc/cpuinfo || {
	echo "test/bench/ganesha.sh: runs in a box or a guest alone, use WITH=ganesha make bench" >&2
	exit 2
}
podnas=$1
shift
work=/xfs/bench servers=()
mkdir -p $work/ganesha /run/ganesha /var/lib/nfs/ganesha
chmod 777 $work/ganesha
echo '_rpc:x:118:65534::/run/rpcbind:/usr/sbin/nologin' >>/etc/passwd
rpcbind # Ganesha registers there; it goes to the background when it is ready
cat >/run/ganesha/conf <<'CONF'
NFS_CORE_PARAM {
	Protocols = 3;
	NFS_Port = 20490;
	MNT_Port = 20048;
	Enable_NLM = false;
	Enable_RQUOTA = false;
	Enable_UDP = false;
}
NFS_KRB5 { Active_krb5 = false; }
NFSV4 { Graceless = true; } # or the first SETATTR waits for 90 s
LOG { Default_Log_Level = EVENT; }
EXPORT_DEFAULTS { Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 3; }
EXPORT {
	Export_Id = 1;
	Path = /xfs/bench/ganesha;
	Pseudo = /xfs/bench/ganesha;
	Access_Type = RW;
	FSAL { Name = VFS; }
}
CONF
ganesha.nfsd -F -f /run/ganesha/conf -L /run/ganesha/log -p /run/ganesha/pid &
for port in 20490 20048; do
	for ((i = 0; ; i++)); do
		(: </dev/tcp/127.0.0.1/$port) 2>/dev/null && break
		[ $i -lt 60 ] || { tail -n 20 /run/ganesha/log >&2; exit 1; }
		sleep 0.5
	done
done
source "$here/servers.sh"
serve native
"$podnas" bench "$(target native fast)" --against 127.0.0.1:20490:/xfs/bench/ganesha --against-mountport=20048 "$@" 2>&1 | cat # the console is no person
