package shareddisk

import (
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/internal/volume/xfs"
	"github.com/podnas/podnas/test/testdisk"
)

// While the file system becomes larger, which may take long, the beats go on: else a standby took the disk.
func TestBeatsWhileGrowing(t *testing.T) {
	root, err := os.Open(testdisk.OneXFS(t))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	has, err := xfs.Size(root)
	if err != nil {
		t.Fatal(err)
	}
	dev := fakeDisk(t, has/mib+100)
	dev.at = placeOf(has)
	d := &Disk{cfg: Config{Log: slog.New(slog.DiscardHandler)}, device: dev, root: root}
	d.c = newContender(dev, beat{Key: 7}, nil, nil)
	const freeze, thaw = 0xc0045877, 0xc0045878 // linux/fs.h: FIFREEZE, FITHAW
	if err := unix.IoctlSetPointerInt(int(root.Fd()), freeze, 0); err != nil {
		t.Fatal(err)
	}
	grown := make(chan error, 1)
	go func() { grown <- d.grow() }()
	beats := make(chan error, 1)
	var beating sync.WaitGroup
	defer beating.Wait()
	beating.Go(func() {
		for behind := 0; behind < 3; time.Sleep(time.Millisecond) {
			err := d.c.change(func(*beat) {
				if dev.at != placeOf(has) {
					behind++
				}
			})
			if err != nil {
				beats <- err
				return
			}
		}
		beats <- nil
	})
	select {
	case err := <-beats:
		if err != nil || len(grown) > 0 {
			t.Errorf("a beat: %v; grown: %v", err, len(grown) > 0)
		}
	case <-time.After(5 * time.Second):
		t.Error("no beats")
	}
	if err := unix.IoctlSetPointerInt(int(root.Fd()), thaw, 0); err != nil {
		t.Fatal(err)
	}
	if err := <-grown; err == nil || !strings.Contains(err.Error(), "make the XFS larger") {
		t.Errorf("it grows on a disk that is too small: %v", err)
	}
}
