//go:build vm

package vm_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// TestManyFiles has podnas, with 1,024 descriptors, serve a directory of
// 50,000 entries: it is listed while it changes, and 5,200 files of it are read
// and written. Folder large has 100,000 files.
func TestManyFiles(t *testing.T) {
	nativeOnly(t, "it keeps no file open, and TestFiles lists with it")
	const entries, used, nofile = 50_000, 5_200, 1024
	a := newAppliance(t, settings{nofile: nofile})
	a.start()
	pv := a.volume("many", "512Mi")
	mnt := mount(t, pv)
	disk := filepath.Join(a.dir(pv), "d")
	if err := os.Mkdir(disk, 0o777); err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		name := filepath.Join(disk, fmt.Sprint("stays-", i))
		if i >= used {
			// Without an inode each it is done sooner.
			if err := os.Link(filepath.Join(disk, fmt.Sprint("stays-", i%used)), name); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(name, fmt.Append(nil, i), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, way := range []struct{ what, change string }{
		{"changed on the disk", disk},
		{"changed by the client", filepath.Join(mnt, "d")},
	} {
		t.Run(way.what, func(t *testing.T) { listWhile(t, filepath.Join(mnt, "d"), way.change, entries) })
	}
	t.Run("all used", func(t *testing.T) {
		useAll(t, filepath.Join(mnt, "d"), disk, used)
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", a.cmd.Process.Pid))
		if err != nil || len(fds) > nofile {
			t.Errorf("podnas has %d descriptors open, %v", len(fds), err)
		}
		if strings.Contains(string(a.output()), "too many open files") {
			t.Error("podnas ran out of descriptors")
		}
	})
}

// listWhile lists dir while names come and go in change, which is the same
// directory: the others are seen, and once each.
func listWhile(t *testing.T, dir, change string, entries int) {
	quit, changes := make(chan struct{}), make(chan error, 1)
	go func() {
		changes <- func() error {
			for i := 0; ; i++ {
				select {
				case <-quit:
					return nil
				default:
				}
				name := filepath.Join(change, fmt.Sprint("comes-and-goes-", i))
				if err := os.WriteFile(name, nil, 0o644); err != nil {
					return err
				}
				if i < 10 {
					continue
				}
				if err := os.Remove(filepath.Join(change, fmt.Sprint("comes-and-goes-", i-10))); err != nil {
					return err
				}
			}
		}()
	}()
	dropCaches(t)
	d := open(t, dir)
	seen := make(map[string]int, entries)
	for { // which takes many READDIRs
		names, err := d.Readdirnames(500)
		for _, name := range names {
			seen[name]++
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("after %d names: %v", len(seen), err)
		}
	}
	close(quit)
	if err := <-changes; err != nil {
		t.Error(err)
	}
	wrong := 0
	for i := range entries {
		if n := seen[fmt.Sprint("stays-", i)]; n != 1 {
			if wrong++; wrong < 10 {
				t.Errorf("stays-%d is listed %d times", i, n)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("%d of %d entries that stay are not listed once", wrong, entries)
	}
}

// useAll reads and writes the first n files, several at a time.
func useAll(t *testing.T, dir, disk string, n int) {
	var wg sync.WaitGroup
	for part := range 6 {
		wg.Go(func() {
			for i := part; i < n; i += 6 {
				name := fmt.Sprint("stays-", i)
				if err := useOne(filepath.Join(dir, name), i); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	wg.Wait()
	for i := range n {
		want := fmt.Sprint(i, "+")
		if i%16 != 0 {
			want = fmt.Sprint(i)
		}
		if b, err := os.ReadFile(filepath.Join(disk, fmt.Sprint("stays-", i))); err != nil || string(b) != want {
			t.Fatalf("on the disk file %d holds %q, %v; want %q", i, b, err, want)
		}
	}
}

func useOne(name string, i int) error {
	b, err := os.ReadFile(name)
	if err != nil || string(b) != fmt.Sprint(i) {
		return fmt.Errorf("holds %q: %w", b, err)
	}
	if i%16 != 0 {
		return nil
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("+")
	return errors.Join(err, f.Close())
}
