package gonfs

import (
	"path"
	"strings"
	"sync"

	"github.com/podnas/podnas/server/export"
)

// treeMax is how many paths a tree remembers. Beyond it the tree starts over: it is
// only a cache.
const treeMax = 1 << 20

// tree finds the path of a file from its FileID, for which a direct way would need
// privileged system calls. It caches the paths of files, checks them on every use,
// and walks the volume to find a file that is not cached, as after a restart.
type tree struct {
	opener *export.Opener
	volume *export.Volume

	mu    sync.Mutex
	paths map[export.FileID]string
	// complete: every file is in paths. Others were removed. It is true from the
	// end of a walk until paths starts over.
	complete bool
	// moves counts renamed directories. A walk may miss files below one that is
	// renamed meanwhile.
	moves int

	walking sync.Mutex // held during a walk
}

func newTree(o *export.Opener, v *export.Volume) *tree {
	return &tree{opener: o, volume: v, paths: map[export.FileID]string{}}
}

// remember caches the path of a file.
func (t *tree) remember(file export.FileID, p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.paths) >= treeMax {
		clear(t.paths)
		t.complete = false
	}
	t.paths[file] = p
}

// forget drops a file that was removed at p. If a hard link is left elsewhere, a
// walk finds it.
func (t *tree) forget(file export.FileID, p string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paths[file] == p {
		delete(t.paths, file)
	}
}

// moved changes the path of a file and of all files below it.
func (t *tree) moved(file export.FileID, from, to string, isDir bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paths[file] = to
	if !isDir {
		return
	}
	t.moves++
	for f, p := range t.paths {
		if below, ok := strings.CutPrefix(p, from+"/"); ok {
			t.paths[f] = to + "/" + below
		}
	}
}

// find returns the path of a file; errStale if it is not in the volume.
func (t *tree) find(file export.FileID) (string, error) {
	if p, ok, gone := t.lookup(file); ok {
		return p, nil
	} else if gone {
		return "", errStale
	}
	t.walking.Lock()
	defer t.walking.Unlock()
	if p, ok, gone := t.lookup(file); ok { // found by another's walk
		return p, nil
	} else if gone {
		return "", errStale
	}
	if err := t.walk(); err != nil {
		return "", err
	}
	if p, ok, _ := t.lookup(file); ok {
		return p, nil
	}
	return "", errStale
}

// lookup returns a cached path if it still leads to the file, or gone if the file
// is known to be removed.
func (t *tree) lookup(file export.FileID) (p string, ok, gone bool) {
	t.mu.Lock()
	p, ok = t.paths[file]
	gone = !ok && t.complete
	t.mu.Unlock()
	if !ok {
		return "", false, gone
	}
	dir, err := t.opener.OpenDir(t.volume, path.Dir(p))
	if err != nil {
		return "", false, false
	}
	defer dir.Close()
	found, err := dir.Identify(path.Base(p))
	return p, err == nil && found == file, false
}

// walk caches the path of every file of the volume.
func (t *tree) walk() error {
	t.mu.Lock()
	moves := t.moves
	t.complete = true // unless remember has to start over
	t.paths = map[export.FileID]string{}
	t.mu.Unlock()
	all, err := t.volume.Walk(func(p string, file export.FileID) { t.remember(file, p) })
	t.mu.Lock()
	t.complete = t.complete && all && t.moves == moves
	t.mu.Unlock()
	return err
}
