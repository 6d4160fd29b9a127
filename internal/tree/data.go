package tree

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// chunk is how much is copied between pauses.
const chunk = 4 << 20

// copyData copies up to size bytes of a file into an empty one, as a clone with
// shared blocks if the disk supports that.
func (j *job) copyData(ctx context.Context, dst, src *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	if !j.noClone {
		err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
		switch {
		case err == nil:
			j.countClone(dst)
			return nil
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EXDEV), errors.Is(err, unix.ENOTTY):
			j.noClone = true
		case noSpace(err):
			return err
		}
		// Anything else is about this file, like a swap file.
	}
	var at int64
	for at < size {
		data, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // no data up to the end
		}
		if err != nil {
			return err
		}
		hole, err := unix.Seek(int(src.Fd()), data, unix.SEEK_HOLE)
		if errors.Is(err, unix.ENXIO) {
			break // it was cut meanwhile
		}
		if err != nil {
			return err
		}
		for at = data; at < min(hole, size); {
			n, err := j.copyChunk(dst, src, at, min(chunk, hole-at, size-at))
			if err != nil {
				return err
			}
			if n == 0 {
				return nil // it was truncated meanwhile
			}
			at += n
			j.Bytes.Add(n)
			if err := j.walk.pacer.Pause(ctx); err != nil {
				return err
			}
		}
	}
	// A hole at the end.
	info, err := src.Stat()
	if err != nil {
		return err
	}
	if end := min(size, info.Size()); end > at {
		return dst.Truncate(end)
	}
	return nil
}

// countClone counts the bytes of a file on the disk.
func (j *job) countClone(f *os.File) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		j.Bytes.Add(min(st.Size, st.Blocks*512))
	}
}

// copyChunk copies up to n bytes at an offset, and waits until they are on the disk:
// so that no name is there before the data, and that the data does not burden the
// next sync of another file.
func (j *job) copyChunk(dst, src *os.File, at, n int64) (int64, error) {
	done, err := j.copyRange(dst, src, at, n)
	if err != nil || done == 0 {
		return 0, err
	}
	err = unix.SyncFileRange(int(dst.Fd()), at, done,
		unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	if err != nil {
		return 0, err
	}
	// Nobody reads the copy yet: leave the cache to others.
	return done, unix.Fadvise(int(dst.Fd()), at, done, unix.FADV_DONTNEED)
}

func (j *job) copyRange(dst, src *os.File, at, n int64) (int64, error) {
	if !j.noRange {
		from, to := at, at
		done, err := unix.CopyFileRange(int(src.Fd()), &from, int(dst.Fd()), &to, int(n), 0)
		if err == nil || noSpace(err) {
			return int64(done), err
		}
		j.noRange = true // between two disks, or an older kernel
	}
	if j.buffer == nil {
		j.buffer = make([]byte, 1<<20)
	}
	done, err := src.ReadAt(j.buffer[:min(n, int64(len(j.buffer)))], at)
	if done == 0 && errors.Is(err, io.EOF) {
		return 0, nil
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	done, err = dst.WriteAt(j.buffer[:done], at)
	return int64(done), err
}

func noSpace(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}
