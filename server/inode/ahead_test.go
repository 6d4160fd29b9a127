package inode_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/testdisk"
)

// What XFS has allocated ahead and takes back later does not stay in the count: neither
// of files that were there at the start nor of files that are written now and then.
func TestTakenBack(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		needNative(t)
		dir := filepath.Join(disk, "volume")
		mustDo(t, os.Mkdir(dir, 0o777))
		for i := range 20 { // a file that is closed again and again keeps what it has
			for round := range int64(8) {
				f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint("old", i)), os.O_CREATE|os.O_RDWR, 0o666)
				mustDo(t, err)
				_, err = f.WriteAt(make([]byte, 20<<10), round*20<<10)
				mustDo(t, err)
				mustDo(t, f.Close())
			}
		}
		o, v, root := countedAt(t, dir, 1<<30)
		counted(t, v)
		logFile := create(t, o, root, "log")
		ahead := int64(0)
		for round := range int64(5) {
			for i := range int64(4) {
				if _, err := write(t, o, logFile, (4*round+i)*20<<10, 20<<10); err != nil {
					t.Fatal(err)
				}
				o.CloseCached()
			}
			now := time.Now()
			v.SettleDue(now.Add(space.LookAfter + time.Second))
			before, _ := du(t, dir)
			testdisk.TakeBack(t, disk)
			after, _ := du(t, dir)
			ahead += before - after
			v.SettleDue(now.Add(space.LookAfter + lookLate + 2*time.Second))
			v.SettleDue(now.Add(space.LookAfter + 2*lookLate + 3*time.Second)) // those that had nothing ahead to lose
			if used := v.Account.Usage().Bytes; used != after {
				t.Errorf("round %d: %d bytes are counted, du finds %d", round, used, after)
			}
		}
		if ahead < 20*32<<10 {
			t.Errorf("XFS has taken back %d bytes: that shows nothing", ahead)
		}
		if n := v.Account.Held().Charges; n != 0 {
			t.Errorf("%d charges are kept", n)
		}
	})
}

// What the kernel has not yet written when a volume is counted, as after a kill, takes more when it has:
// of a file in many pieces XFS then writes where they are.
func TestCountedBeforeWritten(t *testing.T) {
	testdisk.XFS(t, func(t *testing.T, disk string) {
		needNative(t)
		dir := filepath.Join(disk, "volume")
		mustDo(t, os.Mkdir(dir, 0o777))
		for i := range 20 {
			f, err := os.Create(filepath.Join(dir, fmt.Sprint("f", i)))
			mustDo(t, err)
			for piece := range int64(50) {
				_, err := f.WriteAt(make([]byte, 4<<10), piece*8<<10)
				mustDo(t, err)
			}
			mustDo(t, f.Close())
		}
		_, v, _ := countedAt(t, dir, 1<<30)
		counted(t, v)
		before := v.Account.Usage().Bytes
		unix.Sync()
		has, _ := du(t, dir)
		if has <= before {
			t.Fatalf("%d bytes were counted, and %d are there: that shows nothing", before, has)
		}
		v.SettleDue(time.Now().Add(space.LookAfter + time.Second))
		if used := v.Account.Usage().Bytes; used != has {
			t.Errorf("%d bytes are counted, du finds %d", used, has)
		}
	})
}
