package diskimage

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
)

// watchPause is how long the disk below may change unnoticed.
const watchPause = time.Second

// The margin left free on the disk below: a hundredth of it, within these bounds.
// It is for other writes there between two checks, and for the disk's own metadata
// of the image's extents.
const (
	minMargin = 64 << 20
	maxMargin = 1 << 30
)

// watch limits the free space to that of the disk below until ctx ends.
func (i *Image) watch(ctx context.Context) {
	ticker := time.NewTicker(watchPause)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		err := i.hold()
		if err != nil && !failing {
			i.log.Error("disk image: can't limit its free space to that of the backing disk", "err", err)
		}
		failing = err != nil
	}
}

// hold limits the file system's free space to what the disk below can still give:
// XFS puts the rest into its reserve. So df shows the smaller of both, and write(2)
// refuses data that could not be stored, which would otherwise be lost after it
// was acknowledged. To remove files, XFS may use the reserve.
func (i *Image) hold() error {
	s, err := i.survey()
	if err != nil {
		return err
	}
	if full := s.give() == 0; full != i.full {
		i.full = full
		if full {
			i.log.Warn("disk image: the backing disk is full, nothing can be written until there is space", "disk", i.disk.Name(), "free", s.diskFree)
		} else {
			i.log.Info("disk image: the backing disk has free space again", "disk", i.disk.Name(), "free", s.diskFree)
		}
	}
	blocks := uint64(s.reserve()) / s.block
	if blocks == s.reserveBlocks {
		return nil
	}
	return xfs.SetReserve(i.root, blocks)
}

// survey has the space of the file system and of the disk below, in bytes.
type survey struct {
	block         uint64 // the size of one
	reserveBlocks uint64 // the reserve's target

	size, free, reserved int64 // of the file system; reserved is not in free
	image                int64 // the image's usage of the disk below
	diskSize, diskFree   int64
}

func (i *Image) survey() (survey, error) {
	var fs, disk unix.Statfs_t
	if err := unix.Fstatfs(int(i.root.Fd()), &fs); err != nil {
		return survey{}, fmt.Errorf("statfs of the image: %w", err)
	}
	// Of the directory: with a project quota, that is what is left of it.
	if err := unix.Fstatfs(int(i.disk.Fd()), &disk); err != nil {
		return survey{}, fmt.Errorf("statfs of the backing disk: %w", err)
	}
	size, err := xfs.Size(i.root)
	if err != nil {
		return survey{}, err
	}
	r, err := xfs.GetReserve(i.root)
	if err != nil {
		return survey{}, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(i.file.Fd()), &st); err != nil {
		return survey{}, err
	}
	return survey{
		block:         uint64(fs.Bsize),
		reserveBlocks: r.Blocks,
		size:          size,
		free:          int64(fs.Bfree) * fs.Bsize,
		reserved:      int64(r.Available) * fs.Bsize,
		image:         st.Blocks * 512,
		diskSize:      int64(disk.Blocks) * disk.Bsize,
		diskFree:      int64(disk.Bavail) * disk.Bsize,
	}, nil
}

// give is how much more the disk below can give to the image: its free space
// without the margin, and without what the file system uses but has not yet on the
// disk.
func (s survey) give() int64 {
	margin := min(max(s.diskSize/100, minMargin), maxMargin)
	taken := s.size - s.free - s.reserved
	return max(s.diskFree-margin-max(taken-s.image, 0), 0)
}

// reserve is the reserve for which no more is free than can be given, and at least
// what XFS keeps by itself.
func (s survey) reserve() int64 {
	own := min(s.size/20, 8192*int64(s.block))
	return max(s.free+s.reserved-s.give(), own)
}
