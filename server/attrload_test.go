package server_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/nfs/nfs4"
	"github.com/podnas/podnas/test/testdisk"
)

// versions, and what is changed on the disk after a second.
func TestAttributesUnderLoad(t *testing.T) {
	s := serveTwice(t, true)
	const workers, files = 4, 6
	var all sync.WaitGroup
	isRead := func(name string) bool { return strings.HasSuffix(name, "-0") } // of the others the atime is compared, too
	stop := make(chan struct{})
	for w := range workers {
		for f := range files {
			must(t, os.WriteFile(filepath.Join(s.dir, fmt.Sprint("w", w, "-", f)), make([]byte, 100), 0o644))
		}
	}
	_, handles := (view3{s.v3}).list(t, s.root)
	for range 2 { // who looks
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := view3{s.v3}
				_, found := v.list(t, s.root)
				for name, fh := range found {
					v.getattr(t, fh)
					if isRead(name) {
						v.readAndAccess(t, fh)
					}
				}
			}
		})
	}
	var busy sync.WaitGroup
	var turns sync.Mutex // of the session
	for w := range workers {
		busy.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for range testdisk.Rounds(20, 100) {
				name := fmt.Sprint("w", w, "-", random.IntN(files))
				fh, path := handles[name], filepath.Join(s.dir, name)
				late := false
				switch random.IntN(7) {
				case 0:
					_, err := s.v3.Write(t.Context(), fh, uint64(random.IntN(1000)), nfs3.Unstable, []byte("data"))
					must(t, err)
				case 1:
					_, err := s.v3.Setattr(t.Context(), nfs3.SetattrArgs{Object: fh, Attr: nfs3.Sattr{Mode: nfs3.SetUint32{Set: true, Value: 0o600 | random.Uint32N(64)}}})
					must(t, err)
				case 2:
					_, err := s.v3.Setattr(t.Context(), nfs3.SetattrArgs{Object: fh, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: uint64(random.IntN(1000))}}})
					must(t, err)
				case 3:
					turns.Lock()
					s.v4.do(t, on4(fh), nfs4.Operation{Num: nfs4.OpWrite, Args: &nfs4.WriteArgs{Offset: uint64(random.IntN(1000)), Data: []byte("4.1")}, Res: &nfs4.WriteRes{}})
					turns.Unlock()
				case 4:
					_, err := s.v3.Link(t.Context(), fh, s.root, name+"-link")
					must(t, err)
					_, err = s.v3.Remove(t.Context(), s.root, name+"-link")
					must(t, err)
				case 5:
					_, err := s.v3.Rename(t.Context(), s.root, name, s.root, name+"-")
					must(t, err)
					_, err = s.v3.Rename(t.Context(), s.root, name+"-", s.root, name)
					must(t, err)
				case 6:
					must(t, os.Chmod(path, os.FileMode(0o600|random.Uint32N(64))))
					late = true
				}
				if late {
					time.Sleep(time.Second)
				}
				want, _ := onDisk(t, path)
				got, _ := (view3{s.v3}).getattr(t, fh)
				listed, _ := (view3{s.v3}).list(t, s.root)
				turns.Lock()
				got4, _ := s.v4.getattr(t, fh)
				turns.Unlock()
				all := map[string]looks{"GETATTR": got, "READDIRPLUS": listed[name], "GETATTR, 4.1": got4}
				if isRead(name) {
					all["READ"], all["ACCESS"] = (view3{s.v3}).readAndAccess(t, fh)
				}
				for how, got := range all {
					got.used = want.used
					if isRead(name) { // by who looks, at any time
						got.atime = want.atime
					}
					if got != want {
						t.Errorf("%s: %s says\n%+v, but it is\n%+v", name, how, got, want)
					}
				}
				time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
			}
		})
	}
	busy.Wait()
	close(stop)
	all.Wait()
	if s.remembered(t) == 0 {
		t.Error("no attributes were remembered")
	}
}

// readAndAccess returns what the replies of READ and ACCESS say of a file.
func (v view3) readAndAccess(t *testing.T, fh []byte) (read, access looks) {
	t.Helper()
	accessed, err := v.Access(t.Context(), fh, nfs3.AccessRead)
	must(t, err)
	res, err := v.Read(t.Context(), fh, 0, 100)
	must(t, err)
	if res.Status != nfs3.OK || accessed.Status != nfs3.OK || !res.Attr.Present || !accessed.Attr.Present {
		t.Fatalf("READ: %v, ACCESS: %v", res.Status, accessed.Status)
	}
	return looksOf3(&res.Attr.Attr), looksOf3(&accessed.Attr.Attr)
}
