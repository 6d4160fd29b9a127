package nfsbench

import (
	"bytes"
	"context"
	"fmt"
)

// end removes the bench's files from the server, and leaves it. It uses
// new connections, because those of the loads may have failed.
func (s *benchmark) end(ctx context.Context) error {
	cfg := *s.cfg
	cfg.Connections = min(cfg.Connections, 4)
	s.cfg, s.workers, s.beside = &cfg, nil, nil
	err := s.connect(ctx)
	if err == nil {
		err = s.removeAll(ctx, s.root, []byte(s.name))
	}
	s.leave()
	if err != nil {
		return fmt.Errorf("%s is left in %s, remove it by hand: %w", s.name, s.target, err)
	}
	return nil
}

// removeAll removes a directory and its content.
func (s *benchmark) removeAll(ctx context.Context, parent []byte, name []byte) error {
	l := s.workers[0]
	dir, err := l.lookup(parent, name)
	if err != nil {
		return err
	}
	dir = bytes.Clone(dir)
	// A removal may invalidate cookies, so each page read is the first one,
	// until it has no name to remove.
	for {
		var files, dirs [][]byte
		_, err := l.list(dir, page{}, func(name []byte, isDir bool) {
			if isDir {
				dirs = append(dirs, bytes.Clone(name))
			} else {
				files = append(files, bytes.Clone(name))
			}
		})
		if err != nil {
			return err
		}
		if len(files)+len(dirs) == 0 {
			break
		}
		err = s.share(ctx, len(files), func(w *worker, i int) error {
			err := w.remove(dir, files[i])
			// The type is unknown if the server returned no attributes.
			if hasStatus(err, statusIsDir, statusPerm, statusInval) {
				return w.rmdir(dir, files[i])
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range dirs {
			if err := s.removeAll(ctx, dir, name); err != nil {
				return err
			}
		}
	}
	return l.rmdir(parent, name)
}
