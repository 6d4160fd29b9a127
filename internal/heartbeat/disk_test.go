package heartbeat_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/heartbeat"
	"github.com/podnas/podnas/internal/latest"
	"github.com/podnas/podnas/internal/statedir"
	"github.com/podnas/podnas/test/testdisk"
)

// A disk that is read-only holds the replies, and one that is writable again lets them go.
func TestReadOnly(t *testing.T) {
	testdisk.Ext4(t, readOnly)
	testdisk.XFS(t, readOnly)
}

func readOnly(t *testing.T, disk string) {
	h := open(t, disk, heartbeat.Config{})
	mustDo(t, h.Wait(nil))
	remount := func(flags uintptr) {
		t.Helper()
		err := error(unix.EBUSY)
		for end := time.Now().Add(10 * time.Second); errors.Is(err, unix.EBUSY) && time.Now().Before(end); { // a beat has the file open
			err = unix.Mount("", disk, "", unix.MS_REMOUNT|flags, "")
		}
		mustDo(t, err)
	}
	remount(unix.MS_RDONLY)
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	if err := h.Err(); !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	remount(0)
	mustDo(t, h.Wait(nil))
}

// A disk that is frozen answers reads from memory, and hangs else.
func TestFrozen(t *testing.T) {
	testdisk.Ext4(t, frozen)
	testdisk.XFS(t, frozen)
}

func frozen(t *testing.T, disk string) {
	h := open(t, disk, heartbeat.Config{Every: every, Hold: hold, Close: time.Minute})
	root, err := os.Open(disk)
	mustDo(t, err)
	defer root.Close()
	const fiFreeze, fiThaw = 0xC0045877, 0xC0045878 // linux/fs.h
	mustDo(t, unix.IoctlSetInt(int(root.Fd()), fiFreeze, 0))
	thawed := false
	thaw := func() {
		if !thawed {
			thawed = true
			mustDo(t, unix.IoctlSetInt(int(root.Fd()), fiThaw, 0))
		}
	}
	defer thaw()
	if _, err := os.ReadFile(filepath.Join(disk, "state", heartbeat.File)); err != nil {
		t.Errorf("what is in memory: %v", err)
	}
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	var pending *latest.PendingError
	if err := h.Err(); !errors.As(err, &pending) {
		t.Error(err)
	}
	sent := waits(h)
	thaw()
	mustDo(t, <-sent)
}

// A file system that shuts down, as for errors of its disk, answers from memory what it has there.
func TestShutDown(t *testing.T) {
	testdisk.Ext4(t, shutDown)
	testdisk.XFS(t, shutDown)
}

func shutDown(t *testing.T, disk string) {
	h := open(t, disk, heartbeat.Config{})
	mustDo(t, h.Wait(nil))
	root, err := os.Open(disk)
	mustDo(t, err)
	defer root.Close()
	const goingDown, noLogFlush = 0x8004587d, 2 // linux/fs/xfs_fs.h: XFS_IOC_GOINGDOWN; ext4 has the same
	mustDo(t, unix.IoctlSetPointerInt(int(root.Fd()), goingDown, noLogFlush))
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	if err := h.Err(); err == nil {
		t.Error("no error")
	} else {
		t.Log(err)
	}
}

// A full disk is a disk: clients read and remove files.
func TestFullDisk(t *testing.T) {
	for _, what := range []string{"blocks", "inodes"} {
		t.Run(what, func(t *testing.T) {
			testdisk.Small(t, func(t *testing.T, disk string) {
				reserve, err := statedir.OpenReserve(filepath.Join(disk, "reserve"), slog.New(slog.DiscardHandler))
				mustDo(t, err)
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); reserve.Run(ctx) }()
				t.Cleanup(func() { // after the last beat
					stop()
					<-ended
					mustDo(t, reserve.Close())
				})
				h := open(t, disk, heartbeat.Config{Every: every, Hold: long, Close: long, Reserve: reserve})
				mustDo(t, h.Wait(nil))
				eventually(t, "there is a reserve", func() bool {
					_, err := os.Stat(filepath.Join(disk, "reserve", "large-15"))
					return err == nil
				})
				mustDo(t, os.Mkdir(filepath.Join(disk, "filled"), 0o755))
				testdisk.Fill(t, filepath.Join(disk, "filled"), what == "inodes")
				for range 10 {
					time.Sleep(hold / 4)
					if err := h.Err(); err != nil || h.Full() {
						t.Fatalf("held on a full disk: %v, full: %v", err, h.Full())
					}
				}
				// Somebody removes the file, and those who fill the disk come first.
				mustDo(t, os.Remove(filepath.Join(disk, "state", heartbeat.File)))
				eventually(t, "the file is there again", func() bool {
					st, err := os.Stat(filepath.Join(disk, "state", heartbeat.File))
					return err == nil && st.Size() > 0
				})
				if err := h.Err(); err != nil {
					t.Errorf("when the file was removed: %v", err)
				}
			})
		})
	}
}

// Where the file can't be made on a full disk, another file says whether the disk answers. Without one, that is not known.
func TestFullDiskWithoutTheFile(t *testing.T) {
	testdisk.Small(t, func(t *testing.T, disk string) {
		dir, err := statedir.Open(filepath.Join(disk, "state"), nil, slog.New(slog.DiscardHandler))
		mustDo(t, err)
		defer dir.Close()
		mustDo(t, dir.Write("other", []byte("content")))
		mustDo(t, os.Mkdir(filepath.Join(disk, "filled"), 0o755))
		testdisk.Fill(t, filepath.Join(disk, "filled"), true)
		if err := heartbeat.Overwrite(dir, make([]byte, 4096)); !statedir.IsFull(err) {
			t.Errorf("with another file: %v", err)
		}
		mustDo(t, os.Truncate(filepath.Join(disk, "state", "other"), 0))
		if err := heartbeat.Overwrite(dir, make([]byte, 4096)); err == nil || statedir.IsFull(err) {
			t.Errorf("without: %v", err)
		}
	})
}

// A disk that can be written to, but that another has, is lost.
func TestHolds(t *testing.T) {
	t.Parallel()
	var f fault
	h := open(t, t.TempDir(), heartbeat.Config{Holds: func() error { return f.overwrite(nil) }})
	mustDo(t, h.Wait(nil))
	f.set(errors.New("another podnas has it"), nil)
	eventually(t, "replies are held", func() bool { return !h.Passes() })
	if err := h.Err(); err == nil || err.Error() != "another podnas has it" {
		t.Errorf("it says %v", err)
	}
	f.set(nil, nil)
	mustDo(t, h.Wait(nil))
}
