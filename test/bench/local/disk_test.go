package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Every load does something on a disk, and leaves nothing there.
func TestLoads(t *testing.T) {
	dir := t.TempDir()
	for _, l := range loads() {
		if rate, err := localRate(t.Context(), l, dir, 3, 1<<20, 50*time.Millisecond); err != nil || rate <= 0 {
			t.Errorf("%s: %v a second, %v", l.name, rate, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", l.name, left, err)
		}
	}
	if _, err := choose("create,rename"); err == nil {
		t.Error("a load that is not known here was chosen")
	}
}

// What the operations do can be seen on the disk.
func TestOperations(t *testing.T) {
	dir := t.TempDir()
	maker := &thread{dir: dir}
	if err := maker.makeDir(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(maker.fd)
	made := func() int {
		names, err := os.ReadDir(filepath.Join(dir, "worker-0"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	for range phaseFiles {
		if err := maker.create(); err != nil {
			t.Fatal(err)
		}
	}
	if err := maker.create(); !errors.Is(err, errPhase) || made() != phaseFiles {
		t.Errorf("%v, %d files, want %d", err, made(), phaseFiles)
	}
	if err := maker.empty(); err != nil || made() != 0 {
		t.Errorf("%v, %d files, want none", err, made())
	}

	const size = 1 << 20
	name := filepath.Join(dir, "file")
	if err := makeFile(name, size); err != nil {
		t.Fatal(err)
	}
	writer := &thread{dir: dir, rng: 1, size: size, data: make([]byte, 4<<10)}
	if err := writer.openFile(); err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(writer.fd)
	if err := writer.write(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(name)
	if err != nil || len(data) != size {
		t.Fatalf("%d bytes, %v, want %d", len(data), err, size)
	}
	if zeros := bytes.Count(data, []byte{0}); zeros != 4<<10 {
		t.Errorf("%d bytes were written over, want 4096", zeros)
	}
}
