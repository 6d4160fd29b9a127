package provisioner

// Parameter is one that a StorageClass may have, as docs/reference.md tells it.
type Parameter struct {
	Name, Default, Usage string

	set func(p *parameters, value string) error
}

// OnDeleteParameter is the parameter that says what becomes of a volume's files.
const OnDeleteParameter = "onDelete"

// Parameters are all there are, ordered by name.
func Parameters() []Parameter {
	return []Parameter{
		{
			"allSquash", "false", `Every user of a client is the anonymous user.`,
			func(p *parameters, s string) error { return setBool(&p.options.AllSquash, s) },
		},
		{
			"allowedClients", "everybody", `Who may mount: networks and addresses, IPv4 and IPv6, with commas: "10.0.0.0/8, fd00::/8, 192.0.2.7". These are the addresses that connections come from, those of nodes and not of pods; a Service with a load balancer in between hides them.`,
			(*parameters).setClients,
		},
		{
			"anonGid", "65534", `The group of the anonymous user. A number from 1.`,
			func(p *parameters, s string) error { return setID(&p.options.AnonGID, s) },
		},
		{
			"anonUid", "65534", `The anonymous user. A number from 1.`,
			func(p *parameters, s string) error { return setID(&p.options.AnonUID, s) },
		},
		{
			"bytesPerInode", "4Ki, see volumes.md", `How many files a volume may have (directories, symbolic links and all else too): one for each so many bytes of its size, 1024 at least. A quantity, 256 or more: "16Ki" allows a volume of 1Gi 65536 files. When a claim is raised, so is this.`,
			(*parameters).setBytesPerInode,
		},
		{
			"gid", "none", `The group of the volume's root directory. Members may write there, others may only pass, and what is made inside belongs to the group too. kubelet adds the group to every pod that uses the volume (annotation pv.beta.kubernetes.io/gid), so that pods that are not root need no fsGroup. A number from 1.`,
			(*parameters).setGID,
		},
		{
			"mode", "0777, with gid 2771", `The mode of the root directory, in octal digits.`,
			(*parameters).setMode,
		},
		{
			"mountOptions", "", `The class's own field mountOptions as one string with commas, as older provisioners had it. The field goes before.`,
			(*parameters).setMountOptions,
		},
		{
			OnDeleteParameter, "delete", `What becomes of the files when the volume is deleted (with reclaimPolicy Delete, after its claim): "delete" removes them, "archive" moves them away from where they are served, "retain" leaves them in their place. 'podnas volume adopt' brings an archived or retained volume back.`,
			(*parameters).setOnDelete,
		},
		{
			"overcommit", "what --overcommit says", `How many times the size of the disk all volumes together may be promised for one more of this class to be made: "1" promises no more than there is, "2" twice as much. Without it, and without --overcommit, a volume is made if its size is free now.`,
			(*parameters).setOvercommit,
		},
		{
			"pathPattern", "the volume's name", `Where the volume is on the disk, made of what its claim has: "${pvc.namespace}/${pvc.name}".`,
			(*parameters).setPathPattern,
		},
		{
			"privilegedPorts", "true for claims in a cluster", `Who calls from a port from 1024 on, which any user may have, is refused: the "secure" of knfsd, PrivilegedPort of Ganesha. Mounts by the kernel have a port below, unless the mount option noresvport is given, with which the default is "false".`,
			(*parameters).setPrivilegedPorts,
		},
		{
			"readOnly", "false", `Nothing can be changed, and pods mount read-only. For copies of other claims.`,
			func(p *parameters, s string) error { return setBool(&p.options.ReadOnly, s) },
		},
		{
			"rootSquash", "false", `root of a client is the anonymous user. Its volumes' root directory should then be writable for that user: keep the default mode, or set gid or anonGid.`,
			func(p *parameters, s string) error { return setBool(&p.options.RootSquash, s) },
		},
		{
			"sync", "true", `Each change of names and attributes is on the disk before it is answered. "false" answers before: much faster with many small files, and what was changed in the last seconds is lost if the machine dies. Data that was synced is safe either way.`,
			(*parameters).setSync,
		},
		{
			"uid", "root", `The owner of the root directory. A number from 1.`,
			func(p *parameters, s string) error { return setID(&p.uid, s) },
		},
	}
}
