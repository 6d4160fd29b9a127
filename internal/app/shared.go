package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"syscall"
	"time"

	"github.com/podnas/podnas/internal/volume/shareddisk"
	"github.com/podnas/podnas/server"
)

// errStandby is the error of a standby that is told to end.
var errStandby = errors.New("podnas was a standby until its end")

// openShared returns when the shared disk is this process's own, and mounted at the root. Until then podnas is a standby:
// its pages say so, and its port for NFS is closed, as connections would wait in it for nobody.
//
// What the cluster hears of the active podnas is watched until then, and from then on it is told of this one (active.go).
func (a *App) openShared(ctx context.Context) error {
	if a.SharedDisk == "" {
		return nil
	}
	host, _ := os.Hostname() // it is for people
	silent, stop, err := a.watchActive(ctx)
	if err != nil {
		return err
	}
	a.shared = shareddisk.New(shareddisk.Config{
		Device: a.SharedDisk, MountPoint: a.Root, Name: cmp.Or(os.Getenv("POD_NAME"), host), Silent: silent, Log: a.Log,
	})
	a.pages.standBy(a.shared.Standby)
	err = a.shared.Open(ctx)
	stop()
	if err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return errStandby
		}
		return err
	}
	a.quiet = a.tellActive(ctx)
	a.endWith(func() error { // when the disk is unmounted, which may take longer than a standby waits for news
		a.quiet()
		return nil
	})
	a.endWith(func() error { return a.closeExported(a.shared.Close) })
	a.pages.opening(a.Root)
	port, err := listen("--listen", a.Listen)
	if err != nil {
		return err
	}
	a.nfsPort = port
	return nil
}

// closeExported closes the disk below the exported volumes, which are open, and would keep it mounted.
func (a *App) closeExported(disk func() error) error {
	for _, v := range a.exports.Volumes() {
		a.exports.Remove(v.ID)
	}
	return disk()
}

// failedMax is for how long the file system of a shared disk may fail. Its beat is behind the file system, and may work.
const failedMax = 10 * time.Second

// stayActive returns an error when another podnas has taken the disk, when the file system has shut down: only a new mount
// helps then, on this node or on another; and when clients do not find this podnas, and would find another.
func (a *App) stayActive(ctx context.Context) error {
	if a.shared == nil {
		return nil
	}
	lost := make(chan error, 1)
	go func() { lost <- a.shared.Run(ctx) }()
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var failing time.Time
	for {
		select {
		case err := <-lost:
			if err != nil {
				a.quiet() // the other one is to be heard
			}
			return err
		case <-ticker.C:
		}
		if err := a.cutOff(ctx); err != nil {
			return err
		}
		switch err := a.diskLost(); {
		case !fails(err):
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		case time.Since(failing) >= failedMax:
			return fmt.Errorf("shared disk %s: the file system has failed for %s: this process ends, so that it is mounted anew: %w", a.SharedDisk, failedMax, err)
		}
	}
}

// cutOff returns an error if Kubernetes leads nobody to this podnas, for no reason of its own, and a standby is ready.
func (a *App) cutOff(ctx context.Context) error {
	if a.active == nil {
		return nil
	}
	why := a.active.CutOff()
	if why == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if a.diskError() != nil || server.Ping(ctx, a.nfs.Dial, local(a.address()).String()) != nil {
		return nil // it is not ready by itself, and may be soon
	}
	return fmt.Errorf("%w: this process ends, so that the standby serves", why)
}

// fails reports whether an error of the heartbeat is what a file system says that has failed, and not that the disk does not answer, or
// that this process has no memory or no descriptors.
func fails(err error) bool {
	for _, e := range []error{syscall.EIO, syscall.EROFS, syscall.EUCLEAN} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// standBy serves what a standby has to say: it is ready if it could take the disk over now. It has no metrics, which it says
// in a comment.
func (p *pages) standBy(standby func() (active string, err error)) {
	say := func() (text string, status int) {
		active, err := standby()
		if err != nil {
			return "podnas is a standby, and can't take the disk over: " + err.Error(), http.StatusServiceUnavailable
		}
		return "podnas is a standby: " + active + " has the disk", http.StatusOK
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, status := say()
		w.WriteHeader(status)
		fmt.Fprintln(w, text)
	})
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := say()
		fmt.Fprintln(w, "#", text)
	})
	p.serve(server.NewProbes(nil), page, metrics, page)
}
