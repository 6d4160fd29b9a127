package main

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/volume"
)

// exporter puts the store's volumes into the server's table. It is also the
// store's volume.Counter, where the server keeps volumes below their sizes.
type exporter struct {
	table  *export.Table
	root   string
	engine server.Choice
	limits quota.Choice
	log    *slog.Logger
}

func (e exporter) Check(o volume.Options) error {
	options := export.Options(o)
	if err := e.engine.Check(&options); err != nil {
		return fmt.Errorf("%w: %w", volume.ErrInvalid, err)
	}
	return nil
}

func (e exporter) Export(v volume.Volume) error {
	if err := e.Check(v.Options); err != nil {
		return err
	}
	path, dir, options := "/"+v.Path, filepath.Join(e.root, v.Path), export.Options(v.Options)
	if !e.counts(v) {
		e.forgetMark(v) // of a time when it was counted
		return e.table.Add(v.ID, path, dir, options)
	}
	return e.table.AddCounted(v.ID, path, dir, options, space.NewAccount(limitOf(v)), e.log)
}

func limitOf(v volume.Volume) space.Limit { return space.Limit{Bytes: v.Size, Inodes: v.Inodes} }

// counts tells whether the server keeps a volume below its size: also where the
// kernel does so for others, and this one has no project.
func (e exporter) counts(v volume.Volume) bool {
	return e.limits.Server || e.limits.Projects != nil && v.Project == 0
}

func (e exporter) Unexport(v volume.Volume) {
	e.table.Remove(v.ID)
	e.forgetMark(v)
}

func (e exporter) forgetMark(v volume.Volume) {
	if err := e.table.ForgetMark(v.ID); err != nil {
		e.log.Warn("accounting: can't forget what a volume used", "volume", v.Name, "err", err)
	}
}

// account is that of a volume which is exported and counted, else nil.
func (e exporter) account(v volume.Volume) *space.Account {
	if exported, ok := e.table.ByID(v.ID); ok {
		return exported.Account()
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
	return quota.Usage{
		Bytes: uint64(max(0, u.Bytes)), Inodes: uint64(max(0, u.Inodes)), Partial: !u.Complete,
		Limit: quota.Limit{Bytes: uint64(u.Limit.Bytes), Inodes: uint64(u.Limit.Inodes)},
	}
}
