// Package process has the facts about the running podnas that podnas doctor, its checks,
// the status page and the metrics show.
package process

import (
	"path/filepath"
	"time"

	"al.essio.dev/pkg/shellescape"

	"github.com/podnas/podnas/quota"
)

// Values of Info.Mode.
const (
	InCluster  = "cluster"
	Standalone = "standalone"
)

// Info describes the running process. Commands get it as JSON; the fields without a JSON
// name are for the process itself.
type Info struct {
	Version     string    `json:"version"`
	PID         int       `json:"pid"`
	Started     time.Time `json:"started"`
	Mode        string    `json:"mode"`
	Provisioner string    `json:"provisioner"` // its name in StorageClasses
	Root        string    `json:"root"`
	Listen      string    `json:"listen"` // the address of NFS
	Engine      string    `json:"engine"`
	EngineWhy   string    `json:"engineWhy"`
	Rights      string    `json:"rights"`               // on the disk, with what those that lack mean
	QuotaMode   string    `json:"quotaMode"`            // as configured
	Quota       string    `json:"quota"`                // how sizes are enforced
	Overcommit  float64   `json:"overcommit,omitempty"` // 0: only the free space counts

	Namespace string     `json:"-"` // of its pod; empty: it is in none
	Pod       string     `json:"-"` // its name
	Adds      []string   `json:"-"` // capabilities that root lacks
	Enforced  quota.Mode `json:"-"` // what enforces sizes: quota.Kernel, quota.Server or quota.Off
	DiskImage bool       `json:"-"` // the disk is in a file that podnas has mounted
}

// Command is one of podnas's commands as a person calls it from anywhere: by kubectl in its pod, or with its disk.
func (i *Info) Command(args string) string {
	if i.Namespace != "" && i.Pod != "" {
		return "kubectl exec -n " + i.Namespace + " " + i.Pod + " -- podnas " + args
	}
	root := i.Root
	if from, err := filepath.Abs(root); err == nil {
		root = from
	}
	return "podnas " + args + " --root=" + shellescape.Quote(root)
}
