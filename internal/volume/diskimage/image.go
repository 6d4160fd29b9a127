// Package diskimage keeps an XFS with project quotas in one file of a disk that
// has none, mounted through a loop device.
//
// Open creates the file if needed, attaches it to a loop device, mounts that, and
// grows the file system to the requested size. From then on the image watches the
// disk below it: see hold. Close unmounts. Open takes over mounts and loop devices
// of a killed process; see loop(4) and xfs(5).
//
// It never writes to a file that podnas did not create: see inspect.
package diskimage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// Sizes are rounded down to whole steps, so that they are whole blocks, and growth
// is worth an allocation group.
const (
	sizeStep = 1 << 20
	minSize  = 300 << 20 // mkfs.xfs's minimum
)

// Spec is the user's configuration.
type Spec struct {
	Path string // of the image, absolute
	Size int64  // in bytes
}

// Validate checks a Spec.
func (s *Spec) Validate() error {
	if !filepath.IsAbs(s.Path) || filepath.Clean(s.Path) != s.Path {
		return fmt.Errorf("disk image %q: use an absolute path", s.Path)
	}
	if s.Size < minSize {
		return fmt.Errorf("disk image of %d bytes is too small: an XFS needs at least 300Mi", s.Size)
	}
	return nil
}

// Explain adds to an error of a disk what it means if the disk is in an image. A nil
// Spec, without an image, returns the error as it is.
func (s *Spec) Explain(err error) error {
	if s == nil || !errors.Is(err, syscall.EIO) {
		return err
	}
	return fmt.Errorf("%w: the XFS in %s has shut down, because its disk failed or because it found damage (the kernel's log says which); "+
		"restart podnas to mount it again; if that fails, podnas says what to run", err, s.Path)
}

// Image is an XFS in a file, mounted.
type Image struct {
	path       string
	mountPoint string
	log        *slog.Logger

	file *os.File // the image; its lock excludes other podnas
	disk *os.File // its directory
	loop *os.File // the loop device
	root *os.File // the root directory of the mounted file system

	full     bool // of hold only: the disk below has no more space
	stop     context.CancelFunc
	watching sync.WaitGroup
}

// Open mounts the image at mountPoint, which it creates if needed. ctx is only for
// Open itself.
func Open(ctx context.Context, spec Spec, mountPoint string, log *slog.Logger) (*Image, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	// The kernel's path; the mount point itself may be a dead mount.
	if parent, err := filepath.EvalSymlinks(filepath.Dir(mountPoint)); err == nil {
		mountPoint = filepath.Join(parent, filepath.Base(mountPoint))
	}
	if inside(spec.Path, mountPoint) {
		return nil, fmt.Errorf("disk image %s is inside its mount point %s: put it elsewhere", spec.Path, mountPoint)
	}
	i := &Image{path: spec.Path, mountPoint: mountPoint, log: log}
	if err := i.open(ctx, spec.Size/sizeStep*sizeStep); err != nil {
		return nil, errors.Join(fmt.Errorf("disk image %s: %w", spec.Path, err), i.close())
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	i.stop = stop
	i.watching.Go(func() { i.watch(watch) })
	return i, nil
}

func (i *Image) open(ctx context.Context, size int64) error {
	var err error
	if i.disk, err = os.Open(filepath.Dir(i.path)); err != nil {
		return err
	}
	_, err = os.Lstat(i.path)
	if errors.Is(err, os.ErrNotExist) {
		i.log.Info("disk image: creating it", "path", i.path, "bytes", size)
		err = create(ctx, i.disk, i.path, size)
	}
	if err != nil {
		return err
	}
	if i.file, err = openImage(i.path); err != nil {
		return err
	}
	super, err := inspect(i.file)
	if err != nil {
		return err
	}
	if i.loop, err = attached(i.file); err != nil {
		return err
	}
	if i.loop != nil {
		i.log.Info("disk image: reusing the loop device of a process that has ended", "device", i.loop.Name())
		if err := xfs.DetachLeft(i.loop, i.mountPoint); err != nil {
			return err
		}
	} else if i.loop, err = attach(ctx, i.file, super.Sector); err != nil {
		return err
	}
	repair := fmt.Sprintf("copy the file away, then run xfs_repair %s while podnas is stopped (in a cluster: deploy/components/disk-image/repair.yaml)", i.path)
	// If it was not unmounted, the kernel recovers the synced state.
	if i.root, err = xfs.Mount(ctx, i.loop.Name(), i.mountPoint, "prjquota,discard", repair, "deploy/overlays/disk-image"); err != nil {
		return err
	}
	if err := i.grow(size); err != nil {
		return err
	}
	if err := i.hold(); err != nil {
		return err
	}
	i.log.Info("disk image: mounted", "path", i.path, "device", i.loop.Name(), "at", i.mountPoint)
	return nil
}

// Close unmounts the image. Nothing may use its files any more.
func (i *Image) Close() error {
	i.stop()
	i.watching.Wait()
	if err := i.close(); err != nil {
		return fmt.Errorf("disk image %s: %w", i.path, err)
	}
	i.log.Info("disk image: unmounted", "path", i.path)
	return nil
}

// close undoes open, even a partial one.
func (i *Image) close() error {
	var errs []error
	if i.root != nil {
		_ = i.root.Close() // only read from; open, it would keep the mount
		errs = append(errs, i.unmount())
	}
	if i.loop != nil {
		errs = append(errs, detach(i.loop))
	}
	if i.file != nil {
		errs = append(errs, i.file.Close())
	}
	if i.disk != nil {
		_ = i.disk.Close() // only read from
	}
	return errors.Join(errs...)
}

func (i *Image) unmount() error {
	later, err := xfs.Unmount(i.mountPoint)
	if later {
		i.log.Warn("disk image: a process has a file open in it; it is unmounted when the file is closed", "at", i.mountPoint)
	}
	return err
}

// inside reports whether a path is dir or below it.
func inside(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
