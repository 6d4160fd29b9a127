package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/podnas/podnas/internal/app"
	"github.com/podnas/podnas/internal/status"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
)

const serveExamples = `  # In a pod, as deploy/podnas.yaml runs it
  podnas serve --root=/export

  # Without a cluster: claims are YAML files in a folder
  podnas serve --standalone --root=data/disk --claims=data/claims \
    --listen=127.0.0.1:20490 --http=127.0.0.1:20491

  # Outside the cluster that it serves; nodes mount from 192.0.2.10
  podnas serve --root=/srv/podnas --kubeconfig=$HOME/.kube/config --server-address=192.0.2.10`

func newServeCommand() *cobra.Command {
	var (
		cfg                 app.Config
		image               imageFlag
		logFormat, logLevel string
	)
	cmd := &cobra.Command{
		Use:     "serve",
		Short:   "Serve volumes over NFS and provision claims",
		Example: serveExamples,
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg.NFS4Asked = cmd.Flags().Changed("nfs4")
			cfg.Version, cfg.Image, cfg.Out, cfg.Events = version, image.spec, cmd.OutOrStdout(), &status.Events{}
			var err error
			if cfg.Log, err = newLogger(cmd.ErrOrStderr(), logFormat, logLevel, cfg.Events); err != nil {
				return err
			}
			return serve(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	addRootFlag(f, &cfg.Root, "mount point of the disk that holds the volumes")
	f.Var(&image, "disk-image", "keep the volumes in an XFS with quotas in this file, which is created if missing,\nand mounted on --root, an empty directory: /disk/podnas.img,size=20Gi")
	f.StringVar(&cfg.SharedDisk, "shared-disk", "", "keep the volumes on this block `device` of a SAN, such as /dev/podnas, which several podnas reach and one has:\nthe others are standbys. It is formatted if it is empty, and mounted on --root, an empty directory; it needs\nreservations of SCSI-3, or of NVMe, which are not tested")
	f.StringVar(&cfg.Listen, "listen", ":2049", "TCP address of NFS and MOUNT")
	f.StringVar(&cfg.HTTP, "http", ":8080", "address of the status page (/), the probes (/healthz, /readyz), and the metrics\nfor Prometheus (/metrics)")
	f.StringSliceVar(&cfg.Hosts, "http-host", nil, "further host `names` for the page and the metrics, separated by commas, such as that of\nan Ingress; always accepted: addresses, localhost, names without a dot, and names below\n.localhost, .svc and .cluster.local")
	f.StringVar(&cfg.Handles, "handles", server.HandlesAuto, "how files are found: kernel, by the kernel's handles (needs DAC_READ_SEARCH),\nindex, by an index in memory, or auto: kernel where it can")
	f.IntVar(&cfg.IndexMemory, "index-memory", app.DefaultIndexMemory, "MiB of memory for where files are, if they are found by an index; a million files take 50.\nBeyond it the volumes with the most files forget those that were not used for long")
	f.StringVar(&cfg.Engine, "engine", server.EngineAuto, "NFS engine: native, go-nfs (a library with limits), or auto: native")
	f.StringVar((*string)(&cfg.Quota), "quota", string(quota.Auto), "what enforces sizes: kernel (project quotas; podnas refuses to start without them),\nserver (which counts what clients write), off, or auto: kernel if possible, else server")
	f.Float64Var(&cfg.Overcommit, "overcommit", 0, "limit of the sum of all volumes' sizes, as a multiple of the disk's size: with 1, each\nvolume can always reach its size; 0: no limit, but a new volume must fit into the space\nthat is free at that time, and volumes that fill up later may find the disk full")
	f.BoolVar(&cfg.NewDisk, "new-disk", false, "create volumes although there are PersistentVolumes of another disk, which this disk\nreplaces")
	f.StringVar(&cfg.NewIdentity, "new-identity", "", "the identity of a disk that has lost .podnas/instance.json, if there is no backup: the UUID in\nthe annotation podnas.io/instance of its PersistentVolumes, or random; ignored by others")
	f.StringVar(&cfg.Provisioner, "provisioner", provisioner.DefaultName, "name of this provisioner in StorageClasses")
	f.StringVar(&cfg.ServerAddress, "server-address", "", "IP address that volumes are mounted from, if there is no Service")

	f.BoolVar(&cfg.Standalone, "standalone", false, "serve the claims in a folder instead of a cluster")
	f.StringVar(&cfg.ClaimsDir, "claims", "", "with --standalone: folder with the YAML and JSON files of StorageClasses and\nPersistentVolumeClaims; podnas writes PersistentVolumes to provisioned/ in it")
	f.DurationVar(&cfg.ClaimGrace, "claim-grace", time.Minute, "with --standalone: time from the removal of a claim, and the last change of any\nfile of the folder, until podnas deletes or archives its volume")

	addClusterFlags(f, &cfg.Cluster)

	f.DurationVar(&cfg.ShutdownDelay, "shutdown-delay", 0, "on SIGTERM, how long to continue to serve while not ready: in a pod, until no node\nsends new connections to it")
	f.BoolVar(&cfg.NFS4, "nfs4", true, "serve NFSv4.1 and 4.2 beside NFSv3, with the native engine; new volumes mount with 4.2, unless\ntheir class asks for another version")
	f.DurationVar(&cfg.Lease, "lease", server.DefaultLease, "how long a node that uses NFSv4.1 or 4.2 may be silent before others can have what it has open and\nlocked, from 10s to 2m; Linux gives up a dead connection after as long. After a death of podnas\nall wait for nodes that do not come back, for two leases at most")
	f.BoolVar(&cfg.AttrCache, "attribute-cache", true, "remember attributes of files for a second, or until a client changes them: what is changed directly\non the disk may be seen that late")
	f.StringVar(&cfg.StateLog, "state-log", "", "folder in memory, such as one in /run or an emptyDir with medium Memory: what NFSv4.1 clients\nhave open and locked is logged there, and if podnas dies, they go on with it; empty: they\nhave to reclaim it, for which all wait up to two leases")
	f.DurationVar(&cfg.SlowCall, "slow-call", time.Second, "log calls of clients that take this long or longer, at most ten a minute; 0: never")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func addClusterFlags(f *pflag.FlagSet, c *app.Cluster) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", "", "kubeconfig file for the API server; default: the ServiceAccount of the pod")
	f.StringVar(&c.Master, "master", "", "URL of the API server, instead of the one in --kubeconfig")
	// With these a burst of claims is bound about as fast as the API server
	// can bind it (BenchmarkBind in test/cluster): each claim takes three calls.
	// The API server shares itself out fairly without a client's help.
	f.Float32Var(&c.QPS, "kube-api-qps", 500, "calls to the API server per second")
	f.IntVar(&c.Burst, "kube-api-burst", 1000, "burst of calls to the API server")
	f.IntVar(&c.Workers, "workers", 20, "number of claims and of volumes that are processed concurrently")
	f.BoolVar(&c.LeaderElect, "leader-elect", false, "provision only while holding a Lease named after --provisioner")
	f.StringVar(&c.LeaseNamespace, "leader-elect-namespace", "", "namespace of the Leases for leader election and for the guard against\ntwo podnas with the same --provisioner name; default: $POD_NAMESPACE")
}

// serve runs podnas until ctx ends or a part of it fails.
func serve(ctx context.Context, cfg app.Config) error {
	podnas, err := app.New(cfg)
	if err == nil {
		err = podnas.Run(ctx)
	}
	if meant := new(app.FlagError); errors.As(err, &meant) {
		return &usageError{err}
	}
	return err
}
