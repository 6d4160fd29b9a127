package gonfs_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/podnas/podnas/nfs/nfs3"
	"github.com/podnas/podnas/quota"
	"github.com/podnas/podnas/server/exports"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/locate"
	"github.com/podnas/podnas/server/space"
	"github.com/podnas/podnas/test/conformance/nfstest"
	"github.com/podnas/podnas/test/leaks"
	"github.com/podnas/podnas/test/testdisk"
)

func TestMain(m *testing.M) {
	gonfs.JoinLog(slog.New(slog.DiscardHandler))
	leaks.Main(m)
}

// instance is an engine that can be stopped and started again on its port.
type instance struct {
	table *exports.Table
	key   []byte
	addr  string
	stop  func()

	engine *gonfs.Engine // that was started last
}

func (i *instance) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", i.addr)
	if err != nil {
		t.Fatal(err)
	}
	i.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	engine := gonfs.New(i.table, locate.NewKey(i.key), nil, nil, slog.New(slog.DiscardHandler))
	i.engine = engine
	go func() {
		served <- engine.Serve(ctx, l)
		close(served) // who stops once more does not wait
	}()
	i.stop = func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

// emptied has a table's volumes removed at the end of the test.
func emptied(t testing.TB, table *exports.Table) *exports.Table {
	t.Cleanup(func() {
		for _, v := range table.Volumes() {
			table.Remove(v.ID)
		}
	})
	return table
}

func newInstance(t *testing.T) (*instance, string) {
	t.Helper()
	dir := filepath.Join(testdisk.Memory(t), "volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	i := &instance{table: emptied(t, &exports.Table{ByIndex: testdisk.ByIndex()}), key: make([]byte, 32), addr: nfstest.OwnAddress()}
	_, _ = rand.Read(i.key)
	if err := i.table.Export(exports.Exported{ID: 1, Path: "/volume", Dir: dir, Account: space.NewAccount(quota.Limit{Bytes: 1 << 50})}); err != nil {
		t.Fatal(err)
	}
	i.start(t)
	t.Cleanup(func() { i.stop() })
	return i, dir
}

// lacks is what the library keeps the engine from, read from its source.
var lacks = map[nfstest.Feature]string{
	nfstest.FeatureExclusiveCreate: "go-nfs answers NOTSUPP to CREATE EXCLUSIVE",
	nfstest.FeatureLink:            "go-nfs misreads the arguments of LINK, so it is not let through",
	nfstest.FeatureMknod:           "go-nfs makes the handle of a MKNOD before the file, so it is not let through",
	nfstest.FeatureIdentity:        "go-nfs shows the caller's credentials to no handler but MNT",
	nfstest.FeatureAccessTruth:     "go-nfs answers ACCESS with what was asked",
	nfstest.FeatureGuard:           "go-nfs compares the guard of SETATTR with the mtime, which it takes for the ctime",
	nfstest.FeatureModeBits:        "go-nfs sets the permission bits alone",
	nfstest.FeatureTimes:           "go-nfs sends the mtime for all three times",
	nfstest.FeatureSpaceUsed:       "go-nfs sends the size for the space used",
	nfstest.FeatureWcc:             "go-nfs leaves out what it does not have at hand",
	nfstest.FeatureOwnChanges:      "go-nfs leaves out what it does not have at hand",
	nfstest.FeatureErrorCodes:      "go-nfs makes one status of many errors",
	nfstest.FeatureRemoveByType:    "go-nfs answers REMOVE and RMDIR with one handler",
	nfstest.FeatureACLs:            "go-nfs has no NFSACL",
	nfstest.FeatureMountLists:      "go-nfs has no EXPORT, DUMP and UMNTALL",
	nfstest.FeatureCookies:         "go-nfs gives \".\" and \"..\" the cookies 0 and 1, and begins after neither",
	nfstest.FeatureExactResults:    "go-nfs sends FSSTAT's invarsec as 8 bytes, and no attributes with FSSTAT's errors",
	nfstest.FeatureReplyCache:      "go-nfs remembers no replies",
}

// As an ordinary user podnas can't give files away.
func lacksHere() map[nfstest.Feature]string {
	here := maps.Clone(lacks)
	if os.Geteuid() != 0 {
		here[nfstest.FeatureChown] = "the test does not run as root"
	}
	return here
}

// TestConformance puts the engine to the suite that every NFSv3 server answers.
func TestConformance(t *testing.T) {
	i, dir := newInstance(t)
	nfstest.Run(t, nfstest.Target{
		Addr:   i.addr,
		Export: "/volume",
		Dir:    dir,
		Lacks:  lacksHere(),
		Restart: func(t *testing.T) {
			i.stop()
			i.start(t)
		},
	})
}

// A volume in which calls have failed can still be ended: the library does not
// close a file that it could not write to.
func TestFailedCallsEndToo(t *testing.T) {
	i, _ := newInstance(t)
	c, err := nfstest.Dial(t.Context(), i.addr, i.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	root, err := c.Mount(t.Context(), "/volume")
	if err != nil {
		t.Fatal(err)
	}
	made, err := c.Create(t.Context(), nfs3.CreateArgs{Where: nfs3.DirOpArgs{Dir: root.Handle, Name: []byte("file")}})
	if err != nil || made.Status != nfs3.OK {
		t.Fatal(made.Status, err)
	}
	// Past where any file ends: the seek, the write or the truncate fails.
	for _, offset := range []uint64{1<<63 + 1, 1<<63 - 1} {
		res, err := c.Write(t.Context(), made.Object, offset, nfs3.FileSync, []byte("data"))
		if err == nil && res.Status == nfs3.OK {
			t.Errorf("WRITE at %d succeeded", offset)
		}
		set, err := c.Setattr(t.Context(), nfs3.SetattrArgs{Object: made.Object, Attr: nfs3.Sattr{Size: nfs3.SetUint64{Set: true, Value: offset}}})
		if err == nil && set.Status == nfs3.OK {
			t.Errorf("SETATTR of size %d succeeded", offset)
		}
	}
	ended := make(chan struct{})
	go func() {
		i.table.Remove(1)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the export does not end")
	}
}
