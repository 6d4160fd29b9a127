//go:build vm

package vm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBadBlock: a block of the disk can't be read. Programs that read it get EIO, soon, and all others go on: the disk is not lost.
// When somebody writes the block, it is a good one again.
func TestBadBlock(t *testing.T) {
	nativeOnly(t, "the disk is XFS by the device mapper, whatever the engine")
	image := newXFSImage(t, 1<<30)
	command(t, "modprobe", "dm-dust")
	name, dir := fmt.Sprint("podnas-dust-", os.Getpid()), t.TempDir()
	mapDevice(t, name, fmt.Sprintf("0 %d dust %s 0 4096", image.size/512, image.device))
	mountDisk(t, "/dev/mapper/"+name, dir, "xfs", "prjquota")
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	a := newAppliance(t, settings{root: dir})
	a.start()
	t.Run("mounted", func(t *testing.T) { // it ends before the server does
		mnt := mount(t, a.volume("dust", "64Mi"))
		bad, good := filepath.Join(mnt, "bad"), filepath.Join(mnt, "good")
		mustWrite(t, bad, data(1, 4096))
		mustWrite(t, good, data(2, 4096))
		unix.Sync()
		block := image.find(t, data(1, 4096))
		command(t, "dmsetup", "message", name, "0", "addbadblock", fmt.Sprint(block))
		command(t, "dmsetup", "message", name, "0", "enable")
		dropCaches(t)
		began := time.Now()
		for range 3 {
			if _, err := os.ReadFile(bad); !errors.Is(err, syscall.EIO) {
				t.Errorf("reading the bad block: %v, want EIO", err)
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("the errors were told after %v", took)
		}
		holds(t, good, data(2, 4096))
		mustWrite(t, filepath.Join(mnt, "new"), data(3, 4096))
		if !readyAt(probes) {
			t.Error("podnas is not ready")
		}
		f, err := os.OpenFile(bad, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(data(4, 4096), 0) // in its place
		wants(t, "writing the bad block", errors.Join(err, f.Sync(), f.Close()), nil)
		dropCaches(t)
		holds(t, bad, data(4, 4096))
	})
}

// find returns the number of the first block of 4 KiB of the disk that has this content.
func (i *diskImage) find(t *testing.T, content []byte) int64 {
	t.Helper()
	f, err := os.Open(i.device)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	chunk := make([]byte, 4<<20)
	for at := int64(0); at < i.size; at += int64(len(chunk)) {
		if _, err := f.ReadAt(chunk, at); err != nil {
			t.Fatal(err)
		}
		for b := 0; b < len(chunk); b += 4096 {
			if bytes.Equal(chunk[b:b+4096], content) {
				return (at + int64(b)) / 4096
			}
		}
	}
	t.Fatal("the disk does not have the content")
	return 0
}
