package volume

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// heldAt has the step of a name wait, and tells when it is there.
func heldAt(s *Store, step string) (reached <-chan struct{}, letGo func()) {
	at, hold := make(chan struct{}), make(chan struct{})
	s.step = func(done string) {
		if done == step {
			close(at)
			<-hold
		}
	}
	return at, func() { close(hold) }
}

// What the disk has of a snapshot that is being taken, or deleted, is neither another one nor a problem.
func TestSnapshotOnTheDiskMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		step string
		do   func(*Store) error
		name string // of another one
		want error
	}{
		{"snapshot's record is written", func(s *Store) error {
			_, err := s.CreateSnapshot(context.Background(), "v", "b")
			return err
		}, "b", ErrBusy},
		{"snapshot's tree is in its place", func(s *Store) error {
			_, err := s.CreateSnapshot(context.Background(), "v", "b")
			return err
		}, "b", ErrBusy},
		{"snapshot is in the trash", func(s *Store) error { return s.DeleteSnapshot(context.Background(), "v", "a") }, "a", ErrExists},
		{"snapshot's record is removed", func(s *Store) error { return s.DeleteSnapshot(context.Background(), "v", "a") }, "a", ErrExists},
	} {
		t.Run(tt.step, func(t *testing.T) {
			s, _ := openWith(t, t.TempDir())
			mustCreate(t, s, "v")
			mustSnapshot(t, s, "v", "a")
			reached, letGo := heldAt(s, tt.step)
			done := make(chan error)
			go func() { done <- tt.do(s) }()
			<-reached
			if _, err := s.StartSnapshot(t.Context(), "v", tt.name); !errors.Is(err, tt.want) {
				t.Errorf("another one of that name: %v, want %v", err, tt.want)
			}
			if found, err := s.Check(); err != nil || len(found) != 0 {
				t.Errorf("found: %v, %v", found, err)
			}
			letGo()
			mustDo(t, <-done)
		})
	}
}

// Where the disk can't say which names there are, none is looked for without end.
func TestSnapshotNameOnABrokenDisk(t *testing.T) {
	root := t.TempDir()
	s, _ := openWith(t, root)
	v := mustCreate(t, s, "v")
	mustDo(t, os.MkdirAll(filepath.Join(root, snapshotsOf(v.ID)), 0o700))
	mustDo(t, os.WriteFile(filepath.Join(root, snapshotsOf(v.ID), snapshotReady), nil, 0o600))
	if found, err := s.CreateSnapshot(t.Context(), "v", ""); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("%+v, %v", found, err)
	}
}

// stuckShow has clients of one volume not be told of its snapshots until they are let go.
type stuckShow struct {
	*copier
	reached, hold chan struct{}
}

func (c stuckShow) ShowSnapshots(v Volume, dir string, all []Snapshot) error {
	if v.Name == "stuck" {
		c.reached <- struct{}{}
		<-c.hold
	}
	return c.copier.ShowSnapshots(v, dir, all)
}

// Clients' calls in a snapshot of one volume are nothing that the snapshots of another wait for.
func TestSnapshotBesideStuckClients(t *testing.T) {
	root := t.TempDir()
	c := stuckShow{&copier{root: root}, make(chan struct{}, 10), make(chan struct{})}
	s, err := Open(Config{Root: root, Exports: &exports{}, Snapshots: c, Log: slog.New(slog.DiscardHandler)})
	mustDo(t, err)
	defer s.Close()
	letGo := sync.OnceFunc(func() { close(c.hold) })
	defer letGo()
	mustCreate(t, s, "stuck")
	mustCreate(t, s, "v")
	taken := make(chan error)
	go func() {
		_, err := s.CreateSnapshot(context.Background(), "stuck", "a")
		taken <- err
	}()
	<-c.reached
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begun, err := s.StartSnapshot(ctx, "v", "a")
	mustDo(t, err)
	eventually(t, "a snapshot of another volume is taken", func() bool {
		found, err := s.GetSnapshot("v", begun.Name)
		return err == nil && found.Files == 0
	})
	mustDo(t, s.DeleteSnapshot(ctx, "v", "a"))
	letGo()
	mustDo(t, <-taken)
}

// Whoever has asked for a snapshot may delete the volume for it, so the volume stays until it is complete. The deletion ends one that
// is scheduled.
func TestDeletedWhileSnapshotIsTaken(t *testing.T) {
	for name, remove := range map[string]func(*Store, context.Context, string) error{"deleted": (*Store).Delete, "archived": (*Store).Archive} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			s, c := openWith(t, root)
			mustCreate(t, s, "v")
			writeInto(t, root, "v")
			reached, letGo := c.hold()
			_, err := s.StartUnclaimed(t.Context(), "v", "a")
			mustDo(t, err)
			<-reached
			if err := remove(s, t.Context(), "v"); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "snapshot a of v is being taken") {
				t.Errorf("meanwhile: %v", err)
			}
			if v := s.Served(); len(v) != 1 {
				t.Errorf("served: %v", v)
			}
			letGo()
			eventually(t, "it is complete", func() bool { return len(s.SnapshotsUnderWay()) == 0 })
			mustDo(t, remove(s, t.Context(), "v"))
			hasSnapshots(t, s, "of a volume that is "+name, "v/a")
		})
		t.Run(name+", scheduled", func(t *testing.T) {
			root := t.TempDir()
			s, c := openWith(t, root)
			mustCreate(t, s, "v")
			reached, _ := c.hold()
			taken, err := s.startSnapshot(t.Context(), "v", snapshotSpec{prefix: "hourly-", kinds: []string{"hourly"}, at: time.Now()})
			mustDo(t, err)
			<-reached
			mustDo(t, remove(s, t.Context(), "v"))
			if <-taken.done; !errors.Is(taken.err, ErrBusy) {
				t.Errorf("ended: %v", taken.err)
			}
			if names := snapshotNames(t, s, ""); len(names) > 0 {
				t.Errorf("there are %v", names)
			}
			if left := belowSnapshots(t, root); slices.ContainsFunc(left, func(name string) bool { return name != snapshotReady }) {
				t.Errorf("left: %v", left)
			}
		})
	}
}
