package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/podnas/podnas/quota"
)

// A volume has a limit of inodes as well as of bytes. Without it, files without blocks
// (empty ones, symbolic links, and on XFS small directories) would cost a volume
// nothing, and one volume could use all inodes of an ext4.
//
// The limit is proportional to the size, so it grows with the volume. A volume has
// no limit until its inodes are counted: an adopted directory, and a copy. It is never
// below the volume's usage then.

const (
	// defaultBytesPerInode is the usual block size of file systems. A file with data
	// uses at least a block, so a volume of such files is full before it is out of
	// inodes.
	defaultBytesPerInode = 4 << 10
	// MinBytesPerInode is the size of an inode on ext4; on XFS it is twice that.
	MinBytesPerInode = 256
	// minInodes is the limit of small volumes.
	minInodes = 1024
	// countPoll is how often to check whether the server has counted a volume.
	countPoll = time.Second
)

func checkBytesPerInode(n int64) error {
	if n != 0 && n < MinBytesPerInode {
		return fmt.Errorf("%w: one inode for each %d bytes; it must be %d bytes or more", ErrInvalid, n, MinBytesPerInode)
	}
	return nil
}

// inodesFor returns the inode limit of a volume: one inode per bytesPerInode of
// its size. With the default, 0, no volume gets more than twice its share of the
// disk's inodes (ext4 usually has one inode per 16 KiB), or exactly its share if
// sizes are promised.
func (d *Space) inodesFor(size, bytesPerInode int64, overcommit float64) int64 {
	if bytesPerInode == 0 {
		bytesPerInode = defaultBytesPerInode
		if d.Inodes > 0 {
			share := d.Size / int64(d.Inodes)
			if overcommit == 0 {
				share /= 2
			}
			bytesPerInode = max(bytesPerInode, share)
		}
	}
	inodes := size / bytesPerInode
	if d.Inodes > 0 {
		inodes = min(inodes, int64(d.Inodes))
	}
	return max(inodes, minInodes)
}

// limit returns a volume's limit according to its record.
func (v *Volume) limit() quota.Limit {
	return quota.Limit{Bytes: v.Size, Inodes: v.Inodes}
}

// limitInodes sets the inode limit of a counted volume that has none yet. If the
// volume already uses that many, or nearly, it gets a quarter more than it uses.
func (s *Store) limitInodes(v *Volume, used int64, log *slog.Logger) error {
	if v.Inodes != 0 {
		return nil
	}
	space, err := s.Space()
	if err != nil {
		return err
	}
	inodes := space.inodesFor(v.Size, v.BytesPerInode, s.overcommit)
	if more := used + used/4; more > inodes {
		log.Warn("volume: uses nearly all inodes of its size's limit, or more; setting its limit a quarter above its usage", "used", used, "bySize", inodes, "limit", more)
		inodes = more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Inodes = inodes
	return nil
}

// limitWhenCounted sets the inode limit of a newly served volume as soon as the
// server has counted it.
func (s *Store) limitWhenCounted(v Volume) {
	if v.View || v.Inodes != 0 || s.counter == nil || s.quota != nil && v.Project != 0 {
		return
	}
	log := s.log.With("volume", v.Name)
	s.working.Go(func() {
		for {
			err := s.limitCounted(s.background, &v, log)
			switch {
			case err == nil || errors.Is(err, ErrNotFound) || s.background.Err() != nil:
				return
			case !errors.Is(err, errNotCounted):
				log.Error("volume: can't set its inode limit, will try again", "err", err)
			}
			select {
			case <-s.background.Done():
				return
			case <-time.After(countPoll):
			}
		}
	})
}

// errNotCounted means that the server is still counting.
var errNotCounted = errors.New("it is not counted yet")

// limitCounted is one attempt of limitWhenCounted.
func (s *Store) limitCounted(ctx context.Context, v *Volume, log *slog.Logger) error {
	used := int64(0)
	now, err := s.change(ctx, v.Name, func(now *Volume) error {
		if now.ID != v.ID {
			return ErrNotFound // another volume has its name
		}
		u := s.counter.Usage(*now)
		if u.Limit.Bytes == 0 || u.Partial {
			return errNotCounted
		}
		used = u.Inodes
		if err := s.limitInodes(now, used, log); err != nil {
			return err
		}
		s.counter.SetLimit(*now) // before a Resize can raise it
		return nil
	})
	if err != nil {
		return err
	}
	log.Info("volume: counted its inodes, and set its inode limit", "used", used, "limit", now.Inodes)
	return nil
}
