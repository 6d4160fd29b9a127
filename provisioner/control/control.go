// Package control is how commands reach the running podnas: HTTP with JSON over
// a Unix socket on its disk, ROOT/.podnas/control.sock. Whoever may open the
// socket (its owner and root) may do everything.
//
// A command's way: a Client's method (client.go) connects to the socket
// (socket.go) and sends a request; the Server (server.go) asks the volume.Store
// or the Provisioner of the running process and answers with the JSON of what is
// below, or with an Error (errors.go). A command never touches the disk itself,
// so it can't race the process that owns it.
package control

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/volume"
)

// Ready is the state of a volume that clients can mount. The others are
// volume.Copying, volume.Archived and volume.Retained.
const Ready = "ready"

// Volume is a volume and what is known of it besides its record.
type Volume struct {
	volume.Volume
	State string `json:"state"`
	// Since is when it was archived or retained.
	Since *time.Time `json:"since,omitempty"`
	// Used is nil where nothing counts.
	Used *Used `json:"used,omitempty"`
	// Quota is of a volume that clients can mount.
	Quota *Quota `json:"quota,omitempty"`
}

// Quota is how a volume is kept below its size.
type Quota struct {
	By     quota.Mode `json:"by"` // kernel, server or off
	Reason string     `json:"reason"`
}

// Used is what is in a volume.
type Used struct {
	Bytes uint64 `json:"bytes"` // on the disk
	Files uint64 `json:"files"` // and directories and all else
	// Partial: the server still counts what was there when it started.
	Partial bool `json:"partial,omitempty"`
}

type resizeRequest struct {
	Size          int64 `json:"size"`
	BytesPerInode int64 `json:"bytesPerInode,omitempty"` // 0: as it is
	Force         bool  `json:"force,omitempty"`
}

// Manifest is what a cluster needs to use a volume.
type Manifest struct {
	Volume *v1.PersistentVolume `json:"volume"`
	// Claim is the claim that the volume belongs to, nil if there is none.
	Claim *v1.PersistentVolumeClaim `json:"claim,omitempty"`
}
