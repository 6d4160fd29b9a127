// Package control connects commands to the running podnas: HTTP with JSON over a
// Unix socket on its disk, ROOT/.podnas/control.sock. Users who may open the
// socket (its owner and root) may do everything.
//
// A command's path: a Client's method (client.go) connects to the socket
// (socket.go) and sends a request. The Server (server.go) calls the volume.Store
// or the Provisioner of the running process, and replies with the JSON of a type
// below, or of an Error (errors.go). A command never accesses the disk itself, so
// it can't race the process that owns it, and it works the same in a pod and on a machine.
// cmd/podnas turns the Code of an Error into an exit code.
//
// For podnas doctor the Server runs all checks of Findings at the same time, each for at most
// doctor.Timeout: a disk that hangs is reported, and hides no other result. The same doctor.List
// repeats the checks. The metrics show its latest results without waiting, and so does the status
// page, but for the few live checks, which it repeats.
//
// podnas doctor mount and podnas doctor pod do not connect to this socket. The first tests a volume
// from the side of its clients. The second asks only the API server, with the rights of its user,
// because it is for a podnas that does not run.
package control

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/quota"
)

// Volume is a volume's record with its current state.
type Volume struct {
	volume.Volume
	State string `json:"state"` // volume.Ready and so on
	// Problem is why it is damaged or not served, or what the comparison with the cluster
	// found wrong with it, and Fix what to do.
	Problem string `json:"problem,omitempty"`
	Fix     string `json:"fix,omitempty"`
	// Since is when it was archived or retained.
	Since *time.Time `json:"since,omitempty"`
	// Used is nil if usage is not counted.
	Used *quota.Usage `json:"used,omitempty"`
	// Quota is set if clients can mount the volume, and write to it.
	Quota *Quota `json:"quota,omitempty"`
	// Assigning is set while the files of the volume are being assigned to its project: until then its size is not enforced.
	Assigning *Assigning `json:"assigning,omitempty"`
	// StorageClass is the one that its PersistentVolume has.
	StorageClass string `json:"storageClass,omitempty"`
	// Snapshots is how many snapshots it has.
	Snapshots int `json:"snapshots,omitempty"`
	// SnapshotBytes is what they hold at most, and SnapshotsReserved what is promised for them.
	SnapshotBytes     int64 `json:"snapshotBytes,omitempty"`
	SnapshotsReserved int64 `json:"snapshotsReserved,omitempty"`
	// Scheduled is how its schedule is kept, if it has one.
	Scheduled *Scheduled `json:"scheduled,omitempty"`
	// Clients is how many clients have made a call in the volume in the last hour; nil if it
	// is not served.
	Clients *int `json:"clients,omitempty"`
}

// Scheduled is how the schedule of a volume's snapshots is kept.
type Scheduled struct {
	Last time.Time `json:"last,omitzero"` // the moment of the latest
	Next time.Time `json:"next,omitzero"`
	// Problem is why the last one could not be taken, or that it is late.
	Problem string `json:"problem,omitempty"`
}

// Quota says what enforces a volume's size, and why.
type Quota struct {
	By     quota.Mode `json:"by"` // kernel, server or off
	Reason string     `json:"reason"`
}

// Assigning says how the files of a volume are being assigned to its project; Used has how many are.
type Assigning struct {
	// Problem is why the last attempt failed, if it did. There is another one each minute.
	Problem string `json:"problem,omitempty"`
}

type resizeRequest struct {
	Size          int64 `json:"size"`
	BytesPerInode int64 `json:"bytesPerInode,omitempty"` // 0: unchanged
	Force         bool  `json:"force,omitempty"`
}

// settings are what changes in a volume. Fields that are nil stay.
type settings struct {
	Schedule *volume.Schedule `json:"schedule,omitempty"`
	// SnapshotReserve is in percent.
	SnapshotReserve *int `json:"snapshotReserve,omitempty"`
}

// Manifest has the objects that a cluster needs to use a volume.
type Manifest struct {
	Volume *v1.PersistentVolume `json:"volume"`
	// Claim is the volume's claim, or nil.
	Claim *v1.PersistentVolumeClaim `json:"claim,omitempty"`
}
