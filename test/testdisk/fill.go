package testdisk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Fill takes all blocks, or inodes, of a disk with files in a directory, as clients do that never pause. It returns when
// the disk is full, and goes on until the test ends.
func Fill(t *testing.T, dir string, inodes bool) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var all, full sync.WaitGroup
	for i := range 2 {
		full.Add(1)
		all.Go(func() {
			once := sync.OnceFunc(full.Done)
			defer once()
			name := filepath.Join(dir, fmt.Sprint("filler-", i))
			take, end := writer(name)
			if inodes {
				take, end = maker(name), func() {}
			}
			defer end()
			for ctx.Err() == nil {
				switch err := take(); {
				case errors.Is(err, unix.ENOSPC):
					once()
				case err != nil:
					t.Error(err)
					return
				}
			}
		})
	}
	full.Wait()
	t.Cleanup(func() { stop(); all.Wait() })
}

// writer returns what writes to a file: first much, then what is left.
func writer(name string) (take func() error, end func()) {
	f, err := os.Create(name)
	take = func() error {
		if err != nil {
			return err
		}
		_, err := f.Write(make([]byte, 256<<10))
		if err != nil {
			_, _ = f.Write(make([]byte, 4096))
		}
		return err
	}
	return take, func() { _ = f.Close() }
}

// maker returns what makes files.
func maker(name string) func() error {
	n := 0
	return func() error {
		n++
		f, err := os.Create(fmt.Sprint(name, "-", n))
		if err == nil {
			err = f.Close()
		}
		return err
	}
}
