package app

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
)

// exporter serves the volumes of a store: it puts them into the server's table, with an account where the
// server enforces their sizes. It implements volume.Exporter, volume.Counter and
// volume.Snapshotter (snapshots.go). All fields are needed.
type exporter struct {
	Table  *exports.Table
	Root   string // of the disk
	Engine server.Choice
	Limits quota.Choice
	Log    *slog.Logger
	// NFS returns the server, which is made after the volumes are exported.
	NFS func() *server.Server
}

// Counter returns what counts the usage of volumes, or nil if sizes are not enforced.
func (e exporter) Counter() volume.Counter {
	if e.Limits.Mode() == quota.Off {
		return nil
	}
	return e
}

// Check implements volume.Exporter.
func (e exporter) Check(o volume.Options) error {
	options := exports.Options(o)
	if err := e.Engine.Check(&options); err != nil {
		return fmt.Errorf("%w: %w", volume.ErrInvalid, err)
	}
	return nil
}

// Export implements volume.Exporter.
func (e exporter) Export(v volume.Volume) error {
	if e.Engine.Only() == nil { // otherwise the table refuses the volume's clients, not its start
		if err := e.Check(v.Options); err != nil {
			return err
		}
	}
	x := exports.Exported{
		ID: v.ID, Path: "/" + v.Path, Dir: filepath.Join(e.Root, v.Directory()), Options: exports.Options(v.Options), Form: locate.Form(v.Handles),
	}
	if e.Limits.ModeOf(v.Project) == quota.Server && !v.View {
		x.Account = space.NewAccount(limitOf(v))
	} else {
		e.forgetMark(v) // of a time when it was counted
	}
	if err := e.Table.Export(x); err != nil {
		return err
	}
	if served, ok := e.Table.ByID(v.ID); ok && !served.Files.IsByIndex() {
		e.forgetIndex(v) // of a time when it had one
	}
	return nil
}

func limitOf(v volume.Volume) quota.Limit { return quota.Limit{Bytes: v.Size, Inodes: v.Inodes} }

// Unexport implements volume.Exporter.
func (e exporter) Unexport(v volume.Volume) {
	e.Table.Forget(append(e.Table.Remove(v.ID), v.ID)...)
	e.forgetMark(v)
	e.forgetIndex(v)
}

func (e exporter) forgetMark(v volume.Volume) {
	if err := e.Table.ForgetMark(v.ID); err != nil {
		e.Log.Warn("accounting: can't forget what a volume used", "volume", v.Name, "err", err)
	}
}

func (e exporter) forgetIndex(v volume.Volume) {
	if err := e.Table.Indexes.Forget(v.ID); err != nil {
		e.Log.Warn("nfs: can't remove what is kept of a volume's index", "volume", v.Name, "err", err)
	}
}

// account returns the account of an exported volume that the server counts, or nil.
func (e exporter) account(v volume.Volume) *space.Account {
	if exported, ok := e.Table.ByID(v.ID); ok {
		return exported.Account
	}
	return nil
}

// SetLimit implements volume.Counter.
func (e exporter) SetLimit(v volume.Volume) {
	if a := e.account(v); a != nil {
		a.SetLimit(limitOf(v))
	}
}

// Usage implements volume.Counter.
func (e exporter) Usage(v volume.Volume) quota.Usage {
	a := e.account(v)
	if a == nil {
		return quota.Usage{}
	}
	u := a.Usage()
	u.Bytes, u.Inodes = max(0, u.Bytes), max(0, u.Inodes)
	return u
}
