package nfsbench

import (
	"bytes"
	"context"
	"fmt"
	"strconv"

	"github.com/podnas/podnas/nfs/nfs3"
)

const (
	smallFiles = 256      // for GETATTR, ACCESS and LOOKUP
	mebibyte   = 1 << 20  // the largest block of the loads
	readSeed   = 0x726561 // of the file that is read
	smallSeed  = 0x736d61 // and of small ones
)

// fixtures are the loads' files on the server. Each is created when the first
// load needs it.
type fixtures struct {
	files     []nfs3.FH // small ones in home
	names     [][]byte  // and their names
	readFile  nfs3.FH
	writeFile nfs3.FH
	large     nfs3.FH // a directory of Config.Entries files
}

// needDirs gives every worker its own directory.
func needDirs(ctx context.Context, s *session) error {
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
func needFiles(ctx context.Context, s *session) error {
	if s.files != nil {
		return nil
	}
	files, names := make([]nfs3.FH, smallFiles), make([][]byte, smallFiles)
	err := s.share(ctx, smallFiles, func(w *worker, i int) error {
		names[i] = bytes.Clone(w.name("file", i))
		fh, err := w.create(s.home, names[i])
		files[i] = bytes.Clone(fh)
		return err
	})
	if err == nil {
		s.files, s.names = files, names
	}
	return err
}

// needReadFile creates the file to read.
func needReadFile(ctx context.Context, s *session) (err error) {
	if s.readFile == nil {
		s.readFile, err = s.data(ctx, "read", readSeed)
	}
	return err
}

// needWriteFile creates the file to write, with its final size, like a
// database's: the loads overwrite it.
func needWriteFile(ctx context.Context, s *session) (err error) {
	if s.writeFile == nil {
		s.writeFile, err = s.data(ctx, "write", smallSeed)
	}
	return err
}

// needBeside adds the workers for the load's beside.
func needBeside(_ context.Context, s *session) error {
	if s.beside == nil {
		for i := range s.workers {
			s.beside = append(s.beside, s.newWorker(len(s.workers)+i))
		}
		s.spread(s.beside)
	}
	return nil
}

// data creates a file of Config.FileSize.
func (s *session) data(ctx context.Context, name string, seed uint64) (nfs3.FH, error) {
	fh, err := s.workers[0].create(s.home, []byte(name))
	if err != nil {
		return nil, err
	}
	fh = bytes.Clone(fh)
	err = s.share(ctx, s.blocks(mebibyte), func(w *worker, i int) error {
		_, err := w.writeBlock(fh, seed, uint64(i)*mebibyte, mebibyte, nfs3.Unstable)
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = s.workers[0].commit(fh)
	return fh, err
}

// blocks is the number of blocks of a file of Config.FileSize.
func (s *session) blocks(size int) int { return int(s.cfg.FileSize) / size }

// needLarge creates the large directory.
func needLarge(ctx context.Context, s *session) error {
	if s.large != nil {
		return nil
	}
	dir, err := s.workers[0].mkdir(s.home, []byte("large"))
	if err != nil {
		return err
	}
	dir = bytes.Clone(dir)
	err = s.share(ctx, s.cfg.Entries, func(w *worker, i int) error {
		_, err := w.create(dir, w.name("entry", i))
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

// keep copies a handle, valid until the worker's next.
func (w *worker) keep(fh nfs3.FH) nfs3.FH {
	w.fh = append(w.fh[:0], fh...)
	return w.fh
}

// writeBlock writes a block in as many calls as the server wants.
func (w *worker) writeBlock(fh nfs3.FH, seed, offset uint64, n int, stable nfs3.StableHow) (nfs3.WriteRes, error) {
	for {
		res, err := w.write(w.filler, fh, seed, offset, min(n, w.wtmax), stable)
		if err != nil {
			return res, err
		}
		offset, n = offset+uint64(res.Count), n-int(res.Count)
		if n == 0 {
			return res, nil
		}
	}
}

// readBlock reads a block in as many calls as the server wants, and checks it.
func (w *worker) readBlock(fh nfs3.FH, seed, offset uint64, n int) error {
	for n > 0 {
		data, eof, err := w.read(fh, offset, min(n, w.rtmax))
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
