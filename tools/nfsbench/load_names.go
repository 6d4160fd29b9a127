package nfsbench

import (
	"errors"
	"fmt"
)

const (
	// phaseFiles is how many files a worker creates or removes in one phase of a
	// load: enough for a phase of some length, few enough for small directories.
	phaseFiles = 256
	lifeSize   = 4 << 10
	treeFiles  = 16 // in each directory of a tree
)

func opCreate(w *worker) (int, error) {
	if w.made == phaseFiles {
		return 0, errPhase
	}
	_, err := w.touch(w.dir, w.name("made", w.made))
	if err == nil {
		w.made++
	}
	return 1, err
}

// removeMade removes the files of create.
func removeMade(w *worker) error {
	for ; w.made > 0; w.made-- {
		if err := w.remove(w.dir, w.name("made", w.made-1)); err != nil {
			return err
		}
	}
	return nil
}

func makeFull(w *worker) error {
	for w.made < phaseFiles {
		if _, err := opCreate(w); err != nil {
			return err
		}
	}
	return nil
}

func opRemove(w *worker) (int, error) {
	if w.made == 0 {
		return 0, errPhase
	}
	err := w.remove(w.dir, w.name("made", w.made-1))
	if err == nil {
		w.made--
	}
	return 1, err
}

// makeOne creates the file to rename.
func makeOne(w *worker) error {
	if w.made == 1 {
		return nil
	}
	w.seq = 0
	_, err := w.touch(w.dir, w.name("renamed", 0))
	if err == nil {
		w.made = 1
	}
	return err
}

func opRename(w *worker) (int, error) {
	from, to := []byte("renamed-0"), []byte("renamed-1")
	if w.seq%2 == 1 {
		from, to = to, from
	}
	err := w.rename(w.dir, from, to)
	if err == nil {
		w.seq++
	}
	return 1, err
}

func removeRenamed(w *worker) error {
	if w.made == 0 {
		return nil
	}
	w.made = 0
	return w.remove(w.dir, w.name("renamed", w.seq%2))
}

func rewind(w *worker) error {
	w.page, w.found = page{}, 0
	return nil
}

// opList reads the next page of the large directory, and restarts at its end.
func opList(w *worker) (int, error) {
	next, err := w.list(w.large, w.page, nil)
	if err == nil && next.entries == 0 && !next.eof {
		err = errors.New("listing: a page without entries that isn't the last")
	}
	if err != nil {
		return 0, errors.Join(err, rewind(w))
	}
	w.page, w.found = next, w.found+next.entries
	if next.eof {
		if w.found != w.cfg.Entries {
			err = fmt.Errorf("listing: %d entries in a directory of %d", w.found, w.cfg.Entries)
		}
		return next.entries, errors.Join(err, rewind(w))
	}
	return next.entries, nil
}

// absent looks up a name that must not exist, as clients do before a CREATE.
func (w *worker) absent(dir, name []byte) error {
	_, err := w.lookup(dir, name)
	if hasStatus(err, statusNoEnt) {
		return nil
	}
	if err == nil {
		err = fmt.Errorf("LOOKUP: %s is there already", name)
	}
	return err
}

// opSmallFile is the life of a small file. The write is stable, like Linux's when a
// file that fits into one call is closed.
func opSmallFile(w *worker) (int, error) {
	w.seq++
	name := w.name("life", w.seq)
	seed := uint64(w.id)<<32 + uint64(w.seq)
	if err := w.absent(w.dir, name); err != nil {
		return 0, err
	}
	f, err := w.create(w.dir, name)
	if err != nil {
		return 0, err
	}
	if _, err := w.writeBlock(&f, seed, 0, lifeSize, true); err != nil {
		return 0, err
	}
	attr, err := w.getattr(f.fh)
	if err != nil {
		return 0, err
	}
	if attr.size != lifeSize {
		return 0, fmt.Errorf("GETATTR: %d bytes were written, and the file has %d", lifeSize, attr.size)
	}
	if err := w.readBlock(&f, seed, 0, lifeSize); err != nil {
		return 0, err
	}
	if err := w.close(&f); err != nil {
		return 0, err
	}
	w.turn.bytes += 2 * lifeSize
	return 1, w.remove(w.dir, name)
}

// treeSize is a file's size in a tree, 1 to 16 KiB, mostly small.
func treeSize(i int) int { return 1 << 10 << (i * i % 7) }

// opUntar creates a file of a tree, and a directory before every treeFiles files.
func opUntar(w *worker) (int, error) {
	if w.made == phaseFiles {
		return 0, errPhase
	}
	if w.made%treeFiles == 0 {
		dir, err := w.mkdir(w.dir, w.name("tree", w.made/treeFiles))
		if err != nil {
			return 0, err
		}
		w.tree = append(w.tree[:0], dir...)
	}
	name := w.name("made", w.made)
	if err := w.absent(w.tree, name); err != nil {
		return 0, err
	}
	f, err := w.create(w.tree, name)
	if err != nil {
		return 0, err
	}
	size := treeSize(w.made)
	w.made++
	if _, err := w.writeBlock(&f, smallSeed, 0, size, true); err != nil {
		return 0, err
	}
	w.turn.bytes += int64(size)
	if err := w.setattr(f.fh, 0o600, 1e9); err != nil {
		return 0, err
	}
	return 1, w.close(&f)
}

// removeTree removes the files of untar.
func removeTree(w *worker) error {
	for w.made > 0 {
		tree := (w.made - 1) / treeFiles
		dir, err := w.lookup(w.dir, w.name("tree", tree))
		if err != nil {
			return err
		}
		w.tree = append(w.tree[:0], dir...)
		for ; w.made > tree*treeFiles; w.made-- {
			if err := w.remove(w.tree, w.name("made", w.made-1)); err != nil {
				return err
			}
		}
		if err := w.rmdir(w.dir, w.name("tree", tree)); err != nil {
			return err
		}
	}
	return nil
}
