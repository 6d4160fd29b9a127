package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/internal/volume"
	"github.com/podnas/podnas/internal/volume/diskimage"
	"github.com/podnas/podnas/provisioner"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/locate"
)

// openDisk mounts the image, where there is one, and finds out what the disk and the process can do.
func (a *App) openDisk(ctx context.Context) (err error) {
	a.exports = &exports.Table{Log: a.Log}
	if err := a.openImage(ctx); err != nil {
		return err
	}
	a.mounted = time.Now()
	if err := a.openShared(ctx); err != nil {
		return err
	}
	if a.shared != nil {
		a.mounted = a.shared.Taken()
	}
	if err := a.checkDisk(); err != nil {
		return err
	}
	_ = quota.DropResource() // an error matters to the quotas of ext4 alone, and is found again there
	if a.limits, err = quota.Select(a.Quota, a.Root); err != nil {
		return err
	}
	a.Log.Info("quota: "+a.limits.Reason, "mode", a.Quota)
	if projects := a.limits.Projects; projects != nil {
		a.endWith(projects.Close)
	}
	if a.engine, err = server.SelectEngine(a.Engine, a.Handles, a.Root); err != nil {
		return err
	}
	if err := a.engine.CheckNFS4(); err != nil && a.NFS4 && a.NFS4Asked {
		return &FlagError{fmt.Errorf("--nfs4: %w", err)}
	}
	return nil
}

// openImage mounts the image at the root, where there is to be one. To be called before
// anything else looks at the root.
func (a *App) openImage(ctx context.Context) error {
	if a.Image == nil {
		return nil
	}
	image, err := diskimage.Open(ctx, *a.Image, a.Root, a.Log)
	if err != nil {
		return err
	}
	a.endWith(func() error { return a.closeExported(image.Close) })
	return nil
}

// openVolumes opens the store, which exports its volumes.
func (a *App) openVolumes(context.Context) (err error) {
	a.exports.ByIndex, a.exports.IndexMax = a.engine.ByIndex, a.IndexMemory<<20
	a.exports.Only, a.exports.Modes = a.engine.Only(), a.below(volume.ModesDir)
	a.exports.GivesRoom = func(id uint64, bytes int64) bool { return a.store.GivesRoom(id, bytes) } // no client is served before there is one
	a.exports.KeepMarks(a.below(volume.UsageDir))
	a.exports.Indexes.Keep(a.below(volume.IndexDir))
	form, earlier, err := locate.Forms(a.Root, a.exports.ByIndex)
	if err != nil {
		return err
	}
	a.served = exporter{Table: a.exports, Root: a.Root, Engine: a.engine, Limits: a.limits, Log: a.Log, NFS: func() *server.Server { return a.nfs }}
	a.store, err = volume.Open(volume.Config{
		Root:       a.Root,
		Exports:    a.served,
		Counter:    a.served.Counter(),
		Snapshots:  a.served,
		Quota:      a.limits,
		Overcommit: a.Overcommit,
		CountOnce:  a.Standalone,
		Log:        a.Log,

		NewIdentity: a.NewIdentity,
		Handles:     string(form), EarlierHandles: string(earlier),
	})
	if err != nil {
		return err
	}
	a.endWith(a.store.Close)
	if err := a.openHeartbeat(); err != nil {
		return err
	}
	a.endWith(func() error {
		a.exports.LastIndexes()
		a.exports.LastMarks()
		return nil
	})
	return nil
}

// openHeartbeat begins to watch the disk, which the store has locked.
func (a *App) openHeartbeat() error {
	folder, err := os.OpenFile(a.below(volume.StateDir), os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0) // the root may be a link
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	dir := statedir.Of(folder, a.store.Reserve(), a.Log)
	cfg := heartbeat.Config{Dir: dir, Reserve: a.store.Reserve(), Mounted: a.mounted, Log: a.Log}
	if a.shared != nil {
		cfg.Holds = a.shared.Holds
	}
	a.heartbeat, err = heartbeat.Open(cfg)
	if err != nil {
		return errors.Join(err, dir.Close())
	}
	a.endWith(func() error {
		a.heartbeat.Close()
		return nil
	})
	return nil
}

// diskError is why clients get no answers, and what that means if the disk is in an image, or nil.
func (a *App) diskError() error { return a.Image.Explain(a.heartbeat.Err()) }

// diskLost is diskError, but nil while clients wait only for the end of the process before this one.
func (a *App) diskLost() error {
	err := a.diskError()
	var waits *heartbeat.TakeoverError
	if errors.As(err, &waits) {
		return nil
	}
	return err
}

// waitBeat returns when a beat has worked that began after the call, however long that takes, or ctx ends.
func (a *App) waitBeat(ctx context.Context) error {
	for a.heartbeat.WaitBeat(ctx.Done()) != nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second): // it has been lost for so long that WaitBeat does not wait
		}
	}
	return nil
}

// openServer makes the server of NFS, and what turns claims into volumes.
func (a *App) openServer(context.Context) (err error) {
	cfg := server.Config{
		Engine:      a.engine,
		Exports:     a.exports,
		HandleKey:   a.store.HandleKey(),
		Removed:     a.below(volume.RemovedDir),
		NoAttrCache: !a.AttrCache,
		Lease:       a.Lease,
		StateLog:    a.StateLog,
		Tables:      a.tables,
		Reserve:     a.store.Reserve(),
		SlowCall:    a.SlowCall,
		Heartbeat:   a.heartbeat,
		Log:         a.Log,
	}
	if a.NFS4 {
		cfg.NFS4 = a.below(volume.ClientsDir)
	}
	if a.nfs, err = server.New(cfg); err != nil {
		return err
	}
	a.store.ResumeRestores() // before a client can see what is not complete
	a.info = a.describe()
	a.volumes = &provisioner.Provisioner{Store: a.store, Name: a.Provisioner, NewDisk: a.NewDisk, NoNFS4: a.noNFS4(a.engine), WaitBeat: a.waitBeat, Log: a.Log}
	a.claims, err = a.newClaims()
	return err
}
