package locate

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podnas/podnas/server/disk"
)

// open is an export that does not end.
type open struct{}

func (open) Begin() bool             { return true }
func (open) Done()                   {}
func (open) Ending() <-chan struct{} { return nil }

// keptAt is the index of an empty volume, which has been walked, kept in a directory.
func keptAt(t *testing.T, dir string, log *slog.Logger) (x *Index, file string) {
	t.Helper()
	root, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	if err := ProbeIndex(root.Name()); err != nil {
		t.Skip(err)
	}
	var indexes Indexes
	indexes.Keep(dir)
	indexes.SetUp(0, log)
	on := disk.Of(root)
	v := new(Volume)
	if err := v.SetUp(open{}, Config{ID: 7, Path: "/v", Root: root, FS: &on}, &indexes, FormInode, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	x = v.Index()
	x.walks.ended = 1
	return x, filepath.Join(dir, "7")
}

// named has the index know files that are not there.
func named(x *Index, round int) {
	for n := range keptMin {
		x.names.Add(uint64(1<<40+round*keptMin+n), 1, fmt.Appendf(nil, "name %d %d", round, n), false)
		if round > 0 {
			x.names.Remove(uint64(1<<40+(round-1)*keptMin+n), 1, fmt.Appendf(nil, "name %d %d", round-1, n))
		}
	}
}

// A volume that has become small needs none, and one that changes much gets another file.
func TestKeptIndexSmall(t *testing.T) {
	x, file := keptAt(t, t.TempDir(), slog.New(slog.DiscardHandler))
	size := func() int64 {
		a, err := os.Stat(file)
		if errors.Is(err, fs.ErrNotExist) {
			return 0
		}
		if err != nil {
			t.Fatal(err)
		}
		return a.Size()
	}
	var first int64
	for round := range 40 {
		named(x, round)
		x.save()
		if round == 0 {
			first = size()
		}
	}
	if first == 0 || size() > 3*first {
		t.Errorf("the file has %d bytes, before it had %d", size(), first)
	}
	x.names.Unsee()
	x.names.RemoveUnseen()
	x.save()
	if size() != 0 {
		t.Errorf("the index of an empty volume has %d bytes", size())
	}
}

// What fails each time is said once.
func TestKeptIndexFailsAgain(t *testing.T) {
	state := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(state, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	x, _ := keptAt(t, filepath.Join(state, "index"), slog.New(slog.NewTextHandler(&log, nil)))
	for round := range 3 {
		named(x, round)
		x.kept.retry = time.Time{}
		x.save()
		if x.kept.retry.IsZero() {
			t.Error("it is not tried later")
		}
	}
	if n := strings.Count(log.String(), "can't be kept"); n != 1 {
		t.Errorf("said %d times: %s", n, log.String())
	}
}
