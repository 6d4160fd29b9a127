package nfsbench

import (
	"errors"
	"fmt"

	"github.com/podnas/podnas/nfs/nfs3"
)

func opNull(w *worker) (int, error) { return 1, w.null() }

func opGetattr(w *worker) (int, error) {
	attr, err := w.getattr(w.files[w.random(smallFiles)])
	if err == nil && attr.Type != nfs3.TypeReg {
		err = fmt.Errorf("GETATTR: the file is of type %d", attr.Type)
	}
	return 1, err
}

func opAccess(w *worker) (int, error) {
	const want = nfs3.AccessRead | nfs3.AccessModify | nfs3.AccessExtend
	got, err := w.accessOf(w.files[w.random(smallFiles)], want)
	if err == nil && got != want {
		err = fmt.Errorf("ACCESS: the owner of a file was given %#x of %#x", got, want)
	}
	return 1, err
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
		err := w.readBlock(w.readFile, readSeed, w.block(n, random), n)
		if err == nil {
			w.turn.bytes += int64(n)
		}
		return 1, err
	}
}

func opWrite(n int, random bool, stable nfs3.StableHow) func(*worker) (int, error) {
	return func(w *worker) (int, error) {
		offset := w.block(n, random)
		res, err := w.writeBlock(w.writeFile, w.seed, offset, n, stable)
		if err == nil {
			w.turn.bytes += int64(n)
			w.last, w.wrote, w.verf = offset, true, res.Verf
		}
		return 1, err
	}
}

// checkWritten checks the last block that each worker wrote: all blocks of a turn
// have the same seed, and earlier turns have others.
func checkWritten(n int, stable nfs3.StableHow) func(*worker) error {
	return func(w *worker) error {
		if !w.wrote {
			return nil
		}
		w.wrote = false
		if stable == nfs3.Unstable {
			res, err := w.commit(w.writeFile)
			if err != nil {
				return err
			}
			if res.Verf != w.verf {
				return errors.New("COMMIT: the server has restarted meanwhile, and what was written is lost")
			}
		}
		if err := w.readBlock(w.writeFile, w.seed, w.last, n); err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
		return nil
	}
}
