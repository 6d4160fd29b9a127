package gonfs_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/podnas/podnas/server/export"
	"github.com/podnas/podnas/server/gonfs"
	"github.com/podnas/podnas/server/nfstest"
)

func TestMain(m *testing.M) {
	gonfs.JoinLog(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

// instance is an engine that can be stopped and started again on its port.
type instance struct {
	table *export.Table
	key   []byte
	addr  string
	stop  func()
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
	engine := gonfs.New(i.table, export.NewKey(i.key), slog.New(slog.DiscardHandler))
	go func() { served <- engine.Serve(ctx, l) }()
	i.stop = func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	}
}

func newInstance(t *testing.T) (*instance, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "volume")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	i := &instance{table: &export.Table{}, key: make([]byte, 32), addr: "127.0.0.1:0"}
	_, _ = rand.Read(i.key)
	if err := i.table.Add(1, "/volume", dir, export.Options{}); err != nil {
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
	nfstest.FeatureErrorCodes:      "go-nfs makes one status of many errors",
	nfstest.FeatureRemoveByType:    "go-nfs answers REMOVE and RMDIR with one handler",
	nfstest.FeatureMountLists:      "go-nfs has no EXPORT, DUMP and UMNTALL",
	nfstest.FeatureCookies:         "go-nfs gives \".\" and \"..\" the cookies 0 and 1, and begins after neither",
	nfstest.FeatureExactResults:    "go-nfs sends FSSTAT's invarsec as 8 bytes, and no attributes with FSSTAT's errors",
	nfstest.FeatureReplyCache:      "go-nfs remembers no replies",
}

// TestConformance puts the engine to the suite that every NFSv3 server answers.
func TestConformance(t *testing.T) {
	i, dir := newInstance(t)
	nfstest.Run(t, nfstest.Target{
		Addr:   i.addr,
		Export: "/volume",
		Dir:    dir,
		Lacks:  lacks,
		Restart: func(t *testing.T) {
			i.stop()
			i.start(t)
		},
	})
}
