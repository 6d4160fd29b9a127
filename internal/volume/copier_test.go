package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/tree"
)

// copier takes snapshots of volumes that nobody changes: it copies them.
type copier struct {
	root string
	// refuse is what CheckSnapshots returns.
	refuse error
	// waited is how long a change waits for a snapshot, and paused how long all do.
	waited, paused time.Duration
	// middle, if set, is called when the tree is half made.
	middle func(context.Context) error

	open     int                         // OpenFiles
	opens    int                         // what OpenFiles is from HoldVolume on, if it is set
	now      func() time.Time            // of the moment of a snapshot; nil: time.Now
	restored func(context.Context) error // of RestoreSnapshot

	mu    sync.Mutex
	held  map[string]int    // by the names of volumes
	shown map[string]string // directories by the names of volumes
	names string            // of the snapshots that were shown last
	// showing, if set, is called with these names.
	showing func(string)
	last    *EarlierSnapshot // of the latest TakeSnapshot
}

func (c *copier) CheckSnapshots(Volume) error { return c.refuse }

func (c *copier) TakeSnapshot(ctx context.Context, v Volume, work *os.File, last *EarlierSnapshot, p *SnapshotProgress) (SnapshotTaken, error) {
	c.mu.Lock()
	c.last = last
	c.mu.Unlock()
	if err := os.WriteFile(filepath.Join(work.Name(), snapshotCatalogue), []byte(v.Name), 0o600); err != nil {
		return SnapshotTaken{}, err
	}
	cut := time.Now()
	if c.now != nil {
		cut = c.now()
	}
	p.Cut.Store(cut.UnixNano())
	if err := unix.Mkdirat(int(work.Fd()), snapshotTree, 0o700); err != nil {
		return SnapshotTaken{}, err
	}
	if c.middle != nil {
		if err := c.middle(ctx); err != nil {
			return SnapshotTaken{}, err
		}
	}
	from, err := os.Open(filepath.Join(c.root, v.Path))
	if err != nil {
		return SnapshotTaken{}, err
	}
	defer from.Close()
	to, err := os.Open(filepath.Join(work.Name(), snapshotTree))
	if err != nil {
		return SnapshotTaken{}, err
	}
	defer to.Close()
	var all tree.Copy
	if err := all.Run(ctx, from, to); err != nil {
		return SnapshotTaken{}, err
	}
	p.Files.Store(all.Files.Load())
	p.Bytes.Store(all.Bytes.Load())
	p.Waited.Store(int64(c.waited))
	p.Paused.Store(int64(c.paused))
	if file := strings.Repeat("long/", 1000) + "not UTF-8 \xff"; c.waited > 0 {
		p.WaitedFor.Store(&file)
	}
	return SnapshotTaken{Cut: cut, Files: all.Files.Load(), Bytes: all.Bytes.Load()}, nil
}

// HoldVolume counts the volumes that are held.
func (c *copier) HoldVolume(_ context.Context, v Volume) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held = map[string]int{}
	}
	c.held[v.Name]++
	if c.opens > 0 {
		c.open = c.opens
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held[v.Name]--
	}, nil
}

// isHeld reports whether clients of a volume wait.
func (c *copier) isHeld(volume string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[volume] == 1
}

// errBefore is of a restore that has changed nothing.
var errBefore = errors.New("the snapshot can't be read")

// RestoreSnapshot makes what the snapshot has of the volume again, by copying it.
func (c *copier) RestoreSnapshot(ctx context.Context, v Volume, name string, p *RestoreProgress) error {
	if c.restored != nil {
		err := c.restored(ctx)
		p.Changed.Store(!errors.Is(err, errBefore))
		if err != nil {
			return err
		}
	}
	from, err := os.Open(filepath.Join(c.root, snapshotsOf(v.ID), snapshotReady, name))
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Open(filepath.Join(c.root, v.Path))
	if err != nil {
		return err
	}
	defer to.Close()
	var all tree.Copy
	if err := all.Run(ctx, from, to); err != nil {
		return err
	}
	p.Files.Store(all.Files.Load())
	return nil
}

func (c *copier) OpenFiles(Volume) int { return c.open }

func (c *copier) ShowSnapshots(v Volume, dir string, all []Snapshot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shown == nil {
		c.shown = map[string]string{}
	}
	c.shown[v.Name] = dir
	var names []string
	for i := range all {
		names = append(names, all[i].Name)
	}
	slices.Sort(names)
	c.names = strings.Join(names, " ")
	if c.showing != nil {
		c.showing(c.names)
	}
	return nil
}

// hold keeps snapshots half made until the returned function is called. Another goroutine has seen that when reached is
// closed.
func (c *copier) hold() (reached <-chan struct{}, letGo func()) {
	at, free := make(chan struct{}), make(chan struct{})
	var once sync.Once
	c.middle = func(ctx context.Context) error {
		once.Do(func() { close(at) })
		select {
		case <-free:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return at, func() { close(free) }
}
