package nfsbench

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

// makeLocked opens the file to lock.
func makeLocked(w *worker) error {
	name := w.name("locked", w.id)
	if w.lockFile.fh == nil {
		if _, err := w.touch(w.home, name); err != nil && !hasStatus(err, statusExist) {
			return err
		}
	}
	return w.keepOpen(string(name), &w.lockFile)
}

func opLock(w *worker) (int, error) {
	if err := w.lock(&w.lockFile); err != nil {
		return 0, err
	}
	return 1, w.unlock(&w.lockFile)
}

// removeLocked closes and removes the file.
func removeLocked(w *worker) error {
	if err := w.close(&w.lockFile); err != nil {
		return err
	}
	w.lockFile = file{}
	return w.remove(w.home, w.name("locked", w.id))
}
