package provisioner

// Parameter is a StorageClass parameter, as docs/reference.md describes it.
type Parameter struct {
	Name, Default, Usage string

	set func(p *parameters, value string) error
}

// OnDeleteParameter is the parameter that determines what happens to the files of
// a deleted volume.
const OnDeleteParameter = "onDelete"

// SnapshotsParameter is the parameter with the schedule of a volume's snapshots.
const SnapshotsParameter = "snapshots"

// SnapshotReserveParameter is the parameter with what is promised for a snapshot.
const SnapshotReserveParameter = "snapshotReserve"

// Parameters returns all parameters, sorted by name.
func Parameters() []Parameter {
	return []Parameter{
		{
			"allSquash", "false", `Every user of a client becomes the anonymous user.`,
			func(p *parameters, s string) error { return setBool(&p.options.AllSquash, s) },
		},
		{
			"allowedClients", "everybody", `Who may mount: networks and addresses, IPv4 and IPv6, separated by commas: "10.0.0.0/8, fd00::/8, 192.0.2.7". They must match the source addresses of connections, which are those of nodes, not of pods; a load balancer in between hides them.`,
			(*parameters).setClients,
		},
		{
			"anonGid", "65534", `The group id of the anonymous user, at least 1.`,
			func(p *parameters, s string) error { return setID(&p.options.AnonGID, s) },
		},
		{
			"anonUid", "65534", `The user id of the anonymous user, at least 1.`,
			func(p *parameters, s string) error { return setID(&p.options.AnonUID, s) },
		},
		{
			"bytesPerInode", "4Ki, see volumes.md", `The limit of files in a volume (including directories, symbolic links and so on): one for this many bytes of its size, and at least 1024. A quantity, 256 or more: with "16Ki" a volume of 1Gi may have 65536 files. The limit grows with the claim.`,
			(*parameters).setBytesPerInode,
		},
		{
			"gid", "none", `The group id of the volume's root directory, at least 1. Members may write there, others may only traverse it, and new files inherit the group. kubelet adds the group to every pod that uses the volume (annotation pv.beta.kubernetes.io/gid), so non-root pods need no fsGroup.`,
			(*parameters).setGID,
		},
		{
			"mode", "0777, with gid 2771", `The mode of the root directory, in octal digits.`,
			(*parameters).setMode,
		},
		{
			"mountOptions", "", `Mount options as one string with commas, for classes of older provisioners. The class's field mountOptions takes precedence.`,
			(*parameters).setMountOptions,
		},
		{
			OnDeleteParameter, "delete", `What happens to the files when the volume is deleted (with reclaimPolicy Delete, after its claim): "delete" removes them, "archive" moves them to the archive, "retain" keeps them in their directory. 'podnas volume adopt' restores an archived or retained volume.`,
			(*parameters).setOnDelete,
		},
		{
			"overcommit", "what --overcommit says", `A volume of this class is created only if the sum of all volumes' sizes stays within this multiple of the disk's size: "1" is the disk's size, "2" twice as much. Without it, and without --overcommit, the volume's size must only be free at that time.`,
			(*parameters).setOvercommit,
		},
		{
			"pathPattern", "the volume's name", `The volume's directory on the disk, from values of its claim: "${pvc.namespace}/${pvc.name}".`,
			(*parameters).setPathPattern,
		},
		{
			"privilegedPorts", "true for claims in a cluster", `Refuse calls from source ports of 1024 and above, which any user may bind, like "secure" of knfsd and PrivilegedPort of Ganesha. The kernel mounts from a port below 1024, except with the mount option noresvport, which makes the default "false".`,
			(*parameters).setPrivilegedPorts,
		},
		{
			"readOnly", "false", `Clients can't change anything, and pods mount read-only. Use it for copies of other claims.`,
			func(p *parameters, s string) error { return setBool(&p.options.ReadOnly, s) },
		},
		{
			"rootSquash", "false", `root of a client becomes the anonymous user. Make the volumes' root directory writable for that user: keep the default mode, or set gid or anonGid.`,
			func(p *parameters, s string) error { return setBool(&p.options.RootSquash, s) },
		},
		{
			SnapshotReserveParameter, "100%", `For each [snapshot](snapshots.md#room) that somebody asks for, so much of what the volume uses must be free on the disk, and is promised with an overcommit: what changes later takes room. "0" promises nothing. Scheduled snapshots need no promise, as they are deleted when the disk fills up.`,
			(*parameters).setReserve,
		},
		{
			SnapshotsParameter, "none", `Which [snapshots](snapshots.md#by-a-schedule) podnas takes by itself, and how many it keeps: "hourly=24,daily=7,weekly=4", also "monthly" and "yearly". It needs a disk with XFS or btrfs. 'podnas volume set' changes it for a volume.`,
			(*parameters).setSchedule,
		},
		{
			"sync", "true", `podnas answers a change of names or attributes when it is on the disk. "false" answers earlier: much faster with many small files, but changes of the last seconds are lost if the machine crashes. Synced data is safe either way.`,
			(*parameters).setSync,
		},
		{
			"uid", "root", `The user id of the root directory's owner, at least 1.`,
			func(p *parameters, s string) error { return setID(&p.uid, s) },
		},
	}
}
