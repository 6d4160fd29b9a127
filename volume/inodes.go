package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/podnas/podnas/quota"
)

// A volume has a limit of inodes as it has one of bytes. Without it, files that
// take no blocks (empty ones, symbolic links, and on XFS small directories) would cost a
// volume nothing, and one volume could take all that an ext4 has.
//
// The limit is a share of the size, so it grows with the volume. A volume whose
// inodes nobody has counted yet has none: an adopted directory, a copy, and what an
// older podnas has made, which kept no count. It gets one when they are counted,
// and never less than it uses.

const (
	// defaultBytesPerInode is the block of every file system that matters here. A
	// file with any data takes a block, so a volume of such files is full before it
	// is out of inodes.
	defaultBytesPerInode = 4 << 10
	// MinBytesPerInode is what an inode takes by itself on ext4; on XFS it is twice
	// that.
	MinBytesPerInode = 256
	// minInodes is for volumes that are small.
	minInodes = 1024
	// countPoll is how often the server is asked whether it has counted a volume.
	countPoll = time.Second
)

func checkBytesPerInode(n int64) error {
	if n != 0 && n < MinBytesPerInode {
		return fmt.Errorf("%w: one inode for each %d bytes; it must be %d bytes or more", ErrInvalid, n, MinBytesPerInode)
	}
	return nil
}

// inodesFor is the inode limit of a volume of a size, with one inode for each
// bytesPerInode of it. 0 stands for the default. By that no volume gets more than
// twice its share of what the disk has (ext4 has one inode for each 16 KiB, as a
// rule), and just its share where sizes are promised.
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

// limit is what the record says that a volume may use.
func (v *Volume) limit() quota.Limit {
	return quota.Limit{Bytes: uint64(v.Size), Inodes: uint64(v.Inodes)}
}

// limitInodes gives a volume whose inodes were counted its limit, if it has none
// yet. One that uses more already, or nearly, gets a quarter more than it uses.
func (s *Store) limitInodes(v *Volume, used uint64, log *slog.Logger) error {
	if v.Inodes != 0 {
		return nil
	}
	space, err := s.Space()
	if err != nil {
		return err
	}
	inodes := space.inodesFor(v.Size, v.BytesPerInode, s.overcommit)
	if more := int64(used + used/4); more > inodes {
		log.Warn("volume: uses nearly all inodes of its size's limit, or more; setting its limit a quarter above its usage", "used", used, "bySize", inodes, "limit", more)
		inodes = more
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v.Inodes = inodes
	return nil
}

// limitWhenCounted gives a volume that was just served its inode limit when the
// server, if it is to count it, has done so.
func (s *Store) limitWhenCounted(v Volume) {
	if v.Inodes != 0 || s.counter == nil || s.quota != nil && v.Project != 0 {
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

// errNotCounted means that the server still counts.
var errNotCounted = errors.New("it is not counted yet")

// limitCounted is one try of limitWhenCounted.
func (s *Store) limitCounted(ctx context.Context, v *Volume, log *slog.Logger) error {
	used := uint64(0)
	now, err := s.change(ctx, v.Name, func(now *Volume) error {
		if now.ID != v.ID {
			return ErrNotFound // another has its name
		}
		u := s.counter.Usage(*now)
		if u.Limit.Bytes == 0 || u.Partial {
			return errNotCounted
		}
		used = u.Inodes
		if err := s.limitInodes(now, used, log); err != nil {
			return err
		}
		s.counter.SetLimit(*now) // before anybody can raise it
		return nil
	})
	if err != nil {
		return err
	}
	log.Info("volume: counted its inodes, and set its inode limit", "used", used, "limit", now.Inodes)
	return nil
}
