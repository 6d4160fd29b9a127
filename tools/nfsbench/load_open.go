package nfsbench

import "fmt"

// opOpenReadClose reads a small file that is there.
func opOpenReadClose(w *worker) (int, error) {
	i := w.random(smallFiles)
	f, err := w.open(w.home, w.small[i])
	if err != nil {
		return 0, err
	}
	if err := w.readBlock(&f, smallSeed+uint64(i), 0, smallSize); err != nil {
		return 0, err
	}
	w.turn.bytes += smallSize
	return 1, w.close(&f)
}

// makeOwn opens a file that only this worker uses.
func makeOwn(w *worker) error {
	name := w.name("own", w.id)
	if w.ownFile.fh == nil {
		if _, err := w.touch(w.home, name); err != nil && !hasStatus(err, statusExist) {
			return err
		}
	}
	return w.keepOpen(string(name), &w.ownFile)
}

// makeOwnData is makeOwn with data, which the load overwrites.
func makeOwnData(w *worker) error {
	if err := makeOwn(w); err != nil {
		return err
	}
	w.wrote = false // what an earlier phase has written is written over
	if _, err := w.writeBlock(&w.ownFile, smallSeed, 0, mebibyte, false); err != nil {
		return err
	}
	_, err := w.commit(w.ownFile.fh)
	return err
}

func opLock(w *worker) (int, error) {
	if err := w.lock(&w.ownFile); err != nil {
		return 0, err
	}
	return 1, w.unlock(&w.ownFile)
}

// opWriteOwn writes a block of 4 KiB, which no other worker's sync writes to the disk, too.
func opWriteOwn(w *worker) (int, error) {
	offset := uint64(w.random(mebibyte/smallSize)) * smallSize
	if _, err := w.writeBlock(&w.ownFile, w.seed, offset, smallSize, true); err != nil {
		return 0, err
	}
	w.turn.bytes += smallSize
	w.last, w.wrote = offset, true
	return 1, nil
}

// checkOwn checks the last block, and removes the file.
func checkOwn(w *worker) error {
	if w.wrote {
		w.wrote = false
		if err := w.readBlock(&w.ownFile, w.seed, w.last, smallSize); err != nil {
			return fmt.Errorf("read back what was written: %w", err)
		}
	}
	return removeOwn(w)
}

// removeOwn closes and removes the file.
func removeOwn(w *worker) error {
	if err := w.close(&w.ownFile); err != nil {
		return err
	}
	w.ownFile = file{}
	return w.remove(w.home, w.name("own", w.id))
}
