package nfsbench

import (
	"errors"
	"fmt"
)

func opNull(w *worker) (int, error) { return 1, w.null() }

func opGetattr(w *worker) (int, error) {
	attr, err := w.getattr(w.files[w.random(smallFiles)])
	if err == nil && !attr.regular {
		err = errors.New("GETATTR: a file is not a regular one")
	}
	return 1, err
}

func opAccess(w *worker) (int, error) {
	const want = accessRead | accessModify | accessExtend
	got, err := w.access(w.files[w.random(smallFiles)], want)
	return 1, given(got, want, err)
}

func opLookup(w *worker) (int, error) {
	i := w.random(smallFiles)
	fh, err := w.lookup(w.home, w.names[i])
	if err == nil && len(fh) == 0 {
		err = errors.New("LOOKUP: the server gave no handle")
	}
	return 1, err
}

// block returns the offset of the next block of n bytes.
func (w *worker) block(n int, random bool) uint64 {
	blocks := w.blocks(n)
	if random {
		return uint64(w.random(blocks)) * uint64(n)
	}
	return w.cursor.Add(1) % uint64(blocks) * uint64(n)
}

func opRead(n int, random bool) func(*worker) (int, error) {
	return func(w *worker) (int, error) {
		err := w.readBlock(&w.readFile, readSeed, w.block(n, random), n)
		if err == nil {
			w.turn.bytes += int64(n)
		}
		return 1, err
	}
}

func opWrite(n int, random bool, stable bool) func(*worker) (int, error) {
	return func(w *worker) (int, error) {
		offset := w.block(n, random)
		res, err := w.writeBlock(&w.writeFile, w.seed, offset, n, stable)
		if err == nil {
			w.turn.bytes += int64(n)
			w.last, w.wrote, w.verf = offset, true, res.verf
		}
		return 1, err
	}
}

// checkWritten checks the last block that each worker wrote: all blocks of a turn
// have the same seed, and earlier turns have others.
func checkWritten(n int, stable bool) func(*worker) error {
	return func(w *worker) error {
		if !w.wrote {
			return nil
		}
		w.wrote = false
		if !stable {
			verf, err := w.commit(w.writeFile.fh)
			if err != nil {
				return err
			}
			if verf != w.verf {
				return errors.New("COMMIT: the server has restarted meanwhile, and what was written is lost")
			}
		}
		if err := w.readBlock(&w.writeFile, w.seed, w.last, n); err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
		return nil
	}
}
