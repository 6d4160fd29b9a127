package nfstest_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/podnas/podnas/test/conformance/nfstest"
)

var (
	addr      = flag.String("nfs", "", "run the suite against the NFSv3 server at this host:port")
	mountAddr = flag.String("mount", "", "host:port of its MOUNT, if that is another")
	export    = flag.String("export", "/", "path of its export, which must be writable for root")
	dir       = flag.String("dir", "", "the exported directory, if it is on this machine")
	lacks     = flag.String("lacks", "", "comma-separated features the server lacks")
)

// TestExternal runs the suite against a server that runs already:
//
//	go test ./test/conformance/nfstest -nfs 127.0.0.1:2049 -export /srv
func TestExternal(t *testing.T) {
	if *addr == "" {
		t.Skip("named skip: external: no server is given by -nfs")
	}
	target := nfstest.Target{Addr: *addr, MountAddr: *mountAddr, Export: *export, Dir: *dir, Lacks: make(map[nfstest.Feature]string)}
	for f := range strings.SplitSeq(*lacks, ",") {
		if f = strings.TrimSpace(f); f != "" {
			target.Lacks[nfstest.Feature(f)] = "by -lacks"
		}
	}
	nfstest.Run(t, target)
}
