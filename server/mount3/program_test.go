package mount3_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"testing"

	wire "github.com/podnas/podnas/nfs/mount3"
	"github.com/podnas/podnas/nfs/rpc"
	"github.com/podnas/podnas/nfs/xdr"
	"github.com/podnas/podnas/server/mount3"
	"github.com/podnas/podnas/server/oncrpc"
)

// exports has one volume, /volume.
type exports struct{}

func (exports) Root(path string, _ netip.AddrPort) ([]byte, wire.Status) {
	if path != "/volume" {
		return nil, wire.ErrNoEnt
	}
	return []byte("root"), wire.OK
}

func (exports) List() []string { return []string{"/volume"} }

// Who is refused again and again fills no log, and hides no mount.
func TestLog(t *testing.T) {
	var log bytes.Buffer
	mnt := mount3.NewProgram(exports{}, slog.New(slog.NewTextHandler(&log, nil))).Procedures[wire.ProcMnt].Handle
	call := func(path string) {
		t.Helper()
		args := wire.PathArgs{Path: []byte(path)}
		c := &oncrpc.Call{Client: netip.MustParseAddrPort("10.0.0.1:700"), Args: xdr.NewDecoder(args.Append(nil))}
		if stat := mnt(c); stat != rpc.Success {
			t.Fatal(stat)
		}
	}
	const calls = 50_000
	for range calls {
		call("/other")
	}
	call("/volume")
	if n := bytes.Count(log.Bytes(), []byte("mount: refused")); n == 0 || n > calls/10 {
		t.Errorf("%d of %d refused calls are logged", n, calls)
	}
	if !bytes.Contains(log.Bytes(), []byte("mount: mounted")) {
		t.Error("the one that was not refused is not logged")
	}
}
