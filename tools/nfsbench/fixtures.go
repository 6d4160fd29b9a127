package nfsbench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
)

const (
	smallFiles = 256      // for GETATTR, ACCESS, LOOKUP and OPEN
	smallSize  = 4 << 10  // of those that are opened
	mebibyte   = 1 << 20  // the largest block of the loads
	readSeed   = 0x726561 // of the file that is read
	smallSeed  = 0x736d61 // and of small ones
)

// fixtures are the loads' files on the server. Each is created when the first
// load needs it.
type fixtures struct {
	files [][]byte // the handles of empty files in home
	names [][]byte // and their names
	small [][]byte // names of files of smallSize in home
	read  bool     // the file to read is there
	write bool     // and the one to write
	large []byte   // the handle of a directory of Config.Entries files
}

// needDirs gives every worker its own directory.
func needDirs(ctx context.Context, s *benchmark) error {
	if s.workers[0].dir != nil {
		return nil
	}
	return s.each(ctx, func(w *worker) error {
		dir, err := w.mkdir(s.home, w.name("worker", w.id))
		w.dir = bytes.Clone(dir)
		return err
	})
}

// needFiles creates the small files.
func needFiles(ctx context.Context, s *benchmark) error {
	if s.files != nil {
		return nil
	}
	files, names := make([][]byte, smallFiles), make([][]byte, smallFiles)
	err := s.share(ctx, smallFiles, func(w *worker, i int) error {
		names[i] = bytes.Clone(w.name("file", i))
		fh, err := w.touch(s.home, names[i])
		files[i] = bytes.Clone(fh)
		return err
	})
	if err == nil {
		s.files, s.names = files, names
	}
	return err
}

// needSmall creates the files to open.
func needSmall(ctx context.Context, s *benchmark) error {
	if s.small != nil {
		return nil
	}
	small := make([][]byte, smallFiles)
	err := s.share(ctx, smallFiles, func(w *worker, i int) error {
		small[i] = bytes.Clone(w.name("small", i))
		f, err := w.create(s.home, small[i])
		if err != nil {
			return err
		}
		if _, err := w.writeBlock(&f, smallSeed+uint64(i), 0, smallSize, false); err != nil {
			return err
		}
		if _, err := w.commit(f.fh); err != nil {
			return err
		}
		return w.close(&f)
	})
	if err == nil {
		s.small = small
	}
	return err
}

// needReadFile creates the file to read, and opens it.
func needReadFile(ctx context.Context, s *benchmark) error {
	return s.data(ctx, "read", readSeed, &s.read, func(w *worker) *file { return &w.readFile })
}

// needWriteFile creates the file to write, with its final size, like a
// database's: the loads overwrite it.
func needWriteFile(ctx context.Context, s *benchmark) error {
	return s.data(ctx, "write", smallSeed, &s.write, func(w *worker) *file { return &w.writeFile })
}

// needBeside adds the workers for the load's beside.
func needBeside(_ context.Context, s *benchmark) error {
	if s.beside != nil {
		return nil
	}
	var beside []*worker
	for i := range s.workers {
		beside = append(beside, s.newWorker(len(s.workers)+i))
	}
	if err := s.spread(beside, s.cfg.Depth); err != nil {
		return err
	}
	for _, w := range beside {
		if err := w.keepOpen("write", &w.writeFile); err != nil {
			return err
		}
	}
	s.beside = beside
	return nil
}

// keepOpen opens a file in home, if it isn't open.
func (w *worker) keepOpen(name string, f *file) (err error) {
	if f.fh != nil {
		return nil
	}
	opened, err := w.open(w.home, []byte(name))
	if err == nil {
		opened.fh = bytes.Clone(opened.fh)
		*f = opened
	}
	return err
}

// data makes sure that all workers have a file of Config.FileSize open.
func (s *benchmark) data(ctx context.Context, name string, seed uint64, there *bool, of func(*worker) *file) error {
	if !*there {
		if _, err := s.workers[0].touch(s.home, []byte(name)); err != nil {
			return err
		}
	}
	if err := s.each(ctx, func(w *worker) error { return w.keepOpen(name, of(w)) }); err != nil || *there {
		return err
	}
	err := s.share(ctx, s.blocks(mebibyte), func(w *worker, i int) error {
		_, err := w.writeBlock(of(w), seed, uint64(i)*mebibyte, mebibyte, false)
		return err
	})
	if err == nil {
		_, err = s.workers[0].commit(of(s.workers[0]).fh)
	}
	*there = err == nil
	return err
}

// blocks is the number of blocks of a file of Config.FileSize.
func (s *benchmark) blocks(size int) int { return int(s.cfg.FileSize) / size }

// needLarge creates the large directory.
func needLarge(ctx context.Context, s *benchmark) error {
	if s.large != nil {
		return nil
	}
	dir, err := s.workers[0].mkdir(s.home, []byte("large"))
	if err != nil {
		return err
	}
	dir = bytes.Clone(dir)
	err = s.share(ctx, s.cfg.Entries, func(w *worker, i int) error {
		_, err := w.touch(dir, w.name("entry", i))
		return err
	})
	if err != nil {
		return fmt.Errorf("make a directory of %d files: %w", s.cfg.Entries, err)
	}
	s.large = dir
	return nil
}

// name returns a name with a number, valid until the worker's next.
func (w *worker) name(kind string, i int) []byte {
	w.text = append(w.text[:0], kind...)
	w.text = append(w.text, '-')
	w.text = strconv.AppendInt(w.text, int64(i), 10)
	return w.text
}

// writeBlock writes a block in as many calls as the server wants.
func (w *worker) writeBlock(f *file, seed, offset uint64, n int, stable bool) (written, error) {
	for {
		res, err := w.calls.write(w.filler, f, seed, offset, min(n, w.wtmax), stable)
		if err != nil {
			return res, err
		}
		offset, n = offset+uint64(res.count), n-res.count
		if n == 0 {
			return res, nil
		}
	}
}

// readBlock reads a block in as many calls as the server wants, and checks it.
func (w *worker) readBlock(f *file, seed, offset uint64, n int) error {
	for n > 0 {
		data, eof, err := w.calls.read(f, offset, min(n, w.rtmax))
		if err != nil {
			return err
		}
		if err := w.filler.check(data, seed, offset); err != nil {
			return err
		}
		offset, n = offset+uint64(len(data)), n-len(data)
		if n > 0 && (eof || len(data) == 0) {
			return fmt.Errorf("READ: the file ends at %d, %d bytes early", offset, n)
		}
	}
	return nil
}
