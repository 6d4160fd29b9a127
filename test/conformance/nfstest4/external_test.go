package nfstest4_test

import (
	"flag"
	"os/exec"
	"testing"

	"github.com/podnas/podnas/test/conformance/nfstest4"
)

var (
	addr      = flag.String("nfs", "", "run the suite against the NFSv4 server at this host:port")
	mountAddr = flag.String("mount", "", "host:port of its MOUNT of version 3; without it nothing is compared with version 3")
	export    = flag.String("export", "/", "path of its export, which must be writable for root")
	hidden    = flag.String("hidden", "", "path of an export that this machine may not mount")
	minor     = flag.Uint("minor", 1, "minor version of its clients; what is new in a minor version is tested with that one")
	restart   = flag.String("restart", "", "shell command that restarts it; without it no restart is tested")
)

// TestExternal runs the suite against a server that runs already:
//
//	go test ./test/conformance/nfstest4 -nfs 127.0.0.1:2049 -export /srv
func TestExternal(t *testing.T) {
	if *addr == "" {
		t.Skip("named skip: external: no server is given by -nfs")
	}
	target := nfstest4.Target{Addr: *addr, MountAddr: *mountAddr, Export: *export, Hidden: *hidden, Minor: uint32(*minor)}
	if *restart != "" {
		target.Restart = func(t *testing.T) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", *restart).CombinedOutput(); err != nil {
				t.Fatalf("restart: %v\n%s", err, out)
			}
		}
	}
	nfstest4.Run(t, target)
}
