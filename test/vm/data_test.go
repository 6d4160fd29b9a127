//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
)

// data returns size bytes that differ for each seed and do not compress.
func data(seed byte, size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

// write writes a file and syncs it. The error is the first of write, fsync and
// close: over NFS a full disk shows in any of them.
func write(name string, b []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func mustWrite(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := write(name, b); err != nil {
		t.Fatal(err)
	}
}

// holds checks that the file holds exactly want.
func holds(t *testing.T, name string, want []byte) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	chunk := make([]byte, 1<<20)
	for at := 0; ; {
		n, err := io.ReadFull(f, chunk)
		if at+n > len(want) || !bytes.Equal(chunk[:n], want[at:at+n]) {
			t.Errorf("%s differs from what was written, after byte %d of %d", name, at, len(want))
			return
		}
		at += n
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if at != len(want) {
				t.Errorf("%s has %d bytes, %d were written", name, at, len(want))
			}
			return
		default:
			t.Errorf("read %s at %d: %v", name, at, err)
			return
		}
	}
}

// gone checks that nothing has the name.
func gone(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is still there (lstat: %v)", name, err)
	}
}

// dropCaches makes the kernel forget what it has cached of all files, so that
// the next read goes to the server.
func dropCaches(t *testing.T) {
	t.Helper()
	if err := dropAllCaches(); err != nil {
		t.Fatal(err)
	}
}

func dropAllCaches() error {
	syscall.Sync()
	return os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0)
}

// noSpace tells whether err is the one of a full volume.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
